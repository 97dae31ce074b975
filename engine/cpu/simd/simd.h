/* Float vectors of the width that the including file is compiled for: 16 lanes with AVX-512, 8 with AVX2.
 * exp is ours, so every machine gives the same bits. */
#pragma once
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
/* Loops of constant length are written out; under a sanitizer not: compilers take ten minutes for what that makes. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define UNROLL
#endif
#endif
#ifndef UNROLL
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* ThreadSanitizer sees no loads and stores by mask; it is told of them. */
#ifdef __SANITIZE_THREAD__
void __tsan_read_range(void *p, long n);
void __tsan_write_range(void *p, long n);
#define SEEN_READ(p, n)  __tsan_read_range((void *)(uintptr_t)(p), (long)sizeof *(p) * (n))
#define SEEN_WRITE(p, n) __tsan_write_range(p, (long)sizeof *(p) * (n))
#else
#define SEEN_READ(p, n)  (void)0
#define SEEN_WRITE(p, n) (void)0
#endif

#ifdef __AVX512F__
enum { VL = 16 };
typedef __m512 vf;
typedef __mmask16 vmask;
INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void vf_store(float *p, vf v) { _mm512_storeu_ps(p, v); }
INLINE vf vf_set(float f) { return _mm512_set1_ps(f); }
INLINE vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
INLINE vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
INLINE vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
INLINE vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
INLINE vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
INLINE vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
INLINE vmask vf_less(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
INLINE vf vf_pick(vmask m, vf yes, vf no) { return _mm512_mask_blend_ps(m, no, yes); }
INLINE unsigned vf_bits(vmask m) { return m; }
INLINE vf vf_halves(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p)); }
/* Bytes as floats; bytes as bits 7 to 14 of halves. */
INLINE vf vf_bytes(const uint8_t *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)p)));
}
INLINE vf vf_half_bytes(const uint8_t *p) {
    return _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)p)), 7));
}
INLINE void vf_to_halves(uint16_t *p, vf v) { _mm256_storeu_si256((void *)p, _mm512_cvtps_ph(v, 0)); }
/* v * 2^n for whole n */
INLINE vf vf_scale2(vf v, vf n) { return _mm512_scalef_ps(v, n); }
INLINE vf vf_round(vf v) { return _mm512_roundscale_ps(v, 0); }
INLINE vf vf_loadn(const float *p, int n) {
    SEEN_READ(p, n);
    return _mm512_maskz_loadu_ps((vmask)((1u << n) - 1), p);
}
INLINE void vf_storen(float *p, vf v, int n) {
    SEEN_WRITE(p, n);
    _mm512_mask_storeu_ps(p, (vmask)((1u << n) - 1), v);
}
INLINE float vf_sum(vf a) {
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
/* The sums of four vectors. */
INLINE __m128 vf_sum4(vf a, vf b, vf c, vf d) {
    __m512 t0 = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    __m512 t1 = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    __m512 t = _mm512_add_ps(_mm512_shuffle_ps(t0, t1, 0x44), _mm512_shuffle_ps(t0, t1, 0xee));
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(t), _mm512_extractf32x8_ps(t, 1));
    return _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
}
INLINE float vf_top(vf a) { return _mm512_reduce_max_ps(a); }
/* a[i][j] <- a[j][i], 16 x 16 */
INLINE void transpose16(__m512 a[16]) {
    __m512 b[16];
    for (int i = 0; i < 8; i++) {
        b[2 * i] = _mm512_unpacklo_ps(a[2 * i], a[2 * i + 1]);
        b[2 * i + 1] = _mm512_unpackhi_ps(a[2 * i], a[2 * i + 1]);
    }
    for (int i = 0; i < 4; i++) { /* a[4 i + j]: column j of each quarter, rows 4 i .. 4 i + 4 */
        a[4 * i] = _mm512_shuffle_ps(b[4 * i], b[4 * i + 2], 0x44);
        a[4 * i + 1] = _mm512_shuffle_ps(b[4 * i], b[4 * i + 2], 0xee);
        a[4 * i + 2] = _mm512_shuffle_ps(b[4 * i + 1], b[4 * i + 3], 0x44);
        a[4 * i + 3] = _mm512_shuffle_ps(b[4 * i + 1], b[4 * i + 3], 0xee);
    }
    for (int j = 0; j < 4; j++) {
        __m512 lo = _mm512_shuffle_f32x4(a[j], a[4 + j], 0x44),
               hi = _mm512_shuffle_f32x4(a[j], a[4 + j], 0xee);
        __m512 lo2 = _mm512_shuffle_f32x4(a[8 + j], a[12 + j], 0x44);
        __m512 hi2 = _mm512_shuffle_f32x4(a[8 + j], a[12 + j], 0xee);
        b[j] = _mm512_shuffle_f32x4(lo, lo2, 0x88);
        b[4 + j] = _mm512_shuffle_f32x4(lo, lo2, 0xdd);
        b[8 + j] = _mm512_shuffle_f32x4(hi, hi2, 0x88);
        b[12 + j] = _mm512_shuffle_f32x4(hi, hi2, 0xdd);
    }
    for (int i = 0; i < 16; i++) a[i] = b[i];
}
#else
enum { VL = 8 };
typedef __m256 vf;
typedef __m256 vmask;
INLINE vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
INLINE void vf_store(float *p, vf v) { _mm256_storeu_ps(p, v); }
INLINE vf vf_set(float f) { return _mm256_set1_ps(f); }
INLINE vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
INLINE vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
INLINE vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
INLINE vf vf_div(vf a, vf b) { return _mm256_div_ps(a, b); }
INLINE vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
INLINE vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
INLINE vf vf_min(vf a, vf b) { return _mm256_min_ps(a, b); }
INLINE vmask vf_less(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
INLINE vf vf_pick(vmask m, vf yes, vf no) { return _mm256_blendv_ps(no, yes, m); }
INLINE unsigned vf_bits(vmask m) { return (unsigned)_mm256_movemask_ps(m); }
INLINE vf vf_halves(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p)); }
INLINE vf vf_bytes(const uint8_t *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p)));
}
INLINE vf vf_half_bytes(const uint8_t *p) {
    return _mm256_cvtph_ps(_mm_slli_epi16(_mm_cvtepu8_epi16(_mm_loadl_epi64((const void *)p)), 7));
}
INLINE void vf_to_halves(uint16_t *p, vf v) { _mm_storeu_si128((void *)p, _mm256_cvtps_ph(v, 0)); }
INLINE vf vf_scale2(vf v, vf n) {
    __m256i e = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(v, _mm256_castsi256_ps(e));
}
INLINE vf vf_round(vf v) { return _mm256_round_ps(v, 0); }
INLINE __m256i vf_lanes(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
INLINE vf vf_loadn(const float *p, int n) {
    SEEN_READ(p, n);
    return _mm256_maskload_ps(p, vf_lanes(n));
}
INLINE void vf_storen(float *p, vf v, int n) {
    SEEN_WRITE(p, n);
    _mm256_maskstore_ps(p, vf_lanes(n), v);
}
INLINE float vf_sum(vf a) {
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
INLINE __m128 vf_sum4(vf a, vf b, vf c, vf d) {
    __m256 t0 = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
    __m256 t1 = _mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
    __m256 t = _mm256_add_ps(_mm256_shuffle_ps(t0, t1, 0x44), _mm256_shuffle_ps(t0, t1, 0xee));
    return _mm_add_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1));
}
INLINE float vf_top(vf a) {
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}
#endif

