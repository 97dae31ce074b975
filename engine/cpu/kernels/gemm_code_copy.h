/* Copies (cpu_repack.c) of the types of gemm_codes.h, included by it: their codes in as few bits as number them (quant_code_set), and
 * their scales in as few as hold them. Of R rows and 256 columns:
 *
 *     codes    LEVELS, RANGE: of each 32 columns 4 vectors: column 4 j + i of row r in the low four bits of byte i of lane r of vector
 *              j, column 16 + 4 j + i in the high ones
 *              ALL: bytes, 8 vectors of each 32 columns
 *              EIGHT: of each 64 columns 4 vectors: the low two bits of column 16 s + 4 j + i in bits 2 s and 2 s + 1 of byte i of lane r
 *              of vector j; and 2: its third bit in bit 4 (j % 2) + {2, 3, 1, 0}[s] of vector 4 + j / 2
 *              FOUR: of each 128 columns 8 vectors: column 32 s + 4 j + i in bits 2 s and 2 s + 1 of vector j, as the code plus 1
 *              TWO: 8 vectors: column 32 s + 4 j + i in bit s of vector j, set: 1
 *     unit     STEPS: a vector of floats
 *     d        of each group of columns a float, a half or a byte of each row (quant_scale_form); QUANT_CODES_RANGE: 16 more than the
 *              first of the neighbours in the low five bits of a float, which those that were halves do not use */

struct code_copy {
    const struct quant_code_set *set;
    const uint8_t *codes, *d; /* d: unit and d */
    int shift;                /* 1 << shift sub-blocks of 16 columns share a d */
    int n, groups;            /* columns of the chunk, and how many d they have */
    size_t code_bytes, bytes; /* of the chunk: codes; all */
    int8_t table[2][16];      /* of levels, plus 128; without VNNI their high four bits, and the low ones */
    const uint8_t *scale;     /* vectors of floats, of the chunk's groups */
    vf expanded[16];
};
/* Vectors of codes are whole: columns beyond n are 0 in x. */
INLINE size_t code_bytes(const struct quant_code_set *set, int n) {
    const int whole = set->form == QUANT_CODES_TWO ? 256 : set->form == QUANT_CODES_FOUR ? 128 : 32;
    return (size_t)((n + whole - 1) / whole * whole / 32 * quant_code_bits(set->form)) * sizeof(vu);
}
INLINE size_t chunk_bytes(const struct quant_code_set *set, int n) {
    return code_bytes(set, n) + (set->scales == QUANT_SCALES_STEPS ? sizeof(vf) : 0) +
           (size_t)(n / set->group * R) * cpu_copied_scale(set->scales);
}
static void code_tables(struct code_copy *c, const struct quant_code_set *set) {
    c->set = set, c->n = 0, c->shift = __builtin_ctz((unsigned)set->group / 16);
    for (int i = 0; i < 16; i++) {
        const int level = set->level[set->form == QUANT_CODES_EIGHT ? i & 7 : i];
        const uint8_t u = (uint8_t)(level + 128);
        c->table[0][i] = (int8_t)(VNNI ? u : u >> 4), c->table[1][i] = (int8_t)(u & 15);
    }
}

/* ---- writing ---- */

