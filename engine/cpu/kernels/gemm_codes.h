/* Matmuls on the types of QUANT_CODES (quant.def), included after gemm_int8.h: codebooks, ternary types and others whose blocks become
 * codes of 8 bits with a scale for 16 columns (quant_info.codes), 256 columns of a unit's rows at a time, which are then panels as those
 * of any other type. One kernel for all: what differs is a call for each row, and a table; but where all codes are -1, 0, 1 and 2
 * (QUANT_CODES_FOUR) sub-blocks have 32 columns, and their products fit vpmaddubsw's sums as they are.
 *
 * Their copies (cpu_repack.c) hold the codes, of four bits where there are at most 16 of them (quant_code_set), of two for four. Of R
 * rows and 256 columns:
 *
 *     codes    of each 32 columns 4 vectors: column 4 j + i of row r in the low four bits of byte i of lane r of vector j, column
 *              16 + 4 j + i in the high ones; or, as bytes, 8 vectors; or, of two bits, 4 vectors of each 64 columns: column
 *              16 s + 4 j + i in bits 2 s and 2 s + 1 of byte i of lane r of vector j, as the code plus 1
 *     d        of each group of columns a vector of floats; QUANT_CODES_RANGE: 16 more than the first of the neighbours in the low
 *              five bits, which floats that were halves do not use */

CPU_FORMAT(CODES, 16, 128, false, true, false, false)
CPU_FORMAT(FOUR, 32, 1, false, false, false, false)

enum { CODE_ROWS = 2 * R };
struct code_rows {
    int8_t code[CODE_ROWS][COLS_MAX];
    float d[16][CODE_ROWS];
};

/* n columns of n_row rows, stride bytes apart. Rows behind them are what was there. */
static void expand_codes(struct code_rows *to, const struct quant_info *q, const uint8_t *w, size_t stride,
                         int n_row, int n) {
    float d[16];
    for (int r = 0; r < n_row; r++) {
        q->codes(to->code[r], d, w + (size_t)r * stride, (size_t)n);
        for (int b = 0; b < n / 16; b++) to->d[b][r] = d[b];
    }
}

/* Rows first .. first + R of them into a panel. */
static void pack_codes(struct panel *p, const struct code_rows *from, int first, int n, bool four) {
    const struct row_span rows = rows_at((const uint8_t *)from->code[first], sizeof from->code[0]);
    const struct row_span row = {.planes = 1, .off = CODES_OFF};
    for (int i = 0; i < n; i += 32) {
        vu v[8];
        load32(rows, (size_t)i, v, false);
        UNROLL for (int j = 0; j < 8; j++) {
            if (four)
                p->q[0][i / 4 + j] = centred(v[j], -1);
            else
                put8(p, row, i / 4, j, v[j] ^ 0x80808080);
        }
    }
    for (int b = 0; b < n / (four ? FOUR_COLS : CODES_COLS); b++)
        p->d[b] = vf_load(from->d[four ? 2 * b : b] + first);
}

#define CODE_TILE(TT)                                                                                        \
    tile(p, n / COLS, xk, x.row, o, TT, NP, COLS, FOUR ? FOUR_OFF : CODES_OFF, false,                        \
         FOUR ? FOUR_WIDE : CODES_WIDE, false, 0, NULL, 0)
/* NP panels times T rows of x, onto out. */
INLINE void multiply_codes(const struct panel *p, int n, struct cpu_x x, int T, float *out, const int NP,
                           const bool FOUR) {
    const int COLS = FOUR ? FOUR_COLS : CODES_COLS;
    const uint8_t *xk = x.at;
    float *o = out;
    int t = T;
    for (; t >= 6; t -= 6, xk += 6 * x.row, o += 6 * CPU_UNIT_ROWS) CODE_TILE(6);
    for (; t >= 2; t -= 2, xk += 2 * x.row, o += 2 * CPU_UNIT_ROWS) CODE_TILE(2);
    if (t) CODE_TILE(1);
}
#undef CODE_TILE
static void multiply_panels(const struct panel *p, int panels, int n, struct cpu_x x, int T, float *out,
                            bool four) {
    if (four && panels == 2) {
        multiply_codes(p, n, x, T, out, 2, true);
    } else if (PANELS(CODES_WIDE) == 2 && panels == 2) {
        multiply_codes(p, n, x, T, out, PANELS(CODES_WIDE), false);
    } else {
        for (int i = 0; i < panels; i++, p++, out += R)
            four ? multiply_codes(p, n, x, T, out, 1, true) : multiply_codes(p, n, x, T, out, 1, false);
    }
}

