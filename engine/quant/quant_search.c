#include "quant/quant_search.h"
#include <math.h>

/* The same source compiled for AVX2 and for any x86-64; no FMA in either, so the bits are equal. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define CLONES __attribute__((target_clones("avx2", "default")))
#else
#define CLONES
#endif
#define ALWAYS static inline __attribute__((always_inline))

/* Eight floats side by side; two SSE registers where there is no AVX. How they are passed to functions depends on
 * the target (hence -Wno-psabi for this file), which does not matter to functions that are always inlined. */
typedef float v8 __attribute__((vector_size(32)));
typedef int32_t v8i __attribute__((vector_size(32)));
enum { LANES = 8 };

ALWAYS v8 load8(const float *p) {
    v8 v;
    memcpy(&v, p, sizeof v);
    return v;
}
ALWAYS v8 all(float x) { return (v8){x, x, x, x, x, x, x, x}; }
ALWAYS float lane_sum(v8 a) { return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7])); }
ALWAYS v8 choose(v8i mask, v8 yes, v8 no) { return (v8)((mask & (v8i)yes) | (~mask & (v8i)no)); }
/* Nearest integer in lo..hi as a float; the addition rounds to nearest even. */
ALWAYS v8 round_clamped(v8 v, v8 lo, v8 hi) {
    v = choose(v < hi, v, hi);
    v = choose(v > lo, v, lo);
    return (v + 0x1.8p23f) - 0x1.8p23f;
}

/* |x| + rms, as ggml's Q4_K does. Measured on a 135M model written in one type each (perplexity of 3,072 tokens; all
 * alike / x^2 + mean square / this): Q3_K 35.4 / 30.5 / 30.3, IQ4_NL 28.9 / 27.2 / 27.5, Q4_0 28.9 / 29.4 / 28.3. */
const float *quant_weights(const float *importance, const float *x, float *own, int n) {
    if (importance) return importance;
    float sum = 0;
    for (int i = 0; i < n; i++) sum += x[i] * x[i];
    float rms = sqrtf(sum / (float)n);
    for (int i = 0; i < n; i++) own[i] = rms + fabsf(x[i]);
    return own;
}

/* ---- one group, signed codes ---- */

/* sum w x q and sum w q q for the codes q of x at 1/d = inverse. */
ALWAYS void signed_sums(const float *x, const float *w, int n, float inverse, float lo, float hi, float *xq,
                        float *qq) {
    v8 a = all(0), b = all(0);
    for (int i = 0; i < n; i += LANES) {
        v8 xi = load8(x + i), q = round_clamped(xi * inverse, all(lo), all(hi)), wq = load8(w + i) * q;
        a += wq * xi;
        b += wq * q;
    }
    *xq = lane_sum(a);
    *qq = lane_sum(b);
}

/* Keeps the scale in best[0] when its gain (error removed: (sum w x q)^2 / sum w q q) beats best[1]. */
ALWAYS int signed_try(const float *x, const float *w, int n, float inverse, float lo, float hi, float *best) {
    float xq, qq;
    signed_sums(x, w, n, inverse, lo, hi, &xq, &qq);
    if (!(qq > 0) || !(xq * xq > best[1] * qq)) return 0;
    best[0] = xq / qq;
    best[1] = xq * xq / qq;
    return 1;
}

CLONES
float quant_fit_signed(const float *x, const float *w, int n, int lo, int hi) {
    float extreme = 0, largest = 0;
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > largest) largest = fabsf(x[i]), extreme = x[i];
    if (!(largest > 1e-20f)) return 0;
    /* The largest element lands on either end of the codes, a little inside, or (clipped) outside. Few codes
     * gain from clipping, many do not. */
    float best[2] = {extreme / (float)lo, 0};
    for (int end = 0; end < 2; end++) {
        float code = (float)(end ? hi : lo), size = fabsf(code);
        float reach = size * (size < 6 ? 0.5f : 0.25f), step = size < 6 ? 0.06f * size : 0.025f * size;
        if (size > 20) reach = 1.6f, step = 0.2f;
        float from = size - (reach < 1 ? reach : 1.0f);
        for (float at = from; at <= size + reach; at += step)
            signed_try(x, w, n, copysignf(at, code) / extreme, (float)lo, (float)hi, best);
        signed_try(x, w, n, code / extreme, (float)lo, (float)hi, best);
    }
    for (int i = 0; i < 4; i++)
        if (!signed_try(x, w, n, quant_inverse(best[0]), (float)lo, (float)hi, best)) break;
    return best[0];
}

