/* Q4_0: 32 codes of four bits and one scale.
 *
 *     byte 0      2                                        18
 *          | d    | q[0] ...                         q[15] |
 *                   low four bits: element j, high four: element j + 16
 *
 *     x[i] = d * (code[i] - 8)          d: binary16
 *
 * source: ggml's block_Q4_0. */
#include "quant/quant_search.h"

void quant_Q4_0_decode(float *y, const void *blocks, size_t n) {
    const struct block_Q4_0 *b = blocks;
    for (size_t i = 0; i < n / 32; i++, b++, y += 32) {
        float d = f16_to_f32(b->d);
        for (int j = 0; j < 16; j++) {
            y[j] = (float)((b->q[j] & 15) - 8) * d;
            y[j + 16] = (float)((b->q[j] >> 4) - 8) * d;
        }
    }
}

void quant_Q4_0_encode(void *blocks, const float *x, size_t n, const float *importance) {
    struct block_Q4_0 *b = blocks;
    float own[32];
    for (size_t i = 0; i < n / 32; i++, b++, x += 32) {
        const float *w = quant_weights(importance ? importance + i * 32 : NULL, x, own, 32);
        float d = quant_half_of(quant_fit_signed(x, w, 32, -8, 7)), inverse = quant_inverse(d);
        b->d = f32_to_f16(d);
        for (int j = 0; j < 16; j++) {
            int low = quant_code(x[j] * inverse, -8, 7) + 8,
                high = quant_code(x[j + 16] * inverse, -8, 7) + 8;
            b->q[j] = (uint8_t)(low | high << 4);
        }
    }
}
