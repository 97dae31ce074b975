// Shared memory of a block of gemv.cuh, gemv_streamk.cuh and gemv_few_rows.cuh: one function for the kernel and its launch. Offsets in bytes;
// barriers come first.
#pragma once
#include "cuda/decode/gemv/gemv.h"

// One row: the norm's factor, sums of so many warps for each of them, the input, rings of the warps.
enum { GEMV_FACTOR = 896, GEMV_HEAD = 1024 };
struct gemv_areas {
    size_t x, rings, bytes; // sums at GEMV_HEAD
};
static __host__ __device__ constexpr gemv_areas gemv_lay_out(int warps, int r, size_t x_bytes, size_t ring) {
    const size_t x = GEMV_HEAD + (size_t)(warps * warps * 16 * r) * 4;
    return {x, x + x_bytes, x + x_bytes + ring};
}

// 2 to 8 rows: factors of 8 rows of each group, sums, t rows of u units, slots of `unit` bytes of the warps of all groups.
enum { FEW_FACTORS = FEW_HEAD - 2 * 8 * FEW_GROUPS * 4 };
struct few_areas {
    int sums, x, slots; // bytes of each, one behind the other from FEW_HEAD on
};
static __host__ __device__ constexpr few_areas few_lay_out(const few_shape &s, int warps, int t, int rows,
                                                           int u, int unit) {
    return {s.groups * s.buffers * warps * t * rows * 4, u * t * 512, s.groups * warps * s.slots * unit};
}
