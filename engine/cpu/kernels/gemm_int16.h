/* Prompt matmuls in 16-bit integers, included after gemm_int8.h: x as struct cpu_x16, weights in panels
 * q[k / 2][row][k % 2] of R rows x 256 columns. Half as many products an instruction as with 8 bits, twice as many as in
 * float32, and an error about that of F16 itself.
 *
 * F16 and BF16 have 13 bits of their row's largest in 256 columns in the panel, x as many as keep the sum over 64 columns
 * within 32 bits, after which it becomes a float. Without VNNI also types with codes of 8 bits, whose two planes of 4 bits
 * would take as many products: their sums over 32 columns stay below 2^28. Fine weights (struct weight) go through it whatever
 * their type: unpacked to float32, then as F16. */

enum { LARGEST_W = CPU_X16_WEIGHT };

struct panel16 {
    vu q[COLS_MAX / 2];
    vf d[8]; /* of each sub-block; floats: the first, of all */
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

/* R rows of the file, stride bytes apart, k <= 256 columns, of which the last sub-block is filled with zeros. */
typedef void pack16_fn(struct panel16 *p, const uint8_t *w, size_t stride, int k);

INLINE void pack16_float(struct panel16 *p, const uint8_t *w, size_t stride, int k, const bool BF16) {
    int16_t y[R][COLS_MAX];
    float d[R];
    for (int r = 0; r < R; r++, w += stride) {
        uint16_t padded[COLS_MAX];
        const uint8_t *v = w;
        if (k < COLS_MAX) {
            memset(padded, 0, sizeof padded);
            v = memcpy(padded, w, (size_t)k * 2);
        }
        vf top = vf_set(0);
        for (int i = 0; i < k; i += VL) {
            vf x = BF16 ? bf16_row(v + 2 * i) : f16_row(v + 2 * i);
            top = vf_max(vf_max(x, vf_sub(vf_set(0), x)), top);
        }
        float most = vf_top(top);
        vf scale = vf_set(most > 0 ? (float)LARGEST_W / most : 0);
        d[r] = most / (float)LARGEST_W;
        for (int i = 0; i < (k + 63) / 64 * 64; i += VL)
            to_int16(y[r] + i, vf_mul(BF16 ? bf16_row(v + 2 * i) : f16_row(v + 2 * i), scale));
    }
    for (int i = 0; i < (k + 63) / 64 * 4; i++)
        load32(rows_at((const uint8_t *)y, sizeof y[0]), 32 * (size_t)i, p->q + 8 * i, false);
    p->d[0] = vf_load(d);
}
INLINE void pack16_F16(struct panel16 *p, const uint8_t *w, size_t stride, int k) {
    pack16_float(p, w, stride, k, false);
}
INLINE void pack16_BF16(struct panel16 *p, const uint8_t *w, size_t stride, int k) {
    pack16_float(p, w, stride, k, true);
}

INLINE void pack16_fine(struct panel16 *p, const uint8_t *w, size_t stride, int k, cpu_dequant_fn *unpack,
                        const size_t BYTES) {
    _Alignas(64) int16_t y[R][COLS_MAX];
    _Alignas(64) float v[COLS_MAX];
    float d[R];
    const int n = (k + 63) / 64 * 64;
    for (int r = 0; r < R; r++, w += stride) {
        unpack(v, w, w + (size_t)k * BYTES / COLS_MAX, k);
        for (int i = k; i < n; i++) v[i] = 0;
        vf top = vf_set(0), none = vf_set(0);
        for (int i = 0; i < n; i += VL) {
            const vf x = vf_load(v + i);
            top = vf_max(vf_max(x, vf_sub(vf_set(0), x)), top);
            none = vf_fma(x, vf_set(0), none); /* what is no number stays none */
        }
        const float most = vf_top(top) + vf_sum(none);
        const vf scale = vf_set(most > 0 ? (float)LARGEST_W / most : 0);
        d[r] = most / (float)LARGEST_W;
        for (int i = 0; i < n; i += VL) to_int16(y[r] + i, vf_mul(vf_load(v + i), scale));
    }
    for (int i = 0; i < n / 16; i++)
        load32(rows_at((const uint8_t *)y, sizeof y[0]), 32 * (size_t)i, p->q + 8 * i, false);
    p->d[0] = vf_load(d);
}

/* Codes of 8 bits and their scales, as the format's file reads them. */
INLINE void pack16_codes(struct panel16 *p, const uint8_t *w, size_t stride, int k, pack_fn *pack) {
    struct panel scales;
    struct row_span row = rows_at(w, stride);
    row.planes = SIXTEEN;
    scales.copy = (uint8_t *)p->q;
    pack(&scales, row, k / 32);
    for (int b = 0; b < k / 32; b++) p->d[b] = scales.d[b];
}

/* out += NP panels x TT rows of x: n sub-blocks of COLS columns, each with its scale or all with one. */
INLINE void tile16(const struct panel16 *p, int n, const uint8_t *x, size_t x_stride, float *out,
                   const int TT, const int NP, const int COLS, const bool SCALES) {
    vf f[2][6];
#define ROWS UNROLL for (int t = 0; t < TT; t++) UNROLL for (int r = 0; r < NP; r++)
#define X(t) ((const struct cpu_x16 *)(const void *)(x + (size_t)(t)*x_stride))
    ROWS f[r][t] = vf_set(0);
    for (int b = 0; b < n; b++) {
        vi a[2][6];
        ROWS a[r][t] = set32(0);
        _Pragma("GCC unroll 16") for (int i = 0; i < COLS / 2; i++) {
            const int k2 = b * (COLS / 2) + i;
            vu w[2];
            UNROLL for (int r = 0; r < NP; r++) w[r] = p[r].q[k2];
            UNROLL for (int t = 0; t < TT; t++) {
                int32_t two;
                memcpy(&two, X(t)->q + 2 * k2, 4);
                vi q = set32(two);
                HOLD(q);
                UNROLL for (int r = 0; r < NP; r++) {
                    a[r][t] = dot16(a[r][t], w[r], q);
                    HOLD(a[r][t]);
                }
            }
        }
        ROWS f[r][t] =
            SCALES ? vf_fma(to_float(a[r][t]), p[r].d[b], f[r][t]) : vf_add(f[r][t], to_float(a[r][t]));
    }
    ROWS {
        float *o = out + t * CPU_UNIT_ROWS + r * R;
        vf d = SCALES ? vf_set(X(t)->d) : vf_mul(p[r].d[0], vf_set(X(t)->d));
        vf_store(o, vf_fma(f[r][t], d, vf_load(o)));
    }
#undef ROWS
#undef X
}

/* BYTES of 256 columns. */
INLINE void multiply16(const uint8_t *w, size_t stride, int n_row, int k, struct cpu_x x, int T, float *out,
                       pack16_fn *pack, const size_t BYTES, const int COLS, const bool SCALES) {
    enum { MOST = 6 };
    struct panel16 p[2];
    for (int r0 = 0; r0 < n_row; r0 += 2 * R) {
        for (int t = 0; t < T; t++) memset(out + t * CPU_UNIT_ROWS + r0, 0, sizeof(float) * 2 * R);
        for (int k0 = 0; k0 < k; k0 += COLS_MAX) {
            const int here = k - k0 < COLS_MAX ? k - k0 : COLS_MAX, n = (here + COLS - 1) / COLS;
            for (int i = 0; i < 2; i++) {
                uint8_t padded[R * BYTES];
                const int first = r0 + i * R, left = n_row - first;
                const uint8_t *rows = w + stride * (size_t)first + (size_t)(k0 / COLS_MAX) * BYTES;
                if (left >= R) {
                    pack(&p[i], rows, stride, here);
                    continue;
                }
                memset(padded, 0, sizeof padded);
                for (int j = 0; j < left; j++)
                    memcpy(padded + (size_t)j * BYTES, rows + (size_t)j * stride,
                           (size_t)here * BYTES / COLS_MAX);
                pack(&p[i], padded, BYTES, here);
            }
            const uint8_t *xk = x.at + (size_t)(k0 / COLS_MAX) * x.chunk;
            float *o = out + r0;
            int t = T;
            for (; t >= MOST; t -= MOST, xk += MOST * x.row, o += MOST * CPU_UNIT_ROWS)
                tile16(p, n, xk, x.row, o, MOST, 2, COLS, SCALES);
            for (; t > 0; t--, xk += x.row, o += CPU_UNIT_ROWS)
                tile16(p, n, xk, x.row, o, 1, 2, COLS, SCALES);
        }
    }
}
#define ROWS16_OF(id, pack, BYTES, COLS, SCALES)                                                             \
    static void rows16_##id(const uint8_t *w, size_t stride, int n, int k, struct cpu_x x, int T,            \
                            float *out, uint8_t *copy, bool copied) {                                        \
        (void)copy, (void)copied;                                                                            \
        multiply16(w, stride, n, k, x, T, out, pack, BYTES, COLS, SCALES);                                   \
    }
