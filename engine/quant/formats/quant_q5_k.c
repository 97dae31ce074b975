/* Q5_K: 256 codes of five bits in 8 groups of 32; each group has a 6-bit scale and a 6-bit minimum.
 *
 *     byte 0      2      4               16              48                                        176
 *          | d    | dmin | sc[12]        | h[32]         | q[128]                                  |
 *
 *     q and sc: as in Q4_K. h: bit g of byte j is bit 4 of element j of group g.
 *
 *     x[i] = d * scale[g] * code[i] - dmin * min[g]          d, dmin: binary16
 *
 * source: ggml's block_q5_K. */
#include "quant/quant_search.h"

void quant_Q5_K_decode(float *y, const void *blocks, size_t n) {
    const struct block_Q5_K *b = blocks;
    for (size_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = f16_to_f32(b->d), dmin = f16_to_f32(b->dmin);
        for (int g = 0; g < 8; g++) {
            int scale, min;
            quant_k_scale_min(b->sc, g, &scale, &min);
            float s = d * (float)scale, m = dmin * (float)min;
            const uint8_t *q = b->q + g / 2 * 32;
            int shift = g % 2 * 4;
            for (int j = 0; j < 32; j++) {
                int code = (q[j] >> shift & 15) | (b->h[j] >> g & 1) << 4;
                y[g * 32 + j] = s * (float)code - m;
            }
        }
    }
}

void quant_Q5_K_encode(void *blocks, const float *x, size_t n, const float *importance) {
    struct block_Q5_K *b = blocks;
    struct quant_affine_block f;
    float own[256];
    for (size_t i = 0; i < n / 256; i++, b++, x += 256) {
        const float *w = quant_weights(importance ? importance + i * 256 : NULL, x, own, 256);
        quant_fit_affine_block(&f, x, w, 32, 31, 63);
        memset(b, 0, sizeof *b);
        b->d = f32_to_f16(f.d), b->dmin = f32_to_f16(f.dmin);
        quant_k_pack_scales(b->sc, f.scale, f.min);
        for (int g = 0; g < 8; g++)
            for (int j = 0; j < 32; j++) {
                int code = f.code[g * 32 + j];
                b->q[g / 2 * 32 + j] |= (uint8_t)((code & 15) << (g % 2 * 4));
                b->h[j] |= (uint8_t)(code >> 4 << g);
            }
    }
}