/* ---- copies ---- */

struct code_copy {
    const struct quant_code_set *set;
    const uint8_t *codes, *d;
    int shift;           /* 1 << shift sub-blocks of 16 columns share a vector of d */
    int8_t table[2][16]; /* of levels, plus 128; without VNNI their high four bits, and the low ones */
};
INLINE size_t code_bytes(const struct quant_code_set *set, int n) {
    return (size_t)n / 32 *
           (set->form == QUANT_CODES_ALL    ? 8
            : set->form == QUANT_CODES_FOUR ? 2
                                            : 4) *
           sizeof(vu);
}
INLINE size_t scale_bytes(const struct quant_code_set *set, int n) {
    return (size_t)(n / set->group) * sizeof(vf);
}
/* The chunk of n columns that begins at copy. */
INLINE void code_chunk(struct code_copy *c, const uint8_t *copy, int n) {
    c->codes = copy, c->d = copy + code_bytes(c->set, n);
}
static void code_tables(struct code_copy *c, const struct quant_code_set *set) {
    c->set = set, c->shift = __builtin_ctz((unsigned)set->group / 16);
    for (int i = 0; i < 16; i++) {
        const uint8_t u = (uint8_t)(set->level[i] + 128);
        c->table[0][i] = (int8_t)(VNNI ? u : u >> 4), c->table[1][i] = (int8_t)(u & 15);
    }
}

/* The codes of rows first .. first + R of n columns, two bits each. */
static void copy_four(uint8_t *to, const struct code_rows *from, int first, int n) {
    memset(to, 0, (size_t)n / 4 * R);
    for (int at = 0; at < n; at += 64, to += 16 * R)
        for (int r = 0; r < R; r++)
            for (int i = 0; i < 64; i++) {
                const unsigned u = (unsigned)(from->code[first + r][at + i] + 1);
                to[i / 4 % 4 * 4 * R + 4 * r + i % 4] |= (uint8_t)((u & 3) << i / 16 * 2);
            }
}

/* Rows first .. first + R of n columns to a copy; where it goes on. */
static uint8_t *copy_codes(uint8_t *to, const struct quant_code_set *set, const struct code_rows *from,
                           int first, int n) {
    const bool bytes = set->form == QUANT_CODES_ALL, range = set->form == QUANT_CODES_RANGE;
    float *d = (float *)(void *)(to + code_bytes(set, n));
    uint8_t index[256] = {0};
    for (int i = 0; i < 16; i++) index[(uint8_t)set->level[i]] = (uint8_t)i;
    for (int b = 0; b < n / set->group; b++)
        memcpy(d + b * R, from->d[b * set->group / 16] + first, sizeof(float) * R);
    if (set->form == QUANT_CODES_FOUR) copy_four(to, from, first, n);
    for (int at = 0; at < n && set->form != QUANT_CODES_FOUR; at += 32)
        for (int r = 0; r < R; r++) {
            const int8_t *code = from->code[first + r] + at;
            uint8_t *v = to + code_bytes(set, at) + 4 * r;
            int base = 15;
            for (int i = 0; i < 32 && range; i++)
                if (code[i] < base) base = code[i];
            for (int i = 0; i < 32 && bytes; i++) v[i / 4 * 4 * R + i % 4] = (uint8_t)code[i];
            for (int i = 0; i < 16 && !bytes; i++) {
                const int low = range ? code[i] - base : index[(uint8_t)code[i]];
                const int high = range ? code[i + 16] - base : index[(uint8_t)code[i + 16]];
                v[i / 4 * 4 * R + i % 4] = (uint8_t)((low & 15) | high << 4);
            }
            if (range) {
                const uint32_t bits =
                    (quant_f32_to_bits(d[at / 32 * R + r]) & ~31u) | ((uint32_t)(base + 16) & 31);
                memcpy(d + at / 32 * R + r, &bits, 4);
            }
        }
    return (uint8_t *)(void *)(d + n / set->group * R);
}

