// MoE of prompt rows as a grouped GEMM: the pairs (row, choice) in the order of their experts, products of pairs, their weighted sum.
#pragma once
#include "cuda/common/dev.h"
#include "cuda/prompt/prompt_kernels.h"

// Positions of pairs: each expert's begin at a multiple of PAIR_BLOCK, what is left of the last block is nobody's. Activation tiles of
// positions are blocks of PAIR_BLOCK rows x 64 columns, [position / PAIR_BLOCK][k tile], the rows as in prompt_tiles.cuh.
enum { PAIR_BLOCK = CUDA_PAIR_TILE, PAIR_BLOCK_BYTES = PAIR_BLOCK * 128, PAIR_TILE = 256 };
struct pair_order {
    const int *n_row;
    rows choice; // [row][n_used] ids as float32, then weights
    int n_expert, n_used;
    int first, n_all; // as of struct op_experts: pairs of other ranks' experts have no place
    int *pair;        // pair[position] = row * n_used + choice; where nobody is, undefined
    int *next;        // next[n_expert]: the first position that is free
    int4 *tile;       // tile[0].x: how many follow, the larger ones first; then expert, first position, pairs
};
// tile, and next as if no pair had a place. One block.
cudaError_t moe_grouped_order_launch(const pair_order &o, cudaStream_t s);
// Gives the pairs of n rows their places, in any order inside an expert, and the rows as halves to their tiles, zeros behind their width.
// order: enum prompt_order.
cudaError_t moe_grouped_gather_launch(const pair_order &o, rows x, uint8_t *tiles, int k_tiles, int order,
                                      int n, cudaStream_t s);

// What n rows of a stack's matrices make of positions; of gate and up in turns (8 rows each) where glu is not NULL, or of one matrix and
// its activation there (single).
struct pair_gemm {
    const uint8_t *w;     // region
    int u, slabs, n;      // units of a row tile; row tiles of a matrix; rows that count (of gate)
    float factor;         // of the sums, before the bias
    const float *bias[2]; // [n_expert][n], of gate and up; NULL: none
    const uint8_t *x;     // tiles of positions
    int k_tiles;
    pair_order o;
    uint8_t *glu; // tiles of positions
    bool single;
    int glu_k_tiles, glu_order, act;
    float limit, alpha;
    rows out; // out[row][choice][n] where glu is NULL
};
cudaError_t moe_grouped_gemm_launch(const pair_gemm &j, enum layout l, int n, int sm_count, cudaStream_t s);
// The same of one layout (not F32), in a file of its own. tiles: at most
#define MOE_GROUPED_GEMM(id)                                                                                 \
    cudaError_t moe_grouped_gemm_##id(const pair_gemm &j, int tiles, int sm_count, cudaStream_t s)
#define LAYOUT(id, name, bytes, kind) MOE_GROUPED_GEMM(id);
#include "cuda/plan/layouts.def"

// struct op_mix and the sum with another row; w, shared, gate as in mix_job.
struct pair_mix {
    const int *n_row;
    rows x, w, shared, gate, add, out;
    int n_used;
};
cudaError_t moe_grouped_mix_launch(const pair_mix &j, int n, cudaStream_t s);

// router_gemm.cu: logits of n rows; whether it takes the matrix and the rows.
bool router_gemm_has(const dev_matrix &w, rows x);
cudaError_t router_gemm_launch(dev_matrix w, rows x, rows out, const int *n_row, int n, cudaStream_t s);
