/* MXFP4 on the CPU. The layout of its blocks is drawn in quant_mxfp4.c. A value is 2^(e - 128) (u - 12), u from 0 to 24: small
 * enough for sums of 16 bits. 2^(e - 128) by way of float32's exponent: 0 for e = 0, infinite for 255. */
#pragma once
#include "cpu/formats/cpu_format.h"
#include "cpu/formats/cpu_q4_0.h"

CPU_FORMAT(MXFP4, 32, 12, false, false, false, true)

static const int8_t mxfp4_plus_12[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

#if defined(CPU_PANELS)
/* One byte of every row for each of n blocks. */
INLINE void exponents_of(struct row_span row, const int n, size_t step, vf *d) {
    uint8_t e[8][R];
    if (row.copied) {
        from_copy(row, e, (size_t)n * sizeof e[0], false);
    } else {
        UNROLL for (int i = 0; i < R; i++) {
            const uint8_t *w = row_of(row, i);
            UNROLL for (int b = 0; b < n; b++) e[b][i] = w[(size_t)b * step];
        }
        to_copy(row, e, (size_t)n * sizeof e[0]);
    }
    UNROLL for (int b = 0; b < n; b++) d[b] = vf_mul(vf_exponents(e[b]), vf_set(0.5f));
}
#define PLUS_12(u) ((vu)look_up(mxfp4_plus_12, u))
INLINE void pack_MXFP4(struct panel *p, struct row_span row, int n) {
    struct row_span at = row;
    for (int b = 0; b < n; b++, at = rows_skip(at, 17)) {
        vu v[4];
        ask(p, row, 17);
        first_codes(p, row, b * 8, 8);
        NIBBLES(1, put_codes(p, row, b * 8, j, PLUS_12(low)), put_codes(p, row, b * 8, 4 + j, PLUS_12(high)))
        last_codes(p, row, b * 8, 8);
    }
    if (n == 8)
        exponents_of(row, 8, 17, p->d);
    else
        for (int b = 0; b < n; b++, row = rows_skip(row, 17)) exponents_of(row, 1, 0, p->d + b);
}
INLINE vu code_MXFP4(const uint8_t *copy, int k4) { return PLUS_12(code_Q4_0(copy, k4)); }
#else
INLINE __m256 half_powers(const uint8_t *w) { /* of eight blocks */
    __m128i e = _mm_setr_epi8((char)w[0], (char)w[17], (char)w[34], (char)w[51], (char)w[68], (char)w[85],
                              (char)w[102], (char)w[119], 0, 0, 0, 0, 0, 0, 0, 0);
    __m256i v = _mm256_slli_epi32(_mm256_cvtepu8_epi32(e), 23);
    return _mm256_mul_ps(_mm256_castsi256_ps(v), _mm256_set1_ps(0.5f));
}
#if defined(__AVX512F__)
INLINE struct sub8 head_MXFP4(const uint8_t *w) { return symmetric(half_powers(w), 12); }
INLINE __m512i codes_MXFP4(const uint8_t *w, int p) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(ld128(mxfp4_plus_12)),
                               nibbles2(w + 34 * p + 1, w + 34 * p + 18));
}
#else
INLINE struct sub8 head_MXFP4(const uint8_t *w) { return offset(half_powers(w), 12); }
INLINE __m256i codes_MXFP4(const uint8_t *w, int b) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(ld128(mxfp4_plus_12)), nibbles(w + 17 * b + 1));
}
#endif
#endif
