/* Decode rows on float weights, included once per instruction set: x stays float32, lanes along K. One vector of sums
 * for each output, columns in order, added up across once at the end: the bits depend on K alone.
 *
 *   1 row of x        weight rows one by one, so that they are one stream
 *   2 to 4            NR weight rows x all of them
 *   more              16 at a time, NR weight rows x 4 of them together, in blocks of columns so that x stays in the first
 *                     level of cache; the vectors of sums wait in memory meanwhile */
#include "cpu.h"
#include "cpu_simd.h"

#define UNROLL _Pragma("GCC unroll 16")
#ifdef __AVX512F__
#define HOLD(v) __asm__("" : "+v"(v))
#else
#define HOLD(v) __asm__("" : "+x"(v))
#endif

enum { NR = VL == 16 ? 4 : 2, AHEAD = 8192 };
enum { WIDE_T = 4, GROUP = 16, BLOCK_K = 256 };

INLINE vf elems_f32(const uint8_t *w) { return vf_load((const float *)(const void *)w); }
INLINE vf elems_f16(const uint8_t *w) { return vf_halves((const uint16_t *)(const void *)w); }
INLINE vf elems_bf16(const uint8_t *w) {
#ifdef __AVX512F__
    __m512i v = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)w));
    return _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
#else
    __m256i v = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)w));
    return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
#endif
}

/* sum[r * GROUP + t] += N rows of weights, stride bytes apart, times TT rows of x, lane by lane. dist: from a byte of w to
 * the one that is asked for meanwhile. */
