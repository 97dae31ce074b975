/* Q6_K on the CPU. The layout of its blocks is drawn in quant_q6_k.c. */
#pragma once
#include "cpu/formats/cpu_format.h"

CPU_FORMAT(Q6_K, 16, 32, false, false, true, true)

#if defined(CPU_PANELS)
INLINE void pack_Q6_K(struct panel *p, struct row_span row, int n) {
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
INLINE vu code_Q6_K(const uint8_t *copy, int k4) {
    const int c = k4 / 32 * 24, quarter = k4 / 8 % 4, j = k4 % 8;
    return nibble_at(copy, c + quarter % 2 * 8 + j, quarter / 2) |
           (vector_at(copy, c + 16 + j) >> 2 * quarter & 0x03030303) << 4;
}
#elif defined(__AVX512F__)
INLINE struct sub16 head_Q6_K(const uint8_t *w) {
    __m512 d = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(ld128(w + 192))),
                             _mm512_set1_ps(rd_half(w + 208)));
    return (struct sub16){d, _mm512_mul_ps(d, _mm512_set1_ps(-32))};
}
INLINE __m512i codes_Q6_K(const uint8_t *w, int p) {
    __m512i lo = _mm512_loadu_si512(w + 64 * (p / 2));
    __m256i qh = ld256(w + 128 + 32 * (p / 2));
    if (p & 1) lo = _mm512_srli_epi16(lo, 4), qh = _mm256_srli_epi16(qh, 4);
    __m512i hi = join(_mm256_slli_epi16(qh, 4), _mm256_slli_epi16(qh, 2));
    return _mm512_or_si512(_mm512_and_si512(lo, _mm512_set1_epi8(15)),
                           _mm512_and_si512(hi, _mm512_set1_epi8(0x30)));
}
#else
INLINE struct sub16 head_Q6_K(const uint8_t *w) {
    __m128i sc = ld128(w + 192);
    return scales16(sc, sc, rd_half(w + 208), -32 * rd_half(w + 208));
}
INLINE __m256i codes_Q6_K(const uint8_t *w, int b) {
    __m256i lo = ld256(w + 64 * (b / 4) + 32 * (b & 1)), hi = ld256(w + 128 + 32 * (b / 4));
    if (b & 2) lo = _mm256_srli_epi16(lo, 4);
    hi = b % 4 == 0   ? _mm256_slli_epi16(hi, 4)
         : b % 4 == 1 ? _mm256_slli_epi16(hi, 2)
         : b % 4 == 2 ? hi
                      : _mm256_srli_epi16(hi, 2);
    return _mm256_or_si256(low4(lo), _mm256_and_si256(hi, _mm256_set1_epi8(0x30)));
}
#endif
