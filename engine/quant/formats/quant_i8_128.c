/* I8_128: 128 codes of eight bits with a sign and one scale: LLM.int8() and compressed-tensors' int8. No type of GGUF files.
 *
 *     byte 0      4                                        132
 *          | s    | q[128]                                 |
 *
 *     x[i] = s * q[i]          s: binary32
 *
 * source: the layout is ours. */
#include "quant/quant_codes.h"

void quant_I8_128_codes(int8_t *code, float *d, const void *blocks, size_t n) {
    const struct block_I8_128 *b = blocks;
    for (size_t i = 0; i < n / 128; i++, b++, code += 128) {
        for (int g = 0; g < 8; g++) *d++ = b->s;
        memcpy(code, b->q, 128);
    }
}
QUANT_DECODE_BY_CODES(I8_128)

void quant_I8_128_encode(void *blocks, const float *x, size_t n, const float *importance) {
    struct block_I8_128 *b = blocks;
    (void)importance;
    for (size_t i = 0; i < n / 128; i++, b++, x += 128) {
        float inverse;
        b->s = quant_largest(x, 128) / 127;
        inverse = quant_inverse(b->s);
        for (int j = 0; j < 128; j++) b->q[j] = (int8_t)quant_code(x[j] * inverse, -127, 127);
    }
}
