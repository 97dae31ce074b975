/* Formats whose values are codes of 8 bits with a scale for 16: the rows QUANT_CODES of quant.def. Their blocks become codes before
 * anything multiplies them, so that they share one kernel; decoding them is that and one product. Private to the engine. */
#pragma once
#include <stdbool.h>
#include "quant/quant_search.h"

/* The points of the codebooks (quant_grids.c): magnitudes; IQ1: 8 times the value, plus 8. */
extern const uint64_t quant_grid_iq2_xxs[256], quant_grid_iq2_xs[512], quant_grid_iq2_s[1024],
    quant_grid_iq1_s[2048];
extern const uint32_t quant_grid_iq3_xxs[256], quant_grid_iq3_s[512];

/* y[n] out of blocks by way of codes. */
void quant_decode_codes(float *y, const void *blocks, size_t n, enum quant_type type);
#define QUANT_DECODE_BY_CODES(id)                                                                            \
    void quant_##id##_decode(float *y, const void *blocks, size_t n) {                                       \
        quant_decode_codes(y, blocks, n, QUANT_##id);                                                        \
    }

/* The signs of eight values as bytes 255 (bit i of the index: value i is negative) and 0; of seven, whose eighth makes their number even. */
extern const uint64_t quant_signs[256], quant_even_signs[128];
/* Eight magnitudes from 1 to 127 (bytes of v) with signs. */
static inline void quant_put_signed(int8_t *code, uint64_t v, uint64_t signs) {
    v = (v ^ signs) + (signs & 0x0101010101010101u);
    memcpy(code, &v, 8);
}
/* Eight bytes of v less n, each in the range of a code; v and n below 128. */
static inline void quant_put_less(int8_t *code, uint64_t v, unsigned n) {
    v = ((v | 0x8080808080808080u) - n * 0x0101010101010101u) ^ 0x8080808080808080u;
    memcpy(code, &v, 8);
}

/* The scale of a block of IQ1_M: the top four bits of its four words, lowest first. */
static inline uint16_t quant_iq1_m_half(const struct block_IQ1_M *b) {
    return (uint16_t)(b->sc[0] >> 12 | b->sc[1] >> 12 << 4 | b->sc[2] >> 12 << 8 | b->sc[3] >> 12 << 12);
}

/* Scale d of x[n] ~ d * q, q in lo .. hi, for groups of any size. */
float quant_fit_plain(const float *x, const float *w, int n, int lo, int hi);

/* The largest finite magnitude; 0 where it is too small for its inverse. */
float quant_largest(const float *x, int n);
/* The index of the nearest of 16 levels. */
int quant_nearest_of(const float level[16], float v);

/* Blocks of 64 codes of four bits, each one of 16 levels times a scale; as codes of 8 bits they are the nearest to factor times the level. */
#define QUANT_OF_LEVELS(id, levels, factor)                                                                  \
    void quant_##id##_decode(float *y, const void *blocks, size_t n) {                                       \
        const struct block_##id *b = blocks;                                                                 \
        for (size_t i = 0; i < n / 64; i++, b++, y += 64)                                                    \
            for (int j = 0; j < 64; j++) y[j] = b->s * (levels)[b->q[j / 2] >> j % 2 * 4 & 15];              \
    }                                                                                                        \
    void quant_##id##_codes(int8_t *code, float *d, const void *blocks, size_t n) {                          \
        const struct block_##id *b = blocks;                                                                 \
        int8_t level[16];                                                                                    \
        for (int j = 0; j < 16; j++) level[j] = (int8_t)quant_code((factor) * (levels)[j], -127, 127);       \
        for (size_t i = 0; i < n / 64; i++, b++, code += 64) {                                               \
            for (int g = 0; g < 4; g++) *d++ = b->s * (1.0f / (factor));                                     \
            for (int j = 0; j < 64; j++) code[j] = level[b->q[j / 2] >> j % 2 * 4 & 15];                     \
        }                                                                                                    \
    }                                                                                                        \
    void quant_##id##_encode(void *blocks, const float *x, size_t n, const float *importance) {              \
        struct block_##id *b = blocks;                                                                       \
        (void)importance;                                                                                    \
        for (size_t i = 0; i < n / 64; i++, b++, x += 64) {                                                  \
            b->s = quant_largest(x, 64);                                                                     \
            const float inverse = quant_inverse(b->s);                                                       \
            memset(b->q, 0, sizeof b->q);                                                                    \
            for (int j = 0; j < 64; j++)                                                                     \
                b->q[j / 2] |= (uint8_t)(quant_nearest_of(levels, x[j] * inverse) << j % 2 * 4);             \
        }                                                                                                    \
    }

/* A codebook for the encoder: points of len values, whose signs are apart, or (plus) to which an eighth is added or taken. */
struct quant_book {
    const uint16_t *point; /* [n]: places among the levels */
    int n, len;            /* len: 8 values of 2 bits, or 4 of 3 */
    int8_t level[8];       /* magnitudes; plus: 8 times the value */
    bool plus, even;       /* even: the number of signs of eight values is */
    int group, together;   /* columns that share a scale, and what is added */
    int most;              /* scales are 1, 3 .. most times unit times d */
    float unit;
};
/* What it chose for 256 values. */
struct quant_chosen {
    float d;            /* a half */
    uint8_t scale[16];  /* of each group, 0 .. most / 2 */
    uint16_t index[64]; /* of each point */
    uint8_t signs[32];  /* of each eight values */
    uint8_t minus[32];  /* of each eight values: an eighth is taken */
};
/* Of x[256] for a block; importance NULL: large values weigh more. */
void quant_choose(struct quant_chosen *out, const struct quant_book *book, const float *x,
                  const float *importance);
/* Encodes blocks of 256 out of the file's `book` by its pack(block, chosen), which is given zeros. */
#define QUANT_ENCODE_BY_BOOK(id)                                                                             \
    void quant_##id##_encode(void *blocks, const float *x, size_t n, const float *importance) {              \
        struct block_##id *b = blocks;                                                                       \
        struct quant_chosen c;                                                                               \
        for (size_t i = 0; i < n; i += 256, b++) {                                                           \
            quant_choose(&c, &book, x + i, importance ? importance + i : NULL);                              \
            memset(b, 0, sizeof *b);                                                                         \
            pack(b, &c);                                                                                     \
        }                                                                                                    \
    }
extern const uint16_t quant_points_iq2_xxs[256], quant_points_iq2_xs[512], quant_points_iq2_s[1024],
    quant_points_iq1_s[2048], quant_points_iq3_xxs[256], quant_points_iq3_s[512];
