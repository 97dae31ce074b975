// Products of FP8 weights (LAYOUT_F8) with activations in FP8 on sm_90: out[t][n] = x_scale[t] sum over blocks b of 128 columns of
// w_scale[n][b] sum_k w[n][k] x[t][k], both factors e4m3. The products of a block are summed by the tensor core, which keeps
// some 14 bits, blocks in float32, in the order of k. source: DeepSeek-V3 Technical Report, 3.3.2 (sums of blocks outside of the tensor core).
#pragma once
#include "cuda/prompt/prompt_kernels.h"

enum { FP8_COLS = 128 }; // of a block
// Blocks of so many tiles of 64 columns.
static __host__ __device__ inline int fp8_blocks(int k_tiles) { return (k_tiles + 1) / 2; }

// Activation tiles j.x (halves, ORDER_CODES) of n rows to j.mx[block][mx_rows][128] and j.mx_scale[mx_rows], a float for each row: its
// largest magnitude / 448. A row's 16-byte chunk c lies at c ^ (row & 7). mx_rows: a multiple of 256.
cudaError_t fp8_quantise(const prompt_job &j, int n, cudaStream_t s);
// The same of plain rows of halves, each row_bytes behind the one before.
cudaError_t fp8_quantise_rows(const prompt_job &j, const uint8_t *halves, size_t row_bytes, int n,
                              cudaStream_t s);
// The same of an RMS norm of rows (w NULL: of the rows as they are) in place of tiles.
cudaError_t fp8_norm(rows x, const float *w, float eps, const prompt_job &j, int n, cudaStream_t s);
cudaError_t fp8_launch(const prompt_job &j, enum prompt_epilogue e, int n, int sm_count, cudaStream_t s);
