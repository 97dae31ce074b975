/* Q2_0: 64 codes of two bits and one scale.
 *
 *     byte 0      2                                        18
 *          | d    | q[16], element j at bits 2 (j % 4) of q[j / 4] |
 *
 *     x[i] = d * (code - 1)          d: binary16
 *
 * source: ggml's block_q2_0; a fork's blocks of 128 with the same number are another type. */
#include "quant/quant_codes.h"

void quant_Q2_0_codes(int8_t *code, float *d, const void *blocks, size_t n) {
    const struct block_Q2_0 *b = blocks;
    for (size_t i = 0; i < n / 64; i++, b++, code += 64) {
        for (int g = 0; g < 4; g++) *d++ = f16_to_f32(b->d);
        for (int j = 0; j < 16; j++) { /* four at once: two bits to a byte each, less 1 */
            const uint32_t q = b->q[j], four = (q | q << 6 | q << 12 | q << 18) & 0x03030303,
                           less = ((four | 0x80808080) - 0x01010101) ^ 0x80808080;
            memcpy(code + 4 * j, &less, sizeof less);
        }
    }
}
QUANT_DECODE_BY_CODES(Q2_0)

void quant_Q2_0_encode(void *blocks, const float *x, size_t n, const float *importance) {
    struct block_Q2_0 *b = blocks;
    float own[64];
    for (size_t i = 0; i < n / 64; i++, b++, x += 64) {
        const float *w = quant_weights(importance ? importance + i * 64 : NULL, x, own, 64);
        const float d = quant_fit_plain(x, w, 64, -1, 2), inverse = quant_inverse(d);
        memset(b, 0, sizeof *b);
        b->d = f32_to_f16(d);
        for (int j = 0; j < 64; j++)
            b->q[j / 4] |= (uint8_t)((quant_code(x[j] * inverse, -1, 2) + 1) << j % 4 * 2);
    }
}