/* The number u of column k of row r. */
static void put_code(uint8_t *to, enum quant_code_form form, int k, int r, unsigned u) {
    static const uint8_t third[4] = {2, 3, 1, 0};
    const int i = 4 * r + k % 4;
#define V(n) to[(size_t)(n)*4 * R + i]
    if (form == QUANT_CODES_ALL)
        V(k / 4) = (uint8_t)u;
    else if (form == QUANT_CODES_TWO)
        V(k / 4 % 8) |= (uint8_t)(u << k / 32);
    else if (form == QUANT_CODES_FOUR)
        V(k / 128 * 8 + k / 4 % 8) |= (uint8_t)(u << k / 32 % 4 * 2);
    else if (form != QUANT_CODES_EIGHT)
        V(k / 32 * 4 + k / 4 % 4) |= (uint8_t)(u << k / 16 % 2 * 4);
    else {
        const int s = k / 16 % 4, j = k / 4 % 4, at = k / 64 * 6;
        V(at + j) |= (uint8_t)((u & 3) << 2 * s);
        V(at + 4 + j / 2) |= (uint8_t)(u >> 2 << (4 * (j % 2) + third[s]));
    }
#undef V
}
/* The codes of n columns of a row. first: where neighbours begin, of each 32 columns. */
static void put_row(uint8_t *to, const struct quant_code_set *set, const int8_t *code, int r, int n,
                    const int *first) {
    uint8_t index[256] = {0};
    const int levels = set->form == QUANT_CODES_EIGHT ? 8 : 16;
    for (int i = 0; i < levels; i++) index[(uint8_t)set->level[i]] = (uint8_t)i;
    for (int k = 0; k < n; k++) {
        const unsigned u = set->form == QUANT_CODES_ALL     ? (uint8_t)code[k]
                           : set->form == QUANT_CODES_TWO   ? code[k] > 0
                           : set->form == QUANT_CODES_FOUR  ? (unsigned)(code[k] + 1) & 3
                           : set->form == QUANT_CODES_RANGE ? (unsigned)(code[k] - first[k / 32]) & 15
                                                            : index[(uint8_t)code[k]];
        put_code(to, set->form, k, r, u);
    }
}
static uint32_t with_first(float d, int first) {
    return (quant_f32_to_bits(d) & ~31u) | ((uint32_t)(first + 16) & 31);
}
/* Scale d of group g of row r. */
static void put_scale(uint8_t *to, enum quant_scale_form form, int g, int r, float d, float unit) {
    const size_t at = (size_t)(g * R + r);
    const uint16_t half = f32_to_f16(form == QUANT_SCALES_E4M3 ? d * 0x1p-7f : d);
    const float steps = d / unit;
    if (form == QUANT_SCALES_ANY)
        memcpy(to + at * sizeof d, &d, sizeof d);
    else if (form == QUANT_SCALES_HALF)
        memcpy(to + at * sizeof half, &half, sizeof half);
    else if (form == QUANT_SCALES_E4M3)
        to[at] = (uint8_t)(half >> 7);
    else
        to[at] = steps >= 1 && steps < 256 ? (uint8_t)steps : 1; /* 0 or no number: as the unit is */
}

/* Rows first .. first + R of n columns to a copy; where it goes on. */
static uint8_t *copy_codes(uint8_t *to, const struct quant_code_set *set, const struct code_rows *from,
                           int first, int n) {
    uint8_t *d = to + code_bytes(set, n);
    memset(to, 0, code_bytes(set, n));
    if (set->scales == QUANT_SCALES_STEPS) {
        memcpy(d, from->unit + first, sizeof(float) * R);
        d += sizeof(float) * R;
    }
    for (int r = 0; r < R; r++) {
        const int8_t *code = from->code[first + r];
        int least[8];
        for (int k = 0; k < n && set->form == QUANT_CODES_RANGE; k++)
            least[k / 32] = k % 32 == 0               ? (code[k] < 15 ? code[k] : 15)
                            : code[k] < least[k / 32] ? code[k]
                                                      : least[k / 32];
        put_row(to, set, code, r, n, least);
        for (int g = 0; g < n / set->group; g++) {
            float v = from->d[g * set->group / 16][first + r];
            if (set->form == QUANT_CODES_RANGE) {
                const uint32_t bits = with_first(v, least[g]);
                memcpy(&v, &bits, sizeof v);
            }
            put_scale(d, set->scales, g, r, v, from->unit[first + r]);
        }
    }
    return to + chunk_bytes(set, n);
}

/* ---- reading ---- */

