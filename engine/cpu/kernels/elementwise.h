/* The small ops, included once per instruction set (kernels_avx2.c, kernels_avx512.c). One row each. */
#include "cpu/kernels/kernels.h"
#include "cpu/simd/simd.h"
#include "seam/kv_low.h"
#include <math.h>

#define UNROLL_16 _Pragma("GCC unroll 16")

static void vec_norm(const struct op_norm *op, const float *x, float *out, int n) {
    for (int at = 0; at < n; at += op->dim, x += op->dim, out += op->dim) {
        int d = op->dim, i, from = op->n_w ? at % op->n_w : 0;
        float mean = 0;
        if (op->kind == NORM_LAYER) {
            vf s = vf_set(0);
            for (i = 0; i < d; i += VL) s = vf_add(s, d - i < VL ? vf_loadn(x + i, d - i) : vf_load(x + i));
            mean = vf_sum(s) / (float)d;
        }
        vf s[4] = {vf_set(0), vf_set(0), vf_set(0), vf_set(0)}, m = vf_set(mean);
        for (i = 0; i + 4 * VL <= d; i += 4 * VL) {
            for (int j = 0; j < 4; j++) {
                vf v = vf_sub(vf_load(x + i + j * VL), m);
                s[j] = vf_fma(v, v, s[j]);
            }
        }
        for (; i < d; i += VL) {
            int left = d - i < VL ? d - i : VL;
            vf v = vf_sub(vf_loadn(x + i, left),
                          left < VL ? vf_loadn((const float[16]){[0 ... 15] = mean}, left) : m);
            s[0] = vf_fma(v, v, s[0]);
        }
        float ss = vf_sum(vf_add(vf_add(s[0], s[1]), vf_add(s[2], s[3])));
        vf k = vf_set(op->kind == NORM_NONE ? 1 : 1.0f / sqrtf(ss / (float)d + op->eps));
        for (i = 0; i < d; i += VL) {
            int left = d - i < VL ? d - i : VL;
            vf v = vf_mul(vf_sub(vf_loadn(x + i, left), m), k);
            if (op->w) v = vf_mul(v, vf_loadn(op->w + from + i, left));
            if (op->bias) v = vf_add(v, vf_loadn(op->bias + from + i, left));
            vf_storen(out + i, v, left);
        }
    }
}

/* cs: cos[n_rot/2], then sin[n_rot/2] at cs + n_rot/2 */
static void vec_rope(const struct op_rope *op, const float *cs, float *x) {
    int half = op->rope->n_rot / 2;
    const float *cos = cs, *sin = cs + half, turn = op->back ? -1.f : 1.f;
    for (int h = 0; h < op->n_head; h++, x += op->head_dim) {
        if (op->rope->kind == ROPE_INTERLEAVED) {
            for (int i = 0; i < half; i++) {
                float a = x[2 * i], b = x[2 * i + 1];
                const float s = turn * sin[i];
                x[2 * i] = a * cos[i] - b * s;
                x[2 * i + 1] = b * cos[i] + a * s;
            }
            continue;
        }
        for (int i = 0; i < half; i += VL) {
            int left = half - i < VL ? half - i : VL;
            vf a = vf_loadn(x + i, left), b = vf_loadn(x + half + i, left);
            vf c = vf_loadn(cos + i, left), s = vf_mul(vf_set(turn), vf_loadn(sin + i, left));
            vf_storen(x + i, vf_sub(vf_mul(a, c), vf_mul(b, s)), left);
            vf_storen(x + half + i, vf_add(vf_mul(b, c), vf_mul(a, s)), left);
        }
    }
}