/* sum w (x - d q)^2 with the codes q of x at scale d. */
ALWAYS float signed_error(const float *x, const float *w, int n, float d, float lo, float hi) {
    float inverse = quant_inverse(d);
    v8 a = all(0);
    for (int i = 0; i < n; i += LANES) {
        v8 xi = load8(x + i), e = xi - d * round_clamped(xi * inverse, all(lo), all(hi));
        a += load8(w + i) * e * e;
    }
    return lane_sum(a);
}

/* ---- one group, codes 0..hi and an offset ---- */

struct affine_best {
    float d, m, gain;
};

/* Least squares for the codes of x at 1/d = inverse and offset m. Sums run over y = x - mean, whose squares
 * are small; the gain is counted against the error of "all x are the weighted mean". */
ALWAYS int affine_try(const float *y, const float *w, int n, float mean, float wsum, float inverse, float m,
                      float hi, int negative_only, struct affine_best *best) {
    float shift = mean - m;
    v8 a = all(0), b = all(0), c = all(0);
    for (int i = 0; i < n; i += LANES) {
        v8 yi = load8(y + i), q = round_clamped((yi + shift) * inverse, all(0), all(hi)),
           wq = load8(w + i) * q;
        a += wq * yi;
        b += wq * q;
        c += wq;
    }
    float yq = lane_sum(a), qq = lane_sum(b), q1 = lane_sum(c);
    float det = qq * wsum - q1 * q1; /* sum w y = 0 */
    if (!(det > 1e-9f * qq * wsum)) return 0;
    float d = yq * wsum / det, offset = mean - d * q1 / wsum, gain = yq * d;
    if (negative_only && offset > 0) { /* m = 0: x ~ d q */
        float xq = yq + mean * q1;
        if (!(qq > 0)) return 0;
        d = xq / qq;
        offset = 0;
        gain = xq * d - mean * mean * wsum;
    }
    if (!(d > 0) || !(gain > best->gain)) return 0;
    best->d = d;
    best->m = offset;
    best->gain = gain;
    return 1;
}

CLONES
void quant_fit_affine(const float *x, const float *w, int n, int hi, int negative_only, float *d, float *m) {
    float low = x[0], high = x[0], wsum = 0, wx = 0, y[QUANT_GROUP_MAX];
    for (int i = 0; i < n; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
        wsum += w[i];
        wx += w[i] * x[i];
    }
    if (negative_only && low > 0) low = 0;
    *d = 0;
    *m = low;
    if (!(high - low > 1e-20f)) return;
    float mean = wsum > 0 ? wx / wsum : 0, top = (float)hi;
    for (int i = 0; i < n; i++) y[i] = x[i] - mean;
    /* Both ends move inwards (clipped) or a little outwards, in fractions of a code. */
    struct affine_best best = {(high - low) / top, low, -INFINITY};
    float step = hi <= 3 ? 0.1f : hi <= 15 ? 0.2f : 0.25f;
    int in = hi <= 3 ? 5 : hi <= 15 ? 4 : 2, out = hi <= 3 ? 3 : 2;
    for (int i = -out; i <= in; i++)
        for (int j = -out; j <= in; j++) {
            float bottom = low + (float)i * step * (high - low) / top;
            float width = (high - low) * (1.0f - (float)(i + j) * step / top);
            if (negative_only && bottom > 0) continue;
            affine_try(y, w, n, mean, wsum, top / width, bottom, top, negative_only, &best);
        }
    for (int i = 0; i < 4; i++)
        if (!affine_try(y, w, n, mean, wsum, quant_inverse(best.d), best.m, top, negative_only, &best)) break;
    *d = best.d;
    *m = best.m;
}

