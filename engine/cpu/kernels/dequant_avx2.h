/* From file blocks to 32 codes and their scales, with AVX2: the same scheme as dequant_avx512.h, one sub-block
 * of 32 at a time. codes_<f>(w, b): columns 32 b .. 32 b + 32 as bytes in order, unsigned; Q8_0 and IQ4_NL signed
 * (SIGNED_<f>), for the products of two unsigned 8-bit halves would not fit vpmaddubsw's 16-bit sums. */
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
enum {
    SIGNED_q8_0 = 1,
    SIGNED_iq4_nl = 1,
    SIGNED_q4_0 = 0,
    SIGNED_q4_1 = 0,
    SIGNED_q5_0 = 0,
    SIGNED_q5_1 = 0,
    SIGNED_q4_k = 0,
    SIGNED_q5_k = 0,
    SIGNED_q2_k = 0,
    SIGNED_q3_k = 0,
    SIGNED_q6_k = 0
};
INLINE struct sub8 head_q8_0(const uint8_t *w) { return (struct sub8){halves8(w, 34), _mm256_setzero_ps()}; }
INLINE __m256i codes_q8_0(const uint8_t *w, int b) { return ld256(w + 34 * b + 2); }
INLINE struct sub8 head_q4_0(const uint8_t *w) { return offset(halves8(w, 18), 8); }
INLINE __m256i codes_q4_0(const uint8_t *w, int b) { return nibbles(w + 18 * b + 2); }
INLINE struct sub8 head_q4_1(const uint8_t *w) { return (struct sub8){halves8(w, 20), halves8(w + 2, 20)}; }
INLINE __m256i codes_q4_1(const uint8_t *w, int b) { return nibbles(w + 20 * b + 4); }
INLINE struct sub8 head_iq4_nl(const uint8_t *w) {
    return (struct sub8){halves8(w, 18), _mm256_setzero_ps()};
}
INLINE __m256i codes_iq4_nl(const uint8_t *w, int b) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(ld128(quant_iq4_nl_levels)),
                               nibbles(w + 18 * b + 2));
}
INLINE struct sub8 head_q5_0(const uint8_t *w) { return offset(halves8(w, 22), 16); }
INLINE __m256i codes_q5_0(const uint8_t *w, int b) {
    return _mm256_or_si256(nibbles(w + 22 * b + 6), fifth(w + 22 * b + 2));
}
INLINE struct sub8 head_q5_1(const uint8_t *w) { return (struct sub8){halves8(w, 24), halves8(w + 2, 24)}; }
INLINE __m256i codes_q5_1(const uint8_t *w, int b) {
    return _mm256_or_si256(nibbles(w + 24 * b + 8), fifth(w + 24 * b + 4));
}

/* ---- super-blocks of 256 ---- */

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
INLINE struct sub8 head_q4_k(const uint8_t *w) { return head_k45(w); }
INLINE __m256i codes_q4_k(const uint8_t *w, int b) {
    __m256i q = ld256(w + 16 + b / 2 * 32);
    return low4(b & 1 ? _mm256_srli_epi16(q, 4) : q);
}
INLINE struct sub8 head_q5_k(const uint8_t *w) { return head_k45(w); }
INLINE __m256i codes_q5_k(const uint8_t *w, int b) {
    __m256i q = ld256(w + 48 + b / 2 * 32), bit = _mm256_set1_epi8((char)(1 << b));
    __m256i h = _mm256_cmpeq_epi8(_mm256_and_si256(ld256(w + 16), bit), bit);
    return _mm256_or_si256(low4(b & 1 ? _mm256_srli_epi16(q, 4) : q),
                           _mm256_and_si256(h, _mm256_set1_epi8(16)));
}
INLINE struct sub16 scales16(__m128i sc, __m128i mn, float d, float m) { /* d * sc, m * mn, signed bytes */
    __m256 dv = _mm256_set1_ps(d), mv = _mm256_set1_ps(m);
    return (struct sub16){
        _mm256_mul_ps(dv, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(sc))),
        _mm256_mul_ps(dv, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(sc, sc)))),
        _mm256_mul_ps(mv, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(mn))),
        _mm256_mul_ps(mv, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(mn, mn))))};
}
INLINE struct sub16 head_q6_k(const uint8_t *w) {
    __m128i sc = ld128(w + 192);
    return scales16(sc, sc, rd_half(w + 208), -32 * rd_half(w + 208));
}
INLINE __m256i codes_q6_k(const uint8_t *w, int b) {
    __m256i lo = ld256(w + 64 * (b / 4) + 32 * (b & 1)), hi = ld256(w + 128 + 32 * (b / 4));
    if (b & 2) lo = _mm256_srli_epi16(lo, 4);
    hi = b % 4 == 0   ? _mm256_slli_epi16(hi, 4)
         : b % 4 == 1 ? _mm256_slli_epi16(hi, 2)
         : b % 4 == 2 ? hi
                      : _mm256_srli_epi16(hi, 2);
    return _mm256_or_si256(low4(lo), _mm256_and_si256(hi, _mm256_set1_epi8(0x30)));
}
INLINE struct sub16 head_q2_k(const uint8_t *w) {
    __m128i sm = ld128(w), m = _mm_set1_epi8(15);
    return scales16(_mm_and_si128(sm, m), _mm_and_si128(_mm_srli_epi16(sm, 4), m), rd_half(w + 80),
                    -rd_half(w + 82));
}
INLINE __m256i pairs2(const uint8_t *q, int b) {
    return _mm256_and_si256(_mm256_srli_epi16(ld256(q + b / 4 * 32), b % 4 * 2), _mm256_set1_epi8(3));
}
INLINE __m256i codes_q2_k(const uint8_t *w, int b) { return pairs2(w + 16, b); }
INLINE struct sub16 head_q3_k(const uint8_t *w) {
    uint32_t h;
    memcpy(&h, w + 104, 4);
    __m128i lo = _mm_loadl_epi64((const void *)(w + 96)), hi = _mm_set1_epi32((int)h);
    lo = _mm_and_si128(_mm_srlv_epi32(_mm_unpacklo_epi64(lo, lo), _mm_setr_epi32(0, 0, 4, 4)),
                       _mm_set1_epi8(15));
    hi = _mm_and_si128(_mm_srlv_epi32(hi, _mm_setr_epi32(0, 2, 4, 6)), _mm_set1_epi8(3));
    __m128i u = _mm_or_si128(lo, _mm_slli_epi32(hi, 4));
    __m128i sc = _mm_sub_epi8(u, _mm_set1_epi8(32));
    return scales16(sc, sc, rd_half(w + 108), -4 * rd_half(w + 108));
}
INLINE __m256i codes_q3_k(const uint8_t *w, int b) {
    __m256i bit = _mm256_set1_epi8((char)(1 << b));
    __m256i h = _mm256_cmpeq_epi8(_mm256_and_si256(ld256(w), bit), bit);
    return _mm256_or_si256(pairs2(w + 32, b), _mm256_and_si256(h, _mm256_set1_epi8(4)));
}

/* F(name, UPPER, sub-blocks of 256, bytes of 256) */
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
