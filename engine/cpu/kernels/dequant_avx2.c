/* Weight rows to float32 with AVX2, for prompt matmuls. */
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/dequant_fine.h"
#include "made/cpu_formats.h"

/* Eight codes as d u + g. */
INLINE void put8(float *y, __m128i c, const bool sign, float d, float g) {
    __m256i i = sign ? _mm256_cvtepi8_epi32(c) : _mm256_cvtepu8_epi32(c);
    _mm256_storeu_ps(y, _mm256_fmadd_ps(_mm256_cvtepi32_ps(i), _mm256_set1_ps(d), _mm256_set1_ps(g)));
}
INLINE void spill8(struct sub8 h, float *d, float *g) {
    _mm256_storeu_ps(d, h.d);
    _mm256_storeu_ps(g, h.g);
}
INLINE void spill16(struct sub16 h, float *d, float *g) {
    _mm256_storeu_ps(d, h.d);
    _mm256_storeu_ps(d + 8, h.d1);
    _mm256_storeu_ps(g, h.g);
    _mm256_storeu_ps(g + 8, h.g1);
}

#define spill(h, d, g) _Generic((h), struct sub8 : spill8, struct sub16 : spill16)(h, d, g)

#define UNPACK(id, BYTES)                                                                                    \
    INLINE void f32_step_##id(float *y, const uint8_t *w, int n_sub) {                                       \
        float d[16], g[16];                                                                                  \
        spill(head_##id(w), d, g);                                                                           \
        UNROLL for (int b = 0; b < 8; b++) {                                                                 \
            if (b >= n_sub) return;                                                                          \
            __m256i c = codes_##id(w, b);                                                                    \
            __m128i lo = _mm256_castsi256_si128(c), hi = _mm256_extracti128_si256(c, 1);                     \
            const int s = 32 / id##_COLS * b, e = s + 16 / id##_COLS;                                        \
            put8(y + 32 * b, lo, id##_WIDE, d[s], g[s]);                                                     \
            put8(y + 32 * b + 8, _mm_srli_si128(lo, 8), id##_WIDE, d[s], g[s]);                              \
            put8(y + 32 * b + 16, hi, id##_WIDE, d[e], g[e]);                                                \
            put8(y + 32 * b + 24, _mm_srli_si128(hi, 8), id##_WIDE, d[e], g[e]);                             \
        }                                                                                                    \
    }                                                                                                        \
    static void f32_##id(void *out, const void *blocks, const uint8_t *end, int k) {                         \
        const uint8_t *w = blocks;                                                                           \
        float *y = out;                                                                                      \
        for (; k >= 256; k -= 256, y += 256, w += BYTES) f32_step_##id(y, w, 8);                             \
        if (k) {                                                                                             \
            uint8_t copy[BYTES];                                                                             \
            if (w + BYTES > end) {                                                                           \
                memset(copy, 0, BYTES);                                                                      \
                w = memcpy(copy, w, (size_t)k / 32 * (BYTES / 8));                                           \
            }                                                                                                \
            f32_step_##id(y, w, k / 32);                                                                     \
        }                                                                                                    \
    }
#define QUANT_FLOAT(...)
#define QUANT_CODES(id, ...)                                                                                 \
    static void f32_##id(void *y, const void *w, const uint8_t *end, int k) {                                \
        (void)end;                                                                                           \
        if (fine[QUANT_##id])                                                                                \
            fine[QUANT_##id](y, w, end, k);                                                                  \
        else                                                                                                 \
            quant_info(QUANT_##id)->decode(y, w, (size_t)k);                                                 \
    }
#define QUANT(id, gguf, name, elems, bytes) UNPACK(id, 256 / (elems) * (bytes))
#include "quant/quant.def"

static void f32_f32(void *y, const void *w, const uint8_t *end, int k) {
    (void)end;
    memcpy(y, w, (size_t)k * 4);
}
static void f32_f16(void *y, const void *w, const uint8_t *end, int k) {
    const uint16_t *h = w;
    float *o = y;
    (void)end;
    int i = 0;
    for (; i + 8 <= k; i += 8) _mm256_storeu_ps(o + i, _mm256_cvtph_ps(ld128(h + i)));
    for (; i < k; i++) o[i] = f16_to_f32(h[i]);
}
static void f32_bf16(void *y, const void *w, const uint8_t *end, int k) {
    const uint16_t *h = w;
    float *o = y;
    (void)end;
    for (int i = 0; i < k; i++) o[i] = bf16_to_f32(h[i]);
}

cpu_dequant_fn *const cpu_dequant_f32_avx2[QUANT_COUNT] = {
    [QUANT_F32] = f32_f32,
    [QUANT_F16] = f32_f16,
    [QUANT_BF16] = f32_bf16,
#define QUANT_FLOAT(...)
#define QUANT(id, gguf, name, elems, bytes) [QUANT_##id] = f32_##id,
#include "quant/quant.def"
};
