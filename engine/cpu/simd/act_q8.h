/* Activations, quantised: what a matmul on quantised weights reads. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 256 columns of one row: x = d (q + 128 hi), |q| <= 127. hi is 0 but in CPU_FAR groups of four columns, those of the
 * largest |x|: outliers would else cost all others their bits. s: sums of x / d over 32 and 16 columns; p: sums of q over the
 * columns with k % 4 < 2 (low half) and >= 2 (high half), with AVX-512 of all with the other sign. far: index of a group, in order of
 * size; hi: its four int8; hp: their sums as p; 0 of group 0 where there are fewer: hi[0] is 0 only where all are. Zeros past the last
 * column. */
enum { CPU_FAR = 5 };
struct cpu_x8 {
    int8_t q[256];
    float d, s32[8], s16[16];
    int32_t p32[8], p16[16];
    int32_t hi[CPU_FAR], hp[CPU_FAR];
    uint8_t far[CPU_FAR];
};
/* 256 columns of one row in 16 bits, for F16 and BF16 weights, with AVX2 alone for Q8_0 and IQ4_NL, too: x = d q. The sum of |q| over each 64 columns, times
 * the largest weight CPU_X16_WEIGHT, is below 2^31. */
enum { CPU_X16_WEIGHT = 8191 };
struct cpu_x16 {
    int16_t q[256];
    float d;
};
static inline int cpu_kp(int k) { return (k + 255) & ~255; }
/* Floats from one normed row to the next: a line more than whole pages, or 16 rows would share the sets of the cache. */
static inline size_t cpu_norm_floats(int k) { return (size_t)cpu_kp(k) + 16; }
static inline size_t cpu_x8_bytes(int k) { return (size_t)cpu_kp(k) / 256 * sizeof(struct cpu_x8); }

static inline size_t cpu_x16_bytes(int k) { return (size_t)cpu_kp(k) / 256 * sizeof(struct cpu_x16); }
