/* IQ1_M: as IQ1_S with a scale for 16 values and an eighth more or less for 8.
 *
 *     byte 0             32            48                   56
 *          | q[32]       | h[16]       | sc[4] of 16 bits   |
 *
 *     q: low eight bits of the index; h: of each point four bits, low ones first: three of the index, the fourth set: an eighth less.
 *     sc: bits 3 j .. 3 j + 2 the scales s of four runs of 16; their top four bits are the binary16 d, lowest first.
 *
 *     x[i] = d * (2 s + 1) * (value +- 1/8)
 *
 * Codes are 8 times that. source: ggml's block_iq1_m. */
#include "quant/quant_codes.h"

void quant_IQ1_M_codes(int8_t *code, float *d, const void *blocks, size_t n) {
    const struct block_IQ1_M *b = blocks;
    for (size_t i = 0; i < n / 256; i++, b++) {
        const float scale = f16_to_f32(quant_iq1_m_half(b));
        for (int g = 0; g < 16; g++, code += 16) {
            const unsigned h = b->h[g];
            *d++ = scale * (float)(2 * (b->sc[g / 4] >> g % 4 * 3 & 7) + 1) * 0.125f;
            quant_put_less(code, quant_grid_iq1_s[b->q[2 * g] | (h & 7) << 8], 7 + (h >> 2 & 2));
            quant_put_less(code + 8, quant_grid_iq1_s[b->q[2 * g + 1] | (h >> 4 & 7) << 8], 7 + (h >> 6 & 2));
        }
    }
}
QUANT_DECODE_BY_CODES(IQ1_M)

static const struct quant_book book = {.point = quant_points_iq1_s,
                                       .n = 2048,
                                       .len = 8,
                                       .level = {-8, 0, 8},
                                       .plus = true,
                                       .group = 16,
                                       .together = 8,
                                       .most = 15,
                                       .unit = 0.125f};

static void pack(struct block_IQ1_M *b, const struct quant_chosen *c) {
    const uint16_t d = f32_to_f16(c->d);
    for (int l = 0; l < 32; l++) {
        b->q[l] = (uint8_t)c->index[l];
        b->h[l / 2] |= (uint8_t)((c->index[l] >> 8 | c->minus[l] << 3) << l % 2 * 4);
    }
    for (int g = 0; g < 16; g++) b->sc[g / 4] |= (uint16_t)(c->scale[g] << g % 4 * 3);
    for (int j = 0; j < 4; j++) b->sc[j] |= (uint16_t)((d >> 4 * j & 15) << 12);
}
QUANT_ENCODE_BY_BOOK(IQ1_M)
