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
#include "cpu/simd/pack_rows.h"
#include "cpu/kernels/kernels.h"

/* A line, asked for just behind the last sum. */
#ifdef __AVX512F__
#define ASK(sum, line) __asm__ volatile("prefetcht1 %1" : "+v"(sum) : "m"(*(const char *)(line)))
#else
#define ASK(sum, line) __asm__ volatile("prefetcht1 %1" : "+x"(sum) : "m"(*(const char *)(line)))
#endif

/* ---- panels ---- */

struct panel {
    vu q[2][COLS_MAX / 4];    /* the second plane: low halves of codes of 8 bits, without VNNI */
    vf d[16], g[16];          /* per sub-block; without VNNI and where scales are integers, d[0] times sc[] */
    vi sc[16];                /* in both halves of each lane */
    const uint8_t *ahead;     /* what to ask for while this is unpacked */
    uint8_t *copy;            /* of the rows: where it goes on */
    vi acc[8][8], sum[8][16]; /* products of each row of x and sub-block */
};

/* Lines are asked for evenly, a few for every vector of codes: a burst would wait for its own misses. */
INLINE void ask(struct panel *p, struct row_span row, int bytes) {
    if (row.copied) return;
    UNROLL for (int i = 0; i < (R * bytes + 63) / 64; i++)
        _mm_prefetch((const char *)p->ahead + 64 * i, _MM_HINT_T1);
    p->ahead += (R * bytes + 63) / 64 * 64;
}

INLINE vu byte_of(vu v, int i) { return v >> 8 * i & 255; }
INLINE vf byte_lanes(vu v, int i) { return to_float((vi)byte_of(v, i)); }
/* The scale d sc of sub-block b; sc: an integer below 2^15 in each lane. */
INLINE void scale(struct panel *p, int b, vf d, vi sc) {
    if (VNNI)
        p->d[b] = vf_mul(d, to_float(sc));
    else
        p->sc[b] = (vi)(((vu)sc & 0xffff) | (vu)sc << 16);
    if (!VNNI && b == 0) p->d[0] = d;
}

INLINE const struct cpu_x8 *x_row(struct row_span row, int t) {
    return (const struct cpu_x8 *)(const void *)(row.x + (size_t)t * row.x_stride);
}

/* u - off, with a sign. */
INLINE vu centred(vu u, const int off) {
    if (off == 128) return u ^ 0x80808080;
#ifdef __AVX512F__
    return off ? (vu)_mm512_sub_epi8((vi)u, _mm512_set1_epi8((char)off)) : u;
#else
    return off ? (vu)_mm256_sub_epi8((vi)u, _mm256_set1_epi8((char)off)) : u;
#endif
}

/* Codes of 4 columns from 4 (k4 + j): into the panel, or at once into the sums of their sub-block. */
INLINE void put_codes(struct panel *p, struct row_span row, int k4, const int j, vu u) {
    if (!row.direct) {
        p->q[0][k4 + j] = row.centre ? centred(u, row.off) : u;
        return;
    }
    UNROLL for (int t = 0; t < row.tt; t++) {
        int32_t four;
        vi *acc = &p->acc[t][j / row.sub]; /* constant indices: in a register */
        memcpy(&four, x_row(row, t)->q + 4 * (k4 + j), 4);
        *acc = dot(*acc, u, set32(four));
    }
}
/* *v; codes to be multiplied at once are read just here: what was read last of the copy began back vectors ago. */
INLINE vu codes_at(struct row_span row, const vu *v, const int back) {
    vu u;
    if (!row.direct) return *v;
    memcpy(&u, *row.copy - back * (int)sizeof u, sizeof u);
    return u;
}
/* The line AHEAD of that is asked for just behind the products of code j: two in a row wait for each other. */
INLINE void line_ahead(struct panel *p, struct row_span row, const int back, const int j) {
    if (!row.direct || (VL == 8 && back % 2)) return;
    const char *line = (const char *)*row.copy + AHEAD - back * (int)sizeof(vu);
    ASK(p->acc[0][j / row.sub], line);
}
/* The same where a line is one product: the sum of one row waits in memory, or loads run so far ahead that they take the
 * prefetches' places. */
