/* Q5_1: 32 codes of five bits, one scale and one offset; the fifth bits apart.
 *
 *     byte 0      2      4              8                                        24
 *          | d    | m    | h: 32 bits   | q[0] ...                         q[15] |
 *                          bit i of h (little endian) is bit 4 of element i
 *                                         low four bits: element j, high four: element j + 16
 *
 *     x[i] = d * code[i] + m          d, m: binary16
 *
 * source: ggml's block_q5_1. */
#include "quant_impl.h"

void quant_Q5_1_decode(float *y, const void *blocks, size_t n) {
    const struct block_q5_1 *b = blocks;
    for (size_t i = 0; i < n / 32; i++, b++, y += 32) {
        float d = f16_to_f32(b->d), m = f16_to_f32(b->m);
        for (int j = 0; j < 16; j++) {
            int low = (b->q[j] & 15) | (b->h[j / 8] >> (j & 7) & 1) << 4;
            int high = b->q[j] >> 4 | (b->h[2 + j / 8] >> (j & 7) & 1) << 4;
            y[j] = (float)low * d + m;
            y[j + 16] = (float)high * d + m;
        }
    }
}
