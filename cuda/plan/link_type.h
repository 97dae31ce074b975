/* A kind of link, as the matcher (links.c) knows it: a file of cuda/links/ each, a row of links.def. */
#pragma once
#include "cuda/plan/links.h"
#include "seam/op_list.h"

enum { LINK_OPS = 12, LINK_DECODE = 1 << ROW_DECODE, LINK_PROMPT = 1 << ROW_PROMPT };
/* Operations behind each other. An optional one belongs to a group of 1, 2, ..: all of a group are there, or none. */
struct link_pattern {
    int n;
    short op[LINK_OPS];
};
#define OPT(group, kind) ((kind) | (group) << 8)
#define PATTERN(...)                                                                                         \
    {                                                                                                        \
        (int)(sizeof(short[]){__VA_ARGS__} / sizeof(short)), { __VA_ARGS__ }                                 \
    }

#define LINK_ROUTES(...)                                                                                     \
    (const struct link_route[]) {                                                                            \
        __VA_ARGS__, { .kernel = NULL }                                                                      \
    }

struct link_type {
    int classes; /* LINK_DECODE, LINK_PROMPT */
    struct link_pattern pattern[3];
    enum link_product product;
    bool stream;     /* what it leaves is the residual stream, which is there as rows, too */
    bool packets;    /* it may leave one row in packets */
    bool reads_rows; /* it reads the input of its matmul, or of the norm in front, as rows, too */
    bool by_experts; /* has the name of its first OP_EXPERTS */
    bool by_product; /* has that of its first OP_MATMUL, though it is none of .product */
    bool last;       /* where no other kind fits, even a shorter one */
    /* What the kinds of the operations do not answer. */
    bool (*fits)(const struct link_case *c, struct cuda_link *k);
    /* Forms, a bit each, in which it may leave its result for a matmul with a norm in front (whose weights go with it)
     * or without; NULL: rows alone. */
    unsigned (*gives)(const struct link_case *c, const struct cuda_link *k, bool normed);
    /* Whether one decode row may come in packets from the link in front; NULL: it may not. */
    bool (*takes)(const struct link_case *c, const struct cuda_link *front, const struct cuda_link *k);
    /* Kernels of a decode step; NULL: one. What turns rows into the form that a matmul reads is counted apart. */
    int (*kernels)(const struct link_case *c, const struct cuda_link *k);
    /* Bytes of workspace that its kernels of prompt rows leave each other things in, of this operation of a list; links share
     * them. NULL: none. */
    size_t (*room)(const struct op_list *l, const struct op *o, int n_slot);
    /* Its kernels by chip, beside those of matrices (cuda_routes); NULL: none. */
    const struct link_route *routes;
};
#define LINK(id, name, file) extern const struct link_type link_##name;
#include "cuda/plan/links.def"
/* The types in the order of enum link_kind, which decides between links of one length. */
extern const struct link_type *const link_types[LINK_KIND_COUNT];

enum {
    LINK_HALVES = 1 << FORM_HALVES | 1 << FORM_CODES | 1 << FORM_BF16,                 /* of decode rows */
    LINK_TILES = 1 << FORM_HALVES | 1 << FORM_CODES | 1 << FORM_TF32 | 1 << FORM_PANEL /* of prompt rows */
};
/* `gives` of writers of the residual stream, and of what has no other reader. */
unsigned link_gives_stream(const struct link_case *c, const struct cuda_link *k, bool normed);
unsigned link_gives_result(const struct link_case *c, const struct cuda_link *k, bool normed);

static inline int link_last(const struct cuda_link *k) { return k->first + k->n_op - 1; }
/* Whether there is a kernel for its sizes. */
static inline bool link_has(const struct link_case *c, const struct cuda_link *k, enum link_form in,
                            enum link_form out) {
    return !c->has || c->has(c->user, k, in, out);
}
/* Whether a view ends with the link, so that it need not be written. */
static inline bool link_ends(const struct link_case *c, const struct cuda_link *k, struct view v) {
    return c->list->buf[v.buf].first >= k->first && c->list->buf[v.buf].last <= link_last(k);
}
static inline const struct cuda_group *link_group(const struct link_case *c, int op) {
    return &c->plan->group[c->list->op[op].matmul.w->id];
}
/* `takes` of matmuls that add to the residual stream. */
bool link_added_takes(const struct link_case *c, const struct cuda_link *front, const struct cuda_link *k);
/* Whether a streaming kernel takes the matmul, with what stands in front of it or without (link_matmul.c). */
bool link_matmul_fits(const struct link_case *c, struct cuda_link *k);
bool link_front_fits(const struct link_case *c, struct cuda_link *k);