/* e^x: 2^n times the Taylor polynomial of degree 7 on |r| <= ln 2 / 2, relative error under 1e-7; 1 at 0;
 * below -87.3 exactly 0; above 88 cut. NaN stays NaN. */
INLINE vf vf_exp(vf x) {
    vf cut = vf_min(vf_set(88.0f), x); /* min and max give the second operand for NaN */
    cut = vf_max(vf_set(-87.3f), cut);
    vf n = vf_round(vf_mul(cut, vf_set(1.44269504f)));
    vf r = vf_fma(n, vf_set(-0.693359375f), cut);
    r = vf_fma(n, vf_set(2.12194440e-4f), r); /* ln 2 in two parts */
    vf y = vf_fma(r, vf_set(1.0f / 5040), vf_set(1.0f / 720));
    y = vf_fma(y, r, vf_set(1.0f / 120));
    y = vf_fma(y, r, vf_set(1.0f / 24));
    y = vf_fma(y, r, vf_set(1.0f / 6));
    y = vf_fma(y, r, vf_set(0.5f));
    y = vf_fma(y, r, vf_set(1.0f));
    y = vf_fma(y, r, vf_set(1.0f));
    return vf_pick(vf_less(x, vf_set(-87.3f)), vf_set(0), vf_scale2(y, n));
}
/* tanh x = 1 - 2 / (e^2x + 1): absolute error under 1e-6. */
INLINE vf vf_tanh(vf x) {
    vf e = vf_exp(vf_add(x, x));
    return vf_sub(vf_set(1), vf_div(vf_set(2), vf_add(e, vf_set(1))));
}