/* Scales of sub-block b of 16 columns. */
INLINE vf scale_of_copy(const struct code_copy *c, int b, const int FORM) {
    const vu v = vector_at(c->d, b >> c->shift);
    return FORM == QUANT_CODES_RANGE ? (vf)(v & ~31u) : (vf)v;
}
/* In each byte of a lane what is added to its neighbours' places for codes plus 128: to sub-block b. */
INLINE vu base_of_copy(const struct code_copy *c, int b) {
    return ((vector_at(c->d, b / 2) & 31) + (128 - 16)) * 0x01010101;
}
/* Codes plus 128, FOUR: plus 1, of columns 4 k4 .. 4 k4 + 4. */
INLINE vu code_of_copy(const struct code_copy *c, int k4, const int FORM) {
    if (FORM == QUANT_CODES_ALL) return vector_at(c->codes, k4) ^ 0x80808080;
    if (FORM == QUANT_CODES_FOUR)
        return vector_at(c->codes, k4 / 16 * 4 + k4 % 4) >> k4 / 4 % 4 * 2 & 0x03030303;
    const vu four = nibble_at(c->codes, k4 / 8 * 4 + k4 % 4, k4 / 4 & 1);
    if (FORM == QUANT_CODES_RANGE) return four + base_of_copy(c, k4 / 4);
    const vu u = (vu)look_up(c->table[0], four);
    if (VNNI) return u;
    return u << 4 | (vu)look_up(c->table[1], four);
}

/* n columns of R rows from their copy into a panel. */
INLINE void codes_to_panel(struct panel *p, const struct code_copy *c, int n, const int FORM) {
    const struct row_span row = {.planes = 1, .off = CODES_OFF};
    for (int i = 0; i < (int)(code_bytes(c->set, n) + scale_bytes(c->set, n)); i += 64)
        _mm_prefetch((const char *)c->codes + AHEAD + i, _MM_HINT_T1);
    for (int k4 = 0; k4 < n / 4; k4++) {
        if (FORM == QUANT_CODES_FOUR)
            p->q[0][k4] = code_of_copy(c, k4, FORM);
        else
            put8(p, row, k4, 0, code_of_copy(c, k4, FORM));
    }
    const int cols = FORM == QUANT_CODES_FOUR ? FOUR_COLS : CODES_COLS;
    for (int b = 0; b < n / cols; b++) p->d[b] = scale_of_copy(c, b * cols / 16, FORM);
}
static void copied_panel(struct panel *p, const struct code_copy *c, int n) {
    switch (c->set->form) {
    case QUANT_CODES_LEVELS:
        codes_to_panel(p, c, n, QUANT_CODES_LEVELS);
        break;
    case QUANT_CODES_RANGE:
        codes_to_panel(p, c, n, QUANT_CODES_RANGE);
        break;
    case QUANT_CODES_FOUR:
        codes_to_panel(p, c, n, QUANT_CODES_FOUR);
        break;
    case QUANT_CODES_ALL:
        codes_to_panel(p, c, n, QUANT_CODES_ALL);
        break;
    }
}

/* The far groups of a row of x, as add_far. */
INLINE vf far_of_copy(vf y, const struct code_copy *c, const struct cpu_x8 *x, const int FORM) {
    for (int i = 0; i < CPU_FAR && x->hi[0]; i++) {
        const int k4 = x->far[i];
        const int off = FORM == QUANT_CODES_FOUR ? FOUR_OFF : VNNI ? CODES_OFF : CODES_OFF / 16;
        const vi hi = set32(x->hi[i]), first = row_start(x->hp[i], off);
        const vu u = code_of_copy(c, k4, FORM);
        vi sum;
        if (VNNI || FORM == QUANT_CODES_FOUR)
            sum = whole(dot(first, u, hi), 128);
        else
            sum = (vi)((vu)whole(dot(first, LOW4(u >> 4), hi), 16 * 128) +
                       (vu)whole(dot(set32(0), LOW4(u), hi), 128));
        y = vf_fma(to_float(sum), scale_of_copy(c, k4 / 4, FORM), y);
    }
    return y;
}

