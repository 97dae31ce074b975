/* Decode rows on float weights, included once per instruction set: x stays float32, lanes along K. One vector of sums
 * for each output, columns in order, added up across once at the end: the bits depend on K alone.
 *
 *   1 row of x        weight rows one by one, so that they are one stream, asked for line by line at an even pace; with 8
 *                     lanes four by four, since one vector of sums would wait for itself
 *   2 to 4            NR weight rows x all of them
 *   more              16 at a time, NR weight rows x 4 of them together, in blocks of columns so that x stays in the first
 *                     level of cache; the vectors of sums wait in memory meanwhile */
#include "cpu/kernels/kernels.h"
#include "cpu/simd/fine_values.h"

#ifdef __AVX512F__
#define HOLD(v) __asm__("" : "+v"(v))
#else
#define HOLD(v) __asm__("" : "+x"(v))
#endif

enum { NR = VL == 16 ? 4 : 2, AHEAD = 8192 };
enum { WIDE_T = 4, GROUP = 16, BLOCK_K = 256 };

/* VL elements of a line of 64 bytes, from its element j on; j: a multiple of VL. */
INLINE vf elems_f32(const uint8_t *line, int j) { return vf_load((const float *)(const void *)line + j); }
INLINE vf elems_f16(const uint8_t *line, int j) {
    return vf_halves((const uint16_t *)(const void *)line + j);
}
INLINE vf elems_bf16(const uint8_t *line, int j) {
#ifdef __AVX512F__
    __m512i v = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(line + 2 * j)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
#else
    __m256i v = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(line + 2 * j)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
#endif
}
/* The same from a copy, where each 32 bits hold elements l and VL + l of 2 VL: no shuffles. */
INLINE vf elems_pairs(const uint8_t *line, int j) {
    const void *at = line + j / (2 * VL) * (4 * VL);
#ifdef __AVX512F__
    __m512i v = _mm512_loadu_si512(at);
    v = j % (2 * VL) ? _mm512_and_si512(v, _mm512_set1_epi32(-65536)) : _mm512_slli_epi32(v, 16);
    return _mm512_castsi512_ps(v);
#else
    __m256i v = _mm256_loadu_si256(at);
    v = j % (2 * VL) ? _mm256_and_si256(v, _mm256_set1_epi32(-65536)) : _mm256_slli_epi32(v, 16);
    return _mm256_castsi256_ps(v);
#endif
}
/* k BF16; what is no whole line stays as it is. */
INLINE void copy_pairs(uint16_t *to, const uint16_t *from, int k) {
    int i = 0;
    for (; i + 32 <= k; i += 32)
        UNROLL for (int j = i; j < i + 32; j += 2 * VL) UNROLL for (int l = 0; l < VL; l++) {
            to[j + 2 * l] = from[j + l];
            to[j + 2 * l + 1] = from[j + VL + l];
        }
    memcpy(to + i, from + i, sizeof *to * (size_t)(k - i));
}

/* A line, asked for just behind the last product: two in a row wait for each other. */
#ifdef __AVX512F__
#define ASK(sum, line) __asm__ volatile("prefetcht1 %1" : "+v"(sum) : "m"(*(const char *)(line)))
#else
#define ASK(sum, line) __asm__ volatile("prefetcht1 %1" : "+x"(sum) : "m"(*(const char *)(line)))
#endif

/* How the elements of w lie: a constant in every call, so that each function below is compiled once for each form. */
enum form { F32, F16, BF16, PAIRS };
INLINE size_t element_bytes(const enum form F) { return F == F32 ? 4 : 2; }
INLINE vf elems(const enum form F, const uint8_t *line, int j) {
    switch (F) {
    case F32:
        return elems_f32(line, j);
    case F16:
        return elems_f16(line, j);
    case BF16:
        return elems_bf16(line, j);
    case PAIRS:
        break;
    }
    return elems_pairs(line, j);
}

/* sum[r * GROUP + t] += N rows of weights, stride bytes apart, times TT rows of x, lane by lane. dist: from a byte of w to
 * the one that is asked for meanwhile. (i + LINE - 1 < k: with i + LINE <= k gcc does not count the rounds ahead, and the loop
 * is two instructions longer.) */