/* The next chunks have n columns. */
static void code_sizes(struct code_copy *c, int n) {
    if (c->n == n) return;
    c->n = n, c->groups = n / c->set->group;
    c->code_bytes = code_bytes(c->set, n), c->bytes = chunk_bytes(c->set, n);
}
/* The chunk that begins at copy. */
INLINE void code_chunk(struct code_copy *c, const uint8_t *copy) {
    const int groups = c->groups;
    c->codes = copy, c->d = copy + c->code_bytes;
    for (int i = 0; i < (int)(c->bytes - c->code_bytes); i += 64)
        _mm_prefetch((const char *)c->d + AHEAD + i, _MM_HINT_T1);
    c->scale = (const uint8_t *)c->expanded;
    if (c->set->scales == QUANT_SCALES_ANY) {
        c->scale = c->d;
    } else if (c->set->scales == QUANT_SCALES_HALF) {
        for (int g = 0; g < groups; g++)
            c->expanded[g] = vf_halves((const uint16_t *)(const void *)c->d + g * R);
    } else if (c->set->scales == QUANT_SCALES_E4M3) {
        for (int g = 0; g < groups; g++) c->expanded[g] = vf_mul(vf_half_bytes(c->d + g * R), vf_set(0x1p7f));
    } else {
        const vf unit = vf_load((const float *)(const void *)c->d);
        for (int g = 0; g < groups; g++)
            c->expanded[g] = vf_mul(unit, vf_bytes(c->d + sizeof(vf) + (size_t)(g * R)));
    }
}

/* Scales of sub-block b of 16 columns. */
INLINE vf scale_of_copy(const struct code_copy *c, int b, const int FORM) {
    const vu v = vector_at(c->scale, b >> c->shift);
    return FORM == QUANT_CODES_RANGE ? (vf)(v & ~31u) : (vf)v;
}
/* In each byte of a lane what is added to its neighbours' places for codes plus 128: to sub-block b. */
INLINE vu base_of_copy(const struct code_copy *c, int b) {
    return ((vector_at(c->d, b / 2) & 31) + (128 - 16)) * 0x01010101;
}
/* The third bits of columns 16 s .. of the 64 that begin at at, of an even j at bit 2, of an odd one at bit 6. */
INLINE vu third_bits(const uint8_t *at, int j, const int s) {
    const vu v = vector_at(at, 4 + j / 2);
    return (s == 0 ? v : s == 1 ? v >> 1 : s == 2 ? v << 1 : v << 2) & 0x44444444;
}
INLINE vu eight_of(vu low, vu third, const int s, const int j) {
    return (low >> 2 * s & 0x03030303) | (j % 2 ? third >> 4 : third);
}
/* Codes plus 128, FOUR and TWO: plus 1, of columns 4 k4 .. 4 k4 + 4. */
INLINE vu code_of_copy(const struct code_copy *c, int k4, const int FORM) {
    if (FORM == QUANT_CODES_ALL) return vector_at(c->codes, k4) ^ 0x80808080;
    if (FORM == QUANT_CODES_TWO) return (vector_at(c->codes, k4 % 8) >> k4 / 8 & 0x01010101) << 1;
    if (FORM == QUANT_CODES_FOUR)
        return vector_at(c->codes, k4 / 32 * 8 + k4 % 8) >> k4 / 8 % 4 * 2 & 0x03030303;
    vu four;
    if (FORM == QUANT_CODES_EIGHT) {
        const uint8_t *at = c->codes + (size_t)(k4 / 16 * 6) * sizeof(vu);
        const int s = k4 / 4 % 4, j = k4 % 4;
        four = eight_of(vector_at(at, j), third_bits(at, j, s), s, j);
    } else {
        four = nibble_at(c->codes, k4 / 8 * 4 + k4 % 4, k4 / 4 & 1);
    }
    if (FORM == QUANT_CODES_RANGE) return four + base_of_copy(c, k4 / 4);
    const vu u = (vu)look_up(c->table[0], four);
    if (VNNI) return u;
    return u << 4 | (vu)look_up(c->table[1], four);
}

