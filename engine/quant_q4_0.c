/* Q4_0: 32 codes of four bits and one scale.
 *
 *     byte 0      2                                        18
 *          | d    | q[0] ...                         q[15] |
 *                   low four bits: element j, high four: element j + 16
 *
 *     x[i] = d * (code[i] - 8)          d: binary16
 *
 * source: ggml's block_q4_0. */
#include "quant_impl.h"

void quant_Q4_0_decode(float *y, const void *blocks, size_t n) {
    const struct block_q4_0 *b = blocks;
    for (size_t i = 0; i < n / 32; i++, b++, y += 32) {
        float d = f16_to_f32(b->d);
        for (int j = 0; j < 16; j++) {
            y[j] = (float)((b->q[j] & 15) - 8) * d;
            y[j + 16] = (float)((b->q[j] >> 4) - 8) * d;
        }
    }
}
