/* A panel of R weight rows x 256 columns, as the GEMM kernels on quantised weights read it (gemm_int8.h), and what the files of
 * the formats (cpu/formats) fill it with. Included once per instruction set. */
#pragma once
#include "cpu/simd/pack_rows.h"

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
    if (row.copied || row.planes == SIXTEEN) return;
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
    if (row.planes == SIXTEEN) {
        put16((vu *)(void *)p->copy + 2 * (k4 + j), centred(u, row.off));
        return;
    }
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
    if (VNNI || row.planes == SIXTEEN) {
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
/* d u + g = d (u - 16) + (g + 16 d): the offset keeps the sums small */
INLINE void shift_mins(struct panel *p, int n) {
    for (int b = 0; b < n; b++) p->g[b] = vf_fma(p->d[b], vf_set(16), p->g[b]);
}

/* ---- super-blocks of 256 ---- */

INLINE vi signed_byte(vu v, int i) { /* to the top of the lane and back */
    typedef int32_t vs __attribute__((vector_size(4 * R)));
    return (vi)((vs)(v << (24 - 8 * i)) >> 24);
}

/* ---- codes of 4 columns from 4 k4 of R rows, out of what the functions above have left in the copy ---- */

INLINE vu vector_at(const uint8_t *copy, int i) { return (vu)load_vector(copy + (size_t)i * sizeof(vu)); }
INLINE vu nibble_at(const uint8_t *copy, int i, int high) { return LOW4(vector_at(copy, i) >> 4 * high); }
