// Rows of the KV cache in their three types.
#pragma once
#include "cuda.h"
#include "util.cuh"

DEV size_t kv_row(const dev_kv &kv, int slot, int pos, int head) {
    int page = kv.pages[slot * kv.max_pages + pos / KV_PAGE];
    return ((size_t)page * kv.n_kv_head + head) * KV_PAGE + pos % KV_PAGE;
}
DEV size_t kv_bytes(enum kv_type type, int d) {
    return type == KV_F32 ? d * 4 : type == KV_F16 ? d * 2 : (d + 31) / 32 * QUANT_Q8_0_BYTES;
}
DEV float kv_load(enum kv_type type, const uint8_t *row, int i) {
    if (type == KV_F32) return ((const float *)row)[i];
    if (type == KV_F16) return __half2float(((const __half *)row)[i]);
    const block_q8_0 *b = (const block_q8_0 *)row + (i >> 5);
    return half_bits(b->d) * (float)b->q[i & 31];
}
// elements 32 b .. of a row of d
DEV void kv_store32(enum kv_type type, uint8_t *row, int b, int d, const float *x) {
    int n = min(32, d - b * 32);
    if (type == KV_F32)
        for (int i = 0; i < n; i++) ((float *)row)[b * 32 + i] = x[i];
    else if (type == KV_F16)
        for (int i = 0; i < n; i++) ((__half *)row)[b * 32 + i] = __float2half(x[i]);
    else {
        float m = 0;
        for (int i = 0; i < n; i++) m = fmaxf(m, fabsf(x[i]));
        block_q8_0 *o = (block_q8_0 *)row + b;
        __half h = __float2half(m / 127.f);
        float id = m > 0 ? 127.f / m : 0.f;
        memcpy(&o->d, &h, 2);
        for (int i = 0; i < 32; i++) o->q[i] = i < n ? (int8_t)__float2int_rn(x[i] * id) : 0;
    }
}
