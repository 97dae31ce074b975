/* Element types of weights: ids, sizes, block structs, scalar encode and decode.
 *
 * One row per type in quant.def, one engine/quant_<name>.c per format (layout drawing, scalar encode and
 * decode). A row of a matrix is K elements, K a multiple of the block; blocks follow each other without gaps.
 * Halves are plain uint16_t so that C and CUDA share the structs. Read by C and C++ (no variable lengths, no
 * designators). source: the GGUF specification and the ggml block formats it names. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#else
#include <assert.h>
#endif

enum quant_type {
#define QUANT(id, gguf, name, elems, bytes) QUANT_##id,
#include "quant/quant.def"
    QUANT_COUNT
};

enum {
#define QUANT(id, gguf, name, elems, bytes) QUANT_##id##_ELEMS = elems, QUANT_##id##_BYTES = bytes,
#include "quant/quant.def"
};

struct quant_info {
    enum quant_type type;
    int32_t gguf;     /* number in GGUF files; -1: not a type of theirs */
    const char *name; /* lower case, as --type takes it */
    uint32_t elems;   /* elements per block */
    uint32_t bytes;   /* bytes per block */
    /* y[n] = decode(blocks); n a multiple of elems */
    void (*decode)(float *y, const void *blocks, size_t n);
    /* blocks = encode(x[n]); n a multiple of elems; importance[n] weighs the squared error, NULL: large values
     * count more than small ones (quant_search.c) */
    void (*encode)(void *blocks, const float *x, size_t n, const float *importance);
    /* code[n] and d[n / 16]: the values, or as near as 8 bits come, are d[i / 16] * code[i]; n a multiple of elems. NULL: not a
     * row of QUANT_CODES */
    void (*codes)(int8_t *code, float *d, const void *blocks, size_t n);
};

/* One row per type; aborts for a value outside the enum. */
const struct quant_info *quant_info(enum quant_type type);
/* Row by GGUF number or by name; NULL when unknown. */
const struct quant_info *quant_by_gguf(uint32_t gguf);
const struct quant_info *quant_by_name(const char *name);
/* What the codes of a row of QUANT_CODES can be. */
enum quant_code_form {
    QUANT_CODES_LEVELS, /* 16 of them at most: level[], in any order, some more than once */
    QUANT_CODES_EIGHT,  /* 8 of them at most: level[0] .. level[7] */
    QUANT_CODES_RANGE, /* 16 neighbours from a number -16 .. 15 on in each 32 columns, whose d has no more bits than a half */
    QUANT_CODES_FOUR, /* -1, 0, 1 and 2 */
    QUANT_CODES_TWO,  /* -1 and 1 */
    QUANT_CODES_ALL   /* any */
};
/* What their scales can be. */
enum quant_scale_form {
    QUANT_SCALES_ANY,
    QUANT_SCALES_HALF, /* halves */
    QUANT_SCALES_E4M3, /* 128 times a half without a sign whose last 7 bits are 0 and whose exponent is below 16 */
    QUANT_SCALES_STEPS, /* whole numbers up to 31 times quant_code_unit of the block, which has 256 elements */
};
struct quant_code_set {
    enum quant_code_form form;
    int group; /* columns that always share a d: 16, 32, .. 256; FOUR: 64 at least; TWO: 128 */
    enum quant_scale_form scales;
    int8_t level[16];
};
/* NULL: not a row of QUANT_CODES. */
const struct quant_code_set *quant_code_set(enum quant_type type);
/* What all scales of a block are multiples of, where its set says so. */
float quant_code_unit(enum quant_type type, const void *block);
/* Bits of a code where a set's codes are numbered. */
static inline int quant_code_bits(enum quant_code_form form) {
    return form == QUANT_CODES_ALL     ? 8
           : form == QUANT_CODES_EIGHT ? 3
           : form == QUANT_CODES_FOUR  ? 2
           : form == QUANT_CODES_TWO   ? 1
                                       : 4;
}
/* Bytes of a row of n elements; n must be a multiple of the block. */
static inline size_t quant_row_bytes(const struct quant_info *q, size_t n) { return n / q->elems * q->bytes; }

