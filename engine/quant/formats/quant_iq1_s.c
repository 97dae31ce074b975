/* IQ1_S: 256 values in 32 points of 8, out of a codebook of 2,048 with -1, 0 and 1, all of a group of 32 an eighth more or less.
 *
 *     byte 0      2             34                      50
 *          | d    | q[32]       | h[8] of 16 bits       |
 *
 *     q: low eight bits of the index; h: of a group, bits 3 l .. 3 l + 2 the high bits of point l, bits 12 .. 14 the scale s, bit 15
 *     set: an eighth less.
 *
 *     x[i] = d * (2 s + 1) * (value +- 1/8)          d: binary16
 *
 * Codes are 8 times that. source: ggml's block_iq1_s. */
#include "quant/quant_codes.h"

void quant_IQ1_S_codes(int8_t *code, float *d, const void *blocks, size_t n) {
    const struct block_IQ1_S *b = blocks;
    for (size_t i = 0; i < n / 256; i++, b++) {
        const float scale = f16_to_f32(b->d);
        for (int g = 0; g < 8; g++, d += 2) {
            const unsigned h = b->h[g];
            d[0] = d[1] = scale * (float)(2 * (h >> 12 & 7) + 1) * 0.125f;
            for (int l = 0; l < 4; l++, code += 8)
                quant_put_less(code, quant_grid_iq1_s[b->q[4 * g + l] | (h >> 3 * l & 7) << 8],
                               7 + (h >> 14 & 2));
        }
    }
}
QUANT_DECODE_BY_CODES(IQ1_S)

static const struct quant_book book = {.point = quant_points_iq1_s,
                                       .n = 2048,
                                       .len = 8,
                                       .level = {-8, 0, 8},
                                       .plus = true,
                                       .group = 32,
                                       .together = 32,
                                       .most = 15,
                                       .unit = 0.125f};

static void pack(struct block_IQ1_S *b, const struct quant_chosen *c) {
    b->d = f32_to_f16(c->d);
    for (int g = 0; g < 8; g++) {
        b->h[g] = (uint16_t)(c->scale[g] << 12 | c->minus[4 * g] << 15);
        for (int l = 4 * g; l < 4 * g + 4; l++) {
            b->q[l] = (uint8_t)c->index[l];
            b->h[g] |= (uint16_t)(c->index[l] >> 8 << l % 4 * 3);
        }
    }
}
QUANT_ENCODE_BY_BOOK(IQ1_S)
