/* Rows of keys and values in eight bits and fewer, turned before they are coded: in blocks of a power of two the row is multiplied by
 * Hadamard's matrix over the root of its size, which spreads what a few columns have over all and is its own inverse. A score is the same
 * between a turned query and a turned key, and a turned sum of values is turned back once.
 *
 *     q5_0, q4_0   blocks of 32 as quant_q5_0.c and quant_q4_0.c draw them, the last one filled with zeros
 *     f8           a half scale, then a byte of e4m3 (quant_f8_128.c) for each number
 *
 * source: the turn as in QuaRot, Ashkboos et al. 2024 (arXiv 2404.00456). */
#pragma once
#include <math.h>
#include <string.h>
#include "quant/quant.h"
#include "seam/store.h"

/* n numbers of each of `lanes` rows side by side, in blocks: x[n][lanes]; block: kv_turn_of */
static inline void kv_turn(float *x, int n, int block, int lanes) {
    const float scale = 1 / sqrtf((float)block);
    for (float *b = x; b < x + (size_t)n * (size_t)lanes; b += block * lanes) {
        for (int half = lanes; half < block * lanes; half *= 2)
            for (int i = 0; i < block * lanes; i += 2 * half)
                for (int j = i; j < i + half; j++) {
                    const float s = b[j] + b[j + half], d = b[j] - b[j + half];
                    b[j] = s;
                    b[j + half] = d;
                }
        for (int i = 0; i < block * lanes; i++) b[i] *= scale;
    }
}

/* The number of x[n] that is farthest from 0; a NaN stays. */
static inline float kv_farthest(const float *x, int n) {
    float far = 0;
    for (int i = 0; i < n; i++) far = fabsf(x[i]) > fabsf(far) || x[i] != x[i] ? x[i] : far;
    return far;
}
static inline uint16_t kv_scale(float d, float *inverse) {
    const uint16_t h = f32_to_f16(d);
    const float back = f16_to_f32(h);
    *inverse = back != 0 ? 1 / back : 0;
    return h;
}
/* From -half to half - 1. */
static inline int kv_code(float x, int half) {
    const float q = rintf(x);
    return q >= (float)half ? half - 1 : q >= (float)-half ? (int)q : -half;
}

/* The nearest number of e4m3, the even one of two. */
static inline uint8_t kv_f8_code(float x) {
    const float a = fabsf(x);
    uint32_t u;
    uint8_t code;
    if (!(a < 448)) {
        code = 0x7e;
    } else if (a < 0x1p-6f) {
        code = (uint8_t)rintf(a * 0x1p9f);
    } else {
        memcpy(&u, &a, 4);
        u += 0x7ffff + (u >> 20 & 1);
        u = (u >> 20) - (120u << 3);
        code = (uint8_t)(u > 0x7e ? 0x7e : u);
    }
    return code | (x < 0 ? 128 : 0);
}
/* The bits of e4m3 lie in those of a half, 2^8 smaller; subnormal ones, too. */
static inline float kv_f8_value(uint8_t q) {
    return f16_to_f32((uint16_t)((q & 128) << 8 | (q & 127) << 7)) * 256;
}

/* Codes the row x[n], which was turned. */
static inline void kv_low_encode(enum kv_type type, uint8_t *dst, const float *x, int n) {
    float inverse, block[32];
    if (n == 0) return;
    if (type == KV_F8) {
        const uint16_t d = kv_scale(fabsf(kv_farthest(x, n)) / 448, &inverse);
        memcpy(dst, &d, 2);
        for (int i = 0; i < n; i++) dst[2 + i] = kv_f8_code(x[i] * inverse);
        return;
    }
    const int half = type == KV_Q4_0 ? 8 : 16;
    const size_t bytes = type == KV_Q4_0 ? QUANT_Q4_0_BYTES : QUANT_Q5_0_BYTES;
    for (int at = 0; at < n; at += 32, dst += bytes) {
        for (int j = 0; j < 32; j++) block[j] = at + j < n ? x[at + j] : 0;
        const uint16_t d = kv_scale(kv_farthest(block, 32) / (float)-half, &inverse);
        uint8_t *q = dst + bytes - 16;
        memset(dst, 0, bytes);
        memcpy(dst, &d, 2);
        for (int j = 0; j < 32; j++) {
            const int code = kv_code(block[j] * inverse, half) + half;
            q[j % 16] |= (uint8_t)((code & 15) << (j / 16 * 4));
            if (half == 16) dst[2 + j / 8] |= (uint8_t)(code >> 4 << (j % 8));
        }
    }
}

/* y[n] of a row, turned as it is. */
static inline void kv_low_decode(enum kv_type type, float *y, const uint8_t *src, int n) {
    uint16_t h;
    if (n == 0) return;
    if (type == KV_F8) {
        memcpy(&h, src, 2);
        const float d = f16_to_f32(h);
        for (int i = 0; i < n; i++) y[i] = d * kv_f8_value(src[2 + i]);
        return;
    }
    const int half = type == KV_Q4_0 ? 8 : 16;
    const size_t bytes = type == KV_Q4_0 ? QUANT_Q4_0_BYTES : QUANT_Q5_0_BYTES;
    for (int at = 0; at < n; at += 32, src += bytes) {
        const uint8_t *q = src + bytes - 16;
        uint32_t high = 0;
        float block[32];
        memcpy(&h, src, 2);
        if (half == 16) memcpy(&high, src + 2, 4);
        const float d = f16_to_f32(h);
        for (int j = 0; j < 16; j++) {
            block[j] = d * (float)((int)((q[j] & 15) | (high >> j & 1) << 4) - half);
            block[j + 16] = d * (float)((int)(q[j] >> 4 | (high >> (j + 16) & 1) << 4) - half);
        }
        memcpy(y + at, block, sizeof *y * (size_t)(n - at < 32 ? n - at : 32));
    }
}
