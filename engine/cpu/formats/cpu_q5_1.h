/* Q5_1 on the CPU. The layout of its blocks is drawn in quant_q5_1.c. */
#pragma once
#include "cpu/formats/cpu_format.h"
#include "cpu/formats/cpu_q5_0.h"

CPU_FORMAT(Q5_1, 32, 16, true, false, false, true)

#if defined(CPU_PANELS)
BLOCKS(Q5_1_codes, 24, true, vu h = load4(at, 4);
       NIBBLES(8, put_codes(p, row, b * 8, j, low | spread_bits(h, 4 * j)),
               put_codes(p, row, b * 8, 4 + j, high | spread_bits(h, 16 + 4 * j))))
INLINE void pack_Q5_1(struct panel *p, struct row_span row, int n) {
    pack_Q5_1_codes(p, row, n);
    shift_mins(p, n);
}
INLINE vu code_Q5_1(const uint8_t *copy, int k4) { return code_Q5_0(copy, k4); }
#elif defined(__AVX512F__)
INLINE struct sub8 head_Q5_1(const uint8_t *w) { return (struct sub8){halves8(w, 24), halves8(w + 2, 24)}; }
INLINE __m512i codes_Q5_1(const uint8_t *w, int p) {
    w += 48 * p;
    return _mm512_or_si512(nibbles2(w + 8, w + 32), fifth2(w + 4, w + 28));
}
#else
INLINE struct sub8 head_Q5_1(const uint8_t *w) { return (struct sub8){halves8(w, 24), halves8(w + 2, 24)}; }
INLINE __m256i codes_Q5_1(const uint8_t *w, int b) {
    return _mm256_or_si256(nibbles(w + 24 * b + 8), fifth(w + 24 * b + 4));
}
#endif