INLINE void tile(const enum form F, const uint8_t *w, size_t stride, ptrdiff_t dist, int k, const float *x,
                 size_t x_stride, const int TT, const int N, vf *sum) {
    const size_t SIZE = element_bytes(F);
    const int LINE = 64 / (int)SIZE;
    vf f[4][8], v[4];
    int i = 0;
    UNROLL for (int r = 0; r < N; r++) UNROLL for (int t = 0; t < TT; t++) f[r][t] = sum[r * GROUP + t];
    for (; i + (LINE - 1) < k; i += LINE) {
        UNROLL for (int j = i; j < i + LINE; j += VL) {
            UNROLL for (int r = 0; r < N; r++) v[r] =
                elems(F, w + (size_t)r * stride + (size_t)i * SIZE, j - i);
            UNROLL for (int t = 0; t < TT; t++) {
                vf y = vf_load(x + (size_t)t * x_stride + j);
                if (N > 1) HOLD(y); /* one load, not one for each use */
                UNROLL for (int r = 0; r < N; r++) f[r][t] = vf_fma(v[r], y, f[r][t]);
                const int slot = (j - i) / VL * TT + t, slots = LINE / VL * TT;
                UNROLL for (int r = slot * N / slots; r < (slot + 1) * N / slots; r++)
                    ASK(f[r][t], w + (size_t)r * stride + (size_t)i * SIZE + dist);
            }
        }
    }
    for (; i < k; i += VL) {
        const int n = k - i < VL ? k - i : VL;
        UNROLL for (int r = 0; r < N; r++) {
            uint8_t last[VL * 4];
            memset(last, 0, VL * SIZE);
            memcpy(last, w + (size_t)r * stride + (size_t)i * SIZE, (size_t)n * SIZE);
            v[r] = elems(F == PAIRS ? BF16 : F, last, 0);
        }
        UNROLL for (int t = 0; t < TT; t++) {
            vf y = vf_loadn(x + (size_t)t * x_stride + i, n);
            UNROLL for (int r = 0; r < N; r++) f[r][t] = vf_fma(v[r], y, f[r][t]);
        }
    }
    UNROLL for (int r = 0; r < N; r++) UNROLL for (int t = 0; t < TT; t++) sum[r * GROUP + t] = f[r][t];
}

/* One row of x times n_row rows of weights, one by one. */
INLINE void one(const enum form F, const uint8_t *w, size_t stride, int n_row, int k, const float *x,
                float *out) {
    const size_t SIZE = element_bytes(F);
    const int LINE = 64 / (int)SIZE, STEP = 4 * LINE;
    for (int r = 0; r < n_row; r++, w += stride) {
        vf sum = vf_set(0);
        int i = 0;
        for (; i + (STEP - 1) < k; i += STEP) UNROLL for (int l = i; l < i + STEP; l += LINE) {
                const uint8_t *line = w + (size_t)l * SIZE;
                UNROLL for (int j = 0; j < LINE; j += VL) {
                    sum = vf_fma(elems(F, line, j), vf_load(x + l + j), sum);
                    if (!j) ASK(sum, line + AHEAD);
                }
            }
        if (i < k) tile(F, w + (size_t)i * SIZE, 0, 0, k - i, x + i, 0, 1, 1, &sum);
        out[r] = vf_sum(sum);
    }
}

/* out of TT rows of x times N rows of weights. */
INLINE void whole(const enum form F, const uint8_t *w, size_t stride, ptrdiff_t dist, int k, const float *x,
                  size_t x_stride, const int TT, const int N, float *out) {
    vf sum[4 * GROUP];
    UNROLL for (int r = 0; r < N; r++) UNROLL for (int t = 0; t < TT; t++) sum[r * GROUP + t] = vf_set(0);
    tile(F, w, stride, dist, k, x, x_stride, TT, N, sum);
    UNROLL for (int r = 0; r < N; r++) UNROLL for (int t = 0; t < TT; t++) out[t * CPU_UNIT_ROWS + r] =
        vf_sum(sum[r * GROUP + t]);
}

/* One row of x, four rows of weights at a time. */
INLINE void four(const enum form F, const uint8_t *w, size_t stride, int n_row, int k, const float *x,
                 float *out) {
    const ptrdiff_t dist = (ptrdiff_t)(4 * stride);
    for (; n_row >= 4; n_row -= 4, w += 4 * stride, out += 4) whole(F, w, stride, dist, k, x, 0, 1, 4, out);
    for (; n_row > 0; n_row--, w += stride, out++) whole(F, w, stride, 0, k, x, 0, 1, 1, out);
}

/* TT rows of x, 2 to 4, all at once. */
INLINE void few(const enum form F, const uint8_t *w, size_t stride, int n_row, int k, const float *x,
                size_t step, const int TT, float *out) {
    const ptrdiff_t dist = (ptrdiff_t)(NR * stride);
    for (; n_row >= NR; n_row -= NR, w += NR * stride, out += NR)
        whole(F, w, stride, dist, k, x, step, TT, NR, out);
    for (; n_row > 0; n_row--, w += stride, out++) whole(F, w, stride, dist, k, x, step, TT, 1, out);
}

