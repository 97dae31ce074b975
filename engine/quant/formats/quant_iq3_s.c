/* IQ3_S: as IQ3_XXS with a codebook of 512 magnitudes 1, 3 .. 15 and all signs.
 *
 *     byte 0      2             66     74            106     110
 *          | d    | q[64]       | h[8] | sg[32]      | sc[4] |
 *
 *     q: low eight bits of the index of a point of 4 values, h: the ninth, of eight points a byte; sg: the signs of eight values; sc: the
 *     scales s of 8 groups of 32, two a byte, low four bits first.
 *
 *     x[i] = d * (1 + 2 s) * magnitude * sign          d: binary16
 *
 * source: ggml's block_iq3_s. */
#include "quant/quant_codes.h"

void quant_IQ3_S_codes(int8_t *code, float *d, const void *blocks, size_t n) {
    const struct block_IQ3_S *b = blocks;
    for (size_t i = 0; i < n / 256; i++, b++) {
        const float scale = f16_to_f32(b->d);
        for (int g = 0; g < 8; g++, d += 2) {
            const unsigned h = b->h[g];
            d[0] = d[1] = scale * (float)(1 + 2 * (b->sc[g / 2] >> g % 2 * 4 & 15));
            for (int l = 0; l < 4; l++, code += 8) {
                const uint8_t *q = b->q + 8 * g + 2 * l;
                const uint64_t low = quant_grid_iq3_s[q[0] | (h >> 2 * l & 1) << 8],
                               high = quant_grid_iq3_s[q[1] | (h >> (2 * l + 1) & 1) << 8];
                quant_put_signed(code, low | high << 32, quant_signs[b->sg[4 * g + l]]);
            }
        }
    }
}
QUANT_DECODE_BY_CODES(IQ3_S)

static const struct quant_book book = {.point = quant_points_iq3_s,
                                       .n = 512,
                                       .len = 4,
                                       .level = {1, 3, 5, 7, 9, 11, 13, 15},
                                       .group = 32,
                                       .together = 8,
                                       .most = 31,
                                       .unit = 1};

static void pack(struct block_IQ3_S *b, const struct quant_chosen *c) {
    b->d = f32_to_f16(c->d);
    for (int l = 0; l < 64; l++) {
        b->q[l] = (uint8_t)c->index[l];
        b->h[l / 8] |= (uint8_t)(c->index[l] >> 8 << l % 8);
    }
    memcpy(b->sg, c->signs, sizeof b->sg);
    for (int g = 0; g < 8; g++) b->sc[g / 2] |= (uint8_t)(c->scale[g] << g % 2 * 4);
}
QUANT_ENCODE_BY_BOOK(IQ3_S)
