// Rows of the KV cache in their types. Of those that are turned (kv_turned.cuh) numbers are read as they lie there.
#pragma once
#include "cuda/common/dev.h"
#include "cuda/common/kv_turned.cuh"
#include "cuda/common/util.cuh"

DEV size_t kv_row(const dev_kv &kv, int slot, int pos, int head) {
    int page = kv.pages[slot * kv.max_pages + pos / KV_PAGE];
    return ((size_t)page * kv.n_kv_head + head) * KV_PAGE + pos % KV_PAGE;
}
DEV size_t kv_bytes(enum kv_type type, int d) {
    return type == KV_F32    ? d * 4
           : type == KV_F16  ? d * 2
           : type == KV_Q8_0 ? (d + 31) / 32 * QUANT_Q8_0_BYTES
                             : kv_low_bytes(type, d);
}
DEV float kv_load(enum kv_type type, const uint8_t *row, int i) {
    if (type == KV_F32) return ((const float *)row)[i];
    if (type == KV_F16) return __half2float(((const __half *)row)[i]);
    if (type > KV_Q8_0) return kv_low_load(type, row, i);
    const block_Q8_0 *b = (const block_Q8_0 *)row + (i >> 5);
    return half_bits(b->d) * (float)b->q[i & 31];
}
// Element lane of block b of 32 of a row of d, by a whole warp; types up to Q8_0.
DEV void kv_put32(enum kv_type type, uint8_t *row, int b, int d, float x) {
    const int lane = threadIdx.x & 31, i = b * 32 + lane;
    if (type == KV_Q8_0) {
        const float m = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(i < d ? fabsf(x) : 0.f)));
        uint8_t *block = row + b * QUANT_Q8_0_BYTES;
        if (lane == 0) *(__half *)block = __float2half(m / 127.f);
        block[2 + lane] = i < d ? (uint8_t)__float2int_rn(x * (m > 0 ? 127.f / m : 0.f)) : 0;
    } else if (i < d && type == KV_F16)
        ((__half *)row)[i] = __float2half(x);
    else if (i < d)
        ((float *)row)[i] = x;
}
// The row x[d], which is there for the whole warp. TURNED: of a type that is turned, as x is then, too.
template <bool TURNED> DEV void kv_put_row(enum kv_type type, uint8_t *row, int d, float *x) {
    const int lane = threadIdx.x & 31;
    if constexpr (TURNED)
        kv_low_put(type, row, d, kv_block(d), x);
    else
        for (int b = 0; b * 32 < d; b++)
            kv_put32(type, row, b, d, b * 32 + lane < d ? x[b * 32 + lane] : 0.f);
}
// Two codes of a block as halves.
DEV uint32_t kv_halves(uint32_t two, __half2 d) {
    const uint32_t biased = __byte_perm(two ^ 0x8080u, 0x64646464u, 0x4140); // 1024 + 128 + code
    __half2 h;
    memcpy(&h, &biased, 4);
    h = __hmul2(__hsub2(h, __float2half2_rn(1152.f)), d);
    uint32_t v;
    memcpy(&v, &h, 4);
    return v;
}
// Elements 8 c .. of a row as halves.
template <int T> DEV uint4 kv_chunk(const uint8_t *row, int c) {
    if constexpr (T > KV_Q8_0) return kv_low_chunk<T>(row, c);
    if (T == KV_F16) return ((const uint4 *)row)[c];
    if (T == KV_F32) {
        const float4 a = ((const float4 *)row)[2 * c], b = ((const float4 *)row)[2 * c + 1];
        return make_uint4(pack_half2(a.x, a.y), pack_half2(a.z, a.w), pack_half2(b.x, b.y),
                          pack_half2(b.z, b.w));
    }
    const uint16_t *block = (const uint16_t *)(row + (c >> 2) * QUANT_Q8_0_BYTES),
                   *q = block + 1 + (c & 3) * 4;
    const __half2 d = __half2half2(__ushort_as_half(block[0]));
    return make_uint4(kv_halves(q[0], d), kv_halves(q[1], d), kv_halves(q[2], d), kv_halves(q[3], d));
}
// elements 32 b .. of a row of d; types up to Q8_0
DEV void kv_store32(enum kv_type type, uint8_t *row, int b, int d, const float *x) {
    int n = min(32, d - b * 32);
    if (type == KV_F32)
        for (int i = 0; i < n; i++) ((float *)row)[b * 32 + i] = __ldcg(x + i);
    else if (type == KV_F16)
        for (int i = 0; i < n; i++) ((__half *)row)[b * 32 + i] = __float2half(__ldcg(x + i));
    else {
        float m = 0;
        for (int i = 0; i < n; i++) m = fmaxf(m, fabsf(__ldcg(x + i)));
        block_Q8_0 *o = (block_Q8_0 *)row + b;
        __half h = __float2half(m / 127.f);
        float id = m > 0 ? 127.f / m : 0.f;
        memcpy(&o->d, &h, 2);
        for (int i = 0; i < 32; i++) o->q[i] = i < n ? (int8_t)__float2int_rn(__ldcg(x + i) * id) : 0;
    }
}
