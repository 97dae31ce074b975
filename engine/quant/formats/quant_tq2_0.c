/* TQ2_0: 256 values of two bits and one scale.
 *
 *     byte 0                      64     66
 *          | q[64]                | d    |
 *
 *     Bits 2 k and 2 k + 1 of q[32 h + j]: element 128 h + 32 k + j.
 *
 *     x[i] = d * (code - 1)          d: binary16
 *
 * source: ggml's block_tq2_0. */
#include "quant/quant_codes.h"

void quant_TQ2_0_codes(int8_t *code, float *d, const void *blocks, size_t n) {
    const struct block_TQ2_0 *b = blocks;
    for (size_t i = 0; i < n / 256; i++, b++, code += 256) {
        for (int g = 0; g < 16; g++) *d++ = f16_to_f32(b->d);
        for (int k = 0; k < 8; k++) /* (in this form compilers take 16 and more at once) */
            for (int j = 0; j < 32; j++)
                code[32 * k + j] = (int8_t)((b->q[k / 4 * 32 + j] >> k % 4 * 2 & 3) - 1);
    }
}
QUANT_DECODE_BY_CODES(TQ2_0)

void quant_TQ2_0_encode(void *blocks, const float *x, size_t n, const float *importance) {
    struct block_TQ2_0 *b = blocks;
    float own[256];
    for (size_t i = 0; i < n / 256; i++, b++, x += 256) {
        const float *w = quant_weights(importance ? importance + i * 256 : NULL, x, own, 256);
        const float d = quant_fit_plain(x, w, 256, -1, 1), inverse = quant_inverse(d);
        memset(b, 0, sizeof *b);
        b->d = f32_to_f16(d);
        for (int j = 0; j < 256; j++)
            b->q[j / 128 * 32 + j % 32] |=
                (uint8_t)((quant_code(x[j] * inverse, -1, 1) + 1) << j / 32 % 4 * 2);
    }
}
