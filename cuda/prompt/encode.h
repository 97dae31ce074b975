// Attention without a store: all rows of a step see each other (struct op_attend with store -1), for heads up to 128. A kernel turns q
// and k by the rotations in front of it and lays q, k and v as halves in tiles (encode_plan.h); another multiplies.
#pragma once
#include "cuda/common/dev.h"
#include "cuda/plan/encode_plan.h"

struct encode_turn { // of columns at .. at + n_rot of each head
    int at, n_rot;
    bool neox;
    const float2 *table; // [row][n_rot / 2]
};
struct encode_pack_job {
    rows q, k, v;
    const int *n_row;
    int n_head, n_kv_head, dim, columns;
    float scale; // of q: scores are powers of two
    encode_turn turn[2];
    int n_turn;
    uint8_t *to_q, *to_k, *to_v;
    size_t tiles; // of a head
    bool wide;    // rows are read 16 bytes at a time; set by the launch
};
struct encode_job {
    const uint8_t *q, *k, *v;
    const int *n_row;
    size_t tiles;
    int n_head, n_kv_head, dim;
    uint8_t *out; // activation tiles, column h * dim + i
    int out_k_tiles, out_order;
};
// n: rows of the launch, as n_row says on the device
cudaError_t encode_pack_launch(const encode_pack_job &j, int n, cudaStream_t s);
// mma: by the kernels that every chip has
cudaError_t encode_launch(const encode_job &j, int n, bool mma, cudaStream_t s);
