/* Quantised matmuls, included once per instruction set: R weight rows x 256 columns at a time are unpacked from the
 * file's blocks into a panel in L1, so that one vector holds R rows x 4 columns:
 *
 *     q[k / 4][row][k % 4]      codes, unsigned; lane = row
 *
 * A sub-block's dot products end as one int32 per row without sideways additions, and its scale costs one FMA for
 * R rows. Activations (struct cpu_x8) are broadcast four columns at a time. value = d (u - OFF) + g: the offset
 * goes into the start of the accumulator, -OFF * sum(x of the sub-block).
 *
 * One kernel for 1 to any number of rows of x: an output adds its sub-blocks in the file's order, so its bits depend
 * neither on the number of rows nor on how they are shared. Layouts of blocks are drawn in quant_<name>.c.
 *
 * What is read of the file may be kept in a copy as the vectors that the unpacking begins with, one after the other: the
 * next time they are read without transposes, as one stream. A few rows of x with VNNI, one with AVX2 alone, are multiplied
 * with its codes as they come in, without a panel; 16 rows with AMX (gemm_int8_amx.c) from panels.
 *
 * Dot products: VNNI where there is one. With AVX2 alone vpmaddubsw sums stay in 16 bits for a whole sub-block,
 * modulo 2^16; that is exact because the true sums of (u - OFF) x fit: at most 16 products of 16 * 127 (32
 * columns) or 8 of 32 * 127 (16). Codes of 8 bits are two planes of 4: u = 16 high + low. */
#define CPU_PANELS
#include "made/cpu_formats.h"
#include "cpu/kernels/kernels.h"

/* ---- the kernel: NP panels (or one in two planes) x TT rows of x, n sub-blocks of COLS columns ---- */

#ifdef __AVX512F__
#define HOLD(v) __asm__("" : "+v"(v)) /* one broadcast into a register, not one for each use */
#else
#define HOLD(v) __asm__("" : "+x"(v)) /* also: gcc 12 reassociates 16-bit sums, and spills */
#endif

/* The sum of a sub-block, which dot gathered, as int32; of two planes of codes: 16 high + low. */
INLINE vi whole(vi sum, const int by) {
#if defined(__AVX512F__) || defined(__AVXVNNI__)
    return by == 1 ? sum : (vi)((vu)sum * (uint32_t)by);
#else
    return widen_codes(sum, by);
#endif
}
/* The same without VNNI, times integer scales. */
INLINE vi add_scaled(vi sum, vi a, vi sc) {
#if defined(__AVX512F__) || defined(__AVXVNNI__)
    return (vi)((vu)sum + (vu)a * (vu)sc);
#else
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, sc));
#endif
}
/* Codes of 4 columns from 4 k4: of panel r or of a plane of p, or where code is given of rows in their copy. */
typedef vu code_fn(const uint8_t *copy, int k4);
INLINE vu far_codes(const struct panel *p, int r, int k4, const uint8_t *copy, code_fn *code) {
    return code ? code(copy, k4) : p[r].q[0][k4];
}
INLINE vu far_plane(const struct panel *p, int i, int k4, const uint8_t *copy, code_fn *code) {
    if (!code) return p->q[i][k4];
    vu u = code(copy, k4);
    return LOW4(i ? u : u >> 4);
}
/* y[NP] += what the far groups of a row of x add to NP panels (or one in two planes): d 128 (u - OFF) hi. */
INLINE void add_far(vf *y, const struct panel *p, const struct cpu_x8 *x, const int NP, const int COLS,
                    const int OFF, const int PLANES, const uint8_t *copy, code_fn *code) {
    for (int i = 0; i < CPU_FAR && x->hi[0]; i++) {
        const int k4 = x->far[i];
        const vi hi = set32(x->hi[i]);
        const vi first = OFF ? row_start(x->hp[i], PLANES == 2 ? OFF / 16 : OFF) : set32(0);
        UNROLL for (int r = 0; r < NP; r++) {
            vi sum;
            if (PLANES == 2)
                sum = (vi)((vu)whole(dot(first, far_plane(p, 0, k4, copy, code), hi), 16 * 128) +
                           (vu)whole(dot(set32(0), far_plane(p, 1, k4, copy, code), hi), 128));
            else
                sum = whole(dot(first, far_codes(p, r, k4, copy, code), hi), 128);
            y[r] = vf_fma(to_float(sum), p[r].d[k4 / (COLS / 4)], y[r]);
        }
    }
}

