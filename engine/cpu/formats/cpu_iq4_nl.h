/* IQ4_NL on the CPU. The layout of its blocks is drawn in quant_iq4_nl.c. */
#pragma once
#include "cpu/formats/cpu_format.h"
#include "cpu/formats/cpu_q4_0.h"

CPU_FORMAT(IQ4_NL, 32, 128, false, true, false, true)

#if defined(CPU_PANELS)
#define LEVELS(u) ((vu)look_up(quant_iq4_nl_levels, u) ^ 0x80808080)
BLOCKS(IQ4_NL, 18, false,
       NIBBLES(2, put8(p, row, b * 8, j, LEVELS(low)), put8(p, row, b * 8, 4 + j, LEVELS(high))))
INLINE vu code_IQ4_NL(const uint8_t *copy, int k4) { return LEVELS(code_Q4_0(copy, k4)); }
#elif defined(__AVX512F__)
INLINE __m512i levels2(const uint8_t *a, const uint8_t *b) { /* of nibbles2(a, b), plus 128 */
    __m512i table =
        _mm512_broadcast_i32x4(_mm_xor_si128(ld128(quant_iq4_nl_levels), _mm_set1_epi8((char)0x80)));
    return _mm512_shuffle_epi8(table, nibbles2(a, b));
}
INLINE struct sub8 head_IQ4_NL(const uint8_t *w) { return symmetric(halves8(w, 18), 128); }
INLINE __m512i codes_IQ4_NL(const uint8_t *w, int p) { return levels2(w + 36 * p + 2, w + 36 * p + 20); }
#else
INLINE __m256i levels(const uint8_t *q) { /* of nibbles(q) */
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(ld128(quant_iq4_nl_levels)), nibbles(q));
}
INLINE struct sub8 head_IQ4_NL(const uint8_t *w) {
    return (struct sub8){halves8(w, 18), _mm256_setzero_ps()};
}
INLINE __m256i codes_IQ4_NL(const uint8_t *w, int b) { return levels(w + 18 * b + 2); }
#endif
