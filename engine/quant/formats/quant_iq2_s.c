/* IQ2_S: as IQ2_XS with a codebook of 1,024 points and all signs.
 *
 *     byte 0      2             34            66       74      82
 *          | d    | q[32]       | sg[32]      | h[8]   | sc[8] |
 *
 *     q: low eight bits of the index of a point of 8 values, h: the high two, four a byte; sg: the signs of eight values; sc: the scales
 *     s, two a byte, low four bits first.
 *
 *     x[i] = d * (1/2 + s) * 1/4 * magnitude * sign          d: binary16
 *
 * source: ggml's block_iq2_s. */
#include "quant/quant_codes.h"

void quant_IQ2_S_codes(int8_t *code, float *d, const void *blocks, size_t n) {
    const struct block_IQ2_S *b = blocks;
    for (size_t i = 0; i < n / 256; i++, b++) {
        const float scale = f16_to_f32(b->d);
        for (int g = 0; g < 16; g++, code += 16) {
            const unsigned h = b->h[g / 2] >> g % 2 * 4;
            const uint8_t *q = b->q + 2 * g, *sg = b->sg + 2 * g;
            *d++ = scale * (0.5f + (float)(b->sc[g / 2] >> g % 2 * 4 & 15)) * 0.25f;
            quant_put_signed(code, quant_grid_iq2_s[q[0] | (h & 3) << 8], quant_signs[sg[0]]);
            quant_put_signed(code + 8, quant_grid_iq2_s[q[1] | (h >> 2 & 3) << 8], quant_signs[sg[1]]);
        }
    }
}
QUANT_DECODE_BY_CODES(IQ2_S)

static const struct quant_book book = {.point = quant_points_iq2_s,
                                       .n = 1024,
                                       .len = 8,
                                       .level = {8, 25, 43},
                                       .group = 16,
                                       .together = 8,
                                       .most = 31,
                                       .unit = 0.125f};

static void pack(struct block_IQ2_S *b, const struct quant_chosen *c) {
    b->d = f32_to_f16(c->d);
    for (int l = 0; l < 32; l++) {
        b->q[l] = (uint8_t)c->index[l];
        b->h[l / 4] |= (uint8_t)(c->index[l] >> 8 << l % 4 * 2);
        b->sg[l] = c->signs[l];
    }
    for (int g = 0; g < 16; g++) b->sc[g / 2] |= (uint8_t)(c->scale[g] << g % 2 * 4);
}
QUANT_ENCODE_BY_BOOK(IQ2_S)
