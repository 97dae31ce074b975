/* F8_128: 128 floats of eight bits and one scale: FP8 of folders. No type of GGUF files.
 *
 *     byte 0      4                                        132
 *          | s    | q[128]                                 |
 *
 *     x[i] = s * e4m3(q[i])          s: binary32
 *
 * e4m3: a sign, four bits of exponent (bias 7, 0: subnormal), three behind the point; 0x7f and 0xff: not a number. Codes of 8 bits are
 * as near as the largest of 16 values lets them be. source: OCP 8-bit floating point specification 1.0; the layout is ours. */
#include <math.h>
#include "quant/quant_codes.h"

static float value_of(uint8_t q) {
    const int e = q >> 3 & 15, m = q & 7;
    if ((q & 127) == 127) return NAN;
    const float v = e ? quant_bits_to_f32((uint32_t)(e + 120) << 23 | (uint32_t)m << 20) : (float)m * 0x1p-9f;
    return q & 128 ? -v : v;
}

void quant_F8_128_decode(float *y, const void *blocks, size_t n) {
    const struct block_F8_128 *b = blocks;
    float value[256];
    for (int q = 0; q < 256; q++) value[q] = value_of((uint8_t)q);
    for (size_t i = 0; i < n / 128; i++, b++, y += 128)
        for (int j = 0; j < 128; j++) y[j] = b->s * value[b->q[j]];
}

/* A value is (8 + m) 2^(e - 10), of subnormals m 2^-9; the largest exponent of 16 gives its eight bits. */
static float codes_of(int8_t *code, const uint8_t *q) {
    int top = 1;
    for (int j = 0; j < 16; j++) {
        if ((q[j] & 127) == 127) return NAN;
        if ((q[j] >> 3 & 15) > top) top = q[j] >> 3 & 15;
    }
    for (int j = 0; j < 16; j++) {
        const int e = q[j] >> 3 & 15, m = (q[j] & 7) | (e ? 8 : 0), down = top - (e ? e : 1);
        const int c = down > 7 ? 0 : (m * 8 + (1 << down >> 1)) >> down;
        code[j] = (int8_t)(q[j] & 128 ? -c : c);
    }
    return quant_bits_to_f32((uint32_t)(top + 114) << 23);
}
void quant_F8_128_codes(int8_t *code, float *d, const void *blocks, size_t n) {
    const struct block_F8_128 *b = blocks;
    for (size_t i = 0; i < n / 128; i++, b++)
        for (int g = 0; g < 8; g++, code += 16) *d++ = b->s * codes_of(code, b->q + 16 * g);
}

/* The nearest, the even one of two. */
static uint8_t nearest(float x) {
    const uint8_t sign = x < 0 ? 128 : 0;
    float a = fabsf(x);
    if (!(a < 448)) return sign | 0x7e;
    if (a < 0x1p-6f) return sign | (uint8_t)quant_code(a * 0x1p9f, 0, 8);
    uint32_t u = quant_f32_to_bits(a);
    u += 0x7ffff + (u >> 20 & 1);
    const int code = (int)(u >> 20) - (120 << 3);
    return sign | (uint8_t)(code > 0x7e ? 0x7e : code);
}
void quant_F8_128_encode(void *blocks, const float *x, size_t n, const float *importance) {
    struct block_F8_128 *b = blocks;
    (void)importance;
    for (size_t i = 0; i < n / 128; i++, b++, x += 128) {
        float inverse;
        b->s = quant_largest(x, 128) / 448;
        inverse = quant_inverse(b->s);
        for (int j = 0; j < 128; j++) {
            const float v = x[j] * inverse;
            b->q[j] = nearest(v == v ? v : 0);
        }
    }
}