INLINE void line_ahead8(struct panel *p, struct row_span row, const int back, const int j) {
    if (!row.direct || row.tt > 1 || VL == 8) {
        line_ahead(p, row, back, j);
        return;
    }
    const char *line = (const char *)*row.copy + AHEAD - back * (int)sizeof(vu);
    __asm__ volatile("prefetcht1 %1" : "+m"(p->acc[0][0]) : "m"(*line));
}
/* Around the codes of columns/4 k4 .. k4 + n. Two planes of one row of x have the sums of two rows. */
INLINE void first_codes(struct panel *p, struct row_span row, int k4, const int n) {
    if (row.direct) UNROLL for (int t = 0; t < row.tt; t++) UNROLL for (int i = 0; i < n / row.sub; i++) {
            const int b = k4 / row.sub + i;
            p->acc[t][i] =
                row.off ? row_start(row.sub == 8 ? x_row(row, t)->p32[b] : x_row(row, t)->p16[b], row.off)
                        : set32(0);
            if (row.planes == 2) p->acc[1][i] = set32(0);
        }
}
INLINE void last_codes(struct panel *p, struct row_span row, int k4, const int n) {
    if (row.direct)
        UNROLL for (int t = 0; t < row.tt * row.planes; t++) UNROLL for (int i = 0; i < n / row.sub; i++)
            p->sum[t][k4 / row.sub + i] = p->acc[t][i];
}
INLINE void put8(struct panel *p, struct row_span row, int k4, const int j, vu u) { /* codes of 8 bits */
    vu high = u >> 4 & 0x0f0f0f0f, low = u & 0x0f0f0f0f;
    if (VNNI) {
        put_codes(p, row, k4, j, u);
    } else if (row.direct) {
        int32_t four;
        memcpy(&four, x_row(row, 0)->q + 4 * (k4 + j), 4);
        p->acc[0][j / row.sub] = dot(p->acc[0][j / row.sub], high, set32(four));
        p->acc[1][j / row.sub] = dot(p->acc[1][j / row.sub], low, set32(four));
    } else {
        p->q[0][k4 + j] = high;
        p->q[1][k4 + j] = low;
    }
}
#define LOW4(v) ((v)&0x0f0f0f0f)

/* ---- formats in blocks of 32: n blocks ---- */

#define BLOCKS(name, BYTES, MIN, CODES)                                                                      \
    INLINE void pack_##name(struct panel *p, struct row_span row, int n) {                                   \
        struct row_span at = row;                                                                            \
        for (int b = 0; b < n; b++, at = rows_skip(at, BYTES)) {                                             \
            vu v[8];                                                                                         \
            ask(p, row, BYTES);                                                                              \
            first_codes(p, row, b * 8, 8);                                                                   \
            CODES                                                                                            \
            last_codes(p, row, b * 8, 8);                                                                    \
        }                                                                                                    \
        if (MIN)                                                                                             \
            half_pairs(row, n, BYTES, p->d, p->g);                                                           \
        else                                                                                                 \
            halves(row, n, 0, BYTES, p->d);                                                                  \
    }
#define NIBBLES(AT, PUT_LOW, PUT_HIGH)                                                                       \
    load16(at, AT, v, true);                                                                                 \
    UNROLL for (int j = 0; j < 4; j++) {                                                                     \
        vu u = codes_at(at, v + j, 4 - j), low = LOW4(u), high = LOW4(u >> 4);                               \
        PUT_LOW;                                                                                             \
        line_ahead(p, at, 4 - j, j);                                                                         \
        PUT_HIGH;                                                                                            \
    }
#define LEVELS(u) ((vu)look_up(quant_iq4_nl_levels, u) ^ 0x80808080)
BLOCKS(
    q8_0, 34, false, load32(at, 2, v, true); UNROLL for (int j = 0; j < 8; j++) {
        put8(p, row, b * 8, j, codes_at(at, v + j, 8 - j) ^ 0x80808080);
        line_ahead8(p, at, 8 - j, j);
    })
BLOCKS(q4_0, 18, false, NIBBLES(2, put_codes(p, row, b * 8, j, low), put_codes(p, row, b * 8, 4 + j, high)))
BLOCKS(q4_1, 20, true, NIBBLES(4, put_codes(p, row, b * 8, j, low), put_codes(p, row, b * 8, 4 + j, high)))
BLOCKS(iq4_nl, 18, false,
       NIBBLES(2, put8(p, row, b * 8, j, LEVELS(low)), put8(p, row, b * 8, 4 + j, LEVELS(high))))
