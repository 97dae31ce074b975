/* Prompt matmul pieces, included once per instruction set: x panels, the float32 kernel, the way out. */

/* panel[k][CPU_LANES]: n_row <= CPU_LANES rows of x side by side, zeros beside them. */
static void prep_f32(float *panel, const float *x, size_t x_stride, int n_row, int k) {
    int i = 0;
#ifdef __AVX512F__
    for (; i + 16 <= k && n_row == CPU_LANES; i += 16) {
        __m512 a[16];
        for (int t = 0; t < 16; t++) a[t] = _mm512_loadu_ps(x + (size_t)t * x_stride + i);
        transpose16(a);
        for (int j = 0; j < 16; j++) _mm512_storeu_ps(panel + (size_t)(i + j) * CPU_LANES, a[j]);
    }
#endif
    for (; i < k; i++) {
        for (int t = 0; t < n_row; t++)
            panel[(size_t)i * CPU_LANES + (size_t)t] = x[(size_t)t * x_stride + (size_t)i];
        for (int t = n_row; t < CPU_LANES; t++) panel[(size_t)i * CPU_LANES + (size_t)t] = 0;
    }
}

/* NR weight rows x NP panels of 16 tokens: acc[p][row][16] += w[row][k] * panel[p][k][16], k in order. */
enum { LV = CPU_LANES / VL };
INLINE void tile_f32(const float *w, size_t w_stride, int k, const float *panel, size_t panel_stride,
                     float *acc, const int NR, const int NP) {
    vf c[8][2 * LV];
    _Pragma("GCC unroll 8") for (int r = 0; r < NR; r++)
        _Pragma("GCC unroll 4") for (int j = 0; j < NP * LV; j++) c[r][j] =
            vf_load(acc + (j / LV * CPU_PANEL_ROWS + r) * CPU_LANES + j % LV * VL);
    for (int i = 0; i < k; i++) {
        vf x[2 * LV];
        _Pragma("GCC unroll 4") for (int j = 0; j < NP * LV; j++) x[j] =
            vf_load(panel + (size_t)(j / LV) * panel_stride + (size_t)i * CPU_LANES + (size_t)(j % LV * VL));
        _Pragma("GCC unroll 8") for (int r = 0; r < NR; r++) {
            vf v = vf_set(w[(size_t)r * w_stride + (size_t)i]);
            _Pragma("GCC unroll 4") for (int j = 0; j < NP * LV; j++) c[r][j] = vf_fma(v, x[j], c[r][j]);
        }
    }
    _Pragma("GCC unroll 8") for (int r = 0; r < NR; r++)
        _Pragma("GCC unroll 4") for (int j = 0; j < NP * LV; j++)
            vf_store(acc + (j / LV * CPU_PANEL_ROWS + r) * CPU_LANES + j % LV * VL, c[r][j]);
}
/* w[CPU_PANEL_ROWS][k] times n_panel panels; rows of w and panels are so many floats apart. */
static void gemm_f32(const float *w, size_t w_stride, int k, const float *panel, size_t panel_stride,
                     int n_panel, float *acc) {
    enum { KB = 512, NR = VL == 16 ? 8 : 4, NP = VL == 16 ? 2 : 1 };
    for (int k0 = 0; k0 < k; k0 += KB) {
        int kb = k - k0 < KB ? k - k0 : KB;
        int p = 0;
        for (; p + NP <= n_panel; p += NP)
            for (int r = 0; r < CPU_PANEL_ROWS; r += NR)
                tile_f32(w + (size_t)r * w_stride + k0, w_stride, kb,
                         panel + (size_t)p * panel_stride + (size_t)k0 * CPU_LANES, panel_stride,
                         acc + ((size_t)p * CPU_PANEL_ROWS + (size_t)r) * CPU_LANES, NR, NP);
        for (; p < n_panel; p++)
            for (int r = 0; r < CPU_PANEL_ROWS; r += NR)
                tile_f32(w + (size_t)r * w_stride + k0, w_stride, kb,
                         panel + (size_t)p * panel_stride + (size_t)k0 * CPU_LANES, panel_stride,
                         acc + ((size_t)p * CPU_PANEL_ROWS + (size_t)r) * CPU_LANES, NR, 1);
    }
}

/* y[CPU_LANES][CPU_PANEL_ROWS] = the transpose of acc[CPU_PANEL_ROWS][CPU_LANES] */
static void untile(const float *acc, float *y) {
#ifdef __AVX512F__
    for (int half = 0; half < CPU_PANEL_ROWS; half += 16) {
        __m512 a[16];
        for (int i = 0; i < 16; i++) a[i] = _mm512_loadu_ps(acc + (half + i) * CPU_LANES);
        transpose16(a);
        for (int i = 0; i < 16; i++) _mm512_storeu_ps(y + i * CPU_PANEL_ROWS + half, a[i]);
    }
#else
    for (int r = 0; r < CPU_PANEL_ROWS; r += 4) {
        for (int t = 0; t < CPU_LANES; t += 4) {
            __m128 a = _mm_loadu_ps(acc + r * CPU_LANES + t), b = _mm_loadu_ps(acc + (r + 1) * CPU_LANES + t);
            __m128 c = _mm_loadu_ps(acc + (r + 2) * CPU_LANES + t),
                   d = _mm_loadu_ps(acc + (r + 3) * CPU_LANES + t);
            _MM_TRANSPOSE4_PS(a, b, c, d);
            _mm_storeu_ps(y + t * CPU_PANEL_ROWS + r, a);
            _mm_storeu_ps(y + (t + 1) * CPU_PANEL_ROWS + r, b);
            _mm_storeu_ps(y + (t + 2) * CPU_PANEL_ROWS + r, c);
            _mm_storeu_ps(y + (t + 3) * CPU_PANEL_ROWS + r, d);
        }
    }
#endif
}
