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

cpu_row_fn *const cpu_rows_avx512[QUANT_COUNT] = {
    [QUANT_F32] = row_f32, [QUANT_F16] = row_f16, [QUANT_BF16] = row_bf16};