BLOCKS(q5_0, 22, false, vu h = load4(at, 2);
       NIBBLES(6, put_codes(p, row, b * 8, j, low | spread_bits(h, 4 * j)),
               put_codes(p, row, b * 8, 4 + j, high | spread_bits(h, 16 + 4 * j))))
BLOCKS(q5_1_codes, 24, true, vu h = load4(at, 4);
       NIBBLES(8, put_codes(p, row, b * 8, j, low | spread_bits(h, 4 * j)),
               put_codes(p, row, b * 8, 4 + j, high | spread_bits(h, 16 + 4 * j))))
/* d u + g = d (u - 16) + (g + 16 d): the offset keeps the sums small */
INLINE void shift_mins(struct panel *p, int n) {
    for (int b = 0; b < n; b++) p->g[b] = vf_fma(p->d[b], vf_set(16), p->g[b]);
}
INLINE void pack_q5_1(struct panel *p, struct row_span row, int n) {
    pack_q5_1_codes(p, row, n);
    shift_mins(p, n);
}

/* ---- super-blocks of 256 ---- */

INLINE vi signed_byte(vu v, int i) { /* to the top of the lane and back */
    typedef int32_t vs __attribute__((vector_size(4 * R)));
    return (vi)((vs)(v << (24 - 8 * i)) >> 24);
}

