/* IQ2_XS: as IQ2_XXS with a codebook of 512 points and a scale for 16 values.
 *
 *     byte 0      2                                   66      74
 *          | d    | q[32] of 16 bits                  | sc[8] |
 *
 *     q: bits 0 .. 8 the index of a point of 8 values, 9 .. 15 the signs of seven; sc: the scales s, two a byte, low four bits first.
 *
 *     x[i] = d * (1/2 + s) * 1/4 * magnitude * sign          d: binary16
 *
 * source: ggml's block_iq2_xs. */
#include "quant/quant_codes.h"

void quant_IQ2_XS_codes(int8_t *code, float *d, const void *blocks, size_t n) {
    const struct block_IQ2_XS *b = blocks;
    for (size_t i = 0; i < n / 256; i++, b++) {
        const float scale = f16_to_f32(b->d);
        for (int g = 0; g < 16; g++, code += 16) {
            const unsigned q = b->q[2 * g], next = b->q[2 * g + 1];
            *d++ = scale * (0.5f + (float)(b->sc[g / 2] >> g % 2 * 4 & 15)) * 0.25f;
            quant_put_signed(code, quant_grid_iq2_xs[q & 511], quant_even_signs[q >> 9]);
            quant_put_signed(code + 8, quant_grid_iq2_xs[next & 511], quant_even_signs[next >> 9]);
        }
    }
}
QUANT_DECODE_BY_CODES(IQ2_XS)

static const struct quant_book book = {.point = quant_points_iq2_xs,
                                       .n = 512,
                                       .len = 8,
                                       .level = {8, 25, 43},
                                       .even = true,
                                       .group = 16,
                                       .together = 8,
                                       .most = 31,
                                       .unit = 0.125f};

static void pack(struct block_IQ2_XS *b, const struct quant_chosen *c) {
    b->d = f32_to_f16(c->d);
    for (int l = 0; l < 32; l++) b->q[l] = (uint16_t)(c->index[l] | (c->signs[l] & 127) << 9);
    for (int g = 0; g < 16; g++) b->sc[g / 2] |= (uint8_t)(c->scale[g] << g % 2 * 4);
}
QUANT_ENCODE_BY_BOOK(IQ2_XS)
