/* Q5_K on the CPU. The layout of its blocks is drawn in quant_q5_k.c. */
#pragma once
#include "cpu/formats/cpu_format.h"
#include "cpu/formats/cpu_q4_k.h"

CPU_FORMAT(Q5_K, 32, 16, true, false, true, true)

#if defined(CPU_PANELS)
INLINE void pack_Q5_K(struct panel *p, struct row_span row, int n) {
    (void)n;
    vu h[8];
    load32(row, 16, h, false);
    for (int c = 0; c < 4; c++) {
        vu v[8];
        first_codes(p, row, c * 16, 16);
        ask(p, row, 44);
        load32(row, 48 + 32 * (size_t)c, v, true);
        UNROLL for (int j = 0; j < 8; j++) {
            vu u = codes_at(row, v + j, 8 - j);
            put_codes(p, row, c * 16, j, LOW4(u) | (h[j] >> 2 * c & 0x01010101) << 4);
            line_ahead(p, row, 8 - j, j);
            put_codes(p, row, c * 16, 8 + j, LOW4(u >> 4) | (h[j] >> (2 * c + 1) & 0x01010101) << 4);
        }
        last_codes(p, row, c * 16, 16);
    }
    scales_k45(p, row);
    if (VNNI)
        shift_mins(p, 8);
    else
        for (int b = 0; b < 8; b++)
            p->g[b] = vf_fma(vf_mul(p->d[0], vf_set(16)), to_float((vi)((vu)p->sc[b] & 0xffff)), p->g[b]);
}
INLINE vu code_Q5_K(const uint8_t *copy, int k4) {
    return code_Q4_K(copy + 8 * sizeof(vu), k4) | (vector_at(copy, k4 % 8) >> k4 / 8 & 0x01010101) << 4;
}
#elif defined(__AVX512F__)
INLINE struct sub8 head_Q5_K(const uint8_t *w) { return head_k45(w); }
INLINE __m512i codes_Q5_K(const uint8_t *w, int p) {
    __m256i h = ld256(w + 16);
    __mmask64 m = (uint64_t)_mm256_test_epi8_mask(h, _mm256_set1_epi8((char)(2 << 2 * p))) << 32 |
                  _mm256_test_epi8_mask(h, _mm256_set1_epi8((char)(1 << 2 * p)));
    return _mm512_or_si512(nibbles64(w + 48 + 32 * p), _mm512_maskz_set1_epi8(m, 16));
}
#else
INLINE struct sub8 head_Q5_K(const uint8_t *w) { return head_k45(w); }
INLINE __m256i codes_Q5_K(const uint8_t *w, int b) {
    __m256i q = ld256(w + 48 + b / 2 * 32), bit = _mm256_set1_epi8((char)(1 << b));
    __m256i h = _mm256_cmpeq_epi8(_mm256_and_si256(ld256(w + 16), bit), bit);
    return _mm256_or_si256(low4(b & 1 ? _mm256_srli_epi16(q, 4) : q),
                           _mm256_and_si256(h, _mm256_set1_epi8(16)));
}
#endif
