/* A list of operations as links: runs of one to twelve operations that a fused kernel does together, chosen by a table of patterns, the
 * longest match first. An operation that no pattern takes is a link of its own and runs on the plain kernels. What a link hands to the
 * next is a property of the edge between them, asked of giver and taker: float32 rows where either cannot do better. Decode and prompt
 * rows share the matcher and the edges. Plain C, needs no device. See docs/cuda-links.md. */
#pragma once
#include "cuda/plan/cuda_plan.h"
#include "cuda/plan/cuda_routes.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The edge from the link in front. */
struct link_edge {
    /* of the handed-over vector; FORM_ROWS: the taker makes what its kernel reads out of float32 rows */
    enum link_form form;
    bool packets; /* decode of one row: it may come in pieces, while the giver still runs (handoff.cuh) */
};

struct cuda_link {
    enum link_kind kind;
    int first, n_op; /* operations of the list */
    /* of these, the RMS norm in front of a matmul (or of the link in front, for both) and the matmul; -1: none */
    int norm, matmul;
    int before; /* what else is done to the rows in front of a matmul: a norm with a mean, an activation; -1: none */
    enum link_form wants; /* what the matmul's kernel reads, */
    enum act_slot slot;   /* and where */
    struct link_edge in;  /* from the link in front */
    enum link_form gives; /* to the link behind: its edge's form */
};

/* What decides. */
struct link_case {
    const struct op_list *list;
    const struct cuda_plan *plan;
    const struct kv_store *store;
    const struct route_case *route;
    bool int8; /* decode: codes times codes, for engines of one row */
    /* Whether there is a kernel for the link's sizes that reads and gives these forms; NULL: there is. */
    bool (*has)(void *user, const struct cuda_link *k, enum link_form in, enum link_form out);
    void *user;
};

/* Covers the list: links in their order, each operation in one. link[list->n_op]; returns how many there are. 0: none can be with
 * int8, as a gate's result is wanted as rows. */
int links_make(const struct link_case *c, struct cuda_link *link);
/* Kernels of a decode step of a configuration's list on a chip: those of its links, and one in front of each matmul whose giver leaves
 * rows; an operation each where no matmul is fused. errors: INFER_E_MEMORY, INFER_E_UNSUPPORTED */
enum infer_status links_kernels(int *out, const struct backend_config *config, int sm);
/* The view that a link with a matmul begins with, and the one that a link leaves. buf -1: none. */
struct view link_reads(const struct op_list *l, const struct cuda_link *k);
struct view link_writes(const struct op_list *l, const struct cuda_link *k);
/* What a link is called: the name of its matmul, or of its last operation. */
const char *link_name(const struct op_list *l, const struct cuda_link *k);

/* The operations of a LINK_ATTEND. */
struct attend_ops {
    const struct op_norm *v_norm;          /* without weights; what it reads is v; NULL: none */
    const struct op_norm *q_norm, *k_norm; /* NULL: none */
    bool late;                             /* these stand behind the rotation */
    const struct op_rope *q_rope, *k_rope; /* NULL: none */
    const struct op_kv_put *put;
    const struct op_attend *attend;
};
/* v as the projection leaves it. */
static inline struct view attend_value(const struct attend_ops *o) {
    return o->v_norm ? o->v_norm->x : o->put->v;
}
struct attend_ops link_attend_ops(const struct op_list *l, const struct cuda_link *k);

/* The operations of a LINK_POST behind its matmul: x = scale * (x + norm(factor * y)). */
struct post_ops {
    const struct op_norm *norm; /* NULL: none */
    const struct op_add *add;
    float factor, scale; /* 1: none */
};
struct post_ops link_post_ops(const struct op_list *l, const struct cuda_plan *plan,
                              const struct cuda_link *k);

/* The operations of a LINK_DELTA. */
struct delta_ops {
    const struct op_conv *conv;
    const struct op_delta *delta;
    const struct op_norm *norm;
    const struct op_glu *glu;
};
/* The operations of a LINK_MLA. */
struct mla_ops {
    const struct op_norm *norm; /* of the latent */
    const struct op_rope *k_rope, *q_rope;
    const struct op_kv_put *put;
    const struct op_heads *keys, *values; /* each head's matrices: of queries, and of sums */
    const struct op_attend *attend;
};
struct mla_ops link_mla_ops(const struct op_list *l, const struct cuda_link *k);

/* The operations of a LINK_MIX. */
struct mix_ops {
    const struct op_matmul *gate; /* NULL: none */
    const struct op_mix *mix;
    const struct op_add *add;
};
struct mix_ops link_mix_ops(const struct op_list *l, const struct cuda_link *k);

struct delta_ops link_delta_ops(const struct op_list *l, const struct cuda_link *k);

/* The operations of a LINK_EXPERTS. */
struct experts_ops {
    const struct op_norm *norm; /* NULL: none */
    const struct op_matmul *router;
    const struct op_route *route;
    const struct op_experts *gated, *down;
    const struct op_glu *glu;
    /* the shared expert's, what weighs it; NULL: none */
    const struct op_matmul *shared, *shared_down, *weigh;
    const struct op_glu *shared_glu;
    const struct op_mix *mix; /* NULL: none */
    const struct op_add *add; /* NULL: none */
};
struct experts_ops link_experts_ops(const struct op_list *l, const struct cuda_link *k);

#ifdef __cplusplus
}
#endif
