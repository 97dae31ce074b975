/* Q5_1: 32 codes of five bits, one scale and one offset; the fifth bits apart.
 *
 *     byte 0      2      4              8                                        24
 *          | d    | m    | h: 32 bits   | q[0] ...                         q[15] |
 *                          bit i of h (little endian) is bit 4 of element i
 *                                         low four bits: element j, high four: element j + 16
 *
 *     x[i] = d * code[i] + m          d, m: binary16
 *
 * source: ggml's block_Q5_1. */
#include "quant/quant_search.h"

void quant_Q5_1_decode(float *y, const void *blocks, size_t n) {
    const struct block_Q5_1 *b = blocks;
    for (size_t i = 0; i < n / 32; i++, b++, y += 32) {
        float d = f16_to_f32(b->d), m = f16_to_f32(b->m);
        for (int j = 0; j < 16; j++) {
            int low = (b->q[j] & 15) | (b->h[j / 8] >> (j & 7) & 1) << 4;
            int high = b->q[j] >> 4 | (b->h[2 + j / 8] >> (j & 7) & 1) << 4;
            y[j] = (float)low * d + m;
            y[j + 16] = (float)high * d + m;
        }
    }
}

void quant_Q5_1_encode(void *blocks, const float *x, size_t n, const float *importance) {
    struct block_Q5_1 *b = blocks;
    float own[32], d, m;
    for (size_t i = 0; i < n / 32; i++, b++, x += 32) {
        const float *w = quant_weights(importance ? importance + i * 32 : NULL, x, own, 32);
        quant_fit_affine_halves(x, w, 31, &d, &m);
        float inverse = quant_inverse(d);
        memset(b, 0, sizeof *b);
        b->d = f32_to_f16(d), b->m = f32_to_f16(m);
        for (int j = 0; j < 32; j++) {
            int code = quant_code((x[j] - m) * inverse, 0, 31);
            b->q[j % 16] |= (uint8_t)((code & 15) << (j / 16 * 4));
            b->h[j / 8] |= (uint8_t)(code >> 4 << (j % 8));
        }
    }
}
