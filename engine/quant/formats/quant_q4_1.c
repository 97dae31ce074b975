/* Q4_1: 32 codes of four bits, one scale and one offset.
 *
 *     byte 0      2      4                                        20
 *          | d    | m    | q[0] ...                         q[15] |
 *                          low four bits: element j, high four: element j + 16
 *
 *     x[i] = d * code[i] + m          d, m: binary16
 *
 * source: ggml's block_Q4_1. */
#include "quant/quant_search.h"

void quant_Q4_1_decode(float *y, const void *blocks, size_t n) {
    const struct block_Q4_1 *b = blocks;
    for (size_t i = 0; i < n / 32; i++, b++, y += 32) {
        float d = f16_to_f32(b->d), m = f16_to_f32(b->m);
        for (int j = 0; j < 16; j++) {
            y[j] = (float)(b->q[j] & 15) * d + m;
            y[j + 16] = (float)(b->q[j] >> 4) * d + m;
        }
    }
}

void quant_Q4_1_encode(void *blocks, const float *x, size_t n, const float *importance) {
    struct block_Q4_1 *b = blocks;
    float own[32], d, m;
    for (size_t i = 0; i < n / 32; i++, b++, x += 32) {
        const float *w = quant_weights(importance ? importance + i * 32 : NULL, x, own, 32);
        quant_fit_affine_halves(x, w, 15, &d, &m);
        float inverse = quant_inverse(d);
        b->d = f32_to_f16(d), b->m = f32_to_f16(m);
        for (int j = 0; j < 16; j++) {
            int low = quant_code((x[j] - m) * inverse, 0, 15),
                high = quant_code((x[j + 16] - m) * inverse, 0, 15);
            b->q[j] = (uint8_t)(low | high << 4);
        }
    }
}
