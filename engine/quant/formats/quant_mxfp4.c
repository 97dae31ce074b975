/* MXFP4: 32 floats of four bits (a sign, two bits of exponent, one behind the point) and one power of two.
 *
 *     byte 0      1                                        17
 *          | e    | q[0] ...                         q[15] |
 *                   low four bits: element j, high four: element j + 16
 *
 *     x[i] = 2^(e - 128) * code[q[i]]        code: twice 0 0.5 1 1.5 2 3 4 6, bit 3 the sign; e = 255: not a number
 *
 * source: OCP Microscaling Formats 1.0; the order in a block is that of ggml's block_mxfp4. */
#include <math.h>
#include "quant/quant_search.h"

static const int8_t codes[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* 2^(e - 128), below 2^-126 a subnormal float. */
static float half_scale(int e) {
    if (e == 255) return NAN;
    return quant_bits_to_f32(e < 2 ? 0x200000u << e : (uint32_t)(e - 1) << 23);
}

void quant_MXFP4_decode(float *y, const void *blocks, size_t n) {
    const struct block_MXFP4 *b = blocks;
    for (size_t i = 0; i < n / 32; i++, b++, y += 32) {
        float d = half_scale(b->e);
        for (int j = 0; j < 16; j++) {
            y[j] = (float)codes[b->q[j] & 15] * d;
            y[j + 16] = (float)codes[b->q[j] >> 4] * d;
        }
    }
}

/* The nearest code's index; no division, since 1 / d may be too large. */
static int nearest(float x, float d) {
    float a = x < 0 ? -x : x;
    int i = (a > 0.5f * d) + (a > 1.5f * d) + (a > 2.5f * d) + (a > 3.5f * d) + (a > 5 * d) + (a > 7 * d) +
            (a > 10 * d);
    return x < 0 ? i | 8 : i;
}

static float error_at(const float *x, const float *w, float d) {
    float error = 0;
    for (int j = 0; j < 32; j++) {
        float e = x[j] - (float)codes[nearest(x[j], d)] * d;
        error += w[j] * e * e;
    }
    return error;
}

/* The exponent that the specification takes brings the largest element to 4 .. 8, of which more than 6 is cut; one more
 * cuts nothing, one less gives the others more bits. */
static int fit_exponent(const float *x, const float *w) {
    enum { LARGEST = 252 }; /* 6 * 2^(e - 127) is finite */
    uint32_t largest = 0;
    for (int j = 0; j < 32; j++) {
        uint32_t a = quant_f32_to_bits(x[j]) & 0x7fffffff;
        if (a <= 0x7f800000 && a > largest) largest = a;
    }
    int at = (int)(largest >> 23) - 2, best;
    at = at < 0 ? 0 : at > LARGEST ? LARGEST : at;
    best = at;
    float least = error_at(x, w, half_scale(at));
    for (int e = at - 1; e <= at + 1; e += 2) {
        float error = e < 0 || e > LARGEST ? INFINITY : error_at(x, w, half_scale(e));
        if (error < least) least = error, best = e;
    }
    return best;
}

void quant_MXFP4_encode(void *blocks, const float *x, size_t n, const float *importance) {
    struct block_MXFP4 *b = blocks;
    float own[32];
    for (size_t i = 0; i < n / 32; i++, b++, x += 32) {
        int e = fit_exponent(x, quant_weights(importance ? importance + i * 32 : NULL, x, own, 32));
        float d = half_scale(e);
        b->e = (uint8_t)e;
        for (int j = 0; j < 16; j++) b->q[j] = (uint8_t)(nearest(x[j], d) | nearest(x[j + 16], d) << 4);
    }
}
