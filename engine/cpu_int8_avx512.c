/* Prompt matmul in 8 bits with AVX-512 VNNI, for processors without AMX: weight codes as the file has them, tokens
 * side by side.
 *
 * Weights are unpacked to rows of unsigned codes with d and g per sub-block (value = d u + g), x to int8 with a
 * scale per 32 and token. Four codes of one row are broadcast against four columns of 16 tokens; a sub-block's
 * int32 sums become floats once: f += d dx (u . q) + g (dx sum q). */
#include "cpu.h"
#include "cpu_unpack_avx512.h"

#define UNROLL _Pragma("GCC unroll 8")

/* ---- weights: codes and sub-block scales of one row ---- */

INLINE void put8(struct sub8 h, float *d, float *g) {
    _mm256_storeu_ps(d, h.d);
    _mm256_storeu_ps(g, h.g);
}
INLINE void put16(struct sub16 h, float *d, float *g) {
    _mm512_storeu_ps(d, h.d);
    _mm512_storeu_ps(g, h.g);
}
#define UNPACK(name, UPPER, SUBS, BYTES)                                                                     \
    static void codes_rows_##name(uint8_t *y, float *d, float *g, const void *blocks, const uint8_t *end,    \
                                  int k) {                                                                   \
        const uint8_t *w = blocks;                                                                           \
        uint8_t copy[BYTES];                                                                                 \
        for (; k > 0; k -= 256, w += BYTES, y += 256, d += SUBS, g += SUBS) {                                \
            if (k < 256 && w + BYTES > end) {                                                                \
                memset(copy, 0, BYTES);                                                                      \
                w = memcpy(copy, w, (size_t)k / 32 * (BYTES / 8));                                           \
            }                                                                                                \
            put##SUBS(head_##name(w), d, g);                                                                 \
            UNROLL for (int p = 0; p < 4; p++) _mm512_storeu_si512(y + 64 * p, codes_##name(w, p));          \
        }                                                                                                    \
    }
CPU_QUANTS(UNPACK)

/* ---- NR rows x NP panels of 16 tokens ---- */

INLINE void tile(const uint8_t *w, const float *d, const float *g, int k, const struct cpu_x8_panel *x,
                 float *acc, const int NR, const int NP, const int COLS) {
    __m512 f[4][2];
    UNROLL for (int r = 0; r < NR; r++) UNROLL for (int p = 0; p < NP; p++) f[r][p] =
        _mm512_loadu_ps(acc + (p * CPU_PANEL_ROWS + r) * CPU_LANES);
    for (int b = 0; b < k / COLS; b++) {
        __m512i a[4][2];
        UNROLL for (int r = 0; r < NR; r++) UNROLL for (int p = 0; p < NP; p++) a[r][p] =
            _mm512_setzero_si512();
        UNROLL for (int s = 0; s < COLS / 4; s++) {
            size_t at = (size_t)b * COLS + (size_t)s * 4;
            __m512i q[2];
            UNROLL for (int p = 0; p < NP; p++) q[p] = _mm512_loadu_si512(x[p].q + at * CPU_LANES);
            UNROLL for (int r = 0; r < NR; r++) {
                int32_t four;
                memcpy(&four, w + (size_t)r * CPU_PANEL_STRIDE + at, 4);
                __m512i c = _mm512_set1_epi32(four);
                UNROLL for (int p = 0; p < NP; p++) a[r][p] = _mm512_dpbusd_epi32(a[r][p], c, q[p]);
            }
        }
        UNROLL for (int p = 0; p < NP; p++) {
            __m512 dx = _mm512_loadu_ps(x[p].d + b * COLS / 32 * CPU_LANES);
            __m512 sx = _mm512_loadu_ps((COLS == 32 ? x[p].s32 : x[p].s16) + b * CPU_LANES);
            UNROLL for (int r = 0; r < NR; r++) {
                __m512 v = _mm512_mul_ps(_mm512_cvtepi32_ps(a[r][p]), dx);
                f[r][p] = _mm512_fmadd_ps(v, _mm512_set1_ps(d[r * CPU_PANEL_SUBS + b]), f[r][p]);
                f[r][p] = _mm512_fmadd_ps(sx, _mm512_set1_ps(g[r * CPU_PANEL_SUBS + b]), f[r][p]);
            }
        }
    }
    UNROLL for (int r = 0; r < NR; r++) UNROLL for (int p = 0; p < NP; p++)
        _mm512_storeu_ps(acc + (p * CPU_PANEL_ROWS + r) * CPU_LANES, f[r][p]);
}

INLINE void gemm(const uint8_t *w, const float *d, const float *g, int k, const uint8_t *panel, int k_all,
                 int k0, int n_panel, float *acc, const int COLS) {
    enum { KB = 512, NR = 4 };
    for (int at = 0; at < k; at += KB) {
        int kb = k - at < KB ? k - at : KB;
        for (int p = 0; p < n_panel; p += 2) {
            struct cpu_x8_panel x[2] = {cpu_x8_panel(panel, k_all, p, k0 + at),
                                        cpu_x8_panel(panel, k_all, p + 1, k0 + at)};
            for (int r = 0; r < CPU_PANEL_ROWS; r += NR) {
                const uint8_t *wr = w + (size_t)r * CPU_PANEL_STRIDE + at;
                const float *dr = d + r * CPU_PANEL_SUBS + at / COLS,
                            *gr = g + r * CPU_PANEL_SUBS + at / COLS;
                float *ar = acc + ((size_t)p * CPU_PANEL_ROWS + (size_t)r) * CPU_LANES;
                if (p + 1 < n_panel)
                    tile(wr, dr, gr, kb, x, ar, NR, 2, COLS);
                else
                    tile(wr, dr, gr, kb, x, ar, NR, 1, COLS);
            }
        }
    }
}
static void gemm_32(const uint8_t *w, const float *d, const float *g, int k, const uint8_t *panel, int k_all,
                    int k0, int n_panel, float *acc) {
    gemm(w, d, g, k, panel, k_all, k0, n_panel, acc, 32);
}
static void gemm_16(const uint8_t *w, const float *d, const float *g, int k, const uint8_t *panel, int k_all,
                    int k0, int n_panel, float *acc) {
    gemm(w, d, g, k, panel, k_all, k0, n_panel, acc, 16);
}

#define ENTRY(name, UPPER, SUBS, BYTES) [QUANT_##UPPER] = {codes_rows_##name, SUBS == 8 ? gemm_32 : gemm_16},
const struct cpu_int8 cpu_int8_avx512[QUANT_COUNT] = {CPU_QUANTS(ENTRY)};
