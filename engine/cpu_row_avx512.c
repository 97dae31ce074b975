/* Decode rows with AVX-512 VNNI: a few tokens against a run of weight rows, streamed once from the map.
 *
 * Lanes lie along K. 256 columns at a time: codes as bytes, one vpdpbusd per 64 columns and token, then the
 * sub-block's scales times the token's, one FMA. Two accumulators, used in turn; what an output adds and in
 * which order depends on K alone. */
#include "cpu.h"
#include "cpu_unpack_avx512.h"

/* Bytes ahead of the block in work that are asked for. */
enum { AHEAD = 3072 };

#define UNROLL _Pragma("GCC unroll 8")

/* Spreads the scales of pair p over the 16 sums of 64 columns: 8 lanes each, or 4 each. */
INLINE __m512 spread8(__m256 d, int p) {
    __m512i i = _mm512_add_epi32(_mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1),
                                 _mm512_set1_epi32(2 * p));
    return _mm512_permutexvar_ps(i, _mm512_castps256_ps512(d));
}
INLINE __m512 spread16(__m512 d, int p) {
    __m512i i = _mm512_add_epi32(_mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3),
                                 _mm512_set1_epi32(4 * p));
    return _mm512_permutexvar_ps(i, d);
}
/* Token scales, one per 32, doubled to one per 16. */
INLINE __m512 twice(__m256 d) {
    return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7),
                                 _mm512_castps256_ps512(d));
}
INLINE float sum16(__m512 a) {
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

/* The last columns of a row that is no multiple of 256: a copy, when reading on would leave the matrix. */
INLINE const uint8_t *tail_block(uint8_t *copy, const uint8_t *w, const uint8_t *end, size_t used,
                                 size_t full) {
    if (w + full <= end) return w;
    memset(copy, 0, full);
    memcpy(copy, w, used);
    return copy;
}

#define ROW_KERNEL(name, UPPER, SUBS, BYTES)                                                                 \
    INLINE void step_##name(const uint8_t *w, int n_pair, int n_sub, const uint8_t *x, size_t x_stride,      \
                            int kp, int at, const int TT, __m512 f[][2], __m512 g[]) {                       \
        struct sub##SUBS h = head_##name(w);                                                                 \
        __m512 dx[4];                                                                                        \
        SUB_MASK_##SUBS(h, n_sub);                                                                           \
        UNROLL for (int t = 0; t < TT; t++) {                                                                \
            const uint8_t *xt = x + t * x_stride;                                                            \
            SUB_TOKEN_##SUBS(h, dx[t], g[t], xt);                                                            \
        }                                                                                                    \
        UNROLL for (int p = 0; p < n_pair; p++) {                                                            \
            __m512i c = codes_##name(w, p);                                                                  \
            UNROLL for (int t = 0; t < TT; t++) {                                                            \
                __m512i q = _mm512_loadu_si512(x + t * x_stride + at + 64 * p);                              \
                __m512i a = _mm512_dpbusd_epi32(_mm512_setzero_si512(), c, q);                               \
                f[t][p & 1] =                                                                                \
                    _mm512_fmadd_ps(_mm512_cvtepi32_ps(a), SUB_SPREAD_##SUBS(dx[t], p), f[t][p & 1]);        \
            }                                                                                                \
        }                                                                                                    \
    }                                                                                                        \
    INLINE void rows_##name(const uint8_t *w, size_t stride, const uint8_t *end, int n, int k,               \
                            const uint8_t *x, size_t x_stride, const int TT, float *out) {                   \
        int kp = cpu_kp(k), left = k % 256 / 32;                                                             \
        for (int r = 0; r < n; r++, w += stride) {                                                           \
            __m512 f[4][2], g[4];                                                                            \
            const uint8_t *b = w;                                                                            \
            UNROLL for (int t = 0; t < TT; t++) f[t][0] = f[t][1] = g[t] = _mm512_setzero_ps();              \
            int at = 0;                                                                                      \
            for (; at + 256 <= k; at += 256, b += BYTES) {                                                   \
                UNROLL for (int i = 0; i < (BYTES + 63) / 64; i++)                                           \
                    _mm_prefetch((const char *)b + AHEAD + 64 * i, _MM_HINT_T0);                             \
                step_##name(b, 4, 8, x, x_stride, kp, at, TT, f, g);                                         \
            }                                                                                                \
            if (left) {                                                                                      \
                uint8_t copy[BYTES];                                                                         \
                b = tail_block(copy, b, end, (size_t)left * (BYTES / 8), BYTES);                             \
                step_##name(b, (left + 1) / 2, left, x, x_stride, kp, at, TT, f, g);                         \
            }                                                                                                \
            UNROLL for (int t = 0; t < TT; t++) out[t * CPU_UNIT_ROWS + r] =                                 \
                sum16(_mm512_add_ps(_mm512_add_ps(f[t][0], f[t][1]), g[t]));                                 \
        }                                                                                                    \
    }                                                                                                        \
    static void row_##name(const uint8_t *w, size_t stride, const uint8_t *end, int n, int k, const void *x, \
                           size_t x_stride, int T, float *out) {                                             \
        const uint8_t *q = x;                                                                                \
        for (; T >= 4; T -= 4, q += 4 * x_stride, out += 4 * CPU_UNIT_ROWS)                                  \
            rows_##name(w, stride, end, n, k, q, x_stride, 4, out);                                          \
        if (T == 3) rows_##name(w, stride, end, n, k, q, x_stride, 3, out);                                  \
        if (T == 2) rows_##name(w, stride, end, n, k, q, x_stride, 2, out);                                  \
        if (T == 1) rows_##name(w, stride, end, n, k, q, x_stride, 1, out);                                  \
    }

