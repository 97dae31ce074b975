/* One row of the table of kernels of matrices (cuda_routes.h), which the kernels' own files read. */
#pragma once
#include "seam/backend.h"
#include "cuda/plan/unit_layout.h"

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

/* One kernel of matrices. tokens: rows of a tile of its work; 0: any number. sm: the chips that have it, major * 10 + minor. */
struct route {
    enum row_class cls;
    enum route_group group;
    unsigned layouts; /* bit (1 << enum layout) */
    int sm_least, sm_most;
    int tokens;
    const char *kernel;
};