INLINE vf activate(enum act_kind act, vf g) {
    if (act == ACT_SILU) return vf_div(g, vf_add(vf_set(1), vf_exp(vf_sub(vf_set(0), g))));
    if (act == ACT_RELU2) {
        vf r = vf_max(g, vf_set(0));
        return vf_mul(r, r);
    }
    /* 0.5 g (1 + tanh(sqrt(2/pi) (g + 0.044715 g^3))): Hendrycks & Gimpel 2016 */
    vf u = vf_mul(vf_mul(g, vf_set(0.7978845608f)), vf_fma(vf_mul(g, g), vf_set(0.044715f), vf_set(1)));
    return vf_mul(vf_mul(g, vf_set(0.5f)), vf_add(vf_set(1), vf_tanh(u)));
}
/* erf to 2.3e-7: x times a polynomial in x^2, fitted to erf(x) / x up to 3.9 at Chebyshev's points; beyond, 1. A NaN stays one. */
INLINE vf vec_erf(vf x) {
    static const float k[] = {0.362583995f,   -0.181011423f,   0.134688422f,  -0.109517768f,
                              0.0907181874f,  -0.0739793256f,  0.0575830154f, -0.0418540239f,
                              0.0301543698f,  -0.0220262092f,  0.0119427573f, -0.00358912721f,
                              0.00320139178f, -0.00400615437f, 0.00152217271f};
    enum { TOP = sizeof k / sizeof *k - 1 };
    const vf end = vf_set(3.9f), zero = vf_set(0), low = vf_set(-3.9f);
    const vf c = vf_sub(zero, vf_max(low, vf_sub(zero, vf_max(low, x))));
    const vf u = vf_fma(vf_mul(c, c), vf_set(0.13149244f), vf_set(-1));
    vf p = vf_set(k[TOP]);
    UNROLL_16 for (int i = TOP - 1; i >= 0; i--) p = vf_fma(p, u, vf_set(k[i]));
    p = vf_mul(p, c);
    return vf_pick(vf_less(end, x), vf_set(1), vf_pick(vf_less(x, low), vf_set(-1), p));
}
/* VL channels from c on, of which left are there: the last K - 1 inputs stay in registers as the rows go by. */
INLINE void conv_block(const struct op_conv *op, int c, int left, int n, int pos, const float *x,
                       size_t x_stride, float *out, size_t out_stride, float *state, const int K) {
    int C = op->x.width;
    vf w[CONV_MAX], h[CONV_MAX], bias = op->bias ? vf_loadn(op->bias + c, left) : vf_set(0);
    for (int j = 0; j < K; j++) {
        float column[VL] = {0};
        for (int i = 0; i < left; i++) column[i] = op->w[(c + i) * K + j];
        w[j] = vf_load(column);
        /* input j of the window is of position pos - K + 1 + j */
        h[j] = j + 1 < K && pos - K + 1 + j >= 0 ? vf_loadn(state + j * C + c, left) : vf_set(0);
    }
    for (int t = 0; t < n; t++) {
        vf y = bias;
        h[K - 1] = vf_loadn(x + (size_t)t * x_stride + c, left);
        _Pragma("GCC unroll 4") for (int j = 0; j < K; j++) y = vf_fma(w[j], h[j], y);
        _Pragma("GCC unroll 4") for (int j = 0; j + 1 < K; j++) h[j] = h[j + 1];
        vf_storen(out + (size_t)t * out_stride + c, op->silu ? activate(ACT_SILU, y) : y, left);
    }
    for (int j = 0; j + 1 < K; j++) vf_storen(state + j * C + c, h[j], left);
}
static void vec_conv(const struct op_conv *op, int c0, int c1, int n, int pos, const float *x,
                     size_t x_stride, float *out, size_t out_stride, float *state) {
    for (int c = c0; c < c1; c += VL) {
        int left = c1 - c < VL ? c1 - c : VL;
        if (op->K == 4)
            conv_block(op, c, left, n, pos, x, x_stride, out, out_stride, state, 4);
        else
            conv_block(op, c, left, n, pos, x, x_stride, out, out_stride, state, op->K);
    }
}
INLINE vf clamped_silu(const struct op_glu *op, vf g) {
    g = vf_sub(vf_set(0), vf_max(vf_sub(vf_set(0), g), vf_set(-op->k.limit))); /* a NaN stays one */
    return vf_div(g, vf_add(vf_set(1), vf_exp(vf_mul(g, vf_set(-op->k.alpha)))));
}
INLINE vf up_factor(const struct op_glu *op, vf u) {
    const bool clamped = op->act == ACT_SILU_CLAMP || op->act == ACT_SILU_LIMIT;
    if (op->act != ACT_SWIGLU_OAI && !clamped) return u;
    const vf low = vf_set(-op->k.limit), zero = vf_set(0);
    u = vf_sub(zero, vf_max(vf_sub(zero, vf_max(u, low)), low));
    return clamped ? u : vf_add(u, vf_set(1));
}
/* exp(x) - 1 for x <= 0: near 0, where the difference cancels, by its series, to 2e-8 */
INLINE vf vec_expm1(vf x) {
    vf p = vf_fma(x, vf_set(1.f / 720), vf_set(1.f / 120));
    p = vf_fma(p, x, vf_set(1.f / 24));
    p = vf_fma(p, x, vf_set(1.f / 6));
    p = vf_fma(p, x, vf_set(0.5f));
    p = vf_fma(vf_mul(p, x), x, x);
    return vf_pick(vf_less(x, vf_set(-0.25f)), vf_sub(vf_exp(x), vf_set(1)), p);
}
INLINE vf xielu(const struct op_glu *op, vf x) {
    const vf zero = vf_set(0), low = vf_sub(zero, vf_max(vf_sub(zero, x), vf_set(-op->k.eps)));
    vf plus = vf_mul(vf_mul(vf_set(op->k.alpha), x), x);
    vf minus = vf_mul(vf_set(op->k.alpha_n), vf_sub(vec_expm1(low), x));
    return vf_fma(vf_set(op->k.beta), x, vf_pick(vf_less(zero, x), plus, minus));
}
/* a NaN stays one */
INLINE vf clamped(const struct op_glu *op, vf x) {
    const vf zero = vf_set(0);
    return vf_sub(zero, vf_max(vf_sub(zero, vf_max(x, vf_set(op->k.beta))), vf_set(-op->k.limit)));
}
INLINE vf limited_silu(const struct op_glu *op, vf x) {
    const vf zero = vf_set(0);
    return vf_sub(zero, vf_max(vf_sub(zero, activate(ACT_SILU, x)), vf_set(-op->k.limit)));
}
INLINE vf vec_softplus(vf x) {
    _Alignas(64) float v[VL];
    vf_store(v, x);
    for (int i = 0; i < VL; i++) v[i] = v[i] > 20 ? v[i] : log1pf(expf(v[i]));
    return vf_load(v);
}
/* a NaN stays one */
INLINE vf signed_root(const struct op_glu *op, vf x) {
    _Alignas(64) float v[VL];
    vf_store(v, x);
    for (int i = 0; i < VL; i++) {
        const float most = fabsf(v[i]) < op->k.eps ? op->k.eps : fabsf(v[i]);
        v[i] = v[i] == 0 ? v[i] : copysignf(sqrtf(most), v[i]);
    }
    return vf_load(v);
}
/* act(g) of any kind. */
INLINE vf act_any(const struct op_glu *op, vf g) {
    switch (op->act) {
    case ACT_SILU:
        return activate(ACT_SILU, g);
    case ACT_RELU2:
        return activate(ACT_RELU2, g);
    case ACT_GELU_TANH:
        return activate(ACT_GELU_TANH, g);
    case ACT_GELU_ERF:
        return vf_mul(vf_mul(g, vf_set(0.5f)), vf_add(vf_set(1), vec_erf(vf_mul(g, vf_set(0.70710678f)))));
    case ACT_CAP:
        return vf_mul(vf_set(op->k.limit), vf_tanh(vf_div(g, vf_set(op->k.limit))));
    case ACT_SWIGLU_OAI:
        return clamped_silu(op, g);
    case ACT_SIGMOID:
        return vf_div(vf_set(1), vf_add(vf_set(1), vf_exp(vf_sub(vf_set(0), g))));
    case ACT_XIELU:
        return xielu(op, g);
    case ACT_CLAMP:
        return clamped(op, g);
    case ACT_SILU_CLAMP:
        return limited_silu(op, g);
    case ACT_SILU_LIMIT: { /* a NaN stays one */
        const vf zero = vf_set(0);
        return activate(ACT_SILU, vf_sub(zero, vf_max(vf_sub(zero, g), vf_set(-op->k.limit))));
    }
    case ACT_SOFTPLUS:
        return vec_softplus(g);
    case ACT_ROOT:
        return signed_root(op, g);
    default:
        return vf_mul(vf_set(op->k.limit), g);
    }
}
/* up NULL: 1 */
static void vec_glu(const struct op_glu *op, const float *gate, const float *up, float *out, int n) {
    for (int i = 0; i < n; i += VL) {
        int left = n - i < VL ? n - i : VL;
        vf y = act_any(op, vf_loadn(gate + i, left));
        if (up) y = vf_mul(y, up_factor(op, vf_loadn(up + i, left)));
        vf_storen(out + i, y, left);
    }
}
static void vec_add(const float *a, const float *b, float *out, int n) {
    int i = 0;
    for (; i + VL <= n; i += VL) vf_store(out + i, vf_add(vf_load(a + i), vf_load(b + i)));
    if (i < n) vf_storen(out + i, vf_add(vf_loadn(a + i, n - i), vf_loadn(b + i, n - i)), n - i);
}
static void vec_sum_rows(const struct cpu_sums *s, int n, int T) {
    for (int i = 0; i < n; i += VL) {
        const int left = n - i < VL ? n - i : VL;
        const float *v = s->v + i, *other = s->other ? s->other + i : NULL;
        const vf bias = s->bias ? vf_loadn(s->bias + i, left) : vf_set(0);
        float *out = s->out + i;
        for (int t = 0; t < T; t++, v += s->v_stride, out += s->out_stride) {
            vf y = left < VL ? vf_loadn(v, left) : vf_load(v);
            if (s->bias) y = vf_add(y, bias);
            if (other)
                y = vf_add(left < VL ? vf_loadn(other, left) : vf_load(other), y), other += s->other_stride;
            if (s->act) y = act_any(s->act, y);
            left < VL ? vf_storen(out, y, left) : vf_store(out, y);
        }
    }
}
static void vec_mix(const float *w, int n_x, const float *x, size_t stride, const float *shared, float scale,
                    float *out, int n) {
    for (int i = 0; i < n; i += VL) {
        int left = n - i < VL ? n - i : VL;
        vf y = shared ? vf_mul(vf_set(scale), vf_loadn(shared + i, left)) : vf_set(0);
        for (int j = 0; j < n_x; j++)
            y = vf_fma(vf_set(w ? w[j] : 1), vf_loadn(x + (size_t)j * stride + i, left), y);
        vf_storen(out + i, y, left);
    }
}
static bool vec_finite(const float *x, int n) {
    vf s = vf_set(0); /* 0 * x is 0, or NaN where x is not finite */
    for (int i = 0; i < n; i += VL)
        s = vf_fma(vf_set(0), n - i < VL ? vf_loadn(x + i, n - i) : vf_load(x + i), s);
    return vf_sum(s) == 0;
}
static int vec_argmax(const float *x, int n) {
    vf m = vf_set(-INFINITY);
    int i = 0;
    for (; i + VL <= n; i += VL) m = vf_max(vf_load(x + i), m);
    float best = vf_top(m);
    for (; i < n; i++)
        if (x[i] > best) best = x[i];
    for (i = 0; i < n; i++)
        if (x[i] == best) return i;
    return 0; /* nothing but NaN */
}