/* n columns of R rows from their copy into a panel. */
INLINE void codes_to_panel(struct panel *p, const struct code_copy *c, int n, const int FORM) {
    const bool four = FORM == QUANT_CODES_FOUR || FORM == QUANT_CODES_TWO;
    const struct row_span row = {.planes = 1, .off = CODES_OFF};
    for (int i = 0; i < (int)c->code_bytes; i += 64)
        _mm_prefetch((const char *)c->codes + AHEAD + i, _MM_HINT_T1);
    for (int k4 = 0; k4 < n / 4; k4++) {
        if (four)
            p->q[0][k4] = code_of_copy(c, k4, FORM);
        else
            put8(p, row, k4, 0, code_of_copy(c, k4, FORM));
    }
    const int cols = four ? FOUR_COLS : CODES_COLS;
    for (int b = 0; b < n / cols; b++) p->d[b] = scale_of_copy(c, b * cols / 16, FORM);
}

/* The far groups of a row of x, as add_far. */
INLINE vf far_of_copy(vf y, const struct code_copy *c, const struct cpu_x8 *x, const int FORM) {
    const bool four = FORM == QUANT_CODES_FOUR || FORM == QUANT_CODES_TWO;
    for (int i = 0; i < CPU_FAR && x->hi[0]; i++) {
        const int k4 = x->far[i];
        const int off = four ? FOUR_OFF : VNNI ? CODES_OFF : CODES_OFF / 16;
        const vi hi = set32(x->hi[i]), first = row_start(x->hp[i], off);
        const vu u = code_of_copy(c, k4, FORM);
        vi sum;
        if (VNNI || four)
            sum = whole(dot(first, u, hi), 128);
        else
            sum = (vi)((vu)whole(dot(first, LOW4(u >> 4), hi), 16 * 128) +
                       (vu)whole(dot(set32(0), LOW4(u), hi), 128));
        y = vf_fma(to_float(sum), scale_of_copy(c, k4 / 4, FORM), y);
    }
    return y;
}

#define X(t) ((const struct cpu_x8 *)(const void *)(x + (size_t)(t)*x_stride))
/* Four columns of a row of x in each lane. */
INLINE vi four_of(const struct cpu_x8 *x, int k4) { return broadcast_four(x->q + 4 * k4); }
/* The sums of sub-blocks b and b + 1 onto y[row of x]. */
INLINE void add_two(vf y[4], const vi a[2][4], const vi low[2][4], const struct code_copy *c, int b,
                    const int TT, const int FORM) {
    UNROLL for (int s = 0; s < 2; s++) UNROLL for (int t = 0; t < TT; t++) {
        vi sum = whole(a[s][t], VNNI ? 1 : 16);
        if (!VNNI) sum = (vi)((vu)sum + (vu)whole(low[s][t], 1));
        y[t] = vf_fma(to_float(sum), scale_of_copy(c, b + s, FORM), y[t]);
    }
}
/* Where the sums of sub-blocks b and b + 1 begin: high halves a of codes plus 128, and low ones. */
INLINE void first_two(vi a[2][4], vi low[2][4], const uint8_t *x, size_t x_stride, int b, const int TT) {
    UNROLL for (int t = 0; t < TT; t++) UNROLL for (int s = 0; s < 2; s++) {
        a[s][t] = row_start(X(t)->p16[b + s], VNNI ? CODES_OFF : CODES_OFF / 16);
        low[s][t] = set32(0);
    }
}

/* Adds the products of 32 columns from 32 i on to y[row of x]. */
INLINE void multiply_32(vf y[4], const struct code_copy *c, int i, const uint8_t *x, size_t x_stride,
                        const int TT, const int FORM) {
    vi a[2][4], b[2][4];
    vu base = (vu)set32(0);
    if (FORM == QUANT_CODES_RANGE) base = base_of_copy(c, 2 * i);
    first_two(a, b, x, x_stride, 2 * i, TT);
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
            a[j / 4][t] = dot(a[j / 4][t], u, four_of(X(t), k4));
            if (!VNNI) b[j / 4][t] = dot(b[j / 4][t], low, four_of(X(t), k4));
        }
        if (FORM == QUANT_CODES_ALL || j < 4) ASK(a[0][0], c->codes + AHEAD + (size_t)at * sizeof(vu));
    }
    add_two(y, a, b, c, 2 * i, TT, FORM);
}

