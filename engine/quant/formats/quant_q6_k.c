/* Q6_K: 256 codes of six bits in 16 groups of 16; each group has a signed 8-bit scale.
 *
 *     byte 0                             128             192             208    210
 *          | ql[128]                     | qh[64]        | sc[16]        | d    |
 *
 *     Two halves of 128 elements; half k has ql + 64 k and qh + 32 k. With s = 0..3 and j = 0..31, element
 *     k * 128 + s * 32 + j takes its low four bits from byte (s & 1) * 32 + j of ql (low nibble for s < 2,
 * high for the others) and its high two from bits 2s and 2s + 1 of byte j of qh. Group g is elements 16 g ..
 * 16 g + 15.
 *
 *     x[i] = d * sc[g] * (code[i] - 32)          d: binary16, code 0..63
 *
 * source: ggml's block_q6_K. */
#include "quant/quant_search.h"

void quant_Q6_K_decode(float *y, const void *blocks, size_t n) {
    const struct block_Q6_K *b = blocks;
    for (size_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = f16_to_f32(b->d);
        for (int g = 0; g < 16; g++) {
            float scale = d * (float)b->sc[g];
            int half = g / 8, s = g / 2 % 4, at = g % 2 * 16;
            const uint8_t *ql = b->ql + half * 64 + (s & 1) * 32 + at, *qh = b->qh + half * 32 + at;
            for (int j = 0; j < 16; j++) {
                int code = (ql[j] >> (s / 2 * 4) & 15) | (qh[j] >> (s * 2) & 3) << 4;
                y[g * 16 + j] = scale * (float)(code - 32);
            }
        }
    }
}

void quant_Q6_K_encode(void *blocks, const float *x, size_t n, const float *importance) {
    struct block_Q6_K *b = blocks;
    struct quant_signed_block f;
    float own[256];
    for (size_t i = 0; i < n / 256; i++, b++, x += 256) {
        const float *w = quant_weights(importance ? importance + i * 256 : NULL, x, own, 256);
        quant_fit_signed_block(&f, x, w, -32, 31, -128, 127);
        memset(b, 0, sizeof *b);
        b->d = f32_to_f16(f.d);
        memcpy(b->sc, f.scale, 16);
        for (int g = 0; g < 16; g++) {
            int half = g / 8, s = g / 2 % 4, at = g % 2 * 16;
            uint8_t *ql = b->ql + half * 64 + (s & 1) * 32 + at, *qh = b->qh + half * 32 + at;
            for (int j = 0; j < 16; j++) {
                int code = f.code[g * 16 + j] + 32;
                ql[j] |= (uint8_t)((code & 15) << (s / 2 * 4));
                qh[j] |= (uint8_t)(code >> 4 << (s * 2));
            }
        }
    }
}
