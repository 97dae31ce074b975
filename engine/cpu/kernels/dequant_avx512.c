/* Weight rows to float32 and BF16 with AVX-512, for prompt matmuls. */
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/dequant_fine.h"
#include "made/cpu_formats.h"

/* Sixteen codes as d u + g. */
INLINE __m512 values(__m128i u, float d, float g) {
    __m512 v = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(u));
    return _mm512_fmadd_ps(v, _mm512_set1_ps(d), _mm512_set1_ps(g));
}
INLINE void put_f32(void *y, int at, __m512 a, __m512 b) {
    _mm512_storeu_ps((float *)y + at, a);
    _mm512_storeu_ps((float *)y + at + 16, b);
}
/* BF16 rows lie in tiles: 32 columns of a row together, the next 32 CPU_TILE_ELEMS further. */
INLINE void put_bf16(void *y, int at, __m512 a, __m512 b) {
    _mm512_storeu_si512((uint16_t *)y + at / 32 * CPU_TILE_ELEMS, (__m512i)_mm512_cvtne2ps_pbh(b, a));
}
/* Columns at .. at + 16 of a float type, of which m are there; the others of their 32 become zero. */
INLINE void put_bf16_half(uint16_t *y, int at, __m256i v) {
    _mm256_storeu_si256((void *)(y + at / 32 * CPU_TILE_ELEMS + at % 32), v);
}
INLINE void spill8(struct sub8 h, float *d, float *g) {
    _mm256_storeu_ps(d, h.d);
    _mm256_storeu_ps(g, h.g);
}
INLINE void spill16(struct sub16 h, float *d, float *g) {
    _mm512_storeu_ps(d, h.d);
    _mm512_storeu_ps(g, h.g);
}

#define spill(h, d, g) _Generic((h), struct sub8 : spill8, struct sub16 : spill16)(h, d, g)

/* 64 columns of pair p, of which the first n are wanted (32 or 64). */
#define UNPACK(id, BYTES, PUT, INTO)                                                                         \
    INLINE void INTO##_step_##id(void *y, int at, const uint8_t *w, int n_sub) {                             \
        float d[16], g[16];                                                                                  \
        spill(head_##id(w), d, g);                                                                           \
        UNROLL for (int p = 0; p < 4; p++) {                                                                 \
            if (2 * p >= n_sub) return;                                                                      \
            __m512i c = codes_##id(w, p);                                                                    \
            const int SUBS = 256 / id##_COLS, s = SUBS / 4 * p, o = SUBS / 16;                               \
            PUT(y, at + 64 * p, values(_mm512_castsi512_si128(c), d[s], g[s]),                               \
                values(_mm512_extracti32x4_epi32(c, 1), d[s + o], g[s + o]));                                \
            if (2 * p + 1 >= n_sub) return;                                                                  \
            PUT(y, at + 64 * p + 32,                                                                         \
                values(_mm512_extracti32x4_epi32(c, 2), d[s + SUBS / 8], g[s + SUBS / 8]),                   \
                values(_mm512_extracti32x4_epi32(c, 3), d[s + SUBS / 8 + o], g[s + SUBS / 8 + o]));          \
        }                                                                                                    \
    }                                                                                                        \
    static void INTO##_##id(void *y, const void *blocks, const uint8_t *end, int k) {                        \
        const uint8_t *w = blocks;                                                                           \
        int at = 0;                                                                                          \
        for (; at + 256 <= k; at += 256, w += BYTES) INTO##_step_##id(y, at, w, 8);                          \
        if (at < k) {                                                                                        \
            uint8_t copy[BYTES];                                                                             \
            if (w + BYTES > end) {                                                                           \
                memset(copy, 0, BYTES);                                                                      \
                w = memcpy(copy, w, (size_t)(k - at) / 32 * (BYTES / 8));                                    \
            }                                                                                                \
            INTO##_step_##id(y, at, w, (k - at) / 32);                                                       \
        }                                                                                                    \
    }
#define QUANT_FLOAT(...)
#define QUANT_CODES(...)
#define QUANT(id, gguf, name, elems, bytes) UNPACK(id, 256 / (elems) * (bytes), put_f32, f32)
#include "quant/quant.def"
#define QUANT_FLOAT(...)
#define QUANT_CODES(...)
#define QUANT(id, gguf, name, elems, bytes) UNPACK(id, 256 / (elems) * (bytes), put_bf16, bf16)
#include "quant/quant.def"

/* ---- float types ---- */