/* Adds the products of 32 columns from 32 i on to a[sub-block][row of x], high halves, and low ones to b. */
INLINE void multiply_32(vi a[2][4], vi b[2][4], const struct code_copy *c, int i, const uint8_t *x,
                        size_t x_stride, const int TT, const int FORM) {
    vu base = (vu)set32(0);
    if (FORM == QUANT_CODES_RANGE) base = base_of_copy(c, 2 * i);
    UNROLL for (int j = 0; j < 8; j++) {
        const int k4 = 8 * i + j, at = FORM == QUANT_CODES_ALL ? k4 : 4 * i + j % 4;
        const vu v = vector_at(c->codes, at), four = LOW4(v >> j / 4 * 4);
        vu u, low;
        if (FORM == QUANT_CODES_ALL)
            u = v ^ 0x80808080;
        else if (FORM == QUANT_CODES_RANGE)
            u = four + base;
        else
            u = (vu)look_up(c->table[0], four);
        low = LOW4(u);
        if (!VNNI && FORM == QUANT_CODES_LEVELS)
            low = (vu)look_up(c->table[1], four);
        else if (!VNNI)
            u = LOW4(u >> 4);
        UNROLL for (int t = 0; t < TT; t++) {
            int32_t q;
            memcpy(&q, ((const struct cpu_x8 *)(const void *)(x + (size_t)t * x_stride))->q + 4 * k4, 4);
            a[j / 4][t] = dot(a[j / 4][t], u, set32(q));
            if (!VNNI) b[j / 4][t] = dot(b[j / 4][t], low, set32(q));
        }
        if (FORM == QUANT_CODES_ALL || j < 4) ASK(a[0][0], c->codes + AHEAD + (size_t)at * sizeof(vu));
    }
}

#define X(t) ((const struct cpu_x8 *)(const void *)(x + (size_t)(t)*x_stride))
/* Adds the products of n columns of codes of two bits to y[row of x]. */
INLINE void multiply_four(vf y[4], const struct code_copy *c, int n, const uint8_t *x, size_t x_stride,
                          const int TT) {
    for (int i = 0; i < n / 64; i++) {
        vi a[2][4];
        const vf d = scale_of_copy(c, 4 * i, QUANT_CODES_FOUR);
        UNROLL for (int t = 0; t < TT; t++) UNROLL for (int s = 0; s < 2; s++) a[s][t] =
            row_start(X(t)->p32[2 * i + s], FOUR_OFF);
        UNROLL for (int j = 0; j < 4; j++) {
            const vu v = vector_at(c->codes, 4 * i + j);
            UNROLL for (int s = 0; s < 4; s++) {
                const vu u = v >> 2 * s & 0x03030303;
                UNROLL for (int t = 0; t < TT; t++) {
                    int32_t q;
                    memcpy(&q, X(t)->q + 4 * (16 * i + 4 * s + j), 4);
                    a[s / 2][t] = dot(a[s / 2][t], u, set32(q));
                }
            }
            if (VL == 16 || j % 2 == 0) ASK(a[0][0], c->codes + AHEAD + (size_t)(4 * i + j) * sizeof(vu));
        }
        UNROLL for (int s = 0; s < 2; s++) UNROLL for (int t = 0; t < TT; t++) y[t] =
            vf_fma(to_float(whole(a[s][t], 1)), d, y[t]);
    }
}