static int vec_above(const float *x, int n, float limit, int32_t *at) {
    int found = 0;
    for (int i = 0; i < n; i += VL) {
        int left = n - i < VL ? n - i : VL;
        vf v = left < VL ? vf_loadn(x + i, left) : vf_load(x + i);
        unsigned bits = ~vf_bits(vf_less(v, vf_set(limit))) & ((1u << left) - 1);
        for (; bits; bits &= bits - 1) at[found++] = i + __builtin_ctz(bits);
    }
    return found;
}
static void vec_exp_sums(const float *x, int n, float scale, float out[3]) {
    vf m = vf_set(-INFINITY), sum = vf_set(0), scaled = vf_set(0);
    int i = 0;
    for (; i + VL <= n; i += VL) m = vf_max(vf_load(x + i), m);
    float most = vf_top(m);
    for (; i < n; i++) most = x[i] > most ? x[i] : most;
    out[0] = most, out[1] = out[2] = 0;
    if (!(most > -INFINITY)) return;
    for (i = 0; i + VL <= n; i += VL) {
        vf away = vf_sub(vf_load(x + i), vf_set(most)), e = vf_exp(away);
        sum = vf_add(sum, e);
        scaled = vf_add(scaled, scale == 1 ? e : vf_exp(vf_mul(away, vf_set(scale))));
    }
    out[1] = vf_sum(sum), out[2] = vf_sum(scaled);
    for (; i < n; i++) {
        float one[2 * VL] = {x[i] - most, (x[i] - most) * scale}, e[VL];
        vf_store(e, vf_exp(vf_load(one)));
        out[1] += e[0], out[2] += e[1];
    }
}

