/* MXFP4 as folders of gpt-oss have it: two tensors, X_blocks U8 [..., row, block, 16] and X_scales U8 [..., row, block]. */
#pragma once
#include "quant/quant.h"

/* out[n_row][row_blocks]: MXFP4 blocks of the rows 0, step, 2 step, ... of blocks and scales. In gate_up_proj the rows of gate and up
 * alternate: step 2, and for up both pointers one row further; step 1: all rows. The rows of a stack of experts follow each other.
 * n_thread: at least 1. The bits of numbers and scales stay as they are. */
void hf_mxfp4_rows(struct block_MXFP4 *out, const uint8_t *blocks, const uint8_t *scales, size_t n_row,
                   size_t row_blocks, size_t step, int n_thread);
