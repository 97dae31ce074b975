/* From file blocks to 64 bytes of codes and their scales, with AVX-512: shared by the decode rows and the
 * prompt unpackers. Layouts are drawn in quant_<name>.c.
 *
 * All formats are taken 256 columns at a time. A value is d * u + g, u an unsigned code, with d and g per
 * sub-block of 32 (struct sub8) or 16 (struct sub16); codes_<f>(w, p) gives columns 64 p .. 64 p + 64 as bytes
 * in order. A dot product with x = dx * q is then sum over sub-blocks of d * dx * (u . q) + g * sum(x). */
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

INLINE struct sub8 head_q8_0(const uint8_t *w) { return symmetric(halves8(w, 34), 128); }
INLINE __m512i codes_q8_0(const uint8_t *w, int p) {
    return _mm512_xor_si512(join(ld256(w + 68 * p + 2), ld256(w + 68 * p + 36)),
                            _mm512_set1_epi8((char)0x80));
}
INLINE struct sub8 head_q4_0(const uint8_t *w) { return symmetric(halves8(w, 18), 8); }
INLINE __m512i codes_q4_0(const uint8_t *w, int p) { return nibbles2(w + 36 * p + 2, w + 36 * p + 20); }
INLINE struct sub8 head_q4_1(const uint8_t *w) { return (struct sub8){halves8(w, 20), halves8(w + 2, 20)}; }
INLINE __m512i codes_q4_1(const uint8_t *w, int p) { return nibbles2(w + 40 * p + 4, w + 40 * p + 24); }
INLINE struct sub8 head_iq4_nl(const uint8_t *w) { return symmetric(halves8(w, 18), 128); }
INLINE __m512i codes_iq4_nl(const uint8_t *w, int p) {
    __m512i table =
        _mm512_broadcast_i32x4(_mm_xor_si128(ld128(quant_iq4_nl_levels), _mm_set1_epi8((char)0x80)));
    return _mm512_shuffle_epi8(table, nibbles2(w + 36 * p + 2, w + 36 * p + 20));
}
/* The fifth bits of two blocks, as 16 where set. */
INLINE __m512i fifth2(const uint8_t *a, const uint8_t *b) {
    uint32_t lo, hi;
    memcpy(&lo, a, 4);
    memcpy(&hi, b, 4);
    return _mm512_maskz_set1_epi8((__mmask64)((uint64_t)hi << 32 | lo), 16);
}
INLINE struct sub8 head_q5_0(const uint8_t *w) { return symmetric(halves8(w, 22), 16); }
INLINE __m512i codes_q5_0(const uint8_t *w, int p) {
    w += 44 * p;
    return _mm512_or_si512(nibbles2(w + 6, w + 28), fifth2(w + 2, w + 24));
}
INLINE struct sub8 head_q5_1(const uint8_t *w) { return (struct sub8){halves8(w, 24), halves8(w + 2, 24)}; }
INLINE __m512i codes_q5_1(const uint8_t *w, int p) {
    w += 48 * p;
    return _mm512_or_si512(nibbles2(w + 8, w + 32), fifth2(w + 4, w + 28));
}

/* ---- super-blocks of 256 ---- */