/* ---- activations to int8 (struct cpu_x8) ---- */

#define UNROLL_8 _Pragma("GCC unroll 8")
/* Two int16 in an int32: sums lane by lane, and of both. */
INLINE int32_t add_pairs(int32_t a, int32_t b) {
    return _mm_cvtsi128_si32(_mm_add_epi16(_mm_cvtsi32_si128(a), _mm_cvtsi32_si128(b)));
}
INLINE int sum_pair(int32_t a) { return (int16_t)a + (a >> 16); }
/* Four int32 that fit in bytes, in the bytes of one. */
INLINE int32_t bytes_of(__m128i v) {
    v = _mm_packs_epi32(v, v);
    return _mm_cvtsi128_si32(_mm_packs_epi16(v, v));
}
/* Of each group of four of 32 columns, groups 0 2 4 6 1 3 5 7: its largest |x|, the last six bits replaced by the place
 * among all 64 from first on, so that no two are equal. Numbers above zero have the order of their bits. */
INLINE __m256i group_tops(const float *x, int first) {
    __m256 m[4];
    for (int j = 0; j < 4; j++) {
        m[j] = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), _mm256_loadu_ps(x + 8 * j));
        m[j] = _mm256_max_ps(m[j], _mm256_shuffle_ps(m[j], m[j], 0xb1));
        m[j] = _mm256_max_ps(m[j], _mm256_shuffle_ps(m[j], m[j], 0x4e));
    }
    __m256 top = _mm256_blend_ps(_mm256_blend_ps(m[0], m[1], 0x22), _mm256_blend_ps(m[2], m[3], 0x88), 0xcc);
    __m256i place = _mm256_add_epi32(_mm256_set1_epi32(first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    return _mm256_or_si256(_mm256_andnot_si256(_mm256_set1_epi32(63), _mm256_castps_si256(top)), place);
}
/* The largest of 64 group tops, in every lane. */
INLINE __m256i most_of(const __m256i tops[8]) {
    __m256i m[4];
    UNROLL_8 for (int j = 0; j < 4; j++) m[j] = _mm256_max_epi32(tops[j], tops[4 + j]);
    m[0] = _mm256_max_epi32(_mm256_max_epi32(m[0], m[1]), _mm256_max_epi32(m[2], m[3]));
    m[0] = _mm256_max_epi32(m[0], _mm256_permute2x128_si256(m[0], m[0], 1));
    m[0] = _mm256_max_epi32(m[0], _mm256_shuffle_epi32(m[0], 0x4e));
    return _mm256_max_epi32(m[0], _mm256_shuffle_epi32(m[0], 0xb1));
}
/* Its value, rounded up. */
INLINE float value_of(__m256i top) {
    return _mm256_cvtss_f32(_mm256_castsi256_ps(_mm256_or_si256(top, _mm256_set1_epi32(63))));
}
/* Takes it out of them, 0 in its place; its group. */
INLINE int take_out(__m256i tops[8], __m256i top) {
    UNROLL_8 for (int j = 0; j < 8; j++) tops[j] =
        _mm256_andnot_si256(_mm256_cmpeq_epi32(tops[j], top), tops[j]);
    int i = _mm256_cvtsi256_si32(top) & 63;
    return (i & ~7) + i % 4 * 2 + i / 4 % 2;
}
/* Sums of q over 32 and 16 columns. */
INLINE void sums_32(struct cpu_x8 *y, int b, __m256i q) {
    __m256i pair = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q); /* of each two columns; then of each 16 */
    pair = _mm256_add_epi16(pair, _mm256_shuffle_epi32(pair, 0x4e));
    pair = _mm256_add_epi16(pair, _mm256_shuffle_epi32(pair, 0xb1));
    __m128i p0 = _mm256_castsi256_si128(pair), p1 = _mm256_extracti128_si256(pair, 1);
    __m128i one = _mm_set1_epi16(1), p = _mm_add_epi16(p0, p1);
    y->p16[2 * b] = _mm_cvtsi128_si32(p0);
    y->p16[2 * b + 1] = _mm_cvtsi128_si32(p1);
    y->p32[b] = _mm_cvtsi128_si32(p);
    y->s16[2 * b] = (float)_mm_cvtsi128_si32(_mm_madd_epi16(p0, one));
    y->s16[2 * b + 1] = (float)_mm_cvtsi128_si32(_mm_madd_epi16(p1, one));
    y->s32[b] = (float)_mm_cvtsi128_si32(_mm_madd_epi16(p, one));
}
/* Pairs of sums as row_start (pack_rows.h) takes them. */
INLINE void pairs_to_starts(struct cpu_x8 *y) {
#ifdef __AVX512F__
    const __m256i minus = _mm256_set1_epi16(-1);
    for (int32_t *p = y->p32; p < y->p32 + 8; p += 8)
        _mm256_storeu_si256((void *)p, _mm256_madd_epi16(_mm256_loadu_si256((const void *)p), minus));
    for (int32_t *p = y->p16; p < y->p16 + 16; p += 8)
        _mm256_storeu_si256((void *)p, _mm256_madd_epi16(_mm256_loadu_si256((const void *)p), minus));
    for (int i = 0; i < CPU_FAR; i++) y->hp[i] = -sum_pair(y->hp[i]);
#else
    (void)y;
#endif
}
/* 256 columns, of which the first blocks of 32 are there. The scale is that of what is left when the far groups are taken out, whose codes
 * have 14 bits. 256-bit vectors everywhere, so that every instruction set gives the same codes. */
