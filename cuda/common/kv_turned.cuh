// Rows of the KV cache in eight bits and fewer, turned by Hadamard's matrix: kv_low.h of the seam, by whole warps. The same numbers
// give the same bytes as there.
#pragma once
#include "cuda/common/util.cuh"
#include "seam/store.h"

// ---- turning
// Numbers that are turned together of rows of n where keys do not hold the values, as kv_turn_of has them.
DEV int kv_block(int n) { return min(n & -n, 64); }
DEV float kv_turn_scale(int block) { return __frcp_rn(__fsqrt_rn((float)block)); }
// Of 64 numbers a lane has number `lane` and the one 32 further; block: numbers that are turned together.
DEV void kv_turn64(float &a, float &b, int block) {
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int half = 1; half < 32; half *= 2) {
        if (half >= block) break;
        const float p = __shfl_xor_sync(~0u, a, half), q = __shfl_xor_sync(~0u, b, half);
        a = lane & half ? p - a : a + p;
        b = lane & half ? q - b : b + q;
    }
    if (block == 64) {
        const float d = a - b;
        a += b;
        b = d;
    }
    const float scale = kv_turn_scale(block);
    a *= scale;
    b *= scale;
}
// A head of N * 32 numbers, of which a lane has every 32nd.
template <int N> DEV void kv_turn_head(float (&y)[N], int block) {
    static_assert(N % 2 == 0, "64 numbers at a time");
#pragma unroll
    for (int i = 0; i < N; i += 2) kv_turn64(y[i], y[i + 1], block);
}
// The runs of 64 that are this warp's among n_warp, of x[n] in memory that the warp alone writes meanwhile.
DEV void kv_turn_runs(float *x, int n, int block, int warp, int n_warp) {
    const int lane = threadIdx.x & 31;
    for (int b = warp * 64; b < n; b += n_warp * 64) {
        const int i = b + lane;
        float u = i < n ? x[i] : 0.f, v = i + 32 < n ? x[i + 32] : 0.f;
        kv_turn64(u, v, block);
        if (i < n) x[i] = u;
        if (i + 32 < n) x[i + 32] = v;
    }
}
// Eight numbers of a lane with those of the lanes beside it: lanes that hold a block, of at least eight, stand in its order.
DEV void kv_turn_eight(float (&v)[8], int block) {
    const float scale = kv_turn_scale(block);
#pragma unroll
    for (int half = 1; half < 8; half *= 2)
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (!(i & half)) {
                const float d = v[i] - v[i + half];
                v[i] += v[i + half];
                v[i + half] = d;
            }
#pragma unroll
    for (int half = 1; half < 8; half *= 2) {
        if (half * 8 >= block) break;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float p = __shfl_xor_sync(~0u, v[i], half);
            v[i] = threadIdx.x & half ? p - v[i] : v[i] + p;
        }
    }
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] *= scale;
}

// ---- codes
DEV int kv_low_bytes(enum kv_type type, int n) {
    return type == KV_F8 ? n + 2 : (n + 31) / 32 * (type == KV_Q5_0 ? QUANT_Q5_0_BYTES : QUANT_Q4_0_BYTES);
}
// The nearest number of e4m3, the even one of two.
DEV uint8_t kv_f8_code(float x) {
    const float a = fabsf(x);
    uint32_t code;
    if (!(a < 448))
        code = 0x7e;
    else if (a < 0x1p-6f)
        code = (uint32_t)rintf(a * 0x1p9f);
    else {
        uint32_t u = __float_as_uint(a);
        u += 0x7ffff + (u >> 20 & 1);
        code = min((u >> 20) - (120u << 3), 0x7eu);
    }
    return (uint8_t)(code | (x < 0 ? 128 : 0));
}
// From -half to half - 1.
DEV int kv_code(float x, int half) {
    const float q = rintf(x);
    return q >= (float)half ? half - 1 : q >= (float)-half ? (int)q : -half;
}
DEV float kv_inverse(__half d) {
    const float back = __half2float(d);
    return back != 0 ? 1.f / back : 0.f;
}
// Block b of 32 numbers of a turned row of n: number b * 32 + lane, 0 behind the row's end. most: what is farthest from 0 in the row, as
// F8 has it, without its sign.
DEV void kv_low_put32(enum kv_type type, uint8_t *row, int b, int n, float x, float most) {
    const int lane = threadIdx.x & 31;
    if (type == KV_F8) {
        const __half d = __float2half_rn(most / 448.f);
        if (b == 0 && lane == 0) *(__half *)row = d;
        if (b * 32 + lane < n) row[2 + b * 32 + lane] = kv_f8_code(x * kv_inverse(d));
        return;
    }
    const int half = type == KV_Q4_0 ? 8 : 16, bytes = kv_low_bytes(type, 32);
    const uint32_t a = __float_as_uint(fabsf(x)), top = __reduce_max_sync(~0u, a);
    const float far = __shfl_sync(~0u, x, __ffs(__ballot_sync(~0u, a == top)) - 1);
    const __half d = __float2half_rn(far / (float)-half);
    const int code = kv_code(x * kv_inverse(d), half) + half, other = __shfl_down_sync(~0u, code, 16);
    const uint32_t high = __ballot_sync(~0u, code >> 4);
    uint8_t *to = row + b * bytes;
    if (lane == 0) *(__half *)to = d;
    if (half == 16 && lane < 2) ((uint16_t *)to)[1 + lane] = (uint16_t)(high >> lane * 16);
    if (lane < 16) to[bytes - 16 + lane] = (uint8_t)((code & 15) | (other & 15) << 4);
}
// The row x[n], which is there for the whole warp and is turned in place.
DEV void kv_low_put(enum kv_type type, uint8_t *row, int n, int block, float *x) {
    const int lane = threadIdx.x & 31;
    uint32_t most = 0;
    kv_turn_runs(x, n, block, 0, 1); // a lane reads what it wrote
    for (int i = lane; i < n; i += 32) most = max(most, __float_as_uint(fabsf(x[i])));
    most = __reduce_max_sync(~0u, most);
    for (int b = 0; b * 32 < n; b++)
        kv_low_put32(type, row, b, n, b * 32 + lane < n ? x[b * 32 + lane] : 0.f, __uint_as_float(most));
}
// The same of a head in registers, N * 32 numbers or more than there are: zeros behind n.
template <int N> DEV void kv_low_put_head(enum kv_type type, uint8_t *row, int n, int block, float (&y)[N]) {
    uint32_t most = 0;
    kv_turn_head(y, block);
#pragma unroll
    for (int i = 0; i < N; i++) most = max(most, __float_as_uint(fabsf(y[i])));
    most = __reduce_max_sync(~0u, most);
#pragma unroll
    for (int i = 0; i < N; i++)
        if (i * 32 < n) kv_low_put32(type, row, i, n, y[i], __uint_as_float(most));
}

