/* Z4: 32 codes of four bits with a scale and a whole zero point: what GPTQ, AWQ and compressed-tensors have. No type of GGUF files.
 *
 *     byte 0      2   3   4                                20
 *          | d    | z |   | q[0] ...                 q[15] |
 *                           low four bits: element j, high four: element j + 16
 *
 *     x[i] = d * (code[i] - z)          d: binary16; z: 0 .. 16
 *
 * The product of d and z has more bits than Q4_1's minimum. source: the layout is ours. */
#include "quant/quant_codes.h"

void quant_Z4_codes(int8_t *code, float *d, const void *blocks, size_t n) {
    const struct block_Z4 *b = blocks;
    for (size_t i = 0; i < n / 32; i++, b++, code += 32) {
        d[0] = d[1] = f16_to_f32(b->d);
        d += 2;
        for (int j = 0; j < 16; j++) {
            code[j] = (int8_t)((b->q[j] & 15) - b->z);
            code[j + 16] = (int8_t)((b->q[j] >> 4) - b->z);
        }
    }
}
QUANT_DECODE_BY_CODES(Z4)

void quant_Z4_encode(void *blocks, const float *x, size_t n, const float *importance) {
    struct block_Z4 *b = blocks;
    float own[32], d, m;
    for (size_t i = 0; i < n / 32; i++, b++, x += 32) {
        quant_fit_affine(x, quant_weights(importance ? importance + i * 32 : NULL, x, own, 32), 32, 15, 1, &d,
                         &m);
        d = quant_half_of(d);
        const float inverse = quant_inverse(d);
        *b = (struct block_Z4){.d = f32_to_f16(d), .z = (uint8_t)quant_code(-m * inverse, 0, 16)};
        for (int j = 0; j < 16; j++)
            b->q[j] = (uint8_t)(quant_code(x[j] * inverse + (float)b->z, 0, 15) |
                                quant_code(x[j + 16] * inverse + (float)b->z, 0, 15) << 4);
    }
}