static void f32_f32(void *y, const void *w, const uint8_t *end, int k) {
    (void)end;
    memcpy(y, w, (size_t)k * 4);
}
static void f32_f16(void *y, const void *w, const uint8_t *end, int k) {
    (void)end;
    for (int i = 0; i < k; i += 16) {
        __mmask16 m = k - i >= 16 ? 0xffff : (__mmask16)((1 << (k - i)) - 1);
        _mm512_mask_storeu_ps((float *)y + i, m,
                              _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, (const uint16_t *)w + i)));
    }
}
static void f32_bf16(void *y, const void *w, const uint8_t *end, int k) {
    (void)end;
    for (int i = 0; i < k; i += 16) {
        __mmask16 m = k - i >= 16 ? 0xffff : (__mmask16)((1 << (k - i)) - 1);
        __m512i v = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, (const uint16_t *)w + i));
        _mm512_mask_storeu_ps((float *)y + i, m, _mm512_castsi512_ps(_mm512_slli_epi32(v, 16)));
    }
}
static void bf16_f32(void *y, const void *w, const uint8_t *end, int k) {
    (void)end;
    for (int i = 0; i < ((k + 31) & ~31); i += 16) {
        __mmask16 m = k - i >= 16 ? 0xffff : k > i ? (__mmask16)((1 << (k - i)) - 1) : 0;
        put_bf16_half(y, i, (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(m, (const float *)w + i)));
    }
}
static void bf16_f16(void *y, const void *w, const uint8_t *end, int k) {
    (void)end;
    for (int i = 0; i < ((k + 31) & ~31); i += 16) {
        __mmask16 m = k - i >= 16 ? 0xffff : k > i ? (__mmask16)((1 << (k - i)) - 1) : 0;
        put_bf16_half(y, i,
                      (__m256i)_mm512_cvtneps_pbh(
                          _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, (const uint16_t *)w + i))));
    }
}
static void bf16_bf16(void *y, const void *w, const uint8_t *end, int k) {
    (void)end;
    for (int i = 0; i < ((k + 31) & ~31); i += 16) {
        __mmask16 m = k - i >= 16 ? 0xffff : k > i ? (__mmask16)((1 << (k - i)) - 1) : 0;
        put_bf16_half(y, i, _mm256_maskz_loadu_epi16(m, (const uint16_t *)w + i));
    }
}

/* ---- the types that share one kernel (gemm_codes.h) ---- */

static void bf16_of_codes(const struct quant_info *q, void *y, const uint8_t *w, int k) {
    float x[256];
    for (int at = 0; at < k; at += 256, w += quant_row_bytes(q, 256)) {
        const int n = k - at < 256 ? k - at : 256;
        q->decode(x, w, (size_t)n);
        bf16_f32((uint16_t *)y + at / 32 * CPU_TILE_ELEMS, x, NULL, n);
    }
}
#define QUANT_FLOAT(...)
#define QUANT(...)
#define QUANT_CODES(id, ...)                                                                                 \
    static void f32_##id(void *y, const void *w, const uint8_t *end, int k) {                                \
        (void)end;                                                                                           \
        if (fine[QUANT_##id])                                                                                \
            fine[QUANT_##id](y, w, end, k);                                                                  \
        else                                                                                                 \
            quant_info(QUANT_##id)->decode(y, w, (size_t)k);                                                 \
    }                                                                                                        \
    static void bf16_##id(void *y, const void *w, const uint8_t *end, int k) {                               \
        (void)end;                                                                                           \
        bf16_of_codes(quant_info(QUANT_##id), y, w, k);                                                      \
    }
#include "quant/quant.def"

cpu_dequant_fn *const cpu_dequant_f32_avx512[QUANT_COUNT] = {
    [QUANT_F32] = f32_f32,
    [QUANT_F16] = f32_f16,
    [QUANT_BF16] = f32_bf16,
#define QUANT_FLOAT(...)
#define QUANT(id, gguf, name, elems, bytes) [QUANT_##id] = f32_##id,
#include "quant/quant.def"
};
cpu_dequant_fn *const cpu_dequant_bf16_avx512[QUANT_COUNT] = {
    [QUANT_F32] = bf16_f32,
    [QUANT_F16] = bf16_f16,
    [QUANT_BF16] = bf16_bf16,
#define QUANT_FLOAT(...)
#define QUANT(id, gguf, name, elems, bytes) [QUANT_##id] = bf16_##id,
#include "quant/quant.def"
};
