/* Q5_0: 32 codes of five bits and one scale; the fifth bits apart.
 *
 *     byte 0      2              6                                        22
 *          | d    | h: 32 bits   | q[0] ...                         q[15] |
 *                   bit i of h (little endian) is bit 4 of element i
 *                                  low four bits: element j, high four: element j + 16
 *
 *     x[i] = d * (code[i] - 16)          d: binary16
 *
 * source: ggml's block_Q5_0. */
#include "quant/quant_search.h"

void quant_Q5_0_decode(float *y, const void *blocks, size_t n) {
    const struct block_Q5_0 *b = blocks;
    for (size_t i = 0; i < n / 32; i++, b++, y += 32) {
        float d = f16_to_f32(b->d);
        for (int j = 0; j < 16; j++) {
            int low = (b->q[j] & 15) | (b->h[j / 8] >> (j & 7) & 1) << 4;
            int high = b->q[j] >> 4 | (b->h[2 + j / 8] >> (j & 7) & 1) << 4;
            y[j] = (float)(low - 16) * d;
            y[j + 16] = (float)(high - 16) * d;
        }
    }
}

void quant_Q5_0_encode(void *blocks, const float *x, size_t n, const float *importance) {
    struct block_Q5_0 *b = blocks;
    float own[32];
    for (size_t i = 0; i < n / 32; i++, b++, x += 32) {
        const float *w = quant_weights(importance ? importance + i * 32 : NULL, x, own, 32);
        float d = quant_half_of(quant_fit_signed(x, w, 32, -16, 15)), inverse = quant_inverse(d);
        memset(b, 0, sizeof *b);
        b->d = f32_to_f16(d);
        for (int j = 0; j < 32; j++) {
            int code = quant_code(x[j] * inverse, -16, 15) + 16;
            b->q[j % 16] |= (uint8_t)((code & 15) << (j / 16 * 4));
            b->h[j / 8] |= (uint8_t)(code >> 4 << (j % 8));
        }
    }
}