/* Q4_K and Q5_K: eight 6-bit scales and mins in twelve bytes. */
INLINE struct sub8 head_k45(const uint8_t *w) {
    __m128i s = ld128(w + 4); /* twelve bytes and four of the codes */
    __m128i low = _mm_and_si128(_mm_srlv_epi32(_mm_shuffle_epi32(s, 0xaa), _mm_setr_epi32(0, 4, 0, 0)),
                                _mm_set1_epi8(15));
    __m128i late = _mm_or_si128(low, _mm_and_si128(_mm_srli_epi32(s, 2), _mm_set1_epi8(0x30)));
    __m128i sm =
        _mm_unpacklo_epi32(_mm_and_si128(s, _mm_set1_epi8(0x3f)), late); /* eight scales, eight mins */
    __m256 sc = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(sm));
    __m256 mn = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_unpackhi_epi64(sm, sm)));
    return (struct sub8){_mm256_mul_ps(sc, _mm256_set1_ps(rd_half(w))),
                         _mm256_mul_ps(mn, _mm256_set1_ps(-rd_half(w + 2)))};
}
INLINE __m512i nibbles64(const uint8_t *q) { /* 32 bytes: [low, high] */
    __m256i y = ld256(q), m = _mm256_set1_epi8(15);
    return join(_mm256_and_si256(y, m), _mm256_and_si256(_mm256_srli_epi16(y, 4), m));
}
INLINE struct sub8 head_q4_k(const uint8_t *w) { return head_k45(w); }
INLINE __m512i codes_q4_k(const uint8_t *w, int p) { return nibbles64(w + 16 + 32 * p); }
INLINE struct sub8 head_q5_k(const uint8_t *w) { return head_k45(w); }
INLINE __m512i codes_q5_k(const uint8_t *w, int p) {
    __m256i h = ld256(w + 16);
    __mmask64 m = (uint64_t)_mm256_test_epi8_mask(h, _mm256_set1_epi8((char)(2 << 2 * p))) << 32 |
                  _mm256_test_epi8_mask(h, _mm256_set1_epi8((char)(1 << 2 * p)));
    return _mm512_or_si512(nibbles64(w + 48 + 32 * p), _mm512_maskz_set1_epi8(m, 16));
}
INLINE struct sub16 head_q6_k(const uint8_t *w) {
    __m512 d = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(ld128(w + 192))),
                             _mm512_set1_ps(rd_half(w + 208)));
    return (struct sub16){d, _mm512_mul_ps(d, _mm512_set1_ps(-32))};
}
INLINE __m512i codes_q6_k(const uint8_t *w, int p) {
    __m512i lo = _mm512_loadu_si512(w + 64 * (p / 2));
    __m256i qh = ld256(w + 128 + 32 * (p / 2));
    if (p & 1) lo = _mm512_srli_epi16(lo, 4), qh = _mm256_srli_epi16(qh, 4);
    __m512i hi = join(_mm256_slli_epi16(qh, 4), _mm256_slli_epi16(qh, 2));
    return _mm512_or_si512(_mm512_and_si512(lo, _mm512_set1_epi8(15)),
                           _mm512_and_si512(hi, _mm512_set1_epi8(0x30)));
}
INLINE struct sub16 head_q2_k(const uint8_t *w) {
    __m128i sm = ld128(w), m = _mm_set1_epi8(15);
    __m512i sc = _mm512_cvtepu8_epi32(_mm_and_si128(sm, m));
    __m512i mn = _mm512_cvtepu8_epi32(_mm_and_si128(_mm_srli_epi16(sm, 4), m));
    return (struct sub16){_mm512_mul_ps(_mm512_cvtepi32_ps(sc), _mm512_set1_ps(rd_half(w + 80))),
                          _mm512_mul_ps(_mm512_cvtepi32_ps(mn), _mm512_set1_ps(-rd_half(w + 82)))};
}
INLINE __m512i twobits(const uint8_t *q,
                       int p) { /* q[64]; columns 64 p .. : two of four bit pairs of 32 bytes */
    __m256i y = ld256(q + 32 * (p / 2));
    if (p & 1) y = _mm256_srli_epi16(y, 4);
    return _mm512_and_si512(join(y, _mm256_srli_epi16(y, 2)), _mm512_set1_epi8(3));
}
INLINE __m512i codes_q2_k(const uint8_t *w, int p) { return twobits(w + 16, p); }
INLINE struct sub16 head_q3_k(const uint8_t *w) {
    uint32_t h;
    memcpy(&h, w + 104, 4);
    __m128i lo = _mm_loadl_epi64((const void *)(w + 96)), hi = _mm_set1_epi32((int)h);
    lo = _mm_and_si128(_mm_srlv_epi32(_mm_unpacklo_epi64(lo, lo), _mm_setr_epi32(0, 0, 4, 4)),
                       _mm_set1_epi8(15));
    hi = _mm_and_si128(_mm_srlv_epi32(hi, _mm_setr_epi32(0, 2, 4, 6)), _mm_set1_epi8(3));
    __m128i u = _mm_or_si128(lo, _mm_slli_epi32(hi, 4));
    __m512i sc = _mm512_sub_epi32(_mm512_cvtepu8_epi32(u), _mm512_set1_epi32(32));
    __m512 d = _mm512_mul_ps(_mm512_cvtepi32_ps(sc), _mm512_set1_ps(rd_half(w + 108)));
    return (struct sub16){d, _mm512_mul_ps(d, _mm512_set1_ps(-4))};
}
INLINE __m512i codes_q3_k(const uint8_t *w, int p) {
    __m256i h = ld256(w);
    __mmask64 m = (uint64_t)_mm256_test_epi8_mask(h, _mm256_set1_epi8((char)(2 << 2 * p))) << 32 |
                  _mm256_test_epi8_mask(h, _mm256_set1_epi8((char)(1 << 2 * p)));
    return _mm512_or_si512(twobits(w + 32, p), _mm512_maskz_set1_epi8(m, 4));
}

/* F(name, UPPER, sub-blocks of 256, bytes of 256): the formats above. */
#define CPU_QUANTS(F)                                                                                        \
    F(q8_0, Q8_0, 8, 272)                                                                                    \
    F(q4_0, Q4_0, 8, 144)                                                                                    \
    F(q4_1, Q4_1, 8, 160)                                                                                    \
    F(q5_0, Q5_0, 8, 176)                                                                                    \
    F(q5_1, Q5_1, 8, 192)                                                                                    \
    F(iq4_nl, IQ4_NL, 8, 144)                                                                                \
    F(q4_k, Q4_K, 8, 144)                                                                                    \
    F(q5_k, Q5_K, 8, 176)                                                                                    \
    F(q2_k, Q2_K, 16, 84)                                                                                    \
    F(q3_k, Q3_K, 16, 110)                                                                                   \
    F(q6_k, Q6_K, 16, 210)
