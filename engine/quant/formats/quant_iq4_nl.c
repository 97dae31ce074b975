/* IQ4_NL: 32 codes of four bits that name one of 16 uneven levels, and one scale.
 *
 *     byte 0      2                                        18
 *          | d    | q[0] ...                         q[15] |
 *                   low four bits: element j, high four: element j + 16
 *
 *     x[i] = d * level[code[i]]          d: binary16
 *
 * source: ggml's block_IQ4_NL and kvalues_iq4nl. */
#include "quant/quant_search.h"

const int8_t quant_iq4_nl_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                        1,    13,   25,  38,  53,  69,  89,  113};

void quant_IQ4_NL_decode(float *y, const void *blocks, size_t n) {
    const struct block_IQ4_NL *b = blocks;
    for (size_t i = 0; i < n / 32; i++, b++, y += 32) {
        float d = f16_to_f32(b->d);
        for (int j = 0; j < 16; j++) {
            y[j] = (float)quant_iq4_nl_levels[b->q[j] & 15] * d;
            y[j + 16] = (float)quant_iq4_nl_levels[b->q[j] >> 4] * d;
        }
    }
}

int quant_level_code(float v) {
    int code = 0; /* halves of neighbours' sums are the borders */
    for (int k = 0; k < 15; k++) code += 2 * v > (float)(quant_iq4_nl_levels[k] + quant_iq4_nl_levels[k + 1]);
    return code;
}

/* sum w x l and sum w l l for the levels l of x at 1/d = inverse. */
static void level_sums(const float *x, const float *w, float inverse, const int8_t *nearest, float *xl,
                       float *ll) {
    float a = 0, b = 0;
    for (int j = 0; j < 32; j++) {
        float l = (float)nearest[128 + quant_code(x[j] * inverse, -128, 127)];
        a += w[j] * l * x[j];
        b += w[j] * l * l;
    }
    *xl = a, *ll = b;
}

void quant_level_table(int8_t nearest[256]) {
    for (int v = -128; v < 128; v++) nearest[128 + v] = quant_iq4_nl_levels[quant_level_code((float)v)];
}

/* As quant_fit_signed: the largest element lands on either end or beyond, then least squares. */
float quant_fit_levels(const float *x, const float *w, const int8_t *nearest) {
    float extreme = 0, best = 0, gain = 0, xl, ll;
    for (int j = 0; j < 32; j++)
        if ((x[j] < 0 ? -x[j] : x[j]) > (extreme < 0 ? -extreme : extreme)) extreme = x[j];
    if (!((extreme < 0 ? -extreme : extreme) > 1e-20f)) return 0;
    for (int k = 0; k < 26; k++) {
        float at = k < 13 ? -127.0f * (0.8f + 0.04f * (float)k) : 113.0f * (0.8f + 0.04f * (float)(k - 13));
        float inverse = at / extreme;
        for (int again = 0; again < 3; again++) {
            level_sums(x, w, inverse, nearest, &xl, &ll);
            if (!(ll > 0) || !(xl * xl > gain * ll)) break;
            best = xl / ll, gain = xl * xl / ll;
            inverse = quant_inverse(best);
        }
    }
    return best;
}

void quant_IQ4_NL_encode(void *blocks, const float *x, size_t n, const float *importance) {
    struct block_IQ4_NL *b = blocks;
    float own[32];
    int8_t nearest[256];
    quant_level_table(nearest);
    for (size_t i = 0; i < n / 32; i++, b++, x += 32) {
        const float *w = quant_weights(importance ? importance + i * 32 : NULL, x, own, 32);
        float d = quant_half_of(quant_fit_levels(x, w, nearest)), inverse = quant_inverse(d);
        b->d = f32_to_f16(d);
        for (int j = 0; j < 16; j++)
            b->q[j] =
                (uint8_t)(quant_level_code(x[j] * inverse) | quant_level_code(x[j + 16] * inverse) << 4);
    }
}
