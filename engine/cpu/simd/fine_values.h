/* Values of the types whose codes are no whole numbers (NF4, FP4, F8_128), 32 columns at a time, without their block's scale. Included
 * once per instruction set. */
#pragma once
#include "cpu/simd/simd.h"
#include "quant/quant.h"

enum { LEVEL_VECTORS = 32 / VL };

#ifdef __AVX512F__
struct levels {
    vf low;
};
INLINE struct levels levels_of(const float level[16]) { return (struct levels){vf_load(level)}; }
/* 32 codes of four bits, the first of two in the low ones. */
INLINE void level_32(const struct levels *t, const uint8_t *q, vf v[LEVEL_VECTORS]) {
    const __m512i code = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)q));
    const vf even = _mm512_permutexvar_ps(code, t->low);
    const vf odd = _mm512_permutexvar_ps(_mm512_srli_epi32(code, 4), t->low);
    const __m512i first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    v[0] = _mm512_permutex2var_ps(even, first, odd);
    v[1] = _mm512_permutex2var_ps(even, _mm512_add_epi32(first, _mm512_set1_epi32(8)), odd);
}
/* VL floats of eight bits, times 2^-8, as halves with the same three bits behind the point. */
INLINE vf float8(const uint8_t *q) {
    const __m256i u = _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)q));
    __m256i h = _mm256_and_si256(_mm256_slli_epi16(u, 7), _mm256_set1_epi16((short)0xbfff));
    const __m256i none = _mm256_set1_epi16(0x3f80); /* no number */
    h = _mm256_mask_mov_epi16(h, _mm256_cmpeq_epi16_mask(_mm256_and_si256(h, none), none),
                              _mm256_set1_epi16(0x7e00));
    return _mm512_cvtph_ps(h);
}
#else
struct levels {
    vf low, high;
};
INLINE struct levels levels_of(const float level[16]) {
    return (struct levels){vf_load(level), vf_load(level + 8)};
}
INLINE vf level_8(const struct levels *t, __m256i code) {
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(t->low, code), _mm256_permutevar8x32_ps(t->high, code),
                            _mm256_castsi256_ps(_mm256_slli_epi32(code, 28)));
}
INLINE void level_32(const struct levels *t, const uint8_t *q, vf v[LEVEL_VECTORS]) {
    UNROLL for (int i = 0; i < 2; i++) {
        const __m256i code = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)(q + 8 * i)));
        const vf even = level_8(t, code), odd = level_8(t, _mm256_srli_epi32(code, 4));
        const vf a = _mm256_unpacklo_ps(even, odd), b = _mm256_unpackhi_ps(even, odd);
        v[2 * i] = _mm256_permute2f128_ps(a, b, 0x20);
        v[2 * i + 1] = _mm256_permute2f128_ps(a, b, 0x31);
    }
}
INLINE vf float8(const uint8_t *q) {
    const __m128i u = _mm_cvtepi8_epi16(_mm_loadl_epi64((const void *)q));
    __m128i h = _mm_and_si128(_mm_slli_epi16(u, 7), _mm_set1_epi16((short)0xbfff));
    const __m128i none = _mm_set1_epi16(0x3f80);
    h = _mm_blendv_epi8(h, _mm_set1_epi16(0x7e00), _mm_cmpeq_epi16(_mm_and_si128(h, none), none));
    return _mm256_cvtph_ps(h);
}
#endif

enum { FLOAT8_SCALE = 256 };
INLINE void float8_32(const uint8_t *q, vf v[LEVEL_VECTORS]) {
    UNROLL for (int i = 0; i < LEVEL_VECTORS; i++) v[i] = float8(q + VL * i);
}
