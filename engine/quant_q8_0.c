/* Q8_0: 32 signed bytes and one scale.
 *
 *     byte 0      2                             34
 *          | d    | q[0] q[1] ...         q[31] |
 *
 *     x[i] = d * q[i]          d: binary16
 *
 * source: ggml's block_q8_0. */
#include "quant_impl.h"

void quant_Q8_0_decode(float *y, const void *blocks, size_t n) {
    const struct block_q8_0 *b = blocks;
    for (size_t i = 0; i < n / 32; i++, b++) {
        float d = f16_to_f32(b->d);
        for (int j = 0; j < 32; j++) y[i * 32 + j] = (float)b->q[j] * d;
    }
}
