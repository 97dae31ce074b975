/* IQ4_NL: 32 codes of four bits that name one of 16 uneven levels, and one scale.
 *
 *     byte 0      2                                        18
 *          | d    | q[0] ...                         q[15] |
 *                   low four bits: element j, high four: element j + 16
 *
 *     x[i] = d * level[code[i]]          d: binary16
 *
 * source: ggml's block_iq4_nl and kvalues_iq4nl. */
#include "quant_impl.h"

const int8_t quant_iq4_nl_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                        1,    13,   25,  38,  53,  69,  89,  113};

void quant_IQ4_NL_decode(float *y, const void *blocks, size_t n) {
    const struct block_iq4_nl *b = blocks;
    for (size_t i = 0; i < n / 32; i++, b++, y += 32) {
        float d = f16_to_f32(b->d);
        for (int j = 0; j < 16; j++) {
            y[j] = (float)quant_iq4_nl_levels[b->q[j] & 15] * d;
            y[j + 16] = (float)quant_iq4_nl_levels[b->q[j] >> 4] * d;
        }
    }
}