// Two codes of e4m3 as halves: its bits lie in those of a half, 2^8 smaller.
DEV __half2 kv_f8_halves(uint32_t two) {
    const uint32_t high = __byte_perm(two, 0, 0x1404),
                   bits = (high & 0x80008000u) | (high & 0x7f007f00u) >> 1;
    __half2 h;
    memcpy(&h, &bits, 4);
    return __hmul2(h, __float2half2_rn(256.f));
}
// Two codes of 0 to 31 in bytes, less `half`, as halves.
DEV __half2 kv_code_halves(uint32_t two, float half) {
    const uint32_t bits = __byte_perm(two, 0x64646464u, 0x4140); // 1024 + code
    __half2 h;
    memcpy(&h, &bits, 4);
    return __hsub2(h, __float2half2_rn(1024.f + half));
}
// Codes 8 c .. of a row as halves, exactly; returns what they are times.
template <int T> DEV __half kv_low_codes(__half2 (&v)[4], const uint8_t *row, int c) {
    if constexpr (T == KV_F8) {
        const uint16_t *q = (const uint16_t *)(row + 2) + c * 4;
#pragma unroll
        for (int i = 0; i < 4; i++) v[i] = kv_f8_halves(q[i]);
        return *(const __half *)row;
    } else {
        constexpr bool five = T == KV_Q5_0;
        constexpr int bytes = five ? QUANT_Q5_0_BYTES : QUANT_Q4_0_BYTES;
        const uint8_t *block = row + (c >> 2) * bytes;
        const uint16_t *q = (const uint16_t *)(block + bytes - 16) + (c & 1) * 4;
        const int shift = (c & 2) * 2;
        const uint32_t high = five ? block[2 + (c & 3)] : 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t two = (uint32_t)q[i] >> shift & 0x0f0fu;
            if (five) two |= (high >> 2 * i & 1) << 4 | (high >> (2 * i + 1) & 1) << 12;
            v[i] = kv_code_halves(two, five ? 16.f : 8.f);
        }
        return *(const __half *)block;
    }
}
// Numbers 8 c .. of a row, turned as they lie there, as halves and as floats.
template <int T> DEV uint4 kv_low_chunk(const uint8_t *row, int c) {
    __half2 v[4];
    const __half2 d = __half2half2(kv_low_codes<T>(v, row, c));
    uint4 out;
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = __hmul2(v[i], d);
    memcpy(&out, v, 16);
    return out;
}
template <int T> DEV void kv_low_eight(float (&y)[8], const uint8_t *row, int c) {
    __half2 v[4];
    const float d = __half2float(kv_low_codes<T>(v, row, c));
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 two = __half22float2(v[i]);
        y[2 * i] = __fmul_rn(d, two.x);
        y[2 * i + 1] = __fmul_rn(d, two.y);
    }
}
// One number of a row, turned as it lies there.
DEV float kv_low_load(enum kv_type type, const uint8_t *row, int i) {
    if (type == KV_F8)
        return __fmul_rn(__half2float(*(const __half *)row), __low2float(kv_f8_halves(row[2 + i])));
    const int half = type == KV_Q4_0 ? 8 : 16, bytes = kv_low_bytes(type, 32), j = i & 31;
    const uint8_t *block = row + (i >> 5) * bytes, *q = block + bytes - 16;
    const int low = q[j & 15] >> (j & 16 ? 4 : 0) & 15,
              high = half == 16 ? block[2 + (j >> 3)] >> (j & 7) & 1 : 0;
    return __fmul_rn(__half2float(*(const __half *)block), (float)((low | high << 4) - half));
}