void quant_fit_affine_halves(const float *x, const float *w, int hi, float *d, float *m) {
    quant_fit_affine(x, w, 32, hi, 0, d, m);
    *d = quant_half_of(*d);
    if (*d == 0) { /* too small for a half: the mean stands for all */
        float sum = 0, wsum = 0;
        for (int i = 0; i < 32; i++) sum += w[i] * x[i], wsum += w[i];
        *m = wsum > 0 ? sum / wsum : *m;
    }
    *m = quant_half_of(*m);
}

/* sum w (x - (d q - m))^2 with the codes q of x at scale d and minimum m. */
ALWAYS float affine_error(const float *x, const float *w, int n, float d, float m, float hi) {
    float inverse = quant_inverse(d);
    v8 a = all(0);
    for (int i = 0; i < n; i += LANES) {
        v8 xi = load8(x + i), e = xi - (d * round_clamped((xi + m) * inverse, all(0), all(hi)) - m);
        a += load8(w + i) * e * e;
    }
    return lane_sum(a);
}

/* ---- super-blocks ---- */

/* Best of the integer scales near `near` for one group. */
ALWAYS int signed_scale(const float *x, const float *w, float d, int near, int lo, int hi, int scale_lo,
                        int scale_hi) {
    int best = near;
    float least = INFINITY;
    for (int s = near - 1; s <= near + 1; s++) {
        if (s < scale_lo || s > scale_hi) continue;
        float e = signed_error(x, w, 16, d * (float)s, (float)lo, (float)hi);
        if (e < least) least = e, best = s;
    }
    return best;
}

/* Codes for the block's scales; returns the error, and in *refit the d that least squares wants for the
 * codes. */
ALWAYS float signed_codes(struct quant_signed_block *b, const float *x, const float *w, int lo, int hi,
                          float *refit) {
    double error = 0, xq = 0, qq = 0;
    for (int g = 0; g < 16; g++) {
        float d = b->d * (float)b->scale[g], inverse = quant_inverse(d);
        for (int i = g * 16; i < g * 16 + 16; i++) {
            b->code[i] = (int8_t)quant_code(x[i] * inverse, lo, hi);
            float q = (float)(b->scale[g] * b->code[i]), e = x[i] - b->d * q;
            error += (double)(w[i] * e * e);
            xq += (double)(w[i] * q * x[i]);
            qq += (double)(w[i] * q * q);
        }
    }
    *refit = quant_half_of(qq > 0 ? (float)(xq / qq) : b->d);
    return (float)error;
}

CLONES
void quant_fit_signed_block(struct quant_signed_block *b, const float *x, const float *w, int lo, int hi,
                            int scale_lo, int scale_hi) {
    float fit[16], extreme = 0;
    for (int g = 0; g < 16; g++) {
        fit[g] = quant_fit_signed(x + g * 16, w + g * 16, 16, lo, hi);
        if (fabsf(fit[g]) > fabsf(extreme)) extreme = fit[g];
    }
    b->d = quant_half_of(extreme / (float)scale_lo);
    float inverse = quant_inverse(b->d);
    for (int g = 0; g < 16; g++) b->scale[g] = (int8_t)quant_code(fit[g] * inverse, scale_lo, scale_hi);
    /* Rounded scales want other codes, and those another d. */
    struct quant_signed_block trial = *b;
    float least = INFINITY, refit;
    for (int round = 0; round < 3; round++) {
        for (int g = 0; g < 16; g++)
            trial.scale[g] = (int8_t)signed_scale(x + g * 16, w + g * 16, trial.d, trial.scale[g], lo, hi,
                                                  scale_lo, scale_hi);
        float error = signed_codes(&trial, x, w, lo, hi, &refit);
        if (round > 0 && !(error < least)) break;
        least = error;
        *b = trial;
        if (refit == trial.d) break;
        trial.d = refit;
    }
}