/* ---- block structs: layouts are drawn in quant_<name>.c ---- */
struct block_Q8_0 {
    uint16_t d;
    int8_t q[32];
};
struct block_Q4_0 {
    uint16_t d;
    uint8_t q[16];
};
struct block_Q4_1 {
    uint16_t d, m;
    uint8_t q[16];
};
struct block_Q5_0 {
    uint16_t d;
    uint8_t h[4];
    uint8_t q[16];
};
struct block_Q5_1 {
    uint16_t d, m;
    uint8_t h[4];
    uint8_t q[16];
};
struct block_Q2_K {
    uint8_t sc[16];
    uint8_t q[64];
    uint16_t d, dmin;
};
struct block_Q3_K {
    uint8_t h[32];
    uint8_t q[64];
    uint8_t sc[12];
    uint16_t d;
};
struct block_Q4_K {
    uint16_t d, dmin;
    uint8_t sc[12];
    uint8_t q[128];
};
struct block_Q5_K {
    uint16_t d, dmin;
    uint8_t sc[12];
    uint8_t h[32];
    uint8_t q[128];
};
struct block_Q6_K {
    uint8_t ql[128];
    uint8_t qh[64];
    int8_t sc[16];
    uint16_t d;
};
struct block_IQ4_NL {
    uint16_t d;
    uint8_t q[16];
};
struct block_IQ4_XS {
    uint16_t d, sh;
    uint8_t sl[4];
    uint8_t q[128];
};
struct block_MXFP4 {
    uint8_t e;
    uint8_t q[16];
};
struct block_IQ2_XXS {
    uint16_t d, q[32];
};
struct block_IQ2_XS {
    uint16_t d, q[32];
    uint8_t sc[8];
};
struct block_IQ2_S {
    uint16_t d;
    uint8_t q[32], sg[32], h[8], sc[8];
};
struct block_IQ3_XXS {
    uint16_t d;
    uint8_t q[64];
    uint16_t a[16];
};
struct block_IQ3_S {
    uint16_t d;
    uint8_t q[64], h[8], sg[32], sc[4];
};
struct block_IQ1_S {
    uint16_t d;
    uint8_t q[32];
    uint16_t h[8];
};
struct block_IQ1_M {
    uint8_t q[32], h[16];
    uint16_t sc[4];
};
struct block_TQ1_0 {
    uint8_t q[48], h[4];
    uint16_t d;
};
struct block_TQ2_0 {
    uint8_t q[64];
    uint16_t d;
};
struct block_NVFP4 {
    uint8_t s[4], q[32];
};
struct block_Q1_0 {
    uint16_t d;
    uint8_t q[16];
};
struct block_Q2_0 {
    uint16_t d;
    uint8_t q[16];
};
struct block_Z4 {
    uint16_t d;
    uint8_t z, none, q[16];
};
struct block_I8_128 {
    float s;
    int8_t q[128];
};
struct block_F8_128 {
    float s;
    uint8_t q[128];
};
struct block_NF4 {
    float s;
    uint8_t q[32];
};
struct block_FP4 {
    float s;
    uint8_t q[32];
};

#define QUANT_FLOAT(id, gguf, name, elems, bytes)
#define QUANT(id, gguf, name, elems, bytes)                                                                  \
    static_assert(sizeof(struct block_##id) == (bytes), "the block of " name);
#include "quant/quant.def"

/* The 16 levels of IQ4_NL and IQ4_XS. */
extern const int8_t quant_iq4_nl_levels[16];
/* Those of NF4 and FP4. */
extern const float quant_nf4_levels[16], quant_fp4_levels[16];

/* NF4 in GGUF files (quant_nf4_packed.c): a type number of this program's own ("NF4"), which others refuse, and constants that are
 * quantised themselves, those of a group of elements together. n is a multiple of 64. */
enum { QUANT_NF4_GGUF = 0x34464e, QUANT_NF4_GROUP = 256 * 64 };
size_t quant_nf4_packed_bytes(size_t n);
/* One group of x[n] at most; importance as in encode. */
void quant_nf4_pack(void *out, const float *x, size_t n, const float *importance);
/* out[n / 64] of a whole matrix; 0: a constant is not finite. */
int quant_nf4_unpack(struct block_NF4 *out, const void *data, size_t n);

/* ---- halves ---- */
static inline float quant_bits_to_f32(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static inline uint32_t quant_f32_to_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}
/* IEEE binary16 to float, exact (subnormals, infinities, NaN kept). */
static inline float f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = (h >> 10) & 31, man = h & 0x3ff;
    if (exp == 31) return quant_bits_to_f32(sign | 0x7f800000 | man << 13);
    if (exp) return quant_bits_to_f32(sign | (exp + 112) << 23 | man << 13);
    return quant_bits_to_f32(sign | quant_f32_to_bits((float)man * 0x1p-24f));
}
/* float to binary16, round to nearest even; overflow to infinity. */
static inline uint16_t f32_to_f16(float f) {
    uint32_t u = quant_f32_to_bits(f), sign = u >> 16 & 0x8000, a = u & 0x7fffffff;
    if (a > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (a >= 0x47800000) return (uint16_t)(sign | 0x7c00);
    if (a < 0x38800000) { /* subnormal half: let the float adder round at bit 2^-24 */
        float r = quant_bits_to_f32(a) + 0.5f;
        return (uint16_t)(sign | (quant_f32_to_bits(r) - 0x3f000000));
    }
    return (uint16_t)(sign | ((a + 0xc8000fff + (a >> 13 & 1)) >> 13));
}
static inline float bf16_to_f32(uint16_t h) { return quant_bits_to_f32((uint32_t)h << 16); }
static inline uint16_t f32_to_bf16(float f) {
    uint32_t u = quant_f32_to_bits(f);
    if ((u & 0x7fffffff) > 0x7f800000) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

#ifdef __cplusplus
}
#endif
