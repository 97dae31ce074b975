/* Which kernels a matrix may take: the one table of them, in plain C. Read by the CUDA backend when it compiles a list, by
 * the tuner, by `infer doctor --routes` and by the tests.
 *
 * Entries of a group give the same bits: a row's sums have one order, whatever the tile. So the choice inside a group is
 * free, for the default rule and for the tuner; groups differ, and which group runs follows from the chip, the options
 * and the layout alone, never from the number of rows. */
#pragma once
#include "cuda/plan/matmul_route.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a kernel does of a list: a run of operations (cuda/links/ has the patterns). */
enum link_kind {
#define LINK(id, name, file) LINK_##id,
#include "cuda/plan/links.def"
    LINK_KIND_COUNT
};

/* How a vector goes from a link to the next. */
enum link_form {
    FORM_ROWS,    /* float32 rows, which every link gives and takes */
    FORM_HALVES,  /* halves in the order of weights that are halves */
    FORM_CODES,   /* halves in the order of weights that are codes */
    FORM_BF16,    /* decode: two bfloat16 a value */
    FORM_INT8_32, /* decode of one row: int8 codes in groups of 32 columns */
    FORM_INT8_16, /* the same in groups of 16: what a gate gives */
    FORM_TF32,    /* prompt: tiles of float32 for weights of F32 */
    FORM_PANEL,   /* prompt: plain rows of halves for cuBLASLt */
    FORM_COUNT
};

enum { ROUTE_MAX = 32 };
extern const struct route cuda_routes[];
extern const int n_cuda_route;

/* A kernel of operations that are no product of a matrix: of a kind of link (LINK_PLAIN: of the operation alone). */
struct link_route {
    enum row_class cls;
    enum op_kind op;
    int most_head; /* largest size of a head; 0: any */
    int sm_least, sm_most;
    bool mma; /* a kernel that --kernels mma may take */
    const char *kernel;
};
/* Those of a kind (its link_type has them), the first that fits first; kernel NULL ends them. */
const struct link_route *link_routes(enum link_kind k);

/* What decides between groups. */
struct route_case {
    int sm;              /* of the card, or the one that is emulated */
    bool only_mma;       /* --kernels mma */
    bool blas;           /* --blas on */
    bool strict_fp32;    /* --matmul-precision highest */
    bool block_scaled;   /* --matmul-precision fp8, mxfp8, mxfp4, nvfp4 */
    size_t shared_bytes; /* of a block */
};

/* The group that prompt rows of a layout take; GROUP_PLAIN where no fused one has it. */
enum route_group route_prompt_group(const struct route_case *c, enum layout l);
/* The form in which a matrix of a layout reads its input in a link; int8: decode multiplies codes by codes.
 * FORM_ROWS: no fused kernel has it. */
enum link_form route_form(const struct route_case *c, enum row_class cls, bool int8, enum layout l);
/* That of the prompt kernels of a group. */
enum link_form route_prompt_form(enum route_group g, enum layout l);
/* The kernel of a kind of link for rows of a class and heads of a size; NULL: none on this chip, or with these options. */
const struct link_route *link_route(const struct route_case *c, enum link_kind k, enum row_class cls,
                                    int head);
/* Whether prompt kernels of a group leave an activation of a layout's sums as tiles (gemm_act.cu). */
static inline bool route_has_act(enum route_group g, enum layout l) {
    return g == GROUP_WGMMA && (l == LAYOUT_F16 || l == LAYOUT_BF16);
}
/* Entries of a group for a layout and chip: index[n] into cuda_routes, n returned. */
int route_entries(enum route_group g, enum layout l, int sm, int index[ROUTE_MAX]);
/* The entry that the default rule takes for n rows and n_slab slabs of 16 weight rows: least work of the busiest
 * processor. -1: the group has none. */
int route_default(enum route_group g, enum layout l, int sm, int sm_count, int n_slab, int n);

/* Rows n fall into buckets; the tuner measures one size of each. */
enum { ROUTE_BUCKETS = 7 };
int route_bucket(int n);
/* The largest n of a bucket (of the last: 2048). */
int route_bucket_rows(int bucket);

/* Name of a group. */
const char *route_group_name(enum route_group g);
/* Name of a kind of link. */
const char *route_link_name(enum link_kind k);
/* Name of a layout. */
const char *route_layout_name(enum layout l);

#ifdef __cplusplus
}
#endif
