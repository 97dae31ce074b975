/* Prompt matmul in 8 bits with AVX2: the scheme of cpu_int8_avx512.c, eight tokens to a vector.
 *
 * vpmaddubsw adds two products in 16 bits and the sums stay there as long as they fit: FLUSH steps of four columns
 * with codes up to 15 (8 steps: 16 products of 15 * 127), 31 (4), 63 (2). Q8_0 and IQ4_NL have signed codes of 8
 * bits, which do not fit at all, and go the float way. */
#include "cpu.h"
#include "cpu_unpack_avx2.h"

#define UNROLL  _Pragma("GCC unroll 8")
#define KEEP(v) __asm__("" : "+x"(v)) /* gcc 12 reassociates the integer adds and spills: half the speed */

INLINE void put8(struct sub8 h, float *d, float *g) {
    _mm256_storeu_ps(d, h.d);
    _mm256_storeu_ps(g, h.g);
}
INLINE void put16(struct sub16 h, float *d, float *g) {
    _mm256_storeu_ps(d, h.d);
    _mm256_storeu_ps(d + 8, h.d1);
    _mm256_storeu_ps(g, h.g);
    _mm256_storeu_ps(g + 8, h.g1);
}
#define UNPACK(name, UPPER, SUBS, BYTES)                                                                     \
    __attribute__((unused)) static void codes_rows_##name(uint8_t *y, float *d, float *g,                    \
                                                          const void *blocks, const uint8_t *end, int k) {   \
        const uint8_t *w = blocks;                                                                           \
        uint8_t copy[BYTES];                                                                                 \
        for (; k > 0; k -= 256, w += BYTES, y += 256, d += SUBS, g += SUBS) {                                \
            if (k < 256 && w + BYTES > end) {                                                                \
                memset(copy, 0, BYTES);                                                                      \
                w = memcpy(copy, w, (size_t)k / 32 * (BYTES / 8));                                           \
            }                                                                                                \
            put##SUBS(head_##name(w), d, g);                                                                 \
            UNROLL for (int b = 0; b < 8; b++)                                                               \
                _mm256_storeu_si256((void *)(y + 32 * b), codes_##name(w, b));                               \
        }                                                                                                    \
    }
CPU_QUANTS(UNPACK)

/* ---- NR rows x one panel of 16 tokens ---- */

INLINE void tile(const uint8_t *w, const float *d, const float *g, int k, const struct cpu_x8_panel *x,
                 float *acc, const int COLS, const int FLUSH) {
    enum { NR = 2 };
    const __m256i one = _mm256_set1_epi16(1);
    for (int b = 0; b < k / COLS; b++) {
        __m256i sum[NR][2];
        UNROLL for (int s = 0; s < COLS / 4; s += FLUSH) {
            __m256i a[NR][2];
            UNROLL for (int j = 0; j < FLUSH; j++) {
                size_t at = (size_t)b * COLS + (size_t)(s + j) * 4;
                __m256i q0 = ld256(x->q + at * CPU_LANES), q1 = ld256(x->q + at * CPU_LANES + 32);
                UNROLL for (int r = 0; r < NR; r++) {
                    int32_t four;
                    memcpy(&four, w + (size_t)r * CPU_PANEL_STRIDE + at, 4);
                    __m256i c = _mm256_set1_epi32(four), p0 = _mm256_maddubs_epi16(c, q0),
                            p1 = _mm256_maddubs_epi16(c, q1);
                    a[r][0] = j ? _mm256_add_epi16(a[r][0], p0) : p0;
                    a[r][1] = j ? _mm256_add_epi16(a[r][1], p1) : p1;
                    KEEP(a[r][0]);
                    KEEP(a[r][1]);
                }
            }
            UNROLL for (int r = 0; r < NR; r++) UNROLL for (int h = 0; h < 2; h++) {
                __m256i v = _mm256_madd_epi16(a[r][h], one);
                sum[r][h] = s ? _mm256_add_epi32(sum[r][h], v) : v;
            }
        }
        UNROLL for (int h = 0; h < 2; h++) {
            __m256 dx = _mm256_loadu_ps(x->d + b * COLS / 32 * CPU_LANES + 8 * h);
            __m256 sx = _mm256_loadu_ps((COLS == 32 ? x->s32 : x->s16) + b * CPU_LANES + 8 * h);
            UNROLL for (int r = 0; r < NR; r++) {
                float *o = acc + r * CPU_LANES + 8 * h;
                __m256 v = _mm256_mul_ps(_mm256_cvtepi32_ps(sum[r][h]), dx);
                __m256 f =
                    _mm256_fmadd_ps(v, _mm256_broadcast_ss(d + r * CPU_PANEL_SUBS + b), _mm256_loadu_ps(o));
                _mm256_storeu_ps(o, _mm256_fmadd_ps(sx, _mm256_broadcast_ss(g + r * CPU_PANEL_SUBS + b), f));
            }
        }
    }
}

#define GEMM(name, COLS, FLUSH)                                                                              \
    static void name(const uint8_t *w, const float *d, const float *g, int k, const uint8_t *panel,          \
                     int k_all, int k0, int n_panel, float *acc) {                                           \
        enum { KB = 512 };                                                                                   \
        for (int at = 0; at < k; at += KB)                                                                   \
            for (int p = 0; p < n_panel; p++) {                                                              \
                struct cpu_x8_panel x = cpu_x8_panel(panel, k_all, p, k0 + at);                              \
                for (int r = 0; r < CPU_PANEL_ROWS; r += 2)                                                  \
                    tile(w + (size_t)r * CPU_PANEL_STRIDE + at, d + r * CPU_PANEL_SUBS + at / COLS,          \
                         g + r * CPU_PANEL_SUBS + at / COLS, k - at < KB ? k - at : KB, &x,                  \
                         acc + ((size_t)p * CPU_PANEL_ROWS + (size_t)r) * CPU_LANES, COLS, FLUSH);           \
            }                                                                                                \
    }
GEMM(gemm_4bit, 32, 8)
GEMM(gemm_5bit, 32, 4)
GEMM(gemm_3bit_16, 16, 4)
GEMM(gemm_6bit_16, 16, 2)

const struct cpu_int8 cpu_int8_avx2[QUANT_COUNT] = {
    [QUANT_Q4_0] = {codes_rows_q4_0, gemm_4bit},    [QUANT_Q4_1] = {codes_rows_q4_1, gemm_4bit},
    [QUANT_Q4_K] = {codes_rows_q4_k, gemm_4bit},    [QUANT_Q5_0] = {codes_rows_q5_0, gemm_5bit},
    [QUANT_Q5_1] = {codes_rows_q5_1, gemm_5bit},    [QUANT_Q5_K] = {codes_rows_q5_k, gemm_5bit},
    [QUANT_Q2_K] = {codes_rows_q2_k, gemm_3bit_16}, [QUANT_Q3_K] = {codes_rows_q3_k, gemm_3bit_16},
    [QUANT_Q6_K] = {codes_rows_q6_k, gemm_6bit_16},
};