INLINE void quantise_blocks(struct cpu_x8 *y, const float *x, int blocks) {
    enum { MOST = 127, MOST_FAR = 16000 };
    const float tiny = 1e-30f; /* below it codes would not be finite */
    __m256i tops[8];
    int far[CPU_FAR];
    for (int b = 0; b < 8; b++) tops[b] = b < blocks ? group_tops(x + 32 * b, 8 * b) : _mm256_setzero_si256();
    __m256i largest = most_of(tops), next = largest;
    for (int i = 0; i < CPU_FAR; i++, next = most_of(tops)) far[i] = take_out(tops, next);
    float top = value_of(largest), most = fmaxf(value_of(next), top * ((float)MOST / (float)MOST_FAR));
    float id = top > tiny ? (float)MOST / most : 0;
    y->d = top > tiny ? most / (float)MOST : top;
    for (int b = blocks; b < 8; b++) {
        _mm256_storeu_si256((void *)(y->q + 32 * b), _mm256_setzero_si256());
        y->p32[b] = y->p16[2 * b] = y->p16[2 * b + 1] = 0;
        y->s32[b] = y->s16[2 * b] = y->s16[2 * b + 1] = 0;
    }
    for (int b = 0; b < blocks; b++) {
        __m256i c[4];
        for (int j = 0; j < 4; j++)
            c[j] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 32 * b + 8 * j), _mm256_set1_ps(id)));
        __m256i q = _mm256_packs_epi16(_mm256_packs_epi32(c[0], c[1]), _mm256_packs_epi32(c[2], c[3]));
        q = _mm256_andnot_si256(_mm256_cmpeq_epi32(tops[b], _mm256_setzero_si256()),
                                q); /* without the far groups */
        q = _mm256_permutevar8x32_epi32(q, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        _mm256_storeu_si256((void *)(y->q + 32 * b), q);
        sums_32(y, b, q);
    }
    for (int i = 0; i < CPU_FAR; i++) {
        __m128i code = _mm_cvtps_epi32(_mm_mul_ps(_mm_loadu_ps(x + 4 * far[i]), _mm_set1_ps(id)));
        __m128i high = _mm_srai_epi32(_mm_add_epi32(code, _mm_set1_epi32(64)), 7), one = _mm_set1_epi8(1);
        int32_t low = bytes_of(_mm_sub_epi32(code, _mm_slli_epi32(high, 7)));
        int g = far[i], b = g / 8, pairs[2];
        float sum;
        y->hi[i] = bytes_of(high);
        pairs[0] = _mm_cvtsi128_si32(_mm_maddubs_epi16(one, _mm_cvtsi32_si128(y->hi[i])));
        pairs[1] = _mm_cvtsi128_si32(_mm_maddubs_epi16(one, _mm_cvtsi32_si128(low)));
        y->hp[i] = pairs[0];
        y->far[i] = (uint8_t)(y->hi[i] ? g : 0); /* where a row ends early, there are no codes at g */
        memcpy(y->q + 4 * g, &low, 4);
        y->p32[b] = add_pairs(y->p32[b], pairs[1]);
        y->p16[g / 4] = add_pairs(y->p16[g / 4], pairs[1]);
        sum = (float)(128 * sum_pair(pairs[0]) + sum_pair(pairs[1]));
        y->s32[b] += sum, y->s16[g / 4] += sum;
    }
    pairs_to_starts(y);
}
/* The last columns of a row. */
static void quantise_rest(struct cpu_x8 *y, const float *x, int left) {
    float copy[256] = {0};
    if (left >= 64 && left % 32 == 0) /* two blocks have more than the far groups */
        quantise_blocks(y, x, left / 32);
    else
        quantise_blocks(y, memcpy(copy, x, sizeof *x * (size_t)left), 8);
}
static void vec_quantise(void *y, size_t chunk, const float *x, int k) {
    for (int at = 0; at < k; at += 256, y = (uint8_t *)y + chunk)
        if (k - at >= 256)
            quantise_blocks(y, x + at, 8);
        else
            quantise_rest(y, x + at, k - at);
}

