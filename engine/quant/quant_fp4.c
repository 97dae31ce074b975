/* FP4: 64 codes of four bits and the largest magnitude: bitsandbytes. No type of GGUF files.
 *
 *     byte 0      4                                        36
 *          | s    | q[32]                                  |
 *                   low four bits: element 2 j, high four: element 2 j + 1
 *
 *     x[i] = s * level[code[i]]          s: binary32; floats with two bits of exponent and one behind the point, 1 the largest
 *
 * Codes of 8 bits are the nearest to 120 times the level; all but the smallest are whole then. source: bitsandbytes' quant_map; the layout is ours. */
#include <math.h>
#include "quant/quant_codes.h"

const float quant_fp4_levels[16] = {
    0.0f,  0.005208333333f,  0.6666666667f,  1.0f,  0.3333333333f,  0.5f,  0.1666666667f,  0.25f,
    -0.0f, -0.005208333333f, -0.6666666667f, -1.0f, -0.3333333333f, -0.5f, -0.1666666667f, -0.25f};

void quant_FP4_decode(float *y, const void *blocks, size_t n) {
    const struct block_FP4 *b = blocks;
    for (size_t i = 0; i < n / 64; i++, b++, y += 64)
        for (int j = 0; j < 64; j++) y[j] = b->s * quant_fp4_levels[b->q[j / 2] >> j % 2 * 4 & 15];
}

void quant_FP4_codes(int8_t *code, float *d, const void *blocks, size_t n) {
    const struct block_FP4 *b = blocks;
    int8_t level[16];
    for (int j = 0; j < 16; j++) level[j] = (int8_t)quant_code(120 * quant_fp4_levels[j], -127, 127);
    for (size_t i = 0; i < n / 64; i++, b++, code += 64) {
        for (int g = 0; g < 4; g++) *d++ = b->s * (1.0f / 120);
        for (int j = 0; j < 64; j++) code[j] = level[b->q[j / 2] >> j % 2 * 4 & 15];
    }
}

void quant_FP4_encode(void *blocks, const float *x, size_t n, const float *importance) {
    struct block_FP4 *b = blocks;
    (void)importance;
    for (size_t i = 0; i < n / 64; i++, b++, x += 64) {
        b->s = quant_largest(x, 64);
        const float inverse = quant_inverse(b->s);
        memset(b->q, 0, sizeof b->q);
        for (int j = 0; j < 64; j++)
            b->q[j / 2] |= (uint8_t)(quant_nearest_of(quant_fp4_levels, x[j] * inverse) << j % 2 * 4);
    }
}
