/* Q2_K: 256 codes of two bits in 16 groups of 16; each group has a 4-bit scale and a 4-bit minimum.
 *
 *     byte 0               16                                    80     82     84
 *          | sc[16]        | q[64]                               | d    | dmin |
 *            low four bits: scale of group g, high four: its minimum
 *
 *     q: two halves of 32 bytes, 128 elements each; in half h, bits 2s and 2s + 1 of byte j are the code of
 *     element h * 128 + s * 32 + j. Group g is elements 16 g .. 16 g + 15.
 *
 *     x[i] = d * scale[g] * code[i] - dmin * min[g]          d, dmin: binary16
 *
 * source: ggml's block_q2_K. */
#include "quant/quant_search.h"

void quant_Q2_K_decode(float *y, const void *blocks, size_t n) {
    const struct block_Q2_K *b = blocks;
    for (size_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = f16_to_f32(b->d), dmin = f16_to_f32(b->dmin);
        for (int g = 0; g < 16; g++) {
            float scale = d * (float)(b->sc[g] & 15), min = dmin * (float)(b->sc[g] >> 4);
            const uint8_t *q = b->q + g / 8 * 32 + g % 2 * 16;
            int shift = g / 2 % 4 * 2;
            for (int j = 0; j < 16; j++) y[g * 16 + j] = scale * (float)(q[j] >> shift & 3) - min;
        }
    }
}

void quant_Q2_K_encode(void *blocks, const float *x, size_t n, const float *importance) {
    struct block_Q2_K *b = blocks;
    struct quant_affine_block f;
    float own[256];
    for (size_t i = 0; i < n / 256; i++, b++, x += 256) {
        const float *w = quant_weights(importance ? importance + i * 256 : NULL, x, own, 256);
        quant_fit_affine_block(&f, x, w, 16, 3, 15);
        memset(b, 0, sizeof *b);
        b->d = f32_to_f16(f.d), b->dmin = f32_to_f16(f.dmin);
        for (int g = 0; g < 16; g++) {
            b->sc[g] = (uint8_t)(f.scale[g] | f.min[g] << 4);
            uint8_t *q = b->q + g / 8 * 32 + g % 2 * 16;
            for (int j = 0; j < 16; j++) q[j] |= (uint8_t)(f.code[g * 16 + j] << (g / 2 % 4 * 2));
        }
    }
}