/* codes[256] as a row without far groups. */
INLINE void codes_256(struct cpu_x8 *y, const float *x, float d, float id) {
    memset(y->hi, 0, sizeof y->hi), memset(y->hp, 0, sizeof y->hp), memset(y->far, 0, sizeof y->far);
    y->d = d;
    for (int b = 0; b < 8; b++) {
        __m256i c[4];
        for (int j = 0; j < 4; j++)
            c[j] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 32 * b + 8 * j), _mm256_set1_ps(id)));
        __m256i q = _mm256_packs_epi16(_mm256_packs_epi32(c[0], c[1]), _mm256_packs_epi32(c[2], c[3]));
        q = _mm256_permutevar8x32_epi32(q, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        _mm256_storeu_si256((void *)(y->q + 32 * b), q);
        sums_32(y, b, q);
    }
    pairs_to_starts(y);
}
/* The second row has the rest of the first, of half a code at most. */
static void vec_quantise_twice(void *y, const float *x, int k) {
    struct cpu_x8 *first = y, *second = first + cpu_x8_bytes(k) / sizeof *first;
    for (int at = 0; at < k; at += 256, first++, second++) {
        _Alignas(64) float rest[256];
        vf tops = vf_set(0), nones = vf_set(0);
        const int left = k - at < 256 ? k - at : 256;
        memset(rest, 0, sizeof rest);
        memcpy(rest, x + at, sizeof *x * (size_t)left);
        for (int i = 0; i < 256; i += VL) {
            const vf v = vf_load(rest + i);
            tops = vf_max(vf_max(v, vf_sub(vf_set(0), v)), tops);
            nones = vf_fma(v, vf_set(0), nones); /* what is no number stays none */
        }
        const float top = vf_top(tops), none = vf_sum(nones);
        const float d = top > 1e-30f ? top * (1.0f / 127) : 0, id = d > 0 ? 127 / top : 0;
        codes_256(first, rest, d + none, id);
        for (int i = 0; i < 256; i++) rest[i] -= d * (float)first->q[i];
        codes_256(second, rest, d * (1.0f / 254), d > 0 ? 254 / d : 0);
    }
}

