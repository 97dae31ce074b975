/* For the matmuls on quantised weights, included once per instruction set: vectors of R weight rows x 4 columns, and
 * reading R rows of a file into them. */
#include "cpu/simd/act_q8.h"
#include "cpu/simd/simd.h"

enum { R = VL, COLS_MAX = 256, AHEAD = 8192 };
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
enum { VNNI = 1 };
#else
enum { VNNI = 0 };
#endif

typedef uint32_t vu __attribute__((vector_size(4 * R), may_alias)); /* R rows x 4 bytes */
#ifdef __AVX512F__
typedef __m512i vi;
#define LO32(a, b)       (vu) _mm512_unpacklo_epi32((vi)(a), (vi)(b))
#define HI32(a, b)       (vu) _mm512_unpackhi_epi32((vi)(a), (vi)(b))
#define LO64(a, b)       (vu) _mm512_unpacklo_epi64((vi)(a), (vi)(b))
#define HI64(a, b)       (vu) _mm512_unpackhi_epi64((vi)(a), (vi)(b))
#define EVEN(a, b)       (vu) _mm512_shuffle_i64x2((vi)(a), (vi)(b), 0x88)
#define ODD(a, b)        (vu) _mm512_shuffle_i64x2((vi)(a), (vi)(b), 0xdd)
#define EVEN_LANES(a, b) _mm512_shuffle_ps(a, b, 0x88) /* of each quarter of a, then of b */
#define ODD_LANES(a, b)  _mm512_shuffle_ps(a, b, 0xdd)
INLINE vf to_float(vi v) { return _mm512_cvtepi32_ps(v); }
INLINE vf vf_exponents(const uint8_t *p) { /* 2^(byte - 127) */
    return (vf)_mm512_slli_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)p)), 23);
}
INLINE vi set32(int32_t x) { return _mm512_set1_epi32(x); }
/* Shifts: a product would take a place of the dot products'. off: a power of two or the sum of two. */
INLINE vi row_start(int32_t sum, const int off) {
    const vu s = (vu)set32(sum);
    const int rest = off & (off - 1);
    vu start = s << __builtin_ctz((unsigned)off);
    if (rest) start += s << __builtin_ctz((unsigned)rest);
    return (vi)start;
}
INLINE vi dot(vi a, vu w, vi x) { return _mm512_dpbusd_epi32(a, (vi)w, x); }
INLINE vi broadcast_four(const int8_t *p) {
    int32_t four;
    memcpy(&four, p, 4);
    return set32(four);
}
INLINE vi look_up(const int8_t *table, vu nibbles) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const void *)table)), (vi)nibbles);
}
/* Bits n .. n + 3 of each lane as 16s in its four bytes. */
INLINE vu spread_bits(vu h, int n) {
    const vi table =
        _mm512_setr_epi32(0, 0x10, 0x1000, 0x1010, 0x100000, 0x100010, 0x101000, 0x101010, 0x10000000,
                          0x10000010, 0x10001000, 0x10001010, 0x10100000, 0x10100010, 0x10101000, 0x10101010);
    return (vu)_mm512_permutexvar_epi32((vi)(h >> n), table);
}
#else
typedef __m256i vi;
#define LO32(a, b)       (vu) _mm256_unpacklo_epi32((vi)(a), (vi)(b))
#define HI32(a, b)       (vu) _mm256_unpackhi_epi32((vi)(a), (vi)(b))
#define LO64(a, b)       (vu) _mm256_unpacklo_epi64((vi)(a), (vi)(b))
#define HI64(a, b)       (vu) _mm256_unpackhi_epi64((vi)(a), (vi)(b))
#define EVEN(a, b)       (vu) _mm256_permute2x128_si256((vi)(a), (vi)(b), 0x20)
#define ODD(a, b)        (vu) _mm256_permute2x128_si256((vi)(a), (vi)(b), 0x31)
#define EVEN_LANES(a, b) _mm256_shuffle_ps(a, b, 0x88)
#define ODD_LANES(a, b)  _mm256_shuffle_ps(a, b, 0xdd)
INLINE vf to_float(vi v) { return _mm256_cvtepi32_ps(v); }
INLINE vf vf_exponents(const uint8_t *p) {
    return (vf)_mm256_slli_epi32(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p)), 23);
}
INLINE vi set32(int32_t x) { return _mm256_set1_epi32(x); }
/* Four bytes in each lane, from memory: by way of registers, as the compiler would have it, they take a shuffle. */
INLINE vi broadcast_four(const int8_t *p) {
    return _mm256_castps_si256(_mm256_broadcast_ss((const float *)(const void *)p));
}
INLINE vi look_up(const int8_t *table, vu nibbles) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)table)),
                               (vi)nibbles);
}
INLINE vu spread_bits(vu h, int n) {
    const vi one_byte = _mm256_set1_epi32(0x08040201);
    vi low = _mm256_shuffle_epi8((vi)(h >> n), _mm256_broadcastsi128_si256(_mm_setr_epi8(
                                                   0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12)));
    return (vu)_mm256_cmpeq_epi8(_mm256_and_si256(low, one_byte), one_byte) & 0x10101010;
}
#ifdef __AVXVNNI__
INLINE vi row_start(int32_t pair, int off) {
    return _mm256_madd_epi16(set32(pair), _mm256_set1_epi16((short)-off));
}
INLINE vi dot(vi a, vu w, vi x) { return _mm256_dpbusd_avx_epi32(a, (vi)w, x); }
#else /* 16-bit sums */
INLINE vi row_start(int32_t pair, int off) {
    return _mm256_mullo_epi16(set32(pair), _mm256_set1_epi16((short)-off));
}
INLINE vi dot(vi a, vu w, vi x) { return _mm256_add_epi16(a, _mm256_maddubs_epi16((vi)w, x)); }
INLINE vi widen_codes(vi a, int by) { return _mm256_madd_epi16(a, _mm256_set1_epi16((short)by)); }
#endif
#endif

