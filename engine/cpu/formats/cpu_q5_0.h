/* Q5_0 on the CPU. The layout of its blocks is drawn in quant_q5_0.c. */
#pragma once
#include "cpu/formats/cpu_format.h"

CPU_FORMAT(Q5_0, 32, 16, false, false, false, true)

#if defined(CPU_PANELS)
BLOCKS(Q5_0, 22, false, vu h = load4(at, 2);
       NIBBLES(6, put_codes(p, row, b * 8, j, low | spread_bits(h, 4 * j)),
               put_codes(p, row, b * 8, 4 + j, high | spread_bits(h, 16 + 4 * j))))
INLINE vu code_Q5_0(const uint8_t *copy, int k4) {
    const int b = k4 / 8 * 5;
    return nibble_at(copy, b + 1 + k4 % 4, k4 / 4 % 2) | spread_bits(vector_at(copy, b), k4 % 8 * 4);
}
#elif defined(__AVX512F__)
INLINE struct sub8 head_Q5_0(const uint8_t *w) { return symmetric(halves8(w, 22), 16); }
INLINE __m512i codes_Q5_0(const uint8_t *w, int p) {
    w += 44 * p;
    return _mm512_or_si512(nibbles2(w + 6, w + 28), fifth2(w + 2, w + 24));
}
#else
INLINE struct sub8 head_Q5_0(const uint8_t *w) { return offset(halves8(w, 22), 16); }
INLINE __m256i codes_Q5_0(const uint8_t *w, int b) {
    return _mm256_or_si256(nibbles(w + 22 * b + 6), fifth(w + 22 * b + 2));
}
#endif
