/* Q4_K: 256 codes of four bits in 8 groups of 32; each group has a 6-bit scale and a 6-bit minimum.
 *
 *     byte 0      2      4               16                                        144
 *          | d    | dmin | sc[12]        | q[128]                                  |
 *
 *     q: four runs of 32 bytes, two groups each: the low four bits of run r are group 2r, the high four group
 *     2r + 1. sc: eight pairs, drawn at quant_k_scale_min.
 *
 *     x[i] = d * scale[g] * code[i] - dmin * min[g]          d, dmin: binary16
 *
 * source: ggml's block_q4_K. */
#include "quant/quant_search.h"

void quant_Q4_K_decode(float *y, const void *blocks, size_t n) {
    const struct block_Q4_K *b = blocks;
    for (size_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = f16_to_f32(b->d), dmin = f16_to_f32(b->dmin);
        for (int g = 0; g < 8; g++) {
            int scale, min;
            quant_k_scale_min(b->sc, g, &scale, &min);
            float s = d * (float)scale, m = dmin * (float)min;
            const uint8_t *q = b->q + g / 2 * 32;
            int shift = g % 2 * 4;
            for (int j = 0; j < 32; j++) y[g * 32 + j] = s * (float)(q[j] >> shift & 15) - m;
        }
    }
}

void quant_Q4_K_encode(void *blocks, const float *x, size_t n, const float *importance) {
    struct block_Q4_K *b = blocks;
    struct quant_affine_block f;
    float own[256];
    for (size_t i = 0; i < n / 256; i++, b++, x += 256) {
        const float *w = quant_weights(importance ? importance + i * 256 : NULL, x, own, 256);
        quant_fit_affine_block(&f, x, w, 32, 15, 63);
        memset(b, 0, sizeof *b);
        b->d = f32_to_f16(f.d), b->dmin = f32_to_f16(f.dmin);
        quant_k_pack_scales(b->sc, f.scale, f.min);
        for (int g = 0; g < 8; g++)
            for (int j = 0; j < 32; j++) b->q[g / 2 * 32 + j] |= (uint8_t)(f.code[g * 32 + j] << (g % 2 * 4));
    }
}
