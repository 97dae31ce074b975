/* Sixteen decode rows on quantised weights with AMX: the products of a sub-block of columns x 16 weight rows x 16 rows of x are
 * one tile product, exact as everywhere; scales and minima follow in float32, in the order and with the bits of tile in
 * gemm_int8.h.
 *
 * Tile loads do not take what waits in the store buffer, nor do loads what a tile store left there. So a panel is unpacked a
 * panel ahead of its products, and a product is made two sub-blocks ahead of its floats: one after the other it all takes
 * twice as long. */
#include "cpu/kernels/gemm_int8.h"

enum { TT = CPU_TILE_ROWS, AHEAD_SUBS = 2, RING = 4 };

/* sums[row of x][weight row] of sub-block b. x: its 256 columns. */
INLINE void products(const struct panel *p, int b, const uint8_t *x, size_t x_stride, int32_t (*sums)[16],
                     const int COLS) {
    _tile_loadd(1, x + COLS * b, x_stride);
    _tile_loadd(2, p->q[0] + b * (COLS / 4), 64);
    _tile_zero(0);
    _tile_dpbssd(0, 1, 2);
    _tile_stored(0, sums, 64);
}

/* out of 16 rows of x += one sub-block. ahead: a line for every EVERY of them is asked for from there on. */
INLINE const uint8_t *floats(vf *y, const struct panel *p, int b, const uint8_t *x, size_t x_stride,
                             int32_t (*sums)[16], const int COLS, const bool MIN, const uint8_t *ahead,
                             const int LINES) {
    vf d = p->d[b], g = p->g[b];
    UNROLL for (int t = 0; t < TT; t++) {
        const struct cpu_x8 *xt = (const struct cpu_x8 *)(const void *)(x + (size_t)t * x_stride);
        vi sum;
        memcpy(&sum, sums[t], sizeof sum);
        y[t] = vf_fma(to_float(sum), d, y[t]);
        if (MIN) y[t] = vf_fma(g, vf_set(COLS == 32 ? xt->s32[b] : xt->s16[b]), y[t]);
        if ((t + 1) * LINES / TT > t * LINES / TT) {
            ASK(y[t], ahead);
            ahead += 64;
        }
    }
    return ahead;
}

static void begin(const int COLS) {
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } c = {.palette = 1, .bytes = {64, (uint16_t)COLS, 64}, .rows = {TT, TT, (uint8_t)(COLS / 4)}};
    __asm__ volatile("" : : "r"(&c) : "memory");
    _tile_loadconfig(&c);
}

/* y of row x and its far groups; the panel's codes have a sign, and the bytes of dot none. */
INLINE vf add_far_signed(vf y, const struct panel *p, const struct cpu_x8 *x, const int COLS) {
    for (int i = 0; i < CPU_FAR; i++) {
        vu codes = p->q[0][x->far[i]] ^ 0x80808080;
        vi sum = whole(dot(row_start(x->hp[i], 128), codes, set32(x->hi[i])), 128);
        y = vf_fma(to_float(sum), p->d[x->far[i] / (COLS / 4)], y);
    }
    return y;
}

typedef void unpack_fn(struct panel *p, struct row_span row, int n);

INLINE void multiply_tiles(uint8_t *copy, int n_row, int k, struct cpu_x x, float *out, unpack_fn *unpack,
                           const size_t BYTES, const int COLS, const bool MIN) {
    const int panels = n_row > R ? 2 : 1, steps = (k + 255) / 256 * panels;
    const int LINES = (R * (int)BYTES * COLS / 256 + 63) / 64;
    _Alignas(64) int32_t sums[RING][16][16];
    struct panel p[2];
#define SUBS(step)    ((k - (step) / panels * 256 < 256 ? k - (step) / panels * 256 : 256) / COLS)
#define COLUMNS(step) (x.at + (size_t)((step) / panels) * x.chunk)
#define UNPACK(step)                                                                                         \
    p[(step)&1].copy = copy, unpack(&p[(step)&1], (struct row_span){0}, SUBS(step)), copy = p[(step)&1].copy
    begin(COLS);
    for (int t = 0; t < TT; t++) memset(out + t * CPU_UNIT_ROWS, 0, sizeof(float) * CPU_UNIT_ROWS);
    UNPACK(0);
    unsigned made = 0, used = 0;
    for (; made < AHEAD_SUBS; made++) products(&p[0], (int)made, x.at, x.row, sums[made % RING], COLS);
    for (int s = 0; s < steps; s++) {
        const int n = SUBS(s);
        const uint8_t *xs = COLUMNS(s), *ahead = copy + AHEAD;
        float *o = out + s % panels * R;
        vf y[TT];
        if (s + 1 < steps) UNPACK(s + 1);
        UNROLL for (int t = 0; t < TT; t++) y[t] = vf_set(0);
        for (int b = 0; b < n; b++, made++, used++) {
            int next = b + AHEAD_SUBS;
            if (next < n)
                products(&p[s & 1], next, xs, x.row, sums[made % RING], COLS);
            else if (s + 1 < steps)
                products(&p[(s + 1) & 1], next - n, COLUMNS(s + 1), x.row, sums[made % RING], COLS);
            __asm__ volatile("" : : : "memory"); /* the tile loads and stores name no memory to gcc 12 */
            ahead = floats(y, &p[s & 1], b, xs, x.row, sums[used % RING], COLS, MIN, ahead, LINES);
        }
        UNROLL for (int t = 0; t < TT; t++) {
            const struct cpu_x8 *xt = (const struct cpu_x8 *)(const void *)(xs + (size_t)t * x.row);
            vf sum = add_far_signed(y[t], &p[s & 1], xt, COLS);
            vf_store(o + t * CPU_UNIT_ROWS, vf_fma(sum, vf_set(xt->d), vf_load(o + t * CPU_UNIT_ROWS)));
        }
    }
    _tile_release();
}

#define TILES_OF(id, BYTES)                                                                                  \
    static void centred_##id(struct panel *p, struct row_span row, int n) {                                  \
        uint8_t *at = p->copy;                                                                               \
        row =                                                                                                \
            (struct row_span){.copy = &at, .copied = true, .quiet = true, .centre = true, .off = id##_OFF};  \
        pack_##id(p, row, n);                                                                                \
        p->copy = at;                                                                                        \
    }                                                                                                        \
    static void tiles_##id(uint8_t *copy, int n, int k, struct cpu_x x, float *out) {                        \
        multiply_tiles(copy, n, k, x, out, centred_##id, BYTES, id##_COLS, id##_MIN);                        \
    }
#define QUANT_FLOAT(...)
#define QUANT_CODES(...)
#define QUANT(id, gguf, name, elems, bytes) TILES_OF(id, 256 / (elems) * (bytes))
#include "quant/quant.def"

cpu_tiles_fn *const cpu_gemm_int8_amx[QUANT_COUNT] = {
#define QUANT_FLOAT(...)
#define QUANT_CODES(...)
#define QUANT(id, gguf, name, elems, bytes) [QUANT_##id] = id##_TILES ? tiles_##id : NULL,
#include "quant/quant.def"
};
