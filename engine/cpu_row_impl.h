/* Decode rows on float weights, included once per instruction set: x stays float32, NR weight rows x up to four rows
 * of x, lanes along K; one row of x takes the weight rows one by one, so that they are one stream. One vector of sums
 * for each output, columns in order, added up across once at the end: the bits depend on K alone. */
#include "cpu.h"
#include "cpu_simd.h"

#define UNROLL _Pragma("GCC unroll 8")

enum { NR = VL == 16 ? 4 : 2, AHEAD = 8192 };

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

/* ahead: bytes of the rows that come next, asked for evenly */
#define FLOAT_KERNEL(name, SIZE)                                                                             \
    INLINE void tile_##name(const uint8_t *const *row, const uint8_t *ahead, int n, int k, const float *x,   \
                            size_t x_stride, const int TT, const int N, float *out) {                        \
        vf f[NR][4];                                                                                         \
        UNROLL for (int r = 0; r < N; r++) UNROLL for (int t = 0; t < TT; t++) f[r][t] = vf_set(0);          \
        int i = 0;                                                                                           \
        for (; i + VL <= k; i += VL, ahead += N * VL * SIZE) {                                               \
            vf v[NR];                                                                                        \
            UNROLL for (int j = 0; j < (N * VL * SIZE + 63) / 64; j++)                                       \
                _mm_prefetch((const char *)ahead + 64 * j, _MM_HINT_T1);                                     \
            UNROLL for (int r = 0; r < N; r++) v[r] = elems_##name(row[r] + (size_t)i * SIZE);               \
            UNROLL for (int t = 0; t < TT; t++) {                                                            \
                vf y = vf_load(x + (size_t)t * x_stride + i);                                                \
                UNROLL for (int r = 0; r < N; r++) f[r][t] = vf_fma(v[r], y, f[r][t]);                       \
            }                                                                                                \
        }                                                                                                    \
        if (i < k) {                                                                                         \
            uint8_t last[NR][VL * SIZE];                                                                     \
            memset(last, 0, sizeof last);                                                                    \
            UNROLL for (int r = 0; r < N; r++)                                                               \
                memcpy(last[r], row[r] + (size_t)i * SIZE, (size_t)(k - i) * SIZE);                          \
            UNROLL for (int t = 0; t < TT; t++) {                                                            \
                vf y = vf_loadn(x + (size_t)t * x_stride + i, k - i);                                        \
                UNROLL for (int r = 0; r < N; r++) f[r][t] = vf_fma(elems_##name(last[r]), y, f[r][t]);      \
            }                                                                                                \
        }                                                                                                    \
        UNROLL for (int r = 0; r < N; r++) UNROLL for (int t = 0; t < TT; t++) if (r < n)                    \
            out[t * CPU_UNIT_ROWS + r] = vf_sum(f[r][t]);                                                    \
    }                                                                                                        \
    static void row_##name(const uint8_t *w, size_t stride, int n_row, int k, const void *x,                 \
                           size_t x_stride, int T, float *out) {                                             \
        if (T == 1)                                                                                          \
            for (; n_row > 0; n_row--, w += stride, out++)                                                   \
                tile_##name(&w, w + AHEAD, 1, k, x, 0, 1, 1, out);                                           \
        for (int r0 = 0; r0 < n_row; r0 += NR, w += NR * stride, out += NR) {                                \
            const uint8_t *row[NR], *ahead = w + NR * stride;                                                \
            const float *y = x;                                                                              \
            size_t step = x_stride / sizeof *y;                                                              \
            float *o = out;                                                                                  \
            int n = n_row - r0, t = T;                                                                       \
            for (int r = 0; r < NR; r++) row[r] = w + (size_t)(r < n ? r : n - 1) * stride;                  \
            for (; t >= 4; t -= 4, y += 4 * step, o += 4 * CPU_UNIT_ROWS)                                    \
                tile_##name(row, ahead, n, k, y, step, 4, NR, o);                                            \
            if (t == 3) tile_##name(row, ahead, n, k, y, step, 3, NR, o);                                    \
            if (t == 2) tile_##name(row, ahead, n, k, y, step, 2, NR, o);                                    \
            if (t == 1) tile_##name(row, ahead, n, k, y, step, 1, NR, o);                                    \
        }                                                                                                    \
    }
FLOAT_KERNEL(f32, 4)
FLOAT_KERNEL(f16, 2)
FLOAT_KERNEL(bf16, 2)
#define ROW_ENTRIES                                                                                          \
    { [QUANT_F32] = row_f32, [QUANT_F16] = row_f16, [QUANT_BF16] = row_bf16 }
