/* Of the blocks of one row, with AVX-512: what the files of the formats (cpu/formats) read codes and scales with. */
#pragma once
#include <immintrin.h>
#include <stdint.h>
#include <string.h>
#include "quant/quant.h"

#define INLINE static inline __attribute__((always_inline))

struct sub8 {
    __m256 d, g;
};
struct sub16 {
    __m512 d, g;
};

INLINE uint16_t rd16(const uint8_t *p) {
    uint16_t v;
    memcpy(&v, p, 2);
    return v;
}
INLINE float rd_half(const uint8_t *p) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(rd16(p)))); }
/* One half of each of eight blocks. */
INLINE __m256 halves8(const uint8_t *w, int step) {
    return _mm256_cvtph_ps(_mm_setr_epi16((short)rd16(w), (short)rd16(w + step), (short)rd16(w + 2 * step),
                                          (short)rd16(w + 3 * step), (short)rd16(w + 4 * step),
                                          (short)rd16(w + 5 * step), (short)rd16(w + 6 * step),
                                          (short)rd16(w + 7 * step)));
}
INLINE __m512i join(__m256i a, __m256i b) { return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1); }
INLINE __m256i ld256(const void *p) { return _mm256_loadu_si256(p); }
INLINE __m128i ld128(const void *p) { return _mm_loadu_si128(p); }

/* ---- blocks of 32 ---- */

/* Two blocks of 16 bytes of nibbles: [low 0, high 0, low 1, high 1]. */
INLINE __m512i nibbles2(const uint8_t *a, const uint8_t *b) {
    __m512i z =
        _mm512_castsi256_si512(_mm256_inserti128_si256(_mm256_castsi128_si256(ld128(a)), ld128(b), 1));
    z = _mm512_shuffle_i64x2(z, z, 0x50);
    return _mm512_and_si512(_mm512_srlv_epi64(z, _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4)),
                            _mm512_set1_epi8(15));
}
INLINE struct sub8 symmetric(__m256 d, float offset) {
    return (struct sub8){d, _mm256_mul_ps(d, _mm256_set1_ps(-offset))};
}

/* The fifth bits of two blocks, as 16 where set. */
INLINE __m512i fifth2(const uint8_t *a, const uint8_t *b) {
    uint32_t lo, hi;
    memcpy(&lo, a, 4);
    memcpy(&hi, b, 4);
    return _mm512_maskz_set1_epi8((__mmask64)((uint64_t)hi << 32 | lo), 16);
}
