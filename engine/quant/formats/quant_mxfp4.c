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
#include "quant/quant_e2m1.h"
#include "quant/quant_search.h"

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
            y[j] = (float)e2m1_codes[b->q[j] & 15] * d;
            y[j + 16] = (float)e2m1_codes[b->q[j] >> 4] * d;
        }
    }
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
    float least = e2m1_error(x, w, 32, half_scale(at));
    for (int e = at - 1; e <= at + 1; e += 2) {
        float error = e < 0 || e > LARGEST ? INFINITY : e2m1_error(x, w, 32, half_scale(e));
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
        for (int j = 0; j < 16; j++)
            b->q[j] = (uint8_t)(e2m1_nearest(x[j], d) | e2m1_nearest(x[j + 16], d) << 4);
    }
}
