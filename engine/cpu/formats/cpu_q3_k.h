/* Q3_K on the CPU. The layout of its blocks is drawn in quant_q3_k.c. */
#pragma once
#include "cpu/formats/cpu_format.h"
#include "cpu/formats/cpu_q2_k.h"

CPU_FORMAT(Q3_K, 16, 4, false, false, true, false)

#if defined(CPU_PANELS)
INLINE void pack_Q3_K(struct panel *p, struct row_span row, int n) {
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
INLINE vu code_Q3_K(const uint8_t *copy, int k4) {
    return code_Q2_K(copy + 8 * sizeof(vu), k4) | (vector_at(copy, k4 % 8) >> k4 / 8 & 0x01010101) << 2;
}
#elif defined(__AVX512F__)
INLINE struct sub16 head_Q3_K(const uint8_t *w) {
    uint32_t h;
    memcpy(&h, w + 104, 4);
    __m128i lo = _mm_loadl_epi64((const void *)(w + 96)), hi = _mm_set1_epi32((int)h);
    lo = _mm_and_si128(_mm_srlv_epi32(_mm_unpacklo_epi64(lo, lo), _mm_setr_epi32(0, 0, 4, 4)),
                       _mm_set1_epi8(15));
    hi = _mm_and_si128(_mm_srlv_epi32(hi, _mm_setr_epi32(0, 2, 4, 6)), _mm_set1_epi8(3));
    __m128i u = _mm_or_si128(lo, _mm_slli_epi32(hi, 4));
    __m512i sc = _mm512_sub_epi32(_mm512_cvtepu8_epi32(u), _mm512_set1_epi32(32));
    __m512 d = _mm512_mul_ps(_mm512_cvtepi32_ps(sc), _mm512_set1_ps(rd_half(w + 108)));
    return (struct sub16){d, _mm512_mul_ps(d, _mm512_set1_ps(-4))};
}
INLINE __m512i codes_Q3_K(const uint8_t *w, int p) {
    __m256i h = ld256(w);
    __mmask64 m = (uint64_t)_mm256_test_epi8_mask(h, _mm256_set1_epi8((char)(2 << 2 * p))) << 32 |
                  _mm256_test_epi8_mask(h, _mm256_set1_epi8((char)(1 << 2 * p)));
    return _mm512_or_si512(twobits(w + 32, p), _mm512_maskz_set1_epi8(m, 4));
}
#else
INLINE struct sub16 head_Q3_K(const uint8_t *w) {
    uint32_t h;
    memcpy(&h, w + 104, 4);
    __m128i lo = _mm_loadl_epi64((const void *)(w + 96)), hi = _mm_set1_epi32((int)h);
    lo = _mm_and_si128(_mm_srlv_epi32(_mm_unpacklo_epi64(lo, lo), _mm_setr_epi32(0, 0, 4, 4)),
                       _mm_set1_epi8(15));
    hi = _mm_and_si128(_mm_srlv_epi32(hi, _mm_setr_epi32(0, 2, 4, 6)), _mm_set1_epi8(3));
    __m128i u = _mm_or_si128(lo, _mm_slli_epi32(hi, 4));
    __m128i sc = _mm_sub_epi8(u, _mm_set1_epi8(32));
    return scales16(sc, sc, rd_half(w + 108), -4 * rd_half(w + 108));
}
INLINE __m256i codes_Q3_K(const uint8_t *w, int b) {
    __m256i bit = _mm256_set1_epi8((char)(1 << b));
    __m256i h = _mm256_cmpeq_epi8(_mm256_and_si256(ld256(w), bit), bit);
    return _mm256_or_si256(pairs2(w + 32, b), _mm256_and_si256(h, _mm256_set1_epi8(4)));
}
#endif
