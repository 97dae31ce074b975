/* Which kernels a matrix may take: the one table of them, in plain C. Read by the CUDA backend when it compiles a list, by
 * the tuner, by `infer doctor --routes` and by the tests.
 *
 * Entries of a group give the same bits: a row's sums have one order, whatever the tile. So the choice inside a group is
 * free, for the default rule and for the tuner; groups differ, and which group runs follows from the chip, the options
 * and the layout alone, never from the number of rows. */
#pragma once
#include "seam/backend.h"
#include "cuda/plan/unit_layout.h"

#ifdef __cplusplus
extern "C" {
#endif

enum route_group {
    GROUP_WGMMA,  /* prompt rows: warpgroup products, sm_90 */
    GROUP_MMA,    /* prompt rows: mma.sync, every chip */
    GROUP_MX,     /* prompt rows: block-scaled formats, sm_120, --matmul-precision mxfp8|mxfp4|nvfp4 */
    GROUP_BLAS,   /* prompt rows: cuBLASLt, --blas on; outside of the promise about bits */
    GROUP_STREAM, /* decode rows: weights as one stream; by the number of warps that share a row */
    GROUP_STREAM_NARROW,
    GROUP_PLAIN, /* any rows: one operation a kernel */
    GROUP_COUNT
};

/* One kernel. tokens: rows of a tile of its work; 0: any number. sm: the chips that have it, major * 10 + minor. */
struct route {
    enum row_class cls;
    enum route_group group;
    unsigned layouts; /* bit (1 << enum layout) */
    int sm_least, sm_most;
    int tokens;
    const char *kernel;
};
enum { ROUTE_MAX = 32 };
extern const struct route cuda_routes[];
extern const int n_cuda_route;

/* What decides between groups. */
struct route_case {
    int sm;              /* of the card, or the one that is emulated */
    bool only_mma;       /* --kernels mma */
    bool blas;           /* --blas on */
    bool strict_fp32;    /* --matmul-precision highest */
    bool block_scaled;   /* --matmul-precision mxfp8, mxfp4, nvfp4 */
    size_t shared_bytes; /* of a block */
};

/* The group that prompt rows of a layout take; GROUP_PLAIN where no fused one has it. */
enum route_group route_prompt_group(const struct route_case *c, enum layout l);
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
/* Name of a layout. */
const char *route_layout_name(enum layout l);

#ifdef __cplusplus
}
#endif
