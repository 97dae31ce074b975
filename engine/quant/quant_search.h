/* Searches for the scales of a block, shared by the encoders of the quantised formats. Private to the engine.
 *
 * Everywhere w[n] weighs the squared error of an element and rounding is to nearest. A
 * fit looks for codes q and scales that make sum w (x - decoded)^2 small: some starting scales, for each the
 * codes by rounding and then the scale by least squares for those codes (closed form), and from the best of
 * them rounding and least squares in turn until nothing improves. Values that are not finite do no harm to
 * memory: they give some codes in range and a finite scale. All results depend on the arguments only, never
 * on the processor. */
#pragma once
#include "quant/quant_impl.h"

enum { QUANT_GROUP_MAX = 32 };

/* v as the nearest half, as a float; clamped to the largest finite half. */
static inline float quant_half_of(float v) {
    if (!(v == v)) return 0;
    v = v > 65504.0f ? 65504.0f : v < -65504.0f ? -65504.0f : v;
    return f16_to_f32(f32_to_f16(v));
}
/* Nearest integer of v clamped to lo..hi; hi for NaN. */
static inline int quant_code(float v, int lo, int hi) {
    v = v < (float)hi ? v : (float)hi;
    v = v > (float)lo ? v : (float)lo;
    return (int)((v + 0x1.8p23f) - 0x1.8p23f);
}
static inline float quant_inverse(float d) { return d != 0 ? 1.0f / d : 0; }
/* importance, or when that is NULL the weights that stand for it; own[n] is scratch. */
const float *quant_weights(const float *importance, const float *x, float *own, int n);

/* Scale d of x[n] ~ d * q, q in lo..hi (n a multiple of 8, at most QUANT_GROUP_MAX); 0 when x is all zero.
 * The sign of d is free, since lo and hi differ in size. */
float quant_fit_signed(const float *x, const float *w, int n, int lo, int hi);

/* Scale d >= 0 and offset m of x[n] ~ d * q + m, q in 0..hi (n as above). negative_only: m <= 0. */
void quant_fit_affine(const float *x, const float *w, int n, int hi, int negative_only, float *d, float *m);

/* The same for a block that stores d and m as halves (32 elements, m of any sign). */
void quant_fit_affine_halves(const float *x, const float *w, int hi, float *d, float *m);

/* A super-block of the K formats whose groups of 16 have a signed scale: x ~ d * scale[g] * code. */
struct quant_signed_block {
    float d; /* a half */
    int8_t scale[16];
    int8_t code[256]; /* lo..hi */
};
void quant_fit_signed_block(struct quant_signed_block *b, const float *x, const float *w, int lo, int hi,
                            int scale_lo, int scale_hi);

/* One whose groups have a scale and a minimum: x ~ d * scale[g] * code - dmin * min[g]; group elements a
 * group. */
struct quant_affine_block {
    float d, dmin; /* halves */
    uint8_t scale[16], min[16];
    uint8_t code[256]; /* 0..hi */
};
void quant_fit_affine_block(struct quant_affine_block *b, const float *x, const float *w, int group, int hi,
                            int scale_max);

/* IQ4_NL and IQ4_XS (quant_iq4_nl.c): the code of the level nearest to v; nearest[128 + v], the level nearest to the integer v;
 * scale d of x[32] ~ d * level. */
int quant_level_code(float v);
void quant_level_table(int8_t nearest[256]);
float quant_fit_levels(const float *x, const float *w, const int8_t *nearest);
