/* Q3_K: 256 codes of three bits in 16 groups of 16; each group has a signed 6-bit scale.
 *
 *     byte 0               32                                    96              108    110
 *          | h[32]         | q[64]                               | sc[12]        | d    |
 *
 *     q: as in Q2_K, bits 2s and 2s + 1 of byte j of half k are the low bits of element k * 128 + s * 32 + j.
 *     h: bit (k * 4 + s) of byte j is the high bit of that element.
 *     sc: sixteen scales, drawn at quant_q3_k_scale.
 *
 *     x[i] = d * scale[g] * (code[i] - 4)          d: binary16, scale -32..31, code 0..7
 *
 * source: ggml's block_q3_K. */
#include "quant/quant_search.h"

void quant_Q3_K_decode(float *y, const void *blocks, size_t n) {
    const struct block_Q3_K *b = blocks;
    for (size_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = f16_to_f32(b->d);
        for (int g = 0; g < 16; g++) {
            float scale = d * (float)quant_q3_k_scale(b->sc, g);
            const uint8_t *q = b->q + g / 8 * 32 + g % 2 * 16, *h = b->h + g % 2 * 16;
            int shift = g / 2 % 4 * 2, bit = g / 2;
            for (int j = 0; j < 16; j++) {
                int code = (q[j] >> shift & 3) | (h[j] >> bit & 1) << 2;
                y[g * 16 + j] = scale * (float)(code - 4);
            }
        }
    }
}

void quant_Q3_K_encode(void *blocks, const float *x, size_t n, const float *importance) {
    struct block_Q3_K *b = blocks;
    struct quant_signed_block f;
    float own[256];
    for (size_t i = 0; i < n / 256; i++, b++, x += 256) {
        const float *w = quant_weights(importance ? importance + i * 256 : NULL, x, own, 256);
        quant_fit_signed_block(&f, x, w, -4, 3, -32, 31);
        memset(b, 0, sizeof *b);
        b->d = f32_to_f16(f.d);
        for (int g = 0; g < 16; g++) {
            int scale = f.scale[g] + 32;
            b->sc[g & 7] |= (uint8_t)((scale & 15) << (g / 8 * 4));
            b->sc[8 + (g & 3)] |= (uint8_t)(scale >> 4 << (g / 4 * 2));
            uint8_t *q = b->q + g / 8 * 32 + g % 2 * 16, *h = b->h + g % 2 * 16;
            for (int j = 0; j < 16; j++) {
                int code = f.code[g * 16 + j] + 4;
                q[j] |= (uint8_t)((code & 3) << (g / 2 % 4 * 2));
                h[j] |= (uint8_t)(code >> 2 << (g / 2));
            }
        }
    }
}
