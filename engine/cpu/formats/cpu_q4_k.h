/* Q4_K on the CPU. The layout of its blocks is drawn in quant_q4_k.c. */
#pragma once
#include "cpu/formats/cpu_format.h"

CPU_FORMAT(Q4_K, 32, 0, true, false, true, true)

#if defined(CPU_PANELS)
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
INLINE void pack_Q4_K(struct panel *p, struct row_span row, int n) {
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
INLINE vu code_Q4_K(const uint8_t *copy, int k4) { return nibble_at(copy, k4 / 16 * 8 + k4 % 8, k4 / 8 % 2); }
#elif defined(__AVX512F__)
/* Q4_K and Q5_K: eight 6-bit scales and mins in twelve bytes. */
INLINE struct sub8 head_k45(const uint8_t *w) {
    __m128i s = ld128(w + 4); /* twelve bytes and four of the codes */
    __m128i low = _mm_and_si128(_mm_srlv_epi32(_mm_shuffle_epi32(s, 0xaa), _mm_setr_epi32(0, 4, 0, 0)),
                                _mm_set1_epi8(15));
    __m128i late = _mm_or_si128(low, _mm_and_si128(_mm_srli_epi32(s, 2), _mm_set1_epi8(0x30)));
    __m128i sm =
        _mm_unpacklo_epi32(_mm_and_si128(s, _mm_set1_epi8(0x3f)), late); /* eight scales, eight mins */
    __m256 sc = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(sm));
    __m256 mn = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_unpackhi_epi64(sm, sm)));
    return (struct sub8){_mm256_mul_ps(sc, _mm256_set1_ps(rd_half(w))),
                         _mm256_mul_ps(mn, _mm256_set1_ps(-rd_half(w + 2)))};
}
INLINE __m512i nibbles64(const uint8_t *q) { /* 32 bytes: [low, high] */
    __m256i y = ld256(q), m = _mm256_set1_epi8(15);
    return join(_mm256_and_si256(y, m), _mm256_and_si256(_mm256_srli_epi16(y, 4), m));
}
INLINE struct sub8 head_Q4_K(const uint8_t *w) { return head_k45(w); }
INLINE __m512i codes_Q4_K(const uint8_t *w, int p) { return nibbles64(w + 16 + 32 * p); }
#else
INLINE struct sub8 head_k45(const uint8_t *w) {
    __m128i s = ld128(w + 4); /* twelve bytes and four of the codes */
    __m128i low = _mm_and_si128(_mm_srlv_epi32(_mm_shuffle_epi32(s, 0xaa), _mm_setr_epi32(0, 4, 0, 0)),
                                _mm_set1_epi8(15));
    __m128i late = _mm_or_si128(low, _mm_and_si128(_mm_srli_epi32(s, 2), _mm_set1_epi8(0x30)));
    __m128i sm =
        _mm_unpacklo_epi32(_mm_and_si128(s, _mm_set1_epi8(0x3f)), late); /* eight scales, eight mins */
    __m256 sc = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(sm));
    __m256 mn = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_unpackhi_epi64(sm, sm)));
    return (struct sub8){_mm256_mul_ps(sc, _mm256_set1_ps(rd_half(w))),
                         _mm256_mul_ps(mn, _mm256_set1_ps(-rd_half(w + 2)))};
}
INLINE struct sub8 head_Q4_K(const uint8_t *w) { return head_k45(w); }
INLINE __m256i codes_Q4_K(const uint8_t *w, int b) {
    __m256i q = ld256(w + 16 + b / 2 * 32);
    return low4(b & 1 ? _mm256_srli_epi16(q, 4) : q);
}
#endif
