/* Prompt matmuls on F16 and BF16 weights, included after cpu_panel_impl.h: both sides in blocks of 16-bit integers
 * with one scale per 256 columns, q[k / 2][row][k % 2]. Half as many products an instruction as with 8 bits, twice
 * as many as in float32, and an error about that of F16 itself.
 *
 * Weights have 13 bits of their row's largest in the panel; x (struct cpu_x16) as many as keep the sum over 64
 * columns within 32 bits, after which it becomes a float. */

enum { FLUSH = 64, LARGEST_W = CPU_X16_WEIGHT };

struct panel16 {
    vu q[COLS_MAX / 2];
    vf d;
};

#ifdef __AVX512F__
INLINE vi dot16(vi a, vu w, vi x) { return _mm512_dpwssd_epi32(a, (vi)w, x); }
INLINE void to_int16(int16_t *y, vf v) {
    _mm256_storeu_si256((void *)y, _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(v)));
}
INLINE vf bf16_row(const uint8_t *w) {
    __m512i v = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)w));
    return _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
}
#else
#ifdef __AVXVNNI__
INLINE vi dot16(vi a, vu w, vi x) { return _mm256_dpwssd_avx_epi32(a, (vi)w, x); }
#else
INLINE vi dot16(vi a, vu w, vi x) { return _mm256_add_epi32(a, _mm256_madd_epi16((vi)w, x)); }
#endif
INLINE void to_int16(int16_t *y, vf v) {
    __m256i i = _mm256_cvtps_epi32(v);
    i = _mm256_permute4x64_epi64(_mm256_packs_epi32(i, i), 0x08);
    _mm_storeu_si128((void *)y, _mm256_castsi256_si128(i));
}
INLINE vf bf16_row(const uint8_t *w) {
    __m256i v = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)w));
    return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
}
#endif
INLINE vf f16_row(const uint8_t *w) { return vf_halves((const uint16_t *)(const void *)w); }

/* k <= 256 columns of R rows. */
INLINE void pack16(struct panel16 *p, const uint8_t *const *row, int k, const bool BF16) {
    int16_t y[R][COLS_MAX];
    float d[R];
    for (int r = 0; r < R; r++) {
        uint16_t padded[COLS_MAX];
        const uint8_t *w = row[r];
        if (k < COLS_MAX) {
            memset(padded, 0, sizeof padded);
            w = memcpy(padded, w, (size_t)k * 2);
        }
        vf top = vf_set(0);
        for (int i = 0; i < COLS_MAX; i += VL) {
            vf v = BF16 ? bf16_row(w + 2 * i) : f16_row(w + 2 * i);
            top = vf_max(vf_max(v, vf_sub(vf_set(0), v)), top);
        }
        float most = vf_top(top);
        vf scale = vf_set(most > 0 ? (float)LARGEST_W / most : 0);
        d[r] = most / (float)LARGEST_W;
        for (int i = 0; i < COLS_MAX; i += VL)
            to_int16(y[r] + i, vf_mul(BF16 ? bf16_row(w + 2 * i) : f16_row(w + 2 * i), scale));
    }
    for (int i = 0; i < COLS_MAX / 16; i++) {
        vu v[8];
        load32(rows_at((const uint8_t *)y, sizeof y[0]), 32 * (size_t)i, v, false);
        UNROLL for (int j = 0; j < 8; j++) p->q[8 * i + j] = v[j];
    }
    p->d = vf_load(d);
}

/* out += two panels x TT rows of x */
INLINE void tile16(const struct panel16 *p, const uint8_t *x, size_t x_stride, float *out, const int TT,
                   const int NP) {
    vf f[2][6];
#define ROWS UNROLL for (int t = 0; t < TT; t++) UNROLL for (int r = 0; r < NP; r++)
#define X(t) ((const struct cpu_x16 *)(const void *)(x + (size_t)(t)*x_stride))
    ROWS f[r][t] = vf_set(0);
    for (int k0 = 0; k0 < COLS_MAX; k0 += FLUSH) {
        vi a[2][6];
        ROWS a[r][t] = set32(0);
        _Pragma("GCC unroll 8") for (int k = k0; k < k0 + FLUSH; k += 2) {
            vu w[2];
            UNROLL for (int r = 0; r < NP; r++) w[r] = p[r].q[k / 2];
            UNROLL for (int t = 0; t < TT; t++) {
                int32_t two;
                memcpy(&two, X(t)->q + k, 4);
                vi q = set32(two);
                HOLD(q);
                UNROLL for (int r = 0; r < NP; r++) {
                    a[r][t] = dot16(a[r][t], w[r], q);
                    HOLD(a[r][t]);
                }
            }
        }
        ROWS f[r][t] = vf_add(f[r][t], to_float(a[r][t]));
    }
    ROWS {
        float *o = out + t * CPU_UNIT_ROWS + r * R;
        vf_store(o, vf_fma(f[r][t], vf_mul(p[r].d, vf_set(X(t)->d)), vf_load(o)));
    }
#undef ROWS
#undef X
}

INLINE void multiply16(const uint8_t *w, size_t stride, int n_row, int k, const uint8_t *x, size_t x_stride,
                       int T, float *out, const bool BF16) {
    enum { MOST = VL == 16 ? 6 : 4 };
    struct panel16 p[2];
    for (int r0 = 0; r0 < n_row; r0 += 2 * R) {
        for (int t = 0; t < T; t++) memset(out + t * CPU_UNIT_ROWS + r0, 0, sizeof(float) * 2 * R);
        for (int k0 = 0; k0 < k; k0 += COLS_MAX) {
            for (int i = 0; i < 2; i++) {
                const uint8_t *row[R];
                for (int j = 0; j < R; j++) {
                    int r = r0 + i * R + j;
                    row[j] = w + stride * (size_t)(r < n_row ? r : n_row - 1) + 2 * (size_t)k0;
                }
                pack16(&p[i], row, k - k0 < COLS_MAX ? k - k0 : COLS_MAX, BF16);
            }
            const uint8_t *xk = x + (size_t)(k0 / COLS_MAX) * sizeof(struct cpu_x16);
            float *o = out + r0;
            int t = T;
            for (; t >= MOST; t -= MOST, xk += MOST * x_stride, o += MOST * CPU_UNIT_ROWS)
                tile16(p, xk, x_stride, o, MOST, 2);
            for (; t > 0; t--, xk += x_stride, o += CPU_UNIT_ROWS) tile16(p, xk, x_stride, o, 1, 2);
        }
    }
}
static void rows_f16(const uint8_t *w, size_t stride, int n, int k, const void *x, size_t x_stride, int T,
                     float *out, uint8_t *copy, bool copied) {
    (void)copy, (void)copied;
    multiply16(w, stride, n, k, x, x_stride, T, out, false);
}
static void rows_bf16(const uint8_t *w, size_t stride, int n, int k, const void *x, size_t x_stride, int T,
                      float *out, uint8_t *copy, bool copied) {
    (void)copy, (void)copied;
    multiply16(w, stride, n, k, x, x_stride, T, out, true);
}
#define PANEL_ENTRIES                                                                                        \
    { PANEL_QUANTS(PANEL_ENTRY)[QUANT_F16] = rows_f16, [QUANT_BF16] = rows_bf16 }