/* Q4_K, Q5_K: d, dmin, then eight 6-bit scales and mins in twelve bytes: the headers of R rows at once. */
INLINE void scales_k45(struct panel *p, struct row_span row) {
    vu h[4], s[2], m[2];
    load16(row, 0, h, false);
    vf d = half_lanes(h[0]), dmin = vf_sub(vf_set(0), half_lanes(h[0] >> 16));
    s[0] = h[1] & 0x3f3f3f3f, s[1] = LOW4(h[3]) | (h[1] >> 2 & 0x30303030);
    m[0] = h[2] & 0x3f3f3f3f, m[1] = LOW4(h[3] >> 4) | (h[2] >> 2 & 0x30303030);
    UNROLL for (int b = 0; b < 8; b++) {
        scale(p, b, d, (vi)byte_of(s[b / 4], b % 4));
        p->g[b] = vf_mul(dmin, byte_lanes(m[b / 4], b % 4));
    }
}
INLINE void pack_q4_k(struct panel *p, struct row_span row, int n) {
    (void)n;
    for (int c = 0; c < 4; c++) {
        vu v[8];
        first_codes(p, row, c * 16, 16);
        ask(p, row, 36);
        load32(row, 16 + 32 * (size_t)c, v, true);
        UNROLL for (int j = 0; j < 8; j++) {
            vu u = codes_at(row, v + j, 8 - j);
            put_codes(p, row, c * 16, j, LOW4(u));
            line_ahead(p, row, 8 - j, j);
            put_codes(p, row, c * 16, 8 + j, LOW4(u >> 4));
        }
        last_codes(p, row, c * 16, 16);
    }
    scales_k45(p, row);
}
INLINE void pack_q5_k(struct panel *p, struct row_span row, int n) {
    (void)n;
    vu h[8];
    load32(row, 16, h, false);
    for (int c = 0; c < 4; c++) {
        vu v[8];
        first_codes(p, row, c * 16, 16);
        ask(p, row, 44);
        load32(row, 48 + 32 * (size_t)c, v, true);
        UNROLL for (int j = 0; j < 8; j++) {
            vu u = codes_at(row, v + j, 8 - j);
            put_codes(p, row, c * 16, j, LOW4(u) | (h[j] >> 2 * c & 0x01010101) << 4);
            line_ahead(p, row, 8 - j, j);
            put_codes(p, row, c * 16, 8 + j, LOW4(u >> 4) | (h[j] >> (2 * c + 1) & 0x01010101) << 4);
        }
        last_codes(p, row, c * 16, 16);
    }
    scales_k45(p, row);
    if (VNNI)
        shift_mins(p, 8);
    else
        for (int b = 0; b < 8; b++)
            p->g[b] = vf_fma(vf_mul(p->d[0], vf_set(16)), to_float((vi)((vu)p->sc[b] & 0xffff)), p->g[b]);
}
INLINE void pack_q6_k(struct panel *p, struct row_span row, int n) {
    (void)n;
    vf d;
    vu s[4];
    for (int c = 0; c < 2; c++) {
        vu a[8], b[8], h[8];
        first_codes(p, row, c * 32, 32);
        ask(p, row, 35);
        load32(row, 64 * (size_t)c, a, true);
        ask(p, row, 35);
        load32(row, 64 * (size_t)c + 32, b, true);
        ask(p, row, 35);
        load32(row, 128 + 32 * (size_t)c, h, true);
        UNROLL for (int j = 0; j < 8; j++) {
            vu s0 = codes_at(row, a + j, 24 - j), s1 = codes_at(row, b + j, 16 - j),
               top = codes_at(row, h + j, 8 - j);
            put_codes(p, row, c * 32, j, LOW4(s0) | (top << 4 & 0x30303030));
            line_ahead(p, row, 24 - 3 * j, j);
            put_codes(p, row, c * 32, 8 + j, LOW4(s1) | (top << 2 & 0x30303030));
            line_ahead(p, row, 23 - 3 * j, 8 + j);
            put_codes(p, row, c * 32, 16 + j, LOW4(s0 >> 4) | (top & 0x30303030));
            line_ahead(p, row, 22 - 3 * j, 16 + j);
            put_codes(p, row, c * 32, 24 + j, LOW4(s1 >> 4) | (top >> 2 & 0x30303030));
        }
        last_codes(p, row, c * 32, 32);
    }
    halves(row, 1, 208, 0, &d);
    load16(row, 192, s, false);
    UNROLL for (int b = 0; b < 16; b++) scale(p, b, d, signed_byte(s[b / 4], b % 4));
}
INLINE void pack_q2_k(struct panel *p, struct row_span row, int n) {
    (void)n;
    vu s[4];
    vf d[2];
    for (int c = 0; c < 2; c++) {
        vu v[8];
        first_codes(p, row, c * 32, 32);
        ask(p, row, 42);
        load32(row, 16 + 32 * (size_t)c, v, true);
        UNROLL for (int j = 0; j < 8; j++) {
            vu u = codes_at(row, v + j, 8 - j);
            UNROLL for (int t = 0; t < 4; t++) {
                put_codes(p, row, c * 32, 8 * t + j, u >> 2 * t & 0x03030303);
                if (t == 1) line_ahead(p, row, 8 - j, 8 + j);
            }
        }
        last_codes(p, row, c * 32, 32);
    }
    half_pairs(rows_skip(row, 80), 1, 0, d, d + 1);
    load16(row, 0, s, false);
    UNROLL for (int b = 0; b < 16; b++) {
        scale(p, b, d[0], (vi)byte_of(LOW4(s[b / 4]), b % 4));
        p->g[b] = vf_mul(vf_sub(vf_set(0), d[1]), byte_lanes(LOW4(s[b / 4] >> 4), b % 4));
    }
}
INLINE void pack_q3_k(struct panel *p, struct row_span row, int n) {
    (void)n;
    vu s[4], h[8], e[4];
    load32(row, 0, h, false);
    for (int c = 0; c < 2; c++) {
        vu v[8];
        first_codes(p, row, c * 32, 32);
        ask(p, row, 55);
        load32(row, 32 + 32 * (size_t)c, v, true);
        UNROLL for (int j = 0; j < 8; j++) {
            vu u = codes_at(row, v + j, 8 - j);
            UNROLL for (int t = 0; t < 4; t++) {
                put_codes(p, row, c * 32, 8 * t + j,
                          (u >> 2 * t & 0x03030303) | (h[j] >> (4 * c + t) & 0x01010101) << 2);
                if (t == 1) line_ahead(p, row, 8 - j, 8 + j);
            }
        }
        last_codes(p, row, c * 32, 32);
    }
    load16(row, 94, s, false); /* two bytes of codes, twelve of scales, d */
    vu a = s[0] >> 16 | s[1] << 16, b = s[1] >> 16 | s[2] << 16, top = s[2] >> 16 | s[3] << 16;
    vf d = half_lanes(s[3] >> 16);
    e[0] = LOW4(a) | (top & 0x03030303) << 4;
    e[1] = LOW4(b) | (top >> 2 & 0x03030303) << 4;
    e[2] = LOW4(a >> 4) | (top >> 4 & 0x03030303) << 4;
    e[3] = LOW4(b >> 4) | (top >> 6 & 0x03030303) << 4;
    UNROLL for (int i = 0; i < 16; i++) scale(p, i, d, (vi)(byte_of(e[i / 4], i % 4) - 32));
}