/* n columns of R rows from their copy times TT rows of x, onto out: the sums of tile, in the same order. */
INLINE void stream_codes(const struct code_copy *c, int n, const uint8_t *x, size_t x_stride, float *out,
                         const int TT, const int FORM) {
    vf y[4];
    UNROLL for (int t = 0; t < TT; t++) y[t] = vf_set(0);
    if (FORM == QUANT_CODES_FOUR) multiply_four(y, c, n, x, x_stride, TT);
    for (int i = 0; i < n / 32 && FORM != QUANT_CODES_FOUR; i++) {
        vi a[2][4], b[2][4];
        UNROLL for (int t = 0; t < TT; t++) UNROLL for (int s = 0; s < 2; s++) {
            a[s][t] = row_start(X(t)->p16[2 * i + s], VNNI ? CODES_OFF : CODES_OFF / 16);
            b[s][t] = set32(0);
        }
        multiply_32(a, b, c, i, x, x_stride, TT, FORM);
        UNROLL for (int s = 0; s < 2; s++) UNROLL for (int t = 0; t < TT; t++) {
            vi sum = whole(a[s][t], VNNI ? 1 : 16);
            if (!VNNI) sum = (vi)((vu)sum + (vu)whole(b[s][t], 1));
            y[t] = vf_fma(to_float(sum), scale_of_copy(c, 2 * i + s, FORM), y[t]);
        }
    }
    UNROLL for (int t = 0; t < TT; t++) {
        float *o = out + t * CPU_UNIT_ROWS;
        y[t] = far_of_copy(y[t], c, X(t), FORM);
        vf_store(o, vf_fma(y[t], vf_set(X(t)->d), vf_load(o)));
    }
#undef X
}
typedef void code_stream_fn(const struct code_copy *c, int n, const uint8_t *x, size_t x_stride, float *out);
#define CODE_STREAM(form, TT)                                                                                \
    static __attribute__((noinline)) void stream_##form##_##TT(                                              \
        const struct code_copy *c, int n, const uint8_t *x, size_t x_stride, float *out) {                   \
        stream_codes(c, n, x, x_stride, out, TT, QUANT_CODES_##form);                                        \
    }
#define CODE_STREAMS(form) CODE_STREAM(form, 1) CODE_STREAM(form, 2) CODE_STREAM(form, 4)
CODE_STREAMS(LEVELS)
CODE_STREAMS(RANGE)
CODE_STREAMS(FOUR)
CODE_STREAMS(ALL)
enum { CODE_MANY = !VNNI ? 1 : VL == 16 ? 4 : 2 };
static code_stream_fn *const code_stream[][3] = {
    [QUANT_CODES_LEVELS] = {stream_LEVELS_1, stream_LEVELS_2, stream_LEVELS_4},
    [QUANT_CODES_RANGE] = {stream_RANGE_1, stream_RANGE_2, stream_RANGE_4},
    [QUANT_CODES_FOUR] = {stream_FOUR_1, stream_FOUR_2, stream_FOUR_4},
    [QUANT_CODES_ALL] = {stream_ALL_1, stream_ALL_2, stream_ALL_4},
};

/* A few rows of x times the chunk of n columns of R rows. */
static void multiply_chunk(const struct code_copy *c, int n, struct cpu_x x, int T, float *out) {
    for (int t = 0, size = CODE_MANY / 2; t < T; t += 1 << size) {
        while (T - t < 1 << size) size--;
        code_stream[c->set->form][size](c, n, x.at + (size_t)t * x.row, x.row, out + t * CPU_UNIT_ROWS);
    }
}

/* The rows from their copy, or from the file, of which a copy is made where there is room for one. */
static void rows_of_codes(const struct quant_info *q, const uint8_t *w, size_t stride, int n_row, int k,
                          struct cpu_x x, int T, float *out, uint8_t *copy, bool copied) {
    struct code_rows rows;
    struct panel p[2];
    struct code_copy c;
    code_tables(&c, quant_code_set(q->type));
    const bool four = c.set->form == QUANT_CODES_FOUR;
    if (!copied) memset(&rows, 0, sizeof rows);
    for (int r0 = 0; r0 < n_row; r0 += CODE_ROWS) {
        const int here = n_row - r0 < CODE_ROWS ? n_row - r0 : CODE_ROWS, panels = here > R ? 2 : 1;
        for (int t = 0; t < T; t++)
            memset(out + t * CPU_UNIT_ROWS + r0, 0, sizeof(float) * (size_t)(panels * R));
        for (int k0 = 0; k0 < k; k0 += COLS_MAX) {
            const int n = k - k0 < COLS_MAX ? k - k0 : COLS_MAX;
            const struct cpu_x part = {x.at + (size_t)(k0 / COLS_MAX) * x.chunk, x.row, x.chunk};
            if (!copied)
                expand_codes(&rows, q, w + (size_t)r0 * stride + quant_row_bytes(q, (size_t)k0), stride, here,
                             n);
            for (int i = 0; i < panels; i++) {
                code_chunk(&c, copy, n);
                if (!copied) pack_codes(&p[i], &rows, i * R, n, four);
                if (!copied && copy) copy = copy_codes(copy, c.set, &rows, i * R, n);
                if (!copied) continue;
                if (T > CODE_MANY)
                    copied_panel(&p[i], &c, n);
                else
                    multiply_chunk(&c, n, part, T, out + r0 + i * R);
                copy += code_bytes(c.set, n) + scale_bytes(c.set, n);
            }
            if (copied && T <= CODE_MANY) continue;
            multiply_panels(p, panels, n, part, T, out + r0, four);
        }
    }
}
#define ROWS_OF_CODES(id)                                                                                    \
    static void rows_##id(const uint8_t *w, size_t stride, int n, int k, struct cpu_x x, int T, float *out,  \
                          uint8_t *copy, bool copied) {                                                      \
        rows_of_codes(quant_info(QUANT_##id), w, stride, n, k, x, T, out, copy, copied);                     \
    }