/* The same in whole numbers: s[NP] += sc (u - OFF) hi. The largest sums are those of Q6_K: codes of at most 32, scales and hi
 * of at most 128, q of at most 127. */
_Static_assert(256LL * 32 * 128 * 127 + CPU_FAR * 4LL * 32 * 128 * 128 * 128 <= INT32_MAX,
               "256 columns and their far groups fit into int32");
INLINE void add_far_whole(vi *s, const struct panel *p, const struct cpu_x8 *x, const int NP, const int COLS,
                          const int OFF, const uint8_t *copy, code_fn *code) {
    vi far[2] = {set32(0), set32(0)};
    for (int i = 0; i < CPU_FAR && x->hi[0]; i++) {
        const int k4 = x->far[i];
        const vi hi = set32(x->hi[i]), first = OFF ? row_start(x->hp[i], OFF) : set32(0);
        UNROLL for (int r = 0; r < NP; r++) far[r] =
            add_scaled(far[r], dot(first, far_codes(p, r, k4, copy, code), hi), p[r].sc[k4 / (COLS / 4)]);
    }
    UNROLL for (int r = 0; r < NP; r++) s[r] = (vi)((vu)s[r] + ((vu)far[r] << 7));
}
/* The sum of 256 columns as a float, with the minima. */
INLINE vf from_whole(vi s, const struct panel *p, const struct cpu_x8 *x, const int COLS, const bool MIN) {
    vf y = vf_mul(to_float(s), p->d[0]);
    if (MIN)
        UNROLL for (int b = 0; b < COLS_MAX / COLS; b++) y =
            vf_fma(p->g[b], vf_set(COLS == 32 ? x->s32[b] : x->s16[b]), y);
    return y;
}

/* The sums of row t of x, with its far codes and minima, onto out. */
INLINE void add_row(const vf f[2][6], const vi whole_sum[2][6], const struct panel *p, const struct cpu_x8 *x,
                    const int t, float *out, const int NP, const int COLS, const int OFF, const bool MIN,
                    const int PLANES, const bool WHOLE) {
    vf y[2];
    vi s[2];
    UNROLL for (int r = 0; r < NP; r++) y[r] = f[r][t], s[r] = whole_sum[r][t];
    if (WHOLE) {
        add_far_whole(s, p, x, NP, COLS, OFF, NULL, NULL);
        UNROLL for (int r = 0; r < NP; r++) y[r] = from_whole(s[r], &p[r], x, COLS, MIN);
    } else {
        add_far(y, p, x, NP, COLS, OFF, PLANES, NULL, NULL);
    }
    UNROLL for (int r = 0; r < NP; r++)
        vf_store(out + r * R, vf_fma(y[r], vf_set(x->d), vf_load(out + r * R)));
}

