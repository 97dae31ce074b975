/* IQ2_XXS: 256 values in 32 points of 8, out of a codebook of 256 magnitudes 8, 25 and 43; 8 groups of 32 with a scale of four bits.
 *
 *     byte 0      2                                        66
 *          | d    | 8 groups: index[4] a[4]                |
 *
 *     index: of the points of 8 values; a, 32 bits: bits 7 l .. 7 l + 6 the signs of seven values of point l (the eighth makes their
 *     number even), bits 28 .. 31 the scale s.
 *
 *     x[i] = d * (1/2 + s) * 1/4 * magnitude * sign          d: binary16
 *
 * source: ggml's block_iq2_xxs. */
#include "quant/quant_codes.h"

void quant_IQ2_XXS_codes(int8_t *code, float *d, const void *blocks, size_t n) {
    const struct block_IQ2_XXS *b = blocks;
    for (size_t i = 0; i < n / 256; i++, b++) {
        const float scale = f16_to_f32(b->d);
        for (int g = 0; g < 8; g++, code += 32, d += 2) {
            uint8_t index[4];
            uint32_t a;
            memcpy(index, b->q + 4 * g, 4);
            memcpy(&a, b->q + 4 * g + 2, 4);
            d[0] = d[1] = scale * (0.5f + (float)(a >> 28)) * 0.25f;
            for (int l = 0; l < 4; l++)
                quant_put_signed(code + 8 * l, quant_grid_iq2_xxs[index[l]],
                                 quant_even_signs[a >> 7 * l & 127]);
        }
    }
}
QUANT_DECODE_BY_CODES(IQ2_XXS)

static const struct quant_book book = {.point = quant_points_iq2_xxs,
                                       .n = 256,
                                       .len = 8,
                                       .level = {8, 25, 43},
                                       .even = true,
                                       .group = 32,
                                       .together = 8,
                                       .most = 31,
                                       .unit = 0.125f};

static void pack(struct block_IQ2_XXS *b, const struct quant_chosen *c) {
    b->d = f32_to_f16(c->d);
    for (int g = 0; g < 8; g++) {
        uint32_t a = (uint32_t)c->scale[g] << 28;
        uint8_t index[4];
        for (int l = 0; l < 4; l++) {
            index[l] = (uint8_t)c->index[4 * g + l];
            a |= (c->signs[4 * g + l] & 127u) << 7 * l;
        }
        memcpy(b->q + 4 * g, index, 4);
        memcpy(b->q + 4 * g + 2, &a, 4);
    }
}
QUANT_ENCODE_BY_BOOK(IQ2_XXS)
