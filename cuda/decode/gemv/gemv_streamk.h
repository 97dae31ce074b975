// The streaming matmul of one row of codes (gemv.h) as stream-K, for matrices whose steps do not come out even: every block has the same number of
// units, and a step of which several blocks have some is added by the one that has its first.
#pragma once
#include "cuda/decode/gemv/post_norm.h"

enum { EPI_POST = EPI_GLU + 1 }; // the norm of the whole row, what stands behind it, and the residual stream

struct streamk_job {
    gemv_args j; // POST: res, next_norm, square_out and xo are those of the stream behind the norm
    // Units of a region in order of steps: block b of it has share + (b < more) of them, from b * share + min(b, more) on.
    int share[2], more[2];
    uint2 *sums;    // [block][rows of a step]: of a step that another block finishes, with a tag
    uint2 *squares; // POST: sums of the product's squares of 16 columns, with a tag
    uint32_t tag;   // of this link
    struct {
        const float *norm; // NULL: weights of 1
        float eps, inv_width, factor, scale;
        int n_square; // 0: no norm
        bool hands_on;
    } post;
};
struct streamk_kernel {
    enum layout l, l2; // l2: LAYOUT_COUNT: one region
    int ga, r, epilogue, warps, ring;
    void (*run[2])(const streamk_job); // [1]: with packets
};
// NULL: there is none.
const struct streamk_kernel *streamk_find(enum layout l, enum layout l2, int ga, int epilogue);
// Divides the job's regions between the blocks; false: a block would have more steps than warps that finish them.
bool streamk_plan(streamk_job *e, const struct streamk_kernel *k, int blocks);
size_t streamk_smem(const struct streamk_kernel *k, size_t x_bytes);
cudaError_t streamk_prepare(void);