/* n sub-blocks of NP panels times TT rows of x, onto out. */
INLINE void tile(const struct panel *p, int n, const uint8_t *x, size_t x_stride, float *out, const int TT,
                 const int NP, const int COLS, const int OFF, const bool MIN, const bool WIDE,
                 const bool WHOLE, const int LINES, const uint8_t *ahead, size_t step) {
    const int PLANES = WIDE && !VNNI ? 2 : 1;
    vf f[2][6];
    vi whole_sum[2][6];
#define ROWS UNROLL for (int t = 0; t < TT; t++) UNROLL for (int r = 0; r < NP; r++)
#define X(t) ((const struct cpu_x8 *)(const void *)(x + (size_t)(t)*x_stride))
    ROWS f[r][t] = vf_set(0), whole_sum[r][t] = set32(0);
    for (int b = 0; b < n; b++) {
        vi a[2][6];
        if (VL == 8)
            UNROLL for (int t = 0; t < TT; t++) /* of the next rows */
                _mm_prefetch((const char *)X(TT + t) + 32 * COLS / 16 * b, _MM_HINT_T0);
        UNROLL for (int t = 0; t < TT; t++) {
            int32_t pair = COLS == 32 ? X(t)->p32[b] : X(t)->p16[b];
            vi first = OFF ? row_start(pair, PLANES == 2 ? OFF / 16 : OFF) : set32(0);
            UNROLL for (int r = 0; r < NP; r++) a[r][t] = first;
            if (PLANES == 2) a[1][t] = set32(0);
        }
        UNROLL for (int s = 0; s < COLS / 4; s++) {
            const int k4 = b * (COLS / 4) + s;
            vu w[2];
            UNROLL for (int r = 0; r < NP * PLANES; r++) w[r] = PLANES == 2 ? p->q[r][k4] : p[r].q[0][k4];
            UNROLL for (int t = 0; t < TT; t++) {
                int32_t four;
                memcpy(&four, X(t)->q + 4 * k4, 4);
                vi q = set32(four);
                HOLD(q);
                UNROLL for (int r = 0; r < NP * PLANES; r++) {
                    a[r][t] = dot(a[r][t], w[r], q);
                    if (!VNNI) HOLD(a[r][t]);
                }
                if (t == 0)
                    UNROLL for (int i = s * LINES * 4 / COLS; i < (s + 1) * LINES * 4 / COLS; i++)
                        ASK(a[0][0], ahead + (size_t)(b * LINES + i) * step);
            }
        }
        ROWS {
            if (WHOLE) {
                whole_sum[r][t] = add_scaled(whole_sum[r][t], a[r][t], p[r].sc[b]);
                continue;
            }
            vi sum = whole(a[r][t], PLANES == 2 ? 16 : 1);
            if (PLANES == 2) sum = (vi)((vu)sum + (vu)whole(a[1][t], 1));
            f[r][t] = vf_fma(to_float(sum), p[r].d[b], f[r][t]);
            if (MIN) f[r][t] = vf_fma(p[r].g[b], vf_set(COLS == 32 ? X(t)->s32[b] : X(t)->s16[b]), f[r][t]);
        }
    }
    UNROLL for (int t = 0; t < TT; t++)
        add_row(f, whole_sum, p, X(t), t, out + t * CPU_UNIT_ROWS, NP, COLS, OFF, MIN, PLANES, WHOLE);
}
#undef ROWS
#undef X

/* Rows of x that are multiplied at once with the codes of a copy: as many as have registers for their sums. */
enum { MANY_32 = !VNNI ? 1 : VL == 16 ? 8 : 2, MANY_16 = !VNNI ? 1 : VL == 16 ? 4 : 1 };
typedef void pack_fn(struct panel *p, struct row_span row, int n);

/* n sub-blocks of R rows from their copy times TT rows of x: the products of a vector follow its load, so that the
 * stream goes on evenly. The same sums as those of tile, in the same order. */
