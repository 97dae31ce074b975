/* TQ1_0: 256 values -1, 0 and 1, five to a byte, and one scale.
 *
 *     byte 0             48     52     54
 *          | q[48]       | h[4] | d    |
 *
 *     A byte holds the digits of a number in base 3, as the fraction byte / 256: digit k is the whole part of 3 times what is left of
 *     byte * 3^k. Digit k of q[j]: element 32 k + j for j below 32, 160 + 16 k + j - 32 from there on; of h[j]: 240 + 4 k + j.
 *
 *     x[i] = d * (digit - 1)          d: binary16
 *
 * source: ggml's block_tq1_0. */
#include "quant/quant_codes.h"

static const uint8_t power[5] = {1, 3, 9, 27, 81};

/* k digits of each of n bytes. */
static int8_t *digits(int8_t *code, const uint8_t *q, int n, int k) {
    for (int i = 0; i < k; i++)
        for (int j = 0; j < n; j++) *code++ = (int8_t)(((uint8_t)(q[j] * power[i]) * 3 >> 8) - 1);
    return code;
}

void quant_TQ1_0_codes(int8_t *code, float *d, const void *blocks, size_t n) {
    const struct block_TQ1_0 *b = blocks;
    for (size_t i = 0; i < n / 256; i++, b++) {
        for (int g = 0; g < 16; g++) *d++ = f16_to_f32(b->d);
        code = digits(code, b->q, 32, 5);
        code = digits(code, b->q + 32, 16, 5);
        code = digits(code, b->h, 4, 4);
    }
}
QUANT_DECODE_BY_CODES(TQ1_0)

/* The inverse of digits: the least byte above the fraction. */
static const int8_t *put_digits(uint8_t *q, const int8_t *code, int n, int k) {
    for (int j = 0; j < n; j++) {
        int number = 0;
        for (int i = 0; i < 5; i++) number = 3 * number + (i < k ? code[i * n + j] + 1 : 0);
        q[j] = (uint8_t)((number * 256 + 242) / 243);
    }
    return code + n * k;
}

void quant_TQ1_0_encode(void *blocks, const float *x, size_t n, const float *importance) {
    struct block_TQ1_0 *b = blocks;
    float own[256];
    int8_t code[256];
    for (size_t i = 0; i < n / 256; i++, b++, x += 256) {
        const float *w = quant_weights(importance ? importance + i * 256 : NULL, x, own, 256);
        const float d = quant_fit_plain(x, w, 256, -1, 1), inverse = quant_inverse(d);
        for (int j = 0; j < 256; j++) code[j] = (int8_t)quant_code(x[j] * inverse, -1, 1);
        b->d = f32_to_f16(d);
        put_digits(b->h, put_digits(b->q + 32, put_digits(b->q, code, 32, 5), 16, 5), 4, 4);
    }
}
