/* IQ4_XS: 256 codes of four bits in 8 groups of 32; they name the 16 levels of IQ4_NL, each group has a 6-bit scale.
 *
 *     byte 0      2      4       8                                               136
 *          | d    | sh   | sl[4] | q[128]                                        |
 *
 *     q: eight runs of 16 bytes, one group each: the low four bits are element j, the high four element j + 16.
 *     sl: the low four bits of the scales, two a byte, the even group in the low half; sh: their high two bits,
 *     group g at bit 2 g.
 *
 *     x[i] = d * (scale[g] - 32) * level[code[i]]          d: binary16
 *
 * source: ggml's block_iq4_xs. */
#include <math.h>
#include "quant/quant_search.h"

void quant_IQ4_XS_decode(float *y, const void *blocks, size_t n) {
    const struct block_IQ4_XS *b = blocks;
    for (size_t i = 0; i < n / 256; i++, b++)
        for (int g = 0; g < 8; g++, y += 32) {
            int scale = (b->sl[g / 2] >> g % 2 * 4 & 15) | (b->sh >> 2 * g & 3) << 4;
            float d = f16_to_f32(b->d) * (float)(scale - 32);
            for (int j = 0; j < 16; j++) {
                y[j] = d * (float)quant_iq4_nl_levels[b->q[g * 16 + j] & 15];
                y[j + 16] = d * (float)quant_iq4_nl_levels[b->q[g * 16 + j] >> 4];
            }
        }
}

/* Scales of a block, -32 .. 31 times d, and the sums that least squares wants of their levels. */
struct trial {
    float d;
    int scale[8];
    double error, xl, ll;
};

/* sum w (x - d l)^2 for the levels l of x[32] at scale d; *xl and *ll: sum w x l, sum w l l. */
static float level_error(const float *x, const float *w, float d, const int8_t *nearest, float *xl,
                         float *ll) {
    float inverse = quant_inverse(d), error = 0, a = 0, b = 0;
    for (int j = 0; j < 32; j++) {
        float l = (float)nearest[128 + quant_code(x[j] * inverse, -128, 127)], e = x[j] - d * l;
        error += w[j] * e * e;
        a += w[j] * x[j] * l;
        b += w[j] * l * l;
    }
    *xl = a, *ll = b;
    return error;
}

/* The best whole scale of each group near the one that is there. */
static void choose_scales(struct trial *t, const float *x, const float *w, const int8_t *nearest) {
    t->error = t->xl = t->ll = 0;
    for (int g = 0; g < 8; g++) {
        int near = t->scale[g];
        float least = INFINITY, xl, ll, best_xl = 0, best_ll = 0;
        for (int s = near - 1; s <= near + 1; s++) {
            if (s < -32 || s > 31) continue;
            float e = level_error(x + g * 32, w + g * 32, t->d * (float)s, nearest, &xl, &ll);
            if (!(e < least)) continue;
            least = e, best_xl = xl, best_ll = ll;
            t->scale[g] = s;
        }
        t->error += (double)least;
        t->xl += (double)best_xl * t->scale[g];
        t->ll += (double)best_ll * t->scale[g] * t->scale[g];
    }
}

/* As quant_fit_signed_block: the group with the largest scale has -32; rounded scales want another d, and that others. */
static struct trial fit(const float *x, const float *w, const int8_t *nearest) {
    float scale[8], extreme = 0;
    for (int g = 0; g < 8; g++) {
        scale[g] = quant_fit_levels(x + g * 32, w + g * 32, nearest);
        if ((scale[g] < 0 ? -scale[g] : scale[g]) > (extreme < 0 ? -extreme : extreme)) extreme = scale[g];
    }
    struct trial t = {.d = quant_half_of(extreme / -32)}, best;
    for (int g = 0; g < 8; g++) t.scale[g] = quant_code(scale[g] * quant_inverse(t.d), -32, 31);
    best = t;
    for (int round = 0; round < 3; round++) {
        choose_scales(&t, x, w, nearest);
        if (round > 0 && !(t.error < best.error)) break;
        best = t;
        float d = quant_half_of(t.ll > 0 ? (float)(t.xl / t.ll) : t.d);
        if (d == t.d) break;
        t.d = d;
    }
    return best;
}

void quant_IQ4_XS_encode(void *blocks, const float *x, size_t n, const float *importance) {
    struct block_IQ4_XS *b = blocks;
    float own[256];
    int8_t nearest[256];
    quant_level_table(nearest);
    for (size_t i = 0; i < n / 256; i++, b++, x += 256) {
        const float *w = quant_weights(importance ? importance + i * 256 : NULL, x, own, 256);
        struct trial t = fit(x, w, nearest);
        memset(b, 0, sizeof *b);
        b->d = f32_to_f16(t.d);
        for (int g = 0; g < 8; g++) {
            int scale = t.scale[g] + 32;
            float inverse = quant_inverse(t.d * (float)t.scale[g]);
            b->sl[g / 2] |= (uint8_t)((scale & 15) << g % 2 * 4);
            b->sh |= (uint16_t)(scale >> 4 << 2 * g);
            for (int j = 0; j < 16; j++)
                b->q[g * 16 + j] = (uint8_t)(quant_level_code(x[g * 32 + j] * inverse) |
                                             quant_level_code(x[g * 32 + j + 16] * inverse) << 4);
        }
    }
}
