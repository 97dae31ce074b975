/* Q4_1: 32 codes of four bits, one scale and one offset.
 *
 *     byte 0      2      4                                        20
 *          | d    | m    | q[0] ...                         q[15] |
 *                          low four bits: element j, high four: element j + 16
 *
 *     x[i] = d * code[i] + m          d, m: binary16
 *
 * source: ggml's block_q4_1. */
#include "quant_impl.h"

void quant_Q4_1_decode(float *y, const void *blocks, size_t n) {
    const struct block_q4_1 *b = blocks;
    for (size_t i = 0; i < n / 32; i++, b++, y += 32) {
        float d = f16_to_f32(b->d), m = f16_to_f32(b->m);
        for (int j = 0; j < 16; j++) {
            y[j] = (float)(b->q[j] & 15) * d + m;
            y[j + 16] = (float)(b->q[j] >> 4) * d + m;
        }
    }
}