INLINE uint8_t *stream(uint8_t *copy, int n, const uint8_t *x, size_t x_stride, float *out, pack_fn *pack,
                       code_fn *code, const int TT, const int COLS, const int OFF, const bool MIN,
                       const int PLANES, const bool WHOLE) {
    const uint8_t *codes = copy;
    struct panel p;
    struct row_span row = {.copy = &copy,
                           .copied = true,
                           .direct = true,
                           .x = x,
                           .x_stride = x_stride,
                           .tt = TT,
                           .off = OFF / (PLANES == 2 ? 16 : 1),
                           .planes = PLANES,
                           .sub = COLS / 4};
    vf y[8];
    pack(&p, row, n);
    UNROLL for (int t = 0; t < TT; t++) y[t] = vf_set(0);
    for (int b = 0; b < n && !WHOLE; b++) UNROLL for (int t = 0; t < TT; t++) {
            const struct cpu_x8 *xt = x_row(row, t);
            vi sum = whole(p.sum[t][b], PLANES == 2 ? 16 : 1);
            if (PLANES == 2) sum = (vi)((vu)sum + (vu)whole(p.sum[1][b], 1));
            y[t] = vf_fma(to_float(sum), p.d[b], y[t]);
            if (MIN) y[t] = vf_fma(p.g[b], vf_set(COLS == 32 ? xt->s32[b] : xt->s16[b]), y[t]);
        }
    UNROLL for (int t = 0; t < TT; t++) {
        const struct cpu_x8 *xt = x_row(row, t);
        float *o = out + t * CPU_UNIT_ROWS;
        if (WHOLE) {
            vi s = set32(0);
            UNROLL for (int b = 0; b < COLS_MAX / COLS; b++) s = add_scaled(s, p.sum[t][b], p.sc[b]);
            add_far_whole(&s, &p, xt, 1, COLS, OFF, codes, code);
            y[t] = from_whole(s, &p, xt, COLS, MIN);
        } else {
            add_far(&y[t], &p, xt, 1, COLS, OFF, PLANES, codes, code);
        }
        vf_store(o, vf_fma(y[t], vf_set(xt->d), vf_load(o)));
    }
    return copy;
}
typedef uint8_t *stream_fn(uint8_t *copy, int n, const uint8_t *x, size_t x_stride, float *out);
/* Panels beside each other: two, or the two planes of one. */
#define PANELS(WIDE) (WIDE && !VNNI ? 1 : 2)
/* s[i]: for 1 << i rows of x. */
INLINE void multiply_copy(uint8_t *copy, int n_row, int k, struct cpu_x x, int T, float *out,
                          stream_fn *const *s, const int COLS, const int NP) {
    for (int t = 0; t < T; t++) memset(out + t * CPU_UNIT_ROWS, 0, sizeof(float) * CPU_UNIT_ROWS);
    for (int r0 = 0; r0 < n_row; r0 += NP * R)
        for (int k0 = 0; k0 < k; k0 += 256)
            for (int i = 0; i < (n_row - r0 > R && NP == 2 ? 2 : 1); i++) {
                int n = (k - k0 < 256 ? k - k0 : 256) / COLS, size = 3;
                const uint8_t *xk = x.at + (size_t)(k0 / 256) * x.chunk;
                uint8_t *end = copy;
                for (int t = 0; t < T; t += 1 << size) {
                    while (T - t < 1 << size || !s[size]) size--;
                    end =
                        s[size](copy, n, xk + (size_t)t * x.row, x.row, out + t * CPU_UNIT_ROWS + r0 + i * R);
                }
                copy = end;
            }
}

/* n_row <= CPU_UNIT_ROWS rows of w times T rows of x. Rows past n_row hold anything: nobody reads their sums. */
INLINE void multiply(const uint8_t *w, size_t stride, int n_row, int k, struct cpu_x x, int T, float *out,
                     uint8_t *copy, bool copied, pack_fn *pack, pack_fn *unpack_copy, const size_t BYTES,
                     const int COLS, const int OFF, const bool MIN, const bool WIDE, const bool WHOLE) {
    enum { MOST = 6 };
    const int NP = PANELS(WIDE);
    struct panel p[2];
    for (int r0 = 0; r0 < n_row; r0 += NP * R) {
        int panels = n_row - r0 > R && NP == 2 ? 2 : 1;
        /* with 8 rows in a panel a last one alone is rare: multiplied twice, it needs no code of its own */
        const int made = VL == 8 ? NP : panels;
        for (int t = 0; t < T; t++)
            memset(out + t * CPU_UNIT_ROWS + r0, 0, sizeof(float) * (size_t)(made * R));
        for (int k0 = 0; k0 < k; k0 += 256) {
            int n = (k - k0 < 256 ? k - k0 : 256) / COLS, t = 0;
            const size_t at = (size_t)(k0 / 256) * BYTES;
            for (int i = 0; i < panels; i++) {
                uint8_t padded[R * BYTES];
                const int first = r0 + i * R;
                struct row_span rows = rows_at(w + stride * (size_t)first + at, stride);
                if (first + R > n_row && !copied) {
                    for (int j = 0; j < n_row - first; j++)
                        memcpy(padded + (size_t)j * BYTES, w + stride * (size_t)(first + j) + at,
                               (size_t)n * (size_t)COLS * BYTES / 256);
                    rows = rows_at(padded, BYTES);
                }
                p[i].ahead =
                    w + stride * (size_t)(r0 + panels * R) + ((size_t)(k0 / 256 * panels + i) * R) * BYTES;
                p[i].copy = copy;
                (copied ? unpack_copy : pack)(&p[i], rows, n);
                copy = p[i].copy;
            }
            if (panels < made) p[1] = p[0];
            const uint8_t *xk = x.at + (size_t)(k0 / 256) * x.chunk;
            float *o = out + r0;
            const uint8_t *ahead =
                copied ? copy + AHEAD : xk; /* only the first tile asks; none with 16 registers */
            size_t step = copied ? 64 : 0;
#define TILE(PANELS, TT)                                                                                     \
    tile(p, n, xk, x.row, o, TT, PANELS, COLS, OFF, MIN, WIDE, WHOLE,                                        \
         VL == 16 ? (PANELS * R * (int)BYTES * COLS / 256 + 63) / 64 : 0, ahead, step)
#define TILES(PANELS)                                                                                        \
    for (; T - t >= MOST; t += MOST, xk += MOST * x.row, o += MOST * CPU_UNIT_ROWS, step = 0)                \
        TILE(PANELS, MOST);                                                                                  \
    if (T - t == 5 && VL == 16) TILE(PANELS, 5);                                                             \
    if (T - t == 4 || (T - t == 5 && VL == 8)) {                                                             \
        TILE(PANELS, 4);                                                                                     \
        t += 4, xk += 4 * x.row, o += 4 * CPU_UNIT_ROWS, step = 0;                                           \
    }                                                                                                        \
    if (T - t == 3) TILE(PANELS, 3);                                                                         \
    if (T - t == 2) TILE(PANELS, 2);                                                                         \
    if (T - t == 1) TILE(PANELS, 1)
            if (NP == 2 && (panels == 2 || VL == 8)) {
                TILES(NP);
            } else {
                TILES(1);
            }
        }
    }
}

