/* Q8_0 on the CPU. The layout of its blocks is drawn in quant_q8_0.c. */
#pragma once
#include "cpu/formats/cpu_format.h"

CPU_FORMAT(Q8_0, 32, 128, false, true, false, true)

#if defined(CPU_PANELS)
BLOCKS(
    Q8_0, 34, false, load32(at, 2, v, true); UNROLL for (int j = 0; j < 8; j++) {
        put8(p, row, b * 8, j, codes_at(at, v + j, 8 - j) ^ 0x80808080);
        line_ahead8(p, at, 8 - j, j);
    })
INLINE vu code_Q8_0(const uint8_t *copy, int k4) { return vector_at(copy, k4) ^ 0x80808080; }
#elif defined(__AVX512F__)
INLINE struct sub8 head_Q8_0(const uint8_t *w) { return symmetric(halves8(w, 34), 128); }
INLINE __m512i codes_Q8_0(const uint8_t *w, int p) {
    return _mm512_xor_si512(join(ld256(w + 68 * p + 2), ld256(w + 68 * p + 36)),
                            _mm512_set1_epi8((char)0x80));
}
#else
INLINE struct sub8 head_Q8_0(const uint8_t *w) { return (struct sub8){halves8(w, 34), _mm256_setzero_ps()}; }
INLINE __m256i codes_Q8_0(const uint8_t *w, int b) { return ld256(w + 34 * b + 2); }
#endif
