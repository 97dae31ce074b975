/* Q8_0: 32 signed bytes and one scale.
 *
 *     byte 0      2                             34
 *          | d    | q[0] q[1] ...         q[31] |
 *
 *     x[i] = d * q[i]          d: binary16
 *
 * source: ggml's block_Q8_0. */
#include "quant/quant_search.h"

void quant_Q8_0_decode(float *y, const void *blocks, size_t n) {
    const struct block_Q8_0 *b = blocks;
    for (size_t i = 0; i < n / 32; i++, b++) {
        float d = f16_to_f32(b->d);
        for (int j = 0; j < 32; j++) y[i * 32 + j] = (float)b->q[j] * d;
    }
}

/* d from the largest element, then rounding with the half that is stored. */
void quant_Q8_0_encode(void *blocks, const float *x, size_t n, const float *importance) {
    (void)importance; /* every element is within half a step whatever its weight */
    struct block_Q8_0 *b = blocks;
    for (size_t i = 0; i < n / 32; i++, b++, x += 32) {
        float largest = 0;
        for (int j = 0; j < 32; j++) {
            float a = x[j] < 0 ? -x[j] : x[j];
            largest = a > largest ? a : largest;
        }
        float d = quant_half_of(largest / 127.0f), inverse = quant_inverse(d);
        b->d = f32_to_f16(d);
        for (int j = 0; j < 32; j++) b->q[j] = (int8_t)quant_code(x[j] * inverse, -127, 127);
    }
}