#define PACK_FROM(source, id, COPIED)                                                                        \
    static void source##_##id(struct panel *p, struct row_span row, int n) {                                 \
        uint8_t *at = p->copy;                                                                               \
        row.copy = &at;                                                                                      \
        row.copied = COPIED;                                                                                 \
        row.direct = row.centre = false;                                                                     \
        row.planes = 1;                                                                                      \
        row.quiet = COPIED && VL == 16;                                                                      \
        pack_##id(p, row, n);                                                                                \
        p->copy = at;                                                                                        \
    }
#define MANY(COLS) (COLS == 32 ? MANY_32 : MANY_16)
#define STREAM(id, TT)                                                                                       \
    static __attribute__((noinline))                                                                         \
    uint8_t *stream_##id##_##TT(uint8_t *copy, int n, const uint8_t *x, size_t x_stride, float *out) {       \
        return stream(copy, n, x, x_stride, out, pack_##id, code_##id, TT, id##_COLS, id##_OFF, id##_MIN,    \
                      id##_WIDE && !VNNI ? 2 : 1, id##_WHOLE && !VNNI);                                      \
    }
#define STREAMS(id, COLS)                                                                                    \
    STREAM(id, 1)                                                                                            \
    STREAM(id, 2)                                                                                            \
    STREAM(id, 4)                                                                                            \
    STREAM(id, 8)                                                                                            \
    static stream_fn *const streams_##id[4] = {stream_##id##_1, MANY(COLS) < 2 ? NULL : stream_##id##_2,     \
                                               MANY(COLS) < 4 ? NULL : stream_##id##_4,                      \
                                               MANY(COLS) < 8 ? NULL : stream_##id##_8};
/* The kernel of a row of quant.def; bytes of 256 columns: BYTES. */
#define ROWS_OF(id, BYTES)                                                                                   \
    PACK_FROM(file, id, false)                                                                               \
    PACK_FROM(copy, id, true)                                                                                \
    STREAMS(id, id##_COLS)                                                                                   \
    static void rows_##id(const uint8_t *w, size_t stride, int n, int k, struct cpu_x x, int T, float *out,  \
                          uint8_t *copy, bool copied) {                                                      \
        if (copied && T <= MANY(id##_COLS))                                                                  \
            multiply_copy(copy, n, k, x, T, out, streams_##id, id##_COLS, PANELS(id##_WIDE));                \
        else                                                                                                 \
            multiply(w, stride, n, k, x, T, out, copy, copied, file_##id, copy_##id, BYTES, id##_COLS,       \
                     id##_OFF, id##_MIN, id##_WIDE, id##_WHOLE && !VNNI);                                    \
    }