/* ---- codes of 4 columns from 4 k4 of R rows, out of what the functions above have left in the copy ---- */

INLINE vu vector_at(const uint8_t *copy, int i) { return (vu)load_vector(copy + (size_t)i * sizeof(vu)); }
INLINE vu nibble_at(const uint8_t *copy, int i, int high) { return LOW4(vector_at(copy, i) >> 4 * high); }
INLINE vu code_q8_0(const uint8_t *copy, int k4) { return vector_at(copy, k4) ^ 0x80808080; }
INLINE vu code_q4_0(const uint8_t *copy, int k4) { return nibble_at(copy, k4 / 8 * 4 + k4 % 4, k4 / 4 % 2); }
INLINE vu code_q4_1(const uint8_t *copy, int k4) { return code_q4_0(copy, k4); }
INLINE vu code_iq4_nl(const uint8_t *copy, int k4) { return LEVELS(code_q4_0(copy, k4)); }
INLINE vu code_q5_0(const uint8_t *copy, int k4) {
    const int b = k4 / 8 * 5;
    return nibble_at(copy, b + 1 + k4 % 4, k4 / 4 % 2) | spread_bits(vector_at(copy, b), k4 % 8 * 4);
}
INLINE vu code_q5_1(const uint8_t *copy, int k4) { return code_q5_0(copy, k4); }
INLINE vu code_q4_k(const uint8_t *copy, int k4) { return nibble_at(copy, k4 / 16 * 8 + k4 % 8, k4 / 8 % 2); }
INLINE vu code_q5_k(const uint8_t *copy, int k4) {
    return code_q4_k(copy + 8 * sizeof(vu), k4) | (vector_at(copy, k4 % 8) >> k4 / 8 & 0x01010101) << 4;
}
INLINE vu code_q6_k(const uint8_t *copy, int k4) {
    const int c = k4 / 32 * 24, quarter = k4 / 8 % 4, j = k4 % 8;
    return nibble_at(copy, c + quarter % 2 * 8 + j, quarter / 2) |
           (vector_at(copy, c + 16 + j) >> 2 * quarter & 0x03030303) << 4;
}
INLINE vu code_q2_k(const uint8_t *copy, int k4) {
    return vector_at(copy, k4 / 32 * 8 + k4 % 8) >> k4 / 8 % 4 * 2 & 0x03030303;
}
INLINE vu code_q3_k(const uint8_t *copy, int k4) {
    return code_q2_k(copy + 8 * sizeof(vu), k4) | (vector_at(copy, k4 % 8) >> k4 / 8 & 0x01010101) << 2;
}

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
    return widen(sum, by);
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
    for (int i = 0; i < CPU_FAR; i++) {
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
    for (int i = 0; i < CPU_FAR; i++) {
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

INLINE void tile(const struct panel *p, int n, const uint8_t *x, size_t x_stride, float *out, const int TT,
                 const int NP, const int COLS, const int OFF, const bool MIN, const bool WIDE,
                 const bool WHOLE, const int LINES, const uint8_t *ahead, size_t step) {
    const int PLANES = WIDE && !VNNI ? 2 : 1;
    vf f[2][6];
    vi whole_sum[2][6];
#define ROWS      UNROLL for (int t = 0; t < TT; t++) UNROLL for (int r = 0; r < NP; r++)
#define X(t)      ((const struct cpu_x8 *)(const void *)(x + (size_t)(t)*x_stride))
#define OUT(r, t) (out + (t)*CPU_UNIT_ROWS + (r)*R)
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
    UNROLL for (int t = 0; t < TT; t++) {
        vf y[2];
        vi s[2];
        UNROLL for (int r = 0; r < NP; r++) y[r] = f[r][t], s[r] = whole_sum[r][t];
        if (WHOLE) {
            add_far_whole(s, p, X(t), NP, COLS, OFF, NULL, NULL);
            UNROLL for (int r = 0; r < NP; r++) y[r] = from_whole(s[r], &p[r], X(t), COLS, MIN);
        } else {
            add_far(y, p, X(t), NP, COLS, OFF, PLANES, NULL, NULL);
        }
        UNROLL for (int r = 0; r < NP; r++)
            vf_store(OUT(r, t), vf_fma(y[r], vf_set(X(t)->d), vf_load(OUT(r, t))));
    }
#undef ROWS
#undef X
#undef OUT
}

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

/* F(name, UPPER, columns of a sub-block, bytes of 256 columns, offset, has mins, codes of 8 bits, sums with integer scales in
 * whole numbers). TILE_QUANTS: those that gain from AMX. */
#define TILE_QUANTS(F)                                                                                       \
    F(q8_0, Q8_0, 32, 272, 128, false, true, false)                                                          \
    F(q4_0, Q4_0, 32, 144, 8, false, false, false)                                                           \
    F(q4_1, Q4_1, 32, 160, 0, true, false, false)                                                            \
    F(q5_0, Q5_0, 32, 176, 16, false, false, false)                                                          \
    F(q5_1, Q5_1, 32, 192, 16, true, false, false)                                                           \
    F(iq4_nl, IQ4_NL, 32, 144, 128, false, true, false)                                                      \
    F(q4_k, Q4_K, 32, 144, 0, true, false, !VNNI)                                                            \
    F(q5_k, Q5_K, 32, 176, 16, true, false, !VNNI)                                                           \
    F(q6_k, Q6_K, 16, 210, 32, false, false, !VNNI)
#define PANEL_QUANTS(F)                                                                                      \
    TILE_QUANTS(F)                                                                                           \
    F(q2_k, Q2_K, 16, 84, 0, true, false, !VNNI)                                                             \
    F(q3_k, Q3_K, 16, 110, 4, false, false, !VNNI)
#define PACK_FROM(source, name, COPIED)                                                                      \
    static void source##_##name(struct panel *p, struct row_span row, int n) {                               \
        uint8_t *at = p->copy;                                                                               \
        row.copy = &at;                                                                                      \
        row.copied = COPIED;                                                                                 \
        row.direct = row.centre = false;                                                                     \
        row.quiet = COPIED && VL == 16;                                                                      \
        pack_##name(p, row, n);                                                                              \
        p->copy = at;                                                                                        \
    }
#define MANY(COLS) (COLS == 32 ? MANY_32 : MANY_16)
#define STREAM(name, TT, COLS, OFF, MIN, WIDE, WHOLE)                                                        \
    static __attribute__((noinline))                                                                         \
    uint8_t *stream_##name##_##TT(uint8_t *copy, int n, const uint8_t *x, size_t x_stride, float *out) {     \
        return stream(copy, n, x, x_stride, out, pack_##name, code_##name, TT, COLS, OFF, MIN,               \
                      WIDE && !VNNI ? 2 : 1, WHOLE);                                                         \
    }
