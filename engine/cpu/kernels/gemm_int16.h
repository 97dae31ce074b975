/* Prompt matmuls in 16-bit integers, included after gemm_int8.h: x as struct cpu_x16, weights in panels
 * q[k / 2][row][k % 2] of R rows x 256 columns. Half as many products an instruction as with 8 bits, twice as many as in
 * float32, and an error about that of F16 itself.
 *
 * F16 and BF16 have 13 bits of their row's largest in 256 columns in the panel, x as many as keep the sum over 64 columns
 * within 32 bits, after which it becomes a float. Codes of 8 bits and less stay as they are, and
 * their sums over 32 columns, below 2^28, get their scales: without VNNI those of GGUF's types with 8 bits, whose two planes of 4
 * bits would take as many products; of folders (fine, struct weight) all. Values that are no whole numbers go as F16 does. */

#define AWAY(v) __asm__ volatile("" : : "r"(v) : "memory") /* an array, which lies in memory here */
enum { LARGEST_W = CPU_X16_WEIGHT };

struct panel16 {
    vu q[COLS_MAX / 2];
    vf d[16]; /* of each sub-block; floats: the first, of all */
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

/* Codes in blocks of 32 and their scales, as the format's file reads them. */
INLINE void pack16_codes(struct panel16 *p, const uint8_t *w, size_t stride, int k, pack_fn *pack,
                         const int OFF) {
    struct panel scales;
    struct row_span row = rows_at(w, stride);
    row.planes = SIXTEEN, row.off = OFF;
    scales.copy = (uint8_t *)p->q;
    pack(&scales, row, k / 32);
    for (int b = 0; b < k / 32; b++) p->d[b] = scales.d[b];
}
INLINE void pack16_Z4(struct panel16 *p, const uint8_t *w, size_t stride, int k) {
    typedef uint8_t vb __attribute__((vector_size(4 * R)));
    struct row_span row = rows_at(w, stride);
    for (int b = 0; b < k / 32; b++, row = rows_skip(row, QUANT_Z4_BYTES)) {
        const vu head = load4(row, 0), zero = byte_of(head, 2) * 0x01010101;
        vu v[4];
        load16(row, 4, v, false);
        UNROLL for (int j = 0; j < 8; j++)
            put16(p->q + 16 * b + 2 * j, (vu)((vb)LOW4(v[j % 4] >> j / 4 * 4) - (vb)zero));
        p->d[b] = half_lanes(head);
    }
}
INLINE void pack16_I8_128(struct panel16 *p, const uint8_t *w, size_t stride, int k) {
    struct row_span row = rows_at(w, stride);
    for (int b = 0; b < k / 128; b++, row = rows_skip(row, QUANT_I8_128_BYTES)) {
        for (int i = 0; i < 4; i++) p->d[4 * b + i] = (vf)load4(row, 0);
        for (int i = 0; i < 4; i++) {
            vu v[8];
            load32(row, 4 + 32 * (size_t)i, v, false);
            UNROLL for (int j = 0; j < 8; j++) put16(p->q + 64 * b + 16 * i + 2 * j, v[j]);
        }
    }
}
/* Scales of 4 bits of exponent and 3 behind the point, whose 0x7f is 0, as halves with the same bits; codes are twice the value. */
INLINE void pack16_NVFP4(struct panel16 *p, const uint8_t *w, size_t stride, int k) {
    static const int8_t code[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    struct row_span row = rows_at(w, stride);
    for (int b = 0; b < k / 64; b++, row = rows_skip(row, QUANT_NVFP4_BYTES)) {
        const vu scales = load4(row, 0);
        vu v[8];
        load32(row, 4, v, false);
        UNROLL for (int g = 0; g < 4; g++) {
            const vu s = byte_of(scales, g), bits = (s & 127) << 7 & (vu)(s != 127);
            p->d[4 * b + g] = vf_mul(half_lanes(bits), vf_set(128));
            UNROLL for (int j = 0; j < 4; j++)
                put16(p->q + 32 * b + 8 * g + 2 * j, (vu)look_up(code, LOW4(v[2 * g + j % 2] >> j / 2 * 4)));
        }
    }
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
        if (VL == 16)
            AWAY(f); /* else gcc 12 keeps f in registers, and reads both w from the stack for each product */
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
/* The kernel of a row of quant.def in blocks of 32 codes. */
#define ROWS16_CODES(id)                                                                                     \
    INLINE void pack16_##id(struct panel16 *p, const uint8_t *w, size_t stride, int k) {                     \
        pack16_codes(p, w, stride, k, pack_##id, id##_OFF);                                                  \
    }                                                                                                        \
    ROWS16_OF(id, pack16_##id, 8 * QUANT_##id##_BYTES, 32, true)
/* Of a type whose values are no whole numbers; BYTES of 256 columns. */
#ifdef __AVX512F__
#define UNPACK cpu_dequant_f32_avx512
#else
#define UNPACK cpu_dequant_f32_avx2
#endif
#define ROWS16_FLOATS(id, BYTES)                                                                             \
    INLINE void pack16_##id(struct panel16 *p, const uint8_t *w, size_t stride, int k) {                     \
        pack16_fine(p, w, stride, k, UNPACK[QUANT_##id], BYTES);                                             \
    }                                                                                                        \
    ROWS16_OF(id, pack16_##id, BYTES, 64, false)
ROWS16_CODES(Q8_0)
ROWS16_CODES(Q4_0)
ROWS16_CODES(MXFP4)
ROWS16_OF(Z4, pack16_Z4, 8 * QUANT_Z4_BYTES, 32, true)
ROWS16_OF(I8_128, pack16_I8_128, 2 * QUANT_I8_128_BYTES, 32, true)
ROWS16_OF(NVFP4, pack16_NVFP4, 4 * QUANT_NVFP4_BYTES, 16, true)
ROWS16_FLOATS(F8_128, 2 * QUANT_F8_128_BYTES)
ROWS16_FLOATS(NF4, 4 * QUANT_NF4_BYTES)
ROWS16_FLOATS(FP4, 4 * QUANT_FP4_BYTES)
/* The types of quantised folders. */
#define FINE16_ENTRIES                                                                                       \
    {                                                                                                        \
        [QUANT_Q8_0] = rows16_Q8_0, [QUANT_Q4_0] = rows16_Q4_0, [QUANT_MXFP4] = rows16_MXFP4,                \
        [QUANT_Z4] = rows16_Z4, [QUANT_I8_128] = rows16_I8_128, [QUANT_NVFP4] = rows16_NVFP4,                \
        [QUANT_F8_128] = rows16_F8_128, [QUANT_NF4] = rows16_NF4, [QUANT_FP4] = rows16_FP4                   \
    }