ROWS16_OF(F16, pack16_F16, 512, 64, false)
ROWS16_OF(BF16, pack16_BF16, 512, 64, false)
/* The kernel of a row of quant.def with codes of 8 bits. */
#define ROWS16_CODES(id, BYTES)                                                                              \
    INLINE void pack16_##id(struct panel16 *p, const uint8_t *w, size_t stride, int k) {                     \
        pack16_codes(p, w, stride, k, pack_##id);                                                            \
    }                                                                                                        \
    ROWS16_OF(id, pack16_##id, BYTES, 32, true)
/* The kernel of a quantised row of quant.def for fine weights; unpack: a table of cpu_dequant_fn. */
#define FINE16_OF(id, BYTES, unpack)                                                                         \
    INLINE void fine16_pack_##id(struct panel16 *p, const uint8_t *w, size_t stride, int k) {                \
        pack16_fine(p, w, stride, k, unpack[QUANT_##id], BYTES);                                             \
    }                                                                                                        \
    static void fine16_##id(const uint8_t *w, size_t stride, int n, int k, struct cpu_x x, int T,            \
                            float *out, uint8_t *copy, bool copied) {                                        \
        (void)copy, (void)copied;                                                                            \
        multiply16(w, stride, n, k, x, T, out, fine16_pack_##id, BYTES, 64, false);                          \
    }