#ifdef __AVX512F__
INLINE vi load_vector(const void *p) { return _mm512_loadu_si512(p); }
INLINE void store_vector(void *p, vu v) { _mm512_storeu_si512(p, (vi)v); }
INLINE vu to_sixteen(vu codes, __m128i order) {
    return (vu)_mm512_srai_epi16(_mm512_shuffle_epi8((vi)codes, _mm512_broadcast_i32x4(order)), 8);
}
#else
INLINE vi load_vector(const void *p) { return _mm256_loadu_si256(p); }
INLINE void store_vector(void *p, vu v) { _mm256_storeu_si256(p, (vi)v); }
INLINE vu to_sixteen(vu codes, __m128i order) {
    return (vu)_mm256_srai_epi16(_mm256_shuffle_epi8((vi)codes, _mm256_broadcastsi128_si256(order)), 8);
}
#endif
/* Bytes with a sign as 16 bits: columns 0 and 1 of each lane, then 2 and 3. */
INLINE void put16(vu q[2], vu codes) {
    const __m128i low = _mm_setr_epi8(-1, 0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13);
    q[0] = to_sixteen(codes, low);
    q[1] = to_sixteen(codes, _mm_add_epi8(low, _mm_set1_epi16(0x0200)));
}

/* ---- R rows of the file ---- */

enum { SIXTEEN = 16 };
/* R rows at equal distances: few enough pointers that the compiler keeps them all in registers. */
struct row_span {
    const uint8_t *p[R / 4]; /* rows 0, 4, .. */
    ptrdiff_t stride, stride3;
    uint8_t **copy;   /* where their copy (cpu_repack.c) goes on, NULL or at NULL: none */
    bool copied;      /* a constant: read the copy, else write it */
    bool quiet;       /* a constant: the lines of the copy have been asked for */
    bool direct;      /* a constant: multiply at once with x, in sub-blocks of 4 sub columns */
    const uint8_t *x; /* struct cpu_x8 of tt rows, x_stride bytes apart */
    size_t x_stride;
    int tt, off; /* constants: rows of x; what start takes, 0: nothing */
    int planes; /* a constant: 2 where codes of 8 bits are multiplied as two of 4, of one row of x; SIXTEEN: they go to
                    the panel's copy as 16 bits with a sign, two vectors for one, and nothing else is copied */
    bool centre; /* a constant: codes less off to the panel */
    int sub;
};
/* Vectors to the copy of the rows, and from it. It is one stream, as every format's unpacking goes; the processor's own
 * prefetchers stop at pages of 4 KB. */
