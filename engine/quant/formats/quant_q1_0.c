/* Q1_0: 128 signs and one scale.
 *
 *     byte 0      2                                        18
 *          | d    | q[16], element j at bit j % 8 of q[j/8] |
 *
 *     x[i] = bit ? d : -d          d: binary16
 *
 * source: ggml's block_q1_0. */
#include <math.h>
#include "quant/quant_codes.h"

void quant_Q1_0_codes(int8_t *code, float *d, const void *blocks, size_t n) {
    const struct block_Q1_0 *b = blocks;
    for (size_t i = 0; i < n / 128; i++, b++, code += 128) {
        for (int g = 0; g < 8; g++) *d++ = f16_to_f32(b->d);
        for (int j = 0; j < 16; j++) { /* eight at once: bit i of a byte to byte i, which becomes 1 or 255 */
            const uint64_t bit = b->q[j] * UINT64_C(0x0101010101010101) & UINT64_C(0x8040201008040201),
                           one = (bit + UINT64_C(0x7f7f7f7f7f7f7f7f)) >> 7 & UINT64_C(0x0101010101010101),
                           eight = ~UINT64_C(0) ^ one * 0xfe;
            memcpy(code + 8 * j, &eight, sizeof eight);
        }
    }
}
QUANT_DECODE_BY_CODES(Q1_0)

/* The least squares of magnitudes are their mean. */
void quant_Q1_0_encode(void *blocks, const float *x, size_t n, const float *importance) {
    struct block_Q1_0 *b = blocks;
    float own[128];
    for (size_t i = 0; i < n / 128; i++, b++, x += 128) {
        const float *w = quant_weights(importance ? importance + i * 128 : NULL, x, own, 128);
        double sum = 0, all = 0;
        memset(b, 0, sizeof *b);
        for (int j = 0; j < 128; j++) {
            if (x[j] > 0) b->q[j / 8] |= (uint8_t)(1 << j % 8);
            if (!isfinite(w[j] * x[j])) continue;
            sum += (double)(w[j] * fabsf(x[j])), all += (double)w[j];
        }
        b->d = f32_to_f16(quant_half_of(all > 0 ? (float)(sum / all) : 0));
    }
}