/* Best pair of integers (scale, minimum) near those of group g. */
ALWAYS void affine_pair(struct quant_affine_block *b, const float *x, const float *w, int g, int group,
                        int hi, int scale_max) {
    int scale = b->scale[g], min = b->min[g], reach = scale_max < 16 ? 2 : 1;
    float least = INFINITY;
    for (int s = scale - reach; s <= scale + reach; s++)
        for (int m = min - reach; m <= min + reach; m++) {
            if (s < 0 || s > scale_max || m < 0 || m > scale_max) continue;
            float e = affine_error(x, w, group, b->d * (float)s, b->dmin * (float)m, (float)hi);
            if (e < least) least = e, b->scale[g] = (uint8_t)s, b->min[g] = (uint8_t)m;
        }
}

/* Codes for the block's scales; returns the error, and in refit[2] the d and dmin that least squares wants.
 */
ALWAYS float affine_codes(struct quant_affine_block *b, const float *x, const float *w, int group, int hi,
                          float *refit) {
    double error = 0, uu = 0, uv = 0, vv = 0, xu = 0, xv = 0;
    for (int g = 0; g < 256 / group; g++) {
        float d = b->d * (float)b->scale[g], m = b->dmin * (float)b->min[g], inverse = quant_inverse(d);
        for (int i = g * group; i < g * group + group; i++) {
            b->code[i] = (uint8_t)quant_code((x[i] + m) * inverse, 0, hi);
            float u = (float)(b->scale[g] * b->code[i]), v = -(float)b->min[g];
            float e = x[i] - (b->d * u + b->dmin * v);
            error += (double)(w[i] * e * e);
            uu += (double)(w[i] * u * u);
            uv += (double)(w[i] * u * v);
            vv += (double)(w[i] * v * v);
            xu += (double)(w[i] * x[i] * u);
            xv += (double)(w[i] * x[i] * v);
        }
    }
    double det = uu * vv - uv * uv;
    refit[0] = b->d, refit[1] = b->dmin;
    if (det > 1e-9 * uu * vv) {
        refit[0] = quant_half_of((float)((xu * vv - xv * uv) / det));
        refit[1] = quant_half_of((float)((xv * uu - xu * uv) / det));
    } else if (uu > 0 && vv == 0) {
        refit[0] = quant_half_of((float)(xu / uu));
    }
    return (float)error;
}

CLONES
void quant_fit_affine_block(struct quant_affine_block *b, const float *x, const float *w, int group, int hi,
                            int scale_max) {
    float d[16], m[16], d_max = 0, m_max = 0;
    int groups = 256 / group;
    for (int g = 0; g < groups; g++) {
        quant_fit_affine(x + g * group, w + g * group, group, hi, 1, &d[g], &m[g]);
        d_max = d[g] > d_max ? d[g] : d_max;
        m_max = -m[g] > m_max ? -m[g] : m_max;
    }
    b->d = quant_half_of(d_max / (float)scale_max);
    b->dmin = quant_half_of(m_max / (float)scale_max);
    for (int g = 0; g < groups; g++) {
        b->scale[g] = (uint8_t)quant_code(d[g] * quant_inverse(b->d), 0, scale_max);
        b->min[g] = (uint8_t)quant_code(-m[g] * quant_inverse(b->dmin), 0, scale_max);
    }
    /* Rounded scales want other codes, and those another d and dmin. */
    struct quant_affine_block trial = *b;
    float least = INFINITY, refit[2];
    for (int round = 0; round < 3; round++) {
        for (int g = 0; g < groups; g++)
            affine_pair(&trial, x + g * group, w + g * group, g, group, hi, scale_max);
        float error = affine_codes(&trial, x, w, group, hi, refit);
        if (round > 0 && !(error < least)) break;
        least = error;
        *b = trial;
        if (refit[0] == trial.d && refit[1] == trial.dmin) break;
        trial.d = refit[0], trial.dmin = refit[1];
    }
}