INLINE void to_copy(struct row_span row, const void *v, size_t bytes) {
    if (!row.copy || !*row.copy) return;
    memcpy(*row.copy, v, bytes);
    *row.copy += bytes;
}
/* The same of vectors, which stay in registers: where memcpy is one call they would all go by way of memory, copied or not. */
INLINE void vectors_to_copy(struct row_span row, const vu *v, const int n) {
    if (!row.copy || !*row.copy) return;
    UNROLL for (int i = 0; i < n; i++) store_vector(*row.copy + (size_t)i * sizeof *v, v[i]);
    *row.copy += (size_t)n * sizeof *v;
}
/* codes: to be multiplied at once are read, and asked for, one by one (next_codes). */
INLINE void from_copy(struct row_span row, void *v, const size_t bytes, const bool codes) {
    if (!codes || !row.direct) {
        if (!row.quiet)
            UNROLL for (size_t i = 0; i < bytes; i += 64)
                _mm_prefetch((const char *)*row.copy + AHEAD + i, _MM_HINT_T1);
        UNROLL for (size_t i = 0; i < bytes; i += sizeof(vu)) {
            if (bytes - i < sizeof(vu))
                memcpy((uint8_t *)v + i, *row.copy + i, bytes - i);
            else
                *(vu *)((uint8_t *)v + i) = (vu)load_vector(*row.copy + i);
        }
    }
    *row.copy += bytes;
}
INLINE struct row_span rows_at(const uint8_t *w, size_t stride) {
    struct row_span r = {.stride = (ptrdiff_t)stride, .stride3 = (ptrdiff_t)(3 * stride)};
    UNROLL for (int i = 0; i < R / 4; i++) r.p[i] = w + 4 * (size_t)i * stride;
    return r;
}
INLINE struct row_span rows_skip(struct row_span r, size_t bytes) {
    UNROLL for (int i = 0; i < R / 4; i++) r.p[i] += bytes;
    return r;
}
INLINE const uint8_t *row_of(struct row_span r, int i) {
    return r.p[i / 4] + (i % 4 == 3 ? r.stride3 : i % 4 * r.stride);
}

