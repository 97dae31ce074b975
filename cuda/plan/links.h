/* A list of operations as links: runs of one to twelve operations that a fused kernel does together, chosen by a table of patterns, the
 * longest match first. An operation that no pattern takes is a link of its own and runs on the plain kernels. What a link hands to the
 * next is a property of the edge between them, asked of giver and taker: float32 rows where either cannot do better. Decode and prompt
 * rows share the matcher and the edges. Plain C, needs no device. See docs/cuda-links.md. */
#pragma once
#include "cuda/plan/cuda_plan.h"
#include "cuda/plan/cuda_routes.h"

#ifdef __cplusplus
#define LINK_C extern "C"
extern "C" {
#else
#define LINK_C
#endif

/* The edge from the link in front. */
struct link_edge {
    /* of the handed-over vector; FORM_ROWS: the taker makes what its kernel reads out of float32 rows */
    enum link_form form;
    bool packets; /* decode of one row: it may come in pieces, while the giver still runs (handoff.cuh) */
};

/* What becomes of the product of a link's first matmul. */
enum link_product {
    PRODUCT_NONE, /* it has no matmul whose kernel streams the matrix and takes what stands in front */
    PRODUCT_ROWS,
    PRODUCT_GATED,
    PRODUCT_ACTED, /* an activation of it */
    PRODUCT_ADDED, /* to the residual stream */
    PRODUCT_LATER, /* the same by another kernel of the link */
    PRODUCT_CHOSEN /* candidates for a token */
};

struct cuda_link {
    enum link_kind kind;
    enum link_product product;
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

#ifdef __cplusplus
}
#endif