#define SUB_MASK_8(H, n)                                                                                     \
    if (n < 8) {                                                                                             \
        H.d = _mm256_maskz_mov_ps((__mmask8)((1 << n) - 1), H.d);                                            \
        H.g = _mm256_maskz_mov_ps((__mmask8)((1 << n) - 1), H.g);                                            \
    }
#define SUB_MASK_16(H, n) (void)(n)
#define SUB_TOKEN_8(H, DX, G, xt)                                                                            \
    DX = _mm512_castps256_ps512(_mm256_mul_ps(H.d, _mm256_loadu_ps(cpu_x8_d(xt, kp) + at / 32)));            \
    G = _mm512_zextps256_ps512(                                                                              \
        _mm256_fmadd_ps(H.g, _mm256_loadu_ps(cpu_x8_s32(xt, kp) + at / 32), _mm512_castps512_ps256(G)))
#define SUB_TOKEN_16(H, DX, G, xt)                                                                           \
    DX = _mm512_mul_ps(H.d, twice(_mm256_loadu_ps(cpu_x8_d(xt, kp) + at / 32)));                             \
    G = _mm512_fmadd_ps(H.g, _mm512_loadu_ps(cpu_x8_s16(xt, kp) + at / 16), G)
#define SUB_SPREAD_8(d, p)  spread8(_mm512_castps512_ps256(d), p)
#define SUB_SPREAD_16(d, p) spread16(d, p)

CPU_QUANTS(ROW_KERNEL)

/* ---- float types: x stays float32 ---- */

INLINE __m512 load_f32(const uint8_t *w, int i) { return _mm512_loadu_ps(w + 4 * (size_t)i); }
INLINE __m512 load_f16(const uint8_t *w, int i) { return _mm512_cvtph_ps(ld256(w + 2 * (size_t)i)); }
INLINE __m512 load_bf16(const uint8_t *w, int i) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(ld256(w + 2 * (size_t)i)), 16));
}
INLINE __m512 tail_f32(const uint8_t *w, int i, __mmask16 m) {
    return _mm512_maskz_loadu_ps(m, w + 4 * (size_t)i);
}
INLINE __m512 tail_f16(const uint8_t *w, int i, __mmask16 m) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, w + 2 * (size_t)i));
}
INLINE __m512 tail_bf16(const uint8_t *w, int i, __mmask16 m) {
    __m256i h = _mm256_maskz_loadu_epi16(m, w + 2 * (size_t)i);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

#define FLOAT_KERNEL(name, SIZE)                                                                             \
    INLINE void rows_##name(const uint8_t *w, size_t stride, int n, int k, const uint8_t *x,                 \
                            size_t x_stride, const int TT, float *out) {                                     \
        for (int r = 0; r < n; r++, w += stride) {                                                           \
            __m512 f[4][4];                                                                                  \
            UNROLL for (int t = 0; t < TT; t++) f[t][0] = f[t][1] = f[t][2] = f[t][3] = _mm512_setzero_ps(); \
            int i = 0;                                                                                       \
            for (; i + 64 <= k; i += 64) {                                                                   \
                UNROLL for (int j = 0; j < SIZE; j++)                                                        \
                    _mm_prefetch((const char *)w + SIZE * (size_t)i + AHEAD + 64 * j, _MM_HINT_T0);          \
                UNROLL for (int j = 0; j < 4; j++) {                                                         \
                    __m512 v = load_##name(w, i + 16 * j);                                                   \
                    UNROLL for (int t = 0; t < TT; t++) f[t][j] =                                            \
                        _mm512_fmadd_ps(v, load_f32(x + t * x_stride, i + 16 * j), f[t][j]);                 \
                }                                                                                            \
            }                                                                                                \
            for (; i < k; i += 16) {                                                                         \
                __mmask16 m = k - i >= 16 ? 0xffff : (__mmask16)((1 << (k - i)) - 1);                        \
                __m512 v = tail_##name(w, i, m);                                                             \
                UNROLL for (int t = 0; t < TT; t++) f[t][0] =                                                \
                    _mm512_fmadd_ps(v, tail_f32(x + t * x_stride, i, m), f[t][0]);                           \
            }                                                                                                \
            UNROLL for (int t = 0; t < TT; t++) out[t * CPU_UNIT_ROWS + r] =                                 \
                sum16(_mm512_add_ps(_mm512_add_ps(f[t][0], f[t][1]), _mm512_add_ps(f[t][2], f[t][3])));      \
        }                                                                                                    \
    }                                                                                                        \
    static void row_##name(const uint8_t *w, size_t stride, const uint8_t *end, int n, int k, const void *x, \
                           size_t x_stride, int T, float *out) {                                             \
        const uint8_t *q = x;                                                                                \
        (void)end;                                                                                           \
        for (; T >= 4; T -= 4, q += 4 * x_stride, out += 4 * CPU_UNIT_ROWS)                                  \
            rows_##name(w, stride, n, k, q, x_stride, 4, out);                                               \
        if (T == 3) rows_##name(w, stride, n, k, q, x_stride, 3, out);                                       \
        if (T == 2) rows_##name(w, stride, n, k, q, x_stride, 2, out);                                       \
        if (T == 1) rows_##name(w, stride, n, k, q, x_stride, 1, out);                                       \
    }
FLOAT_KERNEL(f32, 4)
FLOAT_KERNEL(f16, 2)
FLOAT_KERNEL(bf16, 2)

#define ENTRY(name, UPPER, SUBS, BYTES) [QUANT_##UPPER] = row_##name,
cpu_row_fn *const cpu_rows_avx512[QUANT_COUNT] = {
    [QUANT_F32] = row_f32, [QUANT_F16] = row_f16, [QUANT_BF16] = row_bf16, CPU_QUANTS(ENTRY)};