/* T rows of x, up to GROUP, in blocks of columns; group: N rows of weights in one block. */
INLINE void group(const enum form F, const uint8_t *w, size_t stride, ptrdiff_t dist, int k, const float *x,
                  size_t step, int T, const int N, vf *sum) {
    for (; T >= WIDE_T; T -= WIDE_T, x += WIDE_T * step, sum += WIDE_T)
        tile(F, w, stride, dist, k, x, step, WIDE_T, N, sum);
    for (; T >= 2; T -= 2, x += 2 * step, sum += 2) tile(F, w, stride, dist, k, x, step, 2, N, sum);
    if (T) tile(F, w, stride, dist, k, x, step, 1, N, sum);
}
INLINE void many(const enum form F, const uint8_t *w, size_t stride, int n_row, int k, const float *x,
                 size_t step, int T, float *out) {
    const size_t SIZE = element_bytes(F);
    vf sum[CPU_UNIT_ROWS * GROUP];
    for (int i = 0; i < n_row * GROUP; i++) sum[i] = vf_set(0);
    for (int k0 = 0; k0 < k; k0 += BLOCK_K) {
        const int n = k - k0 < BLOCK_K ? k - k0 : BLOCK_K;
        const ptrdiff_t dist =
            k0 + n < k ? BLOCK_K * (ptrdiff_t)SIZE : (ptrdiff_t)(n_row * stride) - k0 * (ptrdiff_t)SIZE;
        const uint8_t *row = w + (size_t)k0 * SIZE;
        int r = 0;
        for (; r + NR <= n_row; r += NR, row += NR * stride)
            group(F, row, stride, dist, n, x + k0, step, T, NR, sum + r * GROUP);
        for (; r < n_row; r++, row += stride)
            group(F, row, stride, dist, n, x + k0, step, T, 1, sum + r * GROUP);
    }
    for (int t = 0; t < T; t++)
        for (int r = 0; r < n_row; r++) out[t * CPU_UNIT_ROWS + r] = vf_sum(sum[r * GROUP + t]);
}

typedef void single_fn(const uint8_t *w, size_t stride, int n_row, int k, const float *x, float *out);
INLINE void multiply(const enum form F, single_fn *single, const uint8_t *w, size_t stride, int n_row, int k,
                     const void *x, size_t x_stride, int T, float *out) {
    size_t step = x_stride / sizeof(float);
    const float *y = x;
    for (int n; T > 0; T -= n, y += GROUP * step, out += GROUP * CPU_UNIT_ROWS) {
        n = T < GROUP ? T : GROUP;
        if (n == 1) single(w, stride, n_row, k, y, out);
        if (n == 2) few(F, w, stride, n_row, k, y, step, 2, out);
        if (n == 3) few(F, w, stride, n_row, k, y, step, 3, out);
        if (n == 4) few(F, w, stride, n_row, k, y, step, 4, out);
        if (n > 4) many(F, w, stride, n_row, k, y, step, n, out);
    }
}