/* The same of columns 32 h .. 32 h + 32 of the 64 from 64 i on, in three bits. */
INLINE void multiply_eight(vf y[4], const struct code_copy *c, int i, const int h, const uint8_t *x,
                           size_t x_stride, const int TT) {
    const uint8_t *at = c->codes + (size_t)(6 * i) * sizeof(vu);
    vi a[2][4], b[2][4];
    first_two(a, b, x, x_stride, 4 * i + 2 * h, TT);
    UNROLL for (int s = 0; s < 2; s++) UNROLL for (int p = 0; p < 2; p++) {
        const vu third = third_bits(at, 2 * p, 2 * h + s);
        UNROLL for (int j = 2 * p; j < 2 * p + 2; j++) {
            const int k4 = 16 * i + 8 * h + 4 * s + j;
            const vu three = eight_of(vector_at(at, j), third, 2 * h + s, j);
            const vu u = (vu)look_up(c->table[0], three);
            UNROLL for (int t = 0; t < TT; t++) {
                a[s][t] = dot(a[s][t], u, four_of(X(t), k4));
                if (!VNNI) b[s][t] = dot(b[s][t], (vu)look_up(c->table[1], three), four_of(X(t), k4));
                if (!VNNI) HOLD(a[s][t]);
                if (!VNNI) HOLD(b[s][t]);
            }
            const int line = 3 * h + 2 * s + p;
            if (j % 2 && line < 3 * h + 3) ASK(a[0][0], at + AHEAD + (size_t)line * sizeof(vu));
        }
    }
    add_two(y, a, b, c, 4 * i + 2 * h, TT, QUANT_CODES_EIGHT);
}

/* Adds the products of PARTS sub-blocks of 32 columns from b + from on to y[row of x], of vectors from the at-th on: of each code of two
 * bits or (TWO) one. VNNI takes the products where the bits lie and divides afterwards. */
INLINE void multiply_parts(vf y[4], const struct code_copy *c, int n, int b, int at, const int from,
                           const uint8_t *x, size_t x_stride, const int TT, const bool TWO, const int PARTS) {
    const int BITS = TWO ? 1 : 2;
    const uint32_t mask = TWO ? 0x01010101 : 0x03030303;
    vi a[8][4];
    UNROLL for (int s = 0; s < PARTS; s++) UNROLL for (int t = 0; t < TT; t++) a[s][t] =
        VNNI ? set32(0) : row_start(X(t)->p32[b + from + s], FOUR_OFF);
    UNROLL for (int j = 0; j < 8; j++) {
        const vu v = vector_at(c->codes, at + j);
        UNROLL for (int s = 0; s < PARTS; s++) {
            const int bit = BITS * (from + s);
            vu u = VNNI   ? v & mask << bit
                   : !TWO ? v >> bit & mask
                   : bit  ? v >> (bit ? bit - 1 : 0) & mask << 1
                          : v << 1 & mask << 1;
            UNROLL for (int t = 0; t < TT; t++) {
                a[s][t] = dot(a[s][t], u, four_of(X(t), 8 * (b + from + s) + j));
                if (!VNNI) HOLD(a[s][t]);
            }
        }
        if (from == 0 && (VL == 16 || j % 2 == 0))
            ASK(a[0][0], c->codes + AHEAD + (size_t)(at + j) * sizeof(vu));
    }
    UNROLL for (int s = 0; s < PARTS; s++) UNROLL for (int t = 0; t < TT; t++) {
        typedef int32_t vs __attribute__((vector_size(4 * R)));
        vi sum = whole(a[s][t], 1);
        if (VNNI) {
            const vs twice = TWO ? (vs)((vu)sum << 1) : (vs)sum;
            sum = (vi)((vu)(twice >> BITS * (from + s)) + (vu)row_start(X(t)->p32[b + from + s], FOUR_OFF));
        }
        if (b + from + s < n / 32)
            y[t] = vf_fma(to_float(sum), scale_of_copy(c, 2 * (b + from + s), QUANT_CODES_FOUR), y[t]);
    }
}
/* The same of n columns, as many sub-blocks at a time as have registers for their sums. */
INLINE void multiply_bits(vf y[4], const struct code_copy *c, int n, const uint8_t *x, size_t x_stride,
                          const int TT, const bool TWO) {
    const int ALL = TWO ? 8 : 4, PARTS = VL == 16 && TT < 4 ? ALL : 4;
    for (int b = 0; b < n / 32; b += ALL)
        UNROLL for (int from = 0; from < ALL; from += PARTS)
            multiply_parts(y, c, n, b, b / ALL * 8, from, x, x_stride, TT, TWO, PARTS);
}

