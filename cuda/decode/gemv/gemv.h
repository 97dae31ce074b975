// Jobs of the streaming matmul and the table of its kernels.
#pragma once
#include "cuda/common/dev.h"

enum mm_epilogue { EPI_STORE, EPI_HEAD, EPI_ADD, EPI_GLU };
enum mm_give { GIVE_RECORD, GIVE_HALF, GIVE_CODES, GIVE_BF16 }; // of act_int8.cuh, and of act_tile.cuh

// Shape of a block for 2 to 8 rows: groups of warps, slots of a warp's ring, buffers of sums of a group; rows that the input has
// room for.
struct few_shape {
    int16_t groups, slots, buffers, rows;
};

// One launch: out[t] = W x[t], then the epilogue.
struct gemv_args {
    const uint8_t *w[2]; // units of region 0 and 1
    int steps[2], split; // steps of R row tiles; blocks 0 .. split do region 0
    int u, k;
    float up[2], down[2];  // codes come out times up * 2^-24 = 1 / down, powers of two, see unit_halves.cuh
    const uint8_t *x;      // plain rows, or tiles
    size_t x_row, x_unit;  // bytes from a row to the next, from 256 columns to the next
    size_t x_bytes;        // of shared memory for x
    const int32_t *rowmap; // row t of the input is rowmap[t]; NULL: t
    const float *square;
    int n_square; // sums of squares of a row; 0: no norm
    size_t square_row;
    float inv_k, eps;
    // Halves hold value * norm weight * scale[row]; scale = 2^floor(log2(1 / rms)) / 16, of the norm two hand-overs earlier,
    // so that no kernel waits for it. The reader divides by it and leaves scale_next for the writer after next.
    const float *scale;
    float *scale_next;
    const int32_t *n_row; // rows of the step
    // output
    enum mm_give give;
    int act, n_out, n_seg;
    struct {
        int region, row, n, col;
    } seg[3];
    const float *bias;
    float *y;
    size_t y_row; // floats
    float *res;
    size_t res_row;
    const float *next_norm;
    float *square_out;
    uint8_t *xo;
    size_t xo_row, xo_unit;
    int xo_pitch; // xo as tiles of act_tile.cuh with so many rows; 0: as rows
    float2 *cand;
    int n_cand;
    // one row: packets of handoff.cuh instead of xo and x
    uint8_t *give_handoff;
    const uint8_t *take_handoff;
    const int *seq;   // number of the step
    uint32_t tag;     // of this link
    int take_columns; // that come in packets; 0 beyond them
    bool first;       // of a step: later kernels start when all before it is done
    // at the end: an argument that moves costs one row 0.3%
    struct few_shape few;
};

// A kernel for one row and a region's layout, or for two regions.
struct mm_kernel {
    enum layout l, l2; // l2: LAYOUT_COUNT: one region
    int ga, r;         // columns of a group of the input's codes, 0: halves; row tiles a step
    enum mm_epilogue epilogue;
    int warps, ring;                 // bytes of the ring
    void (*run[2])(const gemv_args); // [1]: with packets
    void (*few[3])(const gemv_args); // codes: up to 2, 4 and 8 rows
};
enum { FEW_GROUPS = 2, FEW_SLOTS = 4, FEW_HEAD = 1536 }; // bytes of barriers and factors
// Row tiles that a group of warps does at once.
LAYOUT_FN int few_tiles(int r, enum mm_epilogue e) { return e == EPI_ADD ? 1 : r; }
// The nth kernel that fits, those for much shared memory first; NULL when there is none.
const struct mm_kernel *mm_find(enum layout l, enum layout l2, int ga, enum mm_epilogue e, int nth);
// Lets a kernel have all the shared memory that a block may have.
cudaError_t all_shared_memory(const void *kernel);
cudaError_t mm_prepare(void); // attributes of every kernel, once a device
// shared memory of a launch
size_t mm_smem(const struct mm_kernel *k, size_t x_bytes);
// Shape of a block for t rows of u units in so much shared memory; bytes that it takes, 0: none fits.
size_t few_plan(const struct mm_kernel *k, int t, int u, size_t most, struct few_shape *s);