#define STREAMS(name, COLS, OFF, MIN, WIDE, WHOLE)                                                           \
    STREAM(name, 1, COLS, OFF, MIN, WIDE, WHOLE)                                                             \
    STREAM(name, 2, COLS, OFF, MIN, WIDE, WHOLE)                                                             \
    STREAM(name, 4, COLS, OFF, MIN, WIDE, WHOLE)                                                             \
    STREAM(name, 8, COLS, OFF, MIN, WIDE, WHOLE)                                                             \
    static stream_fn *const streams_##name[4] = {                                                            \
        stream_##name##_1, MANY(COLS) < 2 ? NULL : stream_##name##_2,                                        \
        MANY(COLS) < 4 ? NULL : stream_##name##_4, MANY(COLS) < 8 ? NULL : stream_##name##_8};
#define ROWS_OF(name, UPPER, COLS, BYTES, OFF, MIN, WIDE, WHOLE)                                             \
    PACK_FROM(file, name, false)                                                                             \
    PACK_FROM(copy, name, true)                                                                              \
    STREAMS(name, COLS, OFF, MIN, WIDE, WHOLE)                                                               \
    static void rows_##name(const uint8_t *w, size_t stride, int n, int k, struct cpu_x x, int T,            \
                            float *out, uint8_t *copy, bool copied) {                                        \
        if (copied && T <= MANY(COLS))                                                                       \
            multiply_copy(copy, n, k, x, T, out, streams_##name, COLS, PANELS(WIDE));                        \
        else                                                                                                 \
            multiply(w, stride, n, k, x, T, out, copy, copied, file_##name, copy_##name, BYTES, COLS, OFF,   \
                     MIN, WIDE, WHOLE);                                                                      \
    }
#define PANEL_ENTRY(name, UPPER, ...) [QUANT_##UPPER] = rows_##name,
