/* NVFP4: 64 floats of four bits, 4 groups of 16 with a scale that is a float of eight bits. A matrix has one more factor in a tensor
 * of its own.
 *
 *     byte 0      4                                        36
 *          | s[4] | q[4][8]                                |
 *                   of a group: low four bits element j, high four j + 8
 *
 *     x[i] = s[g] * code[q]     code: 0 0.5 1 1.5 2 3 4 6, bit 3 the sign; s: four bits of exponent, three behind the point, no sign;
 *                               0x7f: 0
 *
 * Codes are twice that. source: ggml's block_nvfp4. */
#include <math.h>
#include "quant/quant_codes.h"
#include "quant/quant_e2m1.h"

/* Half of it. As the reference has it, bit 7 is no part of the exponent and makes 0x7f a number. */
static float half_scale(uint8_t s) {
    const int e = s >> 3 & 15, m = s & 7;
    if (s == 0 || s == 0x7f) return 0;
    return e ? quant_bits_to_f32((uint32_t)(e + 119) << 23 | (uint32_t)m << 20) : (float)m * 0x1p-10f;
}

void quant_NVFP4_codes(int8_t *code, float *d, const void *blocks, size_t n) {
    const struct block_NVFP4 *b = blocks;
    for (size_t i = 0; i < n / 64; i++, b++)
        for (int g = 0; g < 4; g++, code += 16) {
            *d++ = half_scale(b->s[g]);
            for (int j = 0; j < 8; j++) {
                code[j] = e2m1_codes[b->q[8 * g + j] & 15];
                code[j + 8] = e2m1_codes[b->q[8 * g + j] >> 4];
            }
        }
}
QUANT_DECODE_BY_CODES(NVFP4)

/* The best scale of those that bring the largest element to 3 .. 7. */
static uint8_t fit_scale(const float *x, const float *w) {
    float largest = 0, least = INFINITY;
    int best = 0;
    for (int j = 0; j < 16; j++)
        if (isfinite(x[j]) && fabsf(x[j]) > largest) largest = fabsf(x[j]);
    for (int s = 0; s < 0x7f; s++) {
        const float d = half_scale((uint8_t)s);
        if (s && (largest < 6 * d || largest > 14 * d) && s != 1 && s != 0x7e) continue;
        float error = e2m1_error(x, w, 16, d);
        if (error < least) least = error, best = s;
    }
    return (uint8_t)best;
}

void quant_NVFP4_encode(void *blocks, const float *x, size_t n, const float *importance) {
    struct block_NVFP4 *b = blocks;
    float own[64];
    for (size_t i = 0; i < n / 64; i++, b++, x += 64) {
        const float *w = quant_weights(importance ? importance + i * 64 : NULL, x, own, 64);
        for (int g = 0; g < 4; g++) {
            const float *v = x + 16 * g;
            b->s[g] = fit_scale(v, w + 16 * g);
            const float d = half_scale(b->s[g]);
            for (int j = 0; j < 8; j++)
                b->q[8 * g + j] = (uint8_t)(e2m1_nearest(v[j], d) | e2m1_nearest(v[j + 8], d) << 4);
        }
    }
}