/* n columns of R rows from their copy times TT rows of x, onto out: the sums of tile, in the same order. */
INLINE void stream_codes(const struct code_copy *c, int n, const uint8_t *x, size_t x_stride, float *out,
                         const int TT, const int FORM) {
    vf y[4];
    UNROLL for (int t = 0; t < TT; t++) y[t] = vf_set(0);
    if (FORM == QUANT_CODES_FOUR || FORM == QUANT_CODES_TWO) {
        multiply_bits(y, c, n, x, x_stride, TT, FORM == QUANT_CODES_TWO);
    } else if (FORM == QUANT_CODES_EIGHT) {
        for (int i = 0; i < n / 64; i++) {
            multiply_eight(y, c, i, 0, x, x_stride, TT);
            multiply_eight(y, c, i, 1, x, x_stride, TT);
        }
    } else {
        for (int i = 0; i < n / 32; i++) multiply_32(y, c, i, x, x_stride, TT, FORM);
    }
    UNROLL for (int t = 0; t < TT; t++) {
        float *o = out + t * CPU_UNIT_ROWS;
        y[t] = far_of_copy(y[t], c, X(t), FORM);
        vf_store(o, vf_fma(y[t], vf_set(X(t)->d), vf_load(o)));
    }
}
#undef X

/* ---- one function a form ---- */

typedef void code_stream_fn(const struct code_copy *c, int n, const uint8_t *x, size_t x_stride, float *out);
typedef void code_panel_fn(struct panel *p, const struct code_copy *c, int n);
#define CODE_STREAM(form, TT)                                                                                \
    static __attribute__((noinline)) void stream_##form##_##TT(                                              \
        const struct code_copy *c, int n, const uint8_t *x, size_t x_stride, float *out) {                   \
        stream_codes(c, n, x, x_stride, out, TT, QUANT_CODES_##form);                                        \
    }
#define CODE_FORM(form)                                                                                      \
    CODE_STREAM(form, 1)                                                                                     \
    CODE_STREAM(form, 2)                                                                                     \
    CODE_STREAM(form, 4)                                                                                     \
    static void panel_##form(struct panel *p, const struct code_copy *c, int n) {                            \
        codes_to_panel(p, c, n, QUANT_CODES_##form);                                                         \
    }
CODE_FORM(LEVELS)
CODE_FORM(EIGHT)
CODE_FORM(RANGE)
CODE_FORM(FOUR)
CODE_FORM(TWO)
CODE_FORM(ALL)
enum { CODE_MANY = !VNNI ? 1 : VL == 16 ? 4 : 2 };
static const struct {
    code_stream_fn *stream[3];
    code_panel_fn *panel;
} code_form[] = {
#define FORM(form)                                                                                           \
    [QUANT_CODES_##form] = {{stream_##form##_1, stream_##form##_2, stream_##form##_4}, panel_##form}
    FORM(LEVELS), FORM(EIGHT), FORM(RANGE), FORM(FOUR), FORM(TWO), FORM(ALL),
#undef FORM
};

/* A few rows of x times the chunk of n columns of R rows. */
static void multiply_chunk(const struct code_copy *c, int n, struct cpu_x x, int T, float *out) {
    for (int t = 0, size = CODE_MANY / 2; t < T; t += 1 << size) {
        while (T - t < 1 << size) size--;
        code_form[c->set->form].stream[size](c, n, x.at + (size_t)t * x.row, x.row, out + t * CPU_UNIT_ROWS);
    }
}
