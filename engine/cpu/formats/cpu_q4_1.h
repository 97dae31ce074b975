/* Q4_1 on the CPU. The layout of its blocks is drawn in quant_q4_1.c. */
#pragma once
#include "cpu/formats/cpu_format.h"
#include "cpu/formats/cpu_q4_0.h"

CPU_FORMAT(Q4_1, 32, 0, true, false, false, true)

#if defined(CPU_PANELS)
BLOCKS(Q4_1, 20, true, NIBBLES(4, put_codes(p, row, b * 8, j, low), put_codes(p, row, b * 8, 4 + j, high)))
INLINE vu code_Q4_1(const uint8_t *copy, int k4) { return code_Q4_0(copy, k4); }
#elif defined(__AVX512F__)
INLINE struct sub8 head_Q4_1(const uint8_t *w) { return (struct sub8){halves8(w, 20), halves8(w + 2, 20)}; }
INLINE __m512i codes_Q4_1(const uint8_t *w, int p) { return nibbles2(w + 40 * p + 4, w + 40 * p + 24); }
#else
INLINE struct sub8 head_Q4_1(const uint8_t *w) { return (struct sub8){halves8(w, 20), halves8(w + 2, 20)}; }
INLINE __m256i codes_Q4_1(const uint8_t *w, int b) { return nibbles(w + 20 * b + 4); }
#endif
