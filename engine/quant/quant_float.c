/* F32, F16 and BF16: a block is one element.
 *
 *     F32    s eeeeeeee mmmmmmmmmmmmmmmmmmmmmmm    IEEE 754 binary32, little endian
 *     F16    s eeeee mmmmmmmmmm                    IEEE 754 binary16
 *     BF16   s eeeeeeee mmmmmmm                    the upper half of a binary32
 *
 * Encoding rounds to nearest, ties to even; F16 overflows to infinity. */
#include "quant/quant_impl.h"

void quant_F32_decode(float *y, const void *blocks, size_t n) { memcpy(y, blocks, n * 4); }

void quant_F32_encode(void *blocks, const float *x, size_t n, const float *importance) {
    (void)importance;
    memcpy(blocks, x, n * 4);
}

void quant_F16_decode(float *y, const void *blocks, size_t n) {
    const uint16_t *h = blocks;
    for (size_t i = 0; i < n; i++) y[i] = f16_to_f32(h[i]);
}

void quant_F16_encode(void *blocks, const float *x, size_t n, const float *importance) {
    (void)importance;
    uint16_t *h = blocks;
    for (size_t i = 0; i < n; i++) h[i] = f32_to_f16(x[i]);
}

void quant_BF16_decode(float *y, const void *blocks, size_t n) {
    const uint16_t *h = blocks;
    for (size_t i = 0; i < n; i++) y[i] = bf16_to_f32(h[i]);
}

void quant_BF16_encode(void *blocks, const float *x, size_t n, const float *importance) {
    (void)importance;
    uint16_t *h = blocks;
    for (size_t i = 0; i < n; i++) h[i] = f32_to_bf16(x[i]);
}
