/* Q2_K on the CPU. The layout of its blocks is drawn in quant_q2_k.c. */
#pragma once
#include "cpu/formats/cpu_format.h"

CPU_FORMAT(Q2_K, 16, 0, true, false, true, false)

#if defined(CPU_PANELS)
INLINE void pack_Q2_K(struct panel *p, struct row_span row, int n) {
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
INLINE vu code_Q2_K(const uint8_t *copy, int k4) {
    return vector_at(copy, k4 / 32 * 8 + k4 % 8) >> k4 / 8 % 4 * 2 & 0x03030303;
}
#elif defined(__AVX512F__)
INLINE __m512i twobits(const uint8_t *q,
                       int p) { /* q[64]; columns 64 p .. : two of four bit pairs of 32 bytes */
    __m256i y = ld256(q + 32 * (p / 2));
    if (p & 1) y = _mm256_srli_epi16(y, 4);
    return _mm512_and_si512(join(y, _mm256_srli_epi16(y, 2)), _mm512_set1_epi8(3));
}
INLINE struct sub16 head_Q2_K(const uint8_t *w) {
    __m128i sm = ld128(w), m = _mm_set1_epi8(15);
    __m512i sc = _mm512_cvtepu8_epi32(_mm_and_si128(sm, m));
    __m512i mn = _mm512_cvtepu8_epi32(_mm_and_si128(_mm_srli_epi16(sm, 4), m));
    return (struct sub16){_mm512_mul_ps(_mm512_cvtepi32_ps(sc), _mm512_set1_ps(rd_half(w + 80))),
                          _mm512_mul_ps(_mm512_cvtepi32_ps(mn), _mm512_set1_ps(-rd_half(w + 82)))};
}
INLINE __m512i codes_Q2_K(const uint8_t *w, int p) { return twobits(w + 16, p); }
#else
INLINE __m256i pairs2(const uint8_t *q, int b) {
    return _mm256_and_si256(_mm256_srli_epi16(ld256(q + b / 4 * 32), b % 4 * 2), _mm256_set1_epi8(3));
}
INLINE struct sub16 head_Q2_K(const uint8_t *w) {
    __m128i sm = ld128(w), m = _mm_set1_epi8(15);
    return scales16(_mm_and_si128(sm, m), _mm_and_si128(_mm_srli_epi16(sm, 4), m), rd_half(w + 80),
                    -rd_half(w + 82));
}
INLINE __m256i codes_Q2_K(const uint8_t *w, int b) { return pairs2(w + 16, b); }
#endif
