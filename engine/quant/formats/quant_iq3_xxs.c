/* IQ3_XXS: 256 values in 64 points of 4, out of a codebook of 256 magnitudes 4, 12 .. 52, 62; 8 groups of 32 with a scale of four bits.
 *
 *     byte 0      2                       66                  98
 *          | d    | q[64]                 | a[8] of 32 bits   |
 *
 *     q: indices; a: signs and scale s of a group as in IQ2_XXS.
 *
 *     x[i] = d * (1/2 + s) * 1/2 * magnitude * sign          d: binary16
 *
 * source: ggml's block_iq3_xxs. */
#include "quant/quant_codes.h"

void quant_IQ3_XXS_codes(int8_t *code, float *d, const void *blocks, size_t n) {
    const struct block_IQ3_XXS *b = blocks;
    for (size_t i = 0; i < n / 256; i++, b++) {
        const float scale = f16_to_f32(b->d);
        for (int g = 0; g < 8; g++, code += 32, d += 2) {
            uint32_t a;
            memcpy(&a, b->a + 2 * g, 4);
            d[0] = d[1] = scale * (0.5f + (float)(a >> 28)) * 0.5f;
            for (int l = 0; l < 4; l++) {
                const uint8_t *q = b->q + 8 * g + 2 * l;
                quant_put_signed(code + 8 * l,
                                 quant_grid_iq3_xxs[q[0]] | (uint64_t)quant_grid_iq3_xxs[q[1]] << 32,
                                 quant_even_signs[a >> 7 * l & 127]);
            }
        }
    }
}
QUANT_DECODE_BY_CODES(IQ3_XXS)

static const struct quant_book book = {.point = quant_points_iq3_xxs,
                                       .n = 256,
                                       .len = 4,
                                       .level = {4, 12, 20, 28, 36, 44, 52, 62},
                                       .even = true,
                                       .group = 32,
                                       .together = 8,
                                       .most = 31,
                                       .unit = 0.25f};

static void pack(struct block_IQ3_XXS *b, const struct quant_chosen *c) {
    b->d = f32_to_f16(c->d);
    for (int l = 0; l < 64; l++) b->q[l] = (uint8_t)c->index[l];
    for (int g = 0; g < 8; g++) {
        uint32_t a = (uint32_t)c->scale[g] << 28;
        for (int l = 0; l < 4; l++) a |= (c->signs[4 * g + l] & 127u) << 7 * l;
        memcpy(b->a + 2 * g, &a, 4);
    }
}
QUANT_ENCODE_BY_BOOK(IQ3_XXS)
