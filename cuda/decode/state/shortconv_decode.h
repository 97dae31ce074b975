// A short convolution of decode rows between its two gates (LFM2), from what its projection left to the input of its output projection.
#pragma once
#include "cuda/common/dev.h"
#include "cuda/decode/gemv/gemv.h"

struct shortconv_decode_job {
    dev_tables t;
    const float *b, *x, *c; // [row][width]: convolved is b * x times before, left that times c times behind
    size_t b_row, x_row, c_row;
    float before, behind;
    const float *w, *bias; // [width][taps], [width] or NULL
    float *state;          // slot 0: [taps - 1][width], slots so many floats apart:
    size_t state_elem;
    int width, taps;
    bool silu;
    bool wait; // the step itself is still being written
    enum mm_give give;
    uint8_t *xo;
    size_t xo_row, xo_unit;
    int xo_pitch; // xo as tiles of act_tile.cuh with so many rows; 0: as rows
};
enum { SHORTCONV_TAPS = 4 }; // at most
cudaError_t shortconv_decode_launch(const shortconv_decode_job &j, int rows, bool overlap, cudaStream_t s);