/* 256 columns to int16, of which left are there. */
INLINE void quantise16_256(struct cpu_x16 *y, const float *x, int left) {
    float copy[256];
    if (left < 256) {
        memset(copy, 0, sizeof copy);
        x = memcpy(copy, x, sizeof *x * (size_t)left);
    }
    vf top = vf_set(0);
    float most_sum = 0;
    for (int i = 0; i < 256; i += 64) {
        vf sum = vf_set(0);
        for (int j = i; j < i + 64; j += VL) {
            vf v = vf_load(x + j), a = vf_max(v, vf_sub(vf_set(0), v));
            top = vf_max(a, top);
            sum = vf_add(sum, a);
        }
        most_sum = fmaxf(most_sum, vf_sum(sum));
    }
    float most = vf_top(top), scale = 0;
    /* a little below 2^31: rounding adds half a code for each of 64 columns */
    if (most > 0) scale = fminf(32767 / most, 2.1e9f / (float)CPU_X16_WEIGHT / most_sum);
    y->d = scale > 0 ? 1 / scale : most;
    for (int i = 0; i < 256; i += VL) {
#ifdef __AVX512F__
        __m512i v = _mm512_cvtps_epi32(vf_mul(vf_load(x + i), vf_set(scale)));
        _mm256_storeu_si256((void *)(y->q + i), _mm512_cvtepi32_epi16(v));
#else
        __m256i v = _mm256_cvtps_epi32(vf_mul(vf_load(x + i), vf_set(scale)));
        v = _mm256_permute4x64_epi64(_mm256_packs_epi32(v, v), 0x08);
        _mm_storeu_si128((void *)(y->q + i), _mm256_castsi256_si128(v));
#endif
    }
}
static void vec_quantise16(void *y, size_t chunk, const float *x, int k) {
    for (int at = 0; at < k; at += 256, y = (uint8_t *)y + chunk) quantise16_256(y, x + at, k - at);
}

