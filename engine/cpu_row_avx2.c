/* Decode rows with AVX2: the scheme of cpu_row_avx512.c, 32 columns at a time. vpmaddubsw takes unsigned weights
 * and signed x; where the weights are signed too, x takes their sign first. No sum of two products leaves 16
 * bits: 2 * 63 * 127, or 2 * 128 * 127. */
#include "cpu.h"
#include "cpu_unpack_avx2.h"

/* Bytes ahead of the block in work that are asked for. */
enum { AHEAD = 3072 };

#define UNROLL _Pragma("GCC unroll 8")

INLINE float sum8(__m256 a) {
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
INLINE const uint8_t *tail_block(uint8_t *copy, const uint8_t *w, const uint8_t *end, size_t used,
                                 size_t full) {
    if (w + full <= end) return w;
    memset(copy, 0, full);
    memcpy(copy, w, used);
    return copy;
}
INLINE __m256i dot32(__m256i c, __m256i x, const bool sign) { /* eight sums of four */
    __m256i p =
        sign ? _mm256_maddubs_epi16(_mm256_abs_epi8(c), _mm256_sign_epi8(x, c)) : _mm256_maddubs_epi16(c, x);
    return _mm256_madd_epi16(p, _mm256_set1_epi16(1));
}
INLINE __m256 first_lanes(__m256 v, int n) {
    __m256i m = _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    return _mm256_and_ps(v, _mm256_castsi256_ps(m));
}

/* ---- float types: x stays float32 ---- */

INLINE __m256i lanes(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
INLINE __m256 load_f32(const uint8_t *w, int i) {
    return _mm256_loadu_ps((const float *)(const void *)w + i);
}
INLINE __m256 load_f16(const uint8_t *w, int i) { return _mm256_cvtph_ps(ld128(w + 2 * (size_t)i)); }
INLINE __m256 load_bf16(const uint8_t *w, int i) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(ld128(w + 2 * (size_t)i)), 16));
}
INLINE __m256 tail_f32(const uint8_t *w, int i, int n) {
    return _mm256_maskload_ps((const float *)(const void *)w + i, lanes(n));
}
INLINE __m128i tail16(const uint8_t *w, int i, int n) {
    uint16_t copy[8] = {0};
    memcpy(copy, w + 2 * (size_t)i, (size_t)n * 2);
    return ld128(copy);
}
INLINE __m256 tail_f16(const uint8_t *w, int i, int n) { return _mm256_cvtph_ps(tail16(w, i, n)); }
INLINE __m256 tail_bf16(const uint8_t *w, int i, int n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(tail16(w, i, n)), 16));
}

#define FLOAT_KERNEL(name, SIZE)                                                                             \
    INLINE void rows_##name(const uint8_t *w, size_t stride, int n, int k, const uint8_t *x,                 \
                            size_t x_stride, const int TT, float *out) {                                     \
        for (int r = 0; r < n; r++, w += stride) {                                                           \
            __m256 f[4][4];                                                                                  \
            UNROLL for (int t = 0; t < TT; t++) f[t][0] = f[t][1] = f[t][2] = f[t][3] = _mm256_setzero_ps(); \
            int i = 0;                                                                                       \
            for (; i + 32 <= k; i += 32) {                                                                   \
                UNROLL for (int j = 0; j < (SIZE + 1) / 2; j++)                                              \
                    _mm_prefetch((const char *)w + SIZE * (size_t)i + AHEAD + 64 * j, _MM_HINT_T0);          \
                UNROLL for (int j = 0; j < 4; j++) {                                                         \
                    __m256 v = load_##name(w, i + 8 * j);                                                    \
                    UNROLL for (int t = 0; t < TT; t++) f[t][j] =                                            \
                        _mm256_fmadd_ps(v, load_f32(x + t * x_stride, i + 8 * j), f[t][j]);                  \
                }                                                                                            \
            }                                                                                                \
            for (; i < k; i += 8) {                                                                          \
                int m = k - i < 8 ? k - i : 8;                                                               \
                __m256 v = tail_##name(w, i, m);                                                             \
                UNROLL for (int t = 0; t < TT; t++) f[t][0] =                                                \
                    _mm256_fmadd_ps(v, tail_f32(x + t * x_stride, i, m), f[t][0]);                           \
            }                                                                                                \
            UNROLL for (int t = 0; t < TT; t++) out[t * CPU_UNIT_ROWS + r] =                                 \
                sum8(_mm256_add_ps(_mm256_add_ps(f[t][0], f[t][1]), _mm256_add_ps(f[t][2], f[t][3])));       \
        }                                                                                                    \
    }                                                                                                        \
    static void row_##name(const uint8_t *w, size_t stride, int n, int k, const void *x, size_t x_stride,    \
                           int T, float *out) {                                                              \
        const uint8_t *q = x;                                                                                \
        for (; T >= 4; T -= 4, q += 4 * x_stride, out += 4 * CPU_UNIT_ROWS)                                  \
            rows_##name(w, stride, n, k, q, x_stride, 4, out);                                               \
        if (T == 3) rows_##name(w, stride, n, k, q, x_stride, 3, out);                                       \
        if (T == 2) rows_##name(w, stride, n, k, q, x_stride, 2, out);                                       \
        if (T == 1) rows_##name(w, stride, n, k, q, x_stride, 1, out);                                       \
    }
FLOAT_KERNEL(f32, 4)
FLOAT_KERNEL(f16, 2)
FLOAT_KERNEL(bf16, 2)

cpu_row_fn *const cpu_rows_avx2[QUANT_COUNT] = {
    [QUANT_F32] = row_f32, [QUANT_F16] = row_f16, [QUANT_BF16] = row_bf16};