#define FLOAT_KERNEL(name, SIZE)                                                                             \
    INLINE void tile_##name(const uint8_t *w, size_t stride, ptrdiff_t dist, int k, const float *x,          \
                            size_t x_stride, const int TT, const int N, vf *sum) {                           \
        const int LINE = 64 / SIZE;                                                                          \
        vf f[4][8], v[4];                                                                                    \
        int i = 0;                                                                                           \
        UNROLL for (int r = 0; r < N; r++) UNROLL for (int t = 0; t < TT; t++) f[r][t] = sum[r * GROUP + t]; \
        for (; i + LINE <= k; i += LINE) {                                                                   \
            UNROLL for (int r = 0; r < N; r++)                                                               \
                _mm_prefetch((const char *)w + (size_t)r * stride + (size_t)i * SIZE + dist, _MM_HINT_T1);   \
            UNROLL for (int j = i; j < i + LINE; j += VL) {                                                  \
                UNROLL for (int r = 0; r < N; r++) v[r] =                                                    \
                    elems_##name(w + (size_t)r * stride + (size_t)j * SIZE);                                 \
                UNROLL for (int t = 0; t < TT; t++) {                                                        \
                    vf y = vf_load(x + (size_t)t * x_stride + j);                                            \
                    HOLD(y); /* one load, not one for each use */                                            \
                    UNROLL for (int r = 0; r < N; r++) f[r][t] = vf_fma(v[r], y, f[r][t]);                   \
                }                                                                                            \
            }                                                                                                \
        }                                                                                                    \
        for (; i < k; i += VL) {                                                                             \
            const int n = k - i < VL ? k - i : VL;                                                           \
            UNROLL for (int r = 0; r < N; r++) {                                                             \
                uint8_t last[VL * SIZE];                                                                     \
                memset(last, 0, sizeof last);                                                                \
                memcpy(last, w + (size_t)r * stride + (size_t)i * SIZE, (size_t)n * SIZE);                   \
                v[r] = elems_##name(last);                                                                   \
            }                                                                                                \
            UNROLL for (int t = 0; t < TT; t++) {                                                            \
                vf y = vf_loadn(x + (size_t)t * x_stride + i, n);                                            \
                UNROLL for (int r = 0; r < N; r++) f[r][t] = vf_fma(v[r], y, f[r][t]);                       \
            }                                                                                                \
        }                                                                                                    \
        UNROLL for (int r = 0; r < N; r++) UNROLL for (int t = 0; t < TT; t++) sum[r * GROUP + t] = f[r][t]; \
    }                                                                                                        \
    INLINE void whole_##name(const uint8_t *w, size_t stride, ptrdiff_t dist, int k, const float *x,         \
                             size_t x_stride, const int TT, const int N, float *out) {                       \
        vf sum[4 * GROUP];                                                                                   \
        UNROLL for (int r = 0; r < N; r++) UNROLL for (int t = 0; t < TT; t++) sum[r * GROUP + t] =          \
            vf_set(0);                                                                                       \
        tile_##name(w, stride, dist, k, x, x_stride, TT, N, sum);                                            \
        UNROLL for (int r = 0; r < N; r++) UNROLL for (int t = 0; t < TT; t++) out[t * CPU_UNIT_ROWS + r] =  \
            vf_sum(sum[r * GROUP + t]);                                                                      \
    }                                                                                                        \
    INLINE void few_##name(const uint8_t *w, size_t stride, int n_row, int k, const float *x, size_t step,   \
                           const int TT, float *out) {                                                       \
        const ptrdiff_t dist = TT == 1 ? AHEAD : (ptrdiff_t)(NR * stride);                                   \
        if (TT > 1)                                                                                          \
            for (; n_row >= NR; n_row -= NR, w += NR * stride, out += NR)                                    \
                whole_##name(w, stride, dist, k, x, step, TT, NR, out);                                      \
        for (; n_row > 0; n_row--, w += stride, out++)                                                       \
            whole_##name(w, stride, dist, k, x, step, TT, 1, out);                                           \
    }                                                                                                        \
    INLINE void group_##name(const uint8_t *w, size_t stride, ptrdiff_t dist, int k, const float *x,         \
                             size_t step, int T, const int N, vf *sum) {                                     \
        for (; T >= WIDE_T; T -= WIDE_T, x += WIDE_T * step, sum += WIDE_T)                                  \
            tile_##name(w, stride, dist, k, x, step, WIDE_T, N, sum);                                        \
        for (; T >= 2; T -= 2, x += 2 * step, sum += 2) tile_##name(w, stride, dist, k, x, step, 2, N, sum); \
        if (T) tile_##name(w, stride, dist, k, x, step, 1, N, sum);                                          \
    }                                                                                                        \
    static void many_##name(const uint8_t *w, size_t stride, int n_row, int k, const float *x, size_t step,  \
                            int T, float *out) {                                                             \
        vf sum[CPU_UNIT_ROWS * GROUP];                                                                       \
        for (int i = 0; i < n_row * GROUP; i++) sum[i] = vf_set(0);                                          \
        for (int k0 = 0; k0 < k; k0 += BLOCK_K) {                                                            \
            const int n = k - k0 < BLOCK_K ? k - k0 : BLOCK_K;                                               \
            const ptrdiff_t dist = k0 + n < k ? BLOCK_K * SIZE : (ptrdiff_t)(n_row * stride) - k0 * SIZE;    \
            const uint8_t *row = w + (size_t)k0 * SIZE;                                                      \
            int r = 0;                                                                                       \
            for (; r + NR <= n_row; r += NR, row += NR * stride)                                             \
                group_##name(row, stride, dist, n, x + k0, step, T, NR, sum + r * GROUP);                    \
            for (; r < n_row; r++, row += stride)                                                            \
                group_##name(row, stride, dist, n, x + k0, step, T, 1, sum + r * GROUP);                     \
        }                                                                                                    \
        for (int t = 0; t < T; t++)                                                                          \
            for (int r = 0; r < n_row; r++) out[t * CPU_UNIT_ROWS + r] = vf_sum(sum[r * GROUP + t]);         \
    }                                                                                                        \
    static void row_##name(const uint8_t *w, size_t stride, int n_row, int k, const void *x,                 \
                           size_t x_stride, int T, float *out) {                                             \
        size_t step = x_stride / sizeof(float);                                                              \
        const float *y = x;                                                                                  \
        for (int n; T > 0; T -= n, y += GROUP * step, out += GROUP * CPU_UNIT_ROWS) {                        \
            n = T < GROUP ? T : GROUP;                                                                       \
            if (n == 1) few_##name(w, stride, n_row, k, y, step, 1, out);                                    \
            if (n == 2) few_##name(w, stride, n_row, k, y, step, 2, out);                                    \
            if (n == 3) few_##name(w, stride, n_row, k, y, step, 3, out);                                    \
            if (n == 4) few_##name(w, stride, n_row, k, y, step, 4, out);                                    \
            if (n > 4) many_##name(w, stride, n_row, k, y, step, n, out);                                    \
        }                                                                                                    \
    }
FLOAT_KERNEL(f32, 4)
FLOAT_KERNEL(f16, 2)
FLOAT_KERNEL(bf16, 2)
#define ROW_ENTRIES                                                                                          \
    { [QUANT_F32] = row_f32, [QUANT_F16] = row_f16, [QUANT_BF16] = row_bf16 }
