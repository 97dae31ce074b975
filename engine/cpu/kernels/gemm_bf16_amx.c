/* Prompt matmul on AMX tiles: 32 weight rows x 32 tokens x 32 columns of BF16 in four tile products.
 *
 * Weights are the left operand, 16 rows x 32 columns in one piece of 1024 bytes; tokens the right one, in pairs of columns
 * (x panel [k/2][16 tokens][2]), made once a step. Sums are float32 in the tiles, k in order. Every output
 * goes the same way whatever the number of tokens; lanes past the last token are zeros. */
#include "cpu/kernels/kernels.h"
#include "cpu/simd/simd.h"

struct tile_config { /* palette 1 */
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
};

/* BF16 of 16 rows of a panel of weights */
enum { HALF = CPU_PANEL_K * 16 };

void cpu_amx_begin(void) {
    struct tile_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) c.bytes[i] = 64, c.rows[i] = 16;
    __asm__ volatile("" : : "r"(&c) : "memory"); /* gcc 12 takes the operand for 8 bytes */
    _tile_loadconfig(&c);
}
void cpu_amx_end(void) { _tile_release(); }

/* panel[k/2][CPU_LANES][2], k rounded up to 32, zeros beyond n_row and k. */
void cpu_amx_prep(uint16_t *panel, const float *x, size_t x_stride, int n_row, int k) {
    for (int at = 0; at < k; at += 32, panel += 32 * CPU_LANES) {
        __m512 v[16];
        int left = k - at;
        __mmask16 m0 = left >= 16 ? 0xffff : (__mmask16)((1 << left) - 1);
        __mmask16 m1 = left >= 32 ? 0xffff : left > 16 ? (__mmask16)((1 << (left - 16)) - 1) : 0;
        for (int t = 0; t < 16; t++) {
            const float *r = x + (size_t)t * x_stride + at;
            v[t] = t >= n_row ? _mm512_setzero_ps()
                              : (__m512)_mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(m1, r + 16),
                                                            _mm512_maskz_loadu_ps(m0, r));
        }
        transpose16(v);
        for (int i = 0; i < 16; i++) _mm512_storeu_ps((float *)(void *)panel + 16 * i, v[i]);
    }
}

void cpu_amx_dequant(struct cpu_amx_rows *r, int pieces) {
    int per_row = (r->k + 255) / 256;
    for (; pieces > 0 && r->next < r->total; pieces--, r->next++) {
        int row = r->next / per_row, at = r->next % per_row * 256, n = r->k - at < 256 ? r->k - at : 256;
        uint16_t *y =
            r->dst + (size_t)(row / 16) * HALF + (size_t)(at / 32) * CPU_TILE_ELEMS + (size_t)(row % 16) * 32;
        r->unpack(y, r->src + (size_t)row * r->stride + (size_t)(at / 256) * r->bytes_256, r->end, n);
    }
}

void cpu_amx_gemm(const uint16_t *w, int kp, const uint16_t *panel, size_t panel_stride, int n_panel,
                  float *acc, struct cpu_amx_rows *next) {
    enum { AS = CPU_LANES * 4, TILE = 16 * CPU_LANES };
    const uint16_t *w1 = w + HALF;
    int stops = (n_panel + 1) / 2 * ((kp + 255) / 256), quota = (next->total + stops - 1) / stops;
    int p = 0;
    for (; p + 2 <= n_panel; p += 2, acc += 4 * TILE) {
        const uint16_t *b0 = panel + (size_t)p * panel_stride, *b1 = b0 + panel_stride;
        _tile_loadd(0, acc, AS);
        _tile_loadd(1, acc + TILE, AS);
        _tile_loadd(2, acc + 2 * TILE, AS);
        _tile_loadd(3, acc + 3 * TILE, AS);
        for (int k0 = 0; k0 < kp; k0 += 256) {
            int end = k0 + 256 < kp ? k0 + 256 : kp;
            for (int k = k0; k < end; k += 32) {
                _tile_loadd(4, w + (size_t)k * 16, 64);
                _tile_loadd(6, b0 + (size_t)k * CPU_LANES, 64);
                _tile_dpbf16ps(0, 4, 6);
                _tile_loadd(5, w1 + (size_t)k * 16, 64);
                _tile_dpbf16ps(1, 5, 6);
                _tile_loadd(7, b1 + (size_t)k * CPU_LANES, 64);
                _tile_dpbf16ps(2, 4, 7);
                _tile_dpbf16ps(3, 5, 7);
            }
            cpu_amx_dequant(next, quota);
        }
        _tile_stored(0, acc, AS);
        _tile_stored(1, acc + TILE, AS);
        _tile_stored(2, acc + 2 * TILE, AS);
        _tile_stored(3, acc + 3 * TILE, AS);
    }
    if (p < n_panel) {
        const uint16_t *b0 = panel + (size_t)p * panel_stride;
        _tile_loadd(0, acc, AS);
        _tile_loadd(1, acc + TILE, AS);
        for (int k = 0; k < kp; k += 32) {
            _tile_loadd(4, w + (size_t)k * 16, 64);
            _tile_loadd(5, w1 + (size_t)k * 16, 64);
            _tile_loadd(6, b0 + (size_t)k * CPU_LANES, 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 5, 6);
        }
        _tile_stored(0, acc, AS);
        _tile_stored(1, acc + TILE, AS);
    }
    cpu_amx_dequant(next, next->total);
    __asm__ volatile("" : : : "memory"); /* the tile loads and stores name no memory to gcc 12 */
}