/* multiply_X of each form; decode's one row is a function of its own, that has all registers. */
#define FLOAT_KERNEL(name, F)                                                                                \
    static __attribute__((noinline)) void single_##name(const uint8_t *w, size_t stride, int n_row, int k,   \
                                                        const float *x, float *out) {                        \
        (VL == 16 ? one : four)(F, w, stride, n_row, k, x, out);                                             \
    }                                                                                                        \
    static void multiply_##name(const uint8_t *w, size_t stride, int n_row, int k, const void *x,            \
                                size_t x_stride, int T, float *out) {                                        \
        multiply(F, single_##name, w, stride, n_row, k, x, x_stride, T, out);                                \
    }
FLOAT_KERNEL(f32, F32)
FLOAT_KERNEL(f16, F16)
FLOAT_KERNEL(bf16, BF16)
FLOAT_KERNEL(pairs, PAIRS)

#define ROW_ARGS                                                                                             \
    const uint8_t *w, size_t stride, int n, int k, struct cpu_x x, int T, float *out, uint8_t *copy,         \
        bool copied
/* What lies from the first byte of the first row to the last one of the last: rows of a slice stride over others, and behind the last
 * one nothing may be. */
INLINE size_t span(size_t stride, int n, size_t row_bytes) { return stride * (size_t)(n - 1) + row_bytes; }
static void row_f32(ROW_ARGS) {
    if (copy && !copied) memcpy(copy, w, span(stride, n, (size_t)k * 4));
    multiply_f32(copy ? copy : w, stride, n, k, (const void *)x.at, x.row, T, out);
}
static void row_f16(ROW_ARGS) {
    if (copy && !copied) memcpy(copy, w, span(stride, n, (size_t)k * 2));
    multiply_f16(copy ? copy : w, stride, n, k, (const void *)x.at, x.row, T, out);
}
static void row_bf16(ROW_ARGS) {
    for (int r = 0; copy && !copied && r < n; r++)
        copy_pairs((uint16_t *)(void *)(copy + stride * (size_t)r),
                   (const uint16_t *)(const void *)(w + stride * (size_t)r), k);
    if (copy)
        multiply_pairs(copy, stride, n, k, (const void *)x.at, x.row, T, out);
    else
        multiply_bf16(w, stride, n, k, (const void *)x.at, x.row, T, out);
}
#define ROW_ENTRIES                                                                                          \
    { [QUANT_F32] = row_f32, [QUANT_F16] = row_f16, [QUANT_BF16] = row_bf16 }

/* ---- fine weights (struct weight) whose values codes of 8 bits do not hold: blocks of a scale and 4 or 8 bits for a column ---- */

enum fine_form { FINE_NF4, FINE_FP4, FINE_F8 };
/* One weight row times TT rows of x. */
INLINE void fine_row(const enum fine_form F, const struct levels *t, const uint8_t *w, int k, const float *x,
                     size_t x_stride, const int TT, float *out) {
    const int COLS = F == FINE_F8 ? 128 : 64, BYTES = F == FINE_F8 ? 132 : 36;
    vf sum[4];
    UNROLL for (int i = 0; i < TT; i++) sum[i] = vf_set(0);
    for (int at = 0; at < k; at += COLS, w += BYTES) {
        vf part[4], v[LEVEL_VECTORS];
        float d;
        memcpy(&d, w, sizeof d);
        if (F == FINE_F8) d *= FLOAT8_SCALE;
        UNROLL for (int i = 0; i < TT; i++) part[i] = vf_set(0);
        UNROLL for (int c = 0; c < COLS; c += 32) {
            F == FINE_F8 ? float8_32(w + 4 + c, v) : level_32(t, w + 4 + c / 2, v);
            UNROLL for (int i = 0; i < TT; i++) UNROLL for (int j = 0; j < LEVEL_VECTORS; j++) part[i] =
                vf_fma(v[j], vf_load(x + (size_t)i * x_stride + at + c + VL * j), part[i]);
            if (c % 64 == 0) ASK(part[0], w + AHEAD + (F == FINE_F8 ? c : 0));
        }
        UNROLL for (int i = 0; i < TT; i++) sum[i] = vf_fma(part[i], vf_set(d), sum[i]);
    }
    UNROLL for (int i = 0; i < TT; i++) out[i * CPU_UNIT_ROWS] = vf_sum(sum[i]);
}
/* Rows of x in fours, twos and one. */
INLINE void fine_rows(const enum fine_form F, const uint8_t *w, size_t stride, int n, int k, struct cpu_x x,
                      int T, float *out) {
    const struct levels t = levels_of(F == FINE_FP4 ? quant_fp4_levels : quant_nf4_levels);
    const size_t step = x.row / sizeof(float);
    const float *y = (const void *)x.at;
    for (int r = 0; r < n; r++, w += stride, out++) {
        int i = 0;
        for (; i + 4 <= T; i += 4)
            fine_row(F, &t, w, k, y + (size_t)i * step, step, 4, out + i * CPU_UNIT_ROWS);
        for (; i + 2 <= T; i += 2)
            fine_row(F, &t, w, k, y + (size_t)i * step, step, 2, out + i * CPU_UNIT_ROWS);
        if (i < T) fine_row(F, &t, w, k, y + (size_t)i * step, step, 1, out + i * CPU_UNIT_ROWS);
    }
}
#define FINE_ROWS(id, F, COLS, BYTES)                                                                        \
    static void fine_##id(ROW_ARGS) {                                                                        \
        if (copy && !copied) memcpy(copy, w, span(stride, n, (size_t)(k / (COLS)) * (BYTES)));               \
        fine_rows(F, copy ? copy : w, stride, n, k, x, T, out);                                              \
    }
FINE_ROWS(NF4, FINE_NF4, 64, 36)
FINE_ROWS(FP4, FINE_FP4, 64, 36)
FINE_ROWS(F8_128, FINE_F8, 128, 132)
#define FINE_ENTRIES                                                                                         \
    { [QUANT_NF4] = fine_NF4, [QUANT_FP4] = fine_FP4, [QUANT_F8_128] = fine_F8_128 }