/* R rows x 32 bytes, 4 to a lane. */
INLINE void load32(struct row_span row, size_t at, vu v[8], const bool codes) {
    vu a[8], b[8];
    if (row.copied) {
        from_copy(row, v, 8 * sizeof *v, codes);
        return;
    }
#ifdef __AVX512F__
    UNROLL for (int i = 0; i < 8; i++) {
        const int r = i / 4 * 8 + i % 4;
        v[i] = (vu)_mm512_inserti64x4(
            _mm512_castsi256_si512(_mm256_loadu_si256((const void *)(row_of(row, r) + at))),
            _mm256_loadu_si256((const void *)(row_of(row, r + 4) + at)), 1);
    }
#else
    UNROLL for (int i = 0; i < 8; i++) v[i] = (vu)_mm256_loadu_si256((const void *)(row_of(row, i) + at));
#endif
    UNROLL for (int i = 0; i < 4; i++) {
        a[2 * i] = LO32(v[2 * i], v[2 * i + 1]);
        a[2 * i + 1] = HI32(v[2 * i], v[2 * i + 1]);
    }
    UNROLL for (int i = 0; i < 4; i++) {
        int j = i / 2 * 4 + i % 2;
        b[2 * i] = LO64(a[j], a[j + 2]);
        b[2 * i + 1] = HI64(a[j], a[j + 2]);
    }
    UNROLL for (int i = 0; i < 4; i++) {
        v[i] = EVEN(b[i], b[4 + i]);
        v[4 + i] = ODD(b[i], b[4 + i]);
    }
    vectors_to_copy(row, v, 8);
}
INLINE void load16(struct row_span row, size_t at, vu v[4], const bool codes) { /* R rows x 16 bytes */
    vu y[4];
    if (row.copied) {
        from_copy(row, v, 4 * sizeof *v, codes);
        return;
    }
    UNROLL for (int i = 0; i < 4; i++) {
#define ROW(j) _mm_loadu_si128((const void *)(row_of(row, j) + at))
#ifdef __AVX512F__
        vi z = _mm512_inserti32x4(_mm512_castsi128_si512(ROW(i)), ROW(i + 4), 1);
        y[i] = (vu)_mm512_inserti32x4(_mm512_inserti32x4(z, ROW(i + 8), 2), ROW(i + 12), 3);
#else
        y[i] = (vu)_mm256_inserti128_si256(_mm256_castsi128_si256(ROW(i)), ROW(i + 4), 1);
#endif
#undef ROW
    }
    vu a = LO32(y[0], y[1]), b = LO32(y[2], y[3]), c = HI32(y[0], y[1]), d = HI32(y[2], y[3]);
    v[0] = LO64(a, b), v[1] = HI64(a, b), v[2] = LO64(c, d), v[3] = HI64(c, d);
    vectors_to_copy(row, v, 4);
}
INLINE vu load4(struct row_span row, size_t at) { /* R rows x 4 bytes */
    uint32_t y[R];
    vu v;
    if (row.copied) {
        from_copy(row, &v, sizeof v, false);
        return v;
    }
    UNROLL for (int i = 0; i < R; i++) memcpy(y + i, row_of(row, i) + at, 4);
    memcpy(&v, y, sizeof v);
    to_copy(row, &v, sizeof v);
    return v;
}
/* One half of every row for each of n blocks. By way of memory: inserting them one by one would take the port of the
 * transposes. */
INLINE void halves_of(struct row_span row, const int n, size_t at, size_t step, vf *out) {
    uint16_t h[8][R];
    if (row.copied) {
        from_copy(row, h, (size_t)n * sizeof h[0], false);
    } else {
        UNROLL for (int i = 0; i < R; i++) {
            const uint8_t *w = row_of(row, i) + at;
            UNROLL for (int b = 0; b < n; b++) memcpy(&h[b][i], w + (size_t)b * step, 2);
        }
        to_copy(row, h, (size_t)n * sizeof h[0]);
    }
    UNROLL for (int b = 0; b < n; b++) out[b] = vf_halves(h[b]);
}
INLINE void halves(struct row_span row, int n, size_t at, size_t step, vf *out) {
    if (n == 8)
        halves_of(row, 8, at, step, out);
    else
        for (int b = 0; b < n; b++) halves_of(row, 1, at + (size_t)b * step, 0, out + b);
}
/* Two halves in a row of every row for each of n blocks. */
INLINE void half_pairs(struct row_span row, int n, size_t step, vf *d, vf *g) {
    for (int b = 0; b < n; b++) {
        uint32_t h[R];
        if (row.copied) {
            from_copy(row, h, sizeof h, false);
        } else {
            UNROLL for (int i = 0; i < R; i++)
                memcpy(&h[i % 4 / 2 * (R / 2) + i / 4 * 2 + i % 2], row_of(row, i), 4);
            to_copy(row, h, sizeof h);
        }
        vf low = vf_halves((const uint16_t *)h), high = vf_halves((const uint16_t *)h + R);
        d[b] = EVEN_LANES(low, high), g[b] = ODD_LANES(low, high);
        row = rows_skip(row, step);
    }
}
/* The low 16 bits of every lane as a half. */
INLINE vf half_lanes(vu v) {
#ifdef __AVX512F__
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16((vi)v));
#else
    vi low = _mm256_packus_epi32((vi)(v & 0xffff), (vi)(v & 0xffff));
    return _mm256_cvtph_ps(_mm256_castsi256_si128(_mm256_permute4x64_epi64(low, 0x08)));
#endif
}
