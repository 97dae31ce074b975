/* Of the blocks of one row, with AVX2: what the files of the formats (cpu/formats) read codes and scales with. */
#pragma once
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include "quant/quant.h"

#define INLINE static inline __attribute__((always_inline))

struct sub8 {
    __m256 d, g;
};
struct sub16 {
    __m256 d, d1, g, g1; /* sub-blocks 0 .. 7, 8 .. 15 */
};

INLINE uint16_t rd16(const uint8_t *p) {
    uint16_t v;
    memcpy(&v, p, 2);
    return v;
}
INLINE float rd_half(const uint8_t *p) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(rd16(p)))); }
INLINE __m256 halves8(const uint8_t *w, int step) {
    return _mm256_cvtph_ps(_mm_setr_epi16((short)rd16(w), (short)rd16(w + step), (short)rd16(w + 2 * step),
                                          (short)rd16(w + 3 * step), (short)rd16(w + 4 * step),
                                          (short)rd16(w + 5 * step), (short)rd16(w + 6 * step),
                                          (short)rd16(w + 7 * step)));
}
INLINE __m256i ld256(const void *p) { return _mm256_loadu_si256(p); }
INLINE __m128i ld128(const void *p) { return _mm_loadu_si128(p); }
INLINE __m256i low4(__m256i v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }

/* ---- blocks of 32 ---- */

INLINE __m256i nibbles(const uint8_t *q) { /* 16 bytes: [low, high] */
    __m128i v = ld128(q);
    return low4(_mm256_inserti128_si256(_mm256_castsi128_si256(v), _mm_srli_epi16(v, 4), 1));
}
INLINE struct sub8 offset(__m256 d, float offset) {
    return (struct sub8){d, _mm256_mul_ps(d, _mm256_set1_ps(-offset))};
}
/* 32 bits as 16 where set */
INLINE __m256i fifth(const uint8_t *h) {
    uint32_t u;
    memcpy(&u, h, 4);
    __m256i b = _mm256_shuffle_epi8(
        _mm256_set1_epi32((int)u),
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303));
    __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(b, bit), bit), _mm256_set1_epi8(16));
}

/* ---- super-blocks of 256 ---- */

INLINE struct sub16 scales16(__m128i sc, __m128i mn, float d, float m) { /* d * sc, m * mn, signed bytes */
    __m256 dv = _mm256_set1_ps(d), mv = _mm256_set1_ps(m);
    return (struct sub16){
        _mm256_mul_ps(dv, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(sc))),
        _mm256_mul_ps(dv, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(sc, sc)))),
        _mm256_mul_ps(mv, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(mn))),
        _mm256_mul_ps(mv, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(mn, mn))))};
}
