/* IQ4_XS on the CPU: the codes of IQ4_NL with scales as the K formats have them. The layout of its blocks is drawn in
 * quant_iq4_xs.c. */
#pragma once
#include "cpu/formats/cpu_format.h"
#include "cpu/formats/cpu_iq4_nl.h"

CPU_FORMAT(IQ4_XS, 32, 128, false, true, false, true)

#if defined(CPU_PANELS)
INLINE void pack_IQ4_XS(struct panel *p, struct row_span row, int n) {
    (void)n;
    const struct row_span at = row;
    for (int b = 0; b < 8; b++) {
        vu v[4];
        ask(p, row, 17);
        first_codes(p, row, b * 8, 8);
        NIBBLES(8 + 16 * (size_t)b, put8(p, row, b * 8, j, LEVELS(low)),
                put8(p, row, b * 8, 4 + j, LEVELS(high)))
        last_codes(p, row, b * 8, 8);
    }
    vu head = load4(row, 0), low = load4(row, 4);
    vf d = half_lanes(head);
    UNROLL for (int b = 0; b < 8; b++) {
        vi s = (vi)(((low >> 4 * b & 15) | (head >> (16 + 2 * b) & 3) << 4) - 32);
        p->d[b] = vf_mul(d, to_float(s));
    }
}
INLINE vu code_IQ4_XS(const uint8_t *copy, int k4) { return code_IQ4_NL(copy, k4); }
#else
INLINE __m256 scales_iq4_xs(const uint8_t *w) {
    uint32_t low;
    memcpy(&low, w + 4, 4);
    __m256i lo =
        _mm256_srlv_epi32(_mm256_set1_epi32((int)low), _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
    __m256i hi =
        _mm256_srlv_epi32(_mm256_set1_epi32(rd16(w + 2)), _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14));
    __m256i s = _mm256_or_si256(_mm256_and_si256(lo, _mm256_set1_epi32(15)),
                                _mm256_slli_epi32(_mm256_and_si256(hi, _mm256_set1_epi32(3)), 4));
    return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_sub_epi32(s, _mm256_set1_epi32(32))),
                         _mm256_set1_ps(rd_half(w)));
}
#if defined(__AVX512F__)
INLINE struct sub8 head_IQ4_XS(const uint8_t *w) { return symmetric(scales_iq4_xs(w), 128); }
INLINE __m512i codes_IQ4_XS(const uint8_t *w, int p) { return levels2(w + 32 * p + 8, w + 32 * p + 24); }
#else
INLINE struct sub8 head_IQ4_XS(const uint8_t *w) {
    return (struct sub8){scales_iq4_xs(w), _mm256_setzero_ps()};
}
INLINE __m256i codes_IQ4_XS(const uint8_t *w, int b) { return levels(w + 16 * b + 8); }
#endif
#endif