/* ---- cache rows ---- */
static void vec_kv_store(enum kv_type type, uint8_t *dst, const float *src, int n, int turn) {
    if (type == KV_F32) {
        memcpy(dst, src, (size_t)n * sizeof *src);
    } else if (type == KV_F16) {
        int i = 0;
        for (; i + VL <= n; i += VL) vf_to_halves((uint16_t *)(void *)dst + i, vf_load(src + i));
        for (; i < n; i++) {
            uint16_t h = f32_to_f16(src[i]);
            memcpy(dst + 2 * (size_t)i, &h, 2);
        }
    } else if (kv_turned(type)) {
        float turned[1024];
        memcpy(turned, src, (size_t)n * sizeof *src);
        kv_turn(turned, n, turn, 1);
        kv_low_encode(type, dst, turned, n);
    } else { /* blocks of 32: half scale, then codes; the last block is filled with zeros */
        for (int b = 0; b * 32 < n; b++, dst += QUANT_Q8_0_BYTES) {
            float top = 0;
            int left = n - b * 32 < 32 ? n - b * 32 : 32;
            for (int i = 0; i < left; i++) {
                const float v = fabsf(src[b * 32 + i]);
                top = v > top || v != v ? v : top; /* a NaN stays */
            }
            uint16_t h = f32_to_f16(top / 127.0f);
            float d = f16_to_f32(h), id = d > 0 ? 1.0f / d : 0;
            memcpy(dst, &h, 2);
            for (int i = 0; i < 32; i++) {
                float q = i < left ? rintf(src[b * 32 + i] * id) : 0;
                dst[2 + i] = (uint8_t)(int8_t)(q > 127 ? 127 : q >= -127 ? q : -127);
            }
        }
    }
}
/* Rows that were turned stay so. */
static void vec_kv_load(enum kv_type type, float *dst, const uint8_t *src, int n) {
    if (type == KV_F32) {
        memcpy(dst, src, (size_t)n * sizeof *dst);
    } else if (type == KV_F16) {
        int i = 0;
        for (; i + VL <= n; i += VL) vf_store(dst + i, vf_halves((const uint16_t *)(const void *)src + i));
        for (; i < n; i++) {
            uint16_t h;
            memcpy(&h, src + 2 * (size_t)i, 2);
            dst[i] = f16_to_f32(h);
        }
    } else if (kv_turned(type)) {
        kv_low_decode(type, dst, src, n);
    } else {
        for (int b = 0; b * 32 < n; b++, src += QUANT_Q8_0_BYTES) {
            uint16_t h;
            memcpy(&h, src, 2);
            float d = f16_to_f32(h);
            for (int i = 0; i < 32 && b * 32 + i < n; i++) dst[b * 32 + i] = d * (float)(int8_t)src[2 + i];
        }
    }
}
static void vec_kv_turn(float *x, int n, int block, int lanes) { kv_turn(x, n, block, lanes); }
