/* Q4_0 on the CPU. The layout of its blocks is drawn in quant_q4_0.c. */
#pragma once
#include "cpu/formats/cpu_format.h"

CPU_FORMAT(Q4_0, 32, 8, false, false, false, true)

#if defined(CPU_PANELS)
BLOCKS(Q4_0, 18, false, NIBBLES(2, put_codes(p, row, b * 8, j, low), put_codes(p, row, b * 8, 4 + j, high)))
INLINE vu code_Q4_0(const uint8_t *copy, int k4) { return nibble_at(copy, k4 / 8 * 4 + k4 % 4, k4 / 4 % 2); }
#elif defined(__AVX512F__)
INLINE struct sub8 head_Q4_0(const uint8_t *w) { return symmetric(halves8(w, 18), 8); }
INLINE __m512i codes_Q4_0(const uint8_t *w, int p) { return nibbles2(w + 36 * p + 2, w + 36 * p + 20); }
#else
INLINE struct sub8 head_Q4_0(const uint8_t *w) { return offset(halves8(w, 18), 8); }
INLINE __m256i codes_Q4_0(const uint8_t *w, int b) { return nibbles(w + 18 * b + 2); }
#endif
