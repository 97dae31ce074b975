/* Numbers of quantised folders as they lie in files, to blocks (hf_unpack.c says what lies where). */
#pragma once
#include "files/tensorfile.h"

/* Codes of so many bits in words of 32: down a column's elements k (GPTQ: words [k bits / 32][n]), eight columns n in AWQ's order (words
 * [k][n / 8]), or across a row (compressed-tensors: words [n][row_words]). The matrix is [n][k]. */
enum hf_word_order { HF_WORDS_DOWN, HF_WORDS_AWQ, HF_WORDS_ACROSS };
struct hf_words {
    enum hf_word_order order;
    int bits;
    int64_t n, k, groups, row_words;
    const void *words;
    bool by_row; /* scales are [n][groups], not [groups][n]; words of zero points [n bits / 32][groups] */
    const float *scale;   /* [n][groups] */
    uint16_t *zero;       /* [n][groups] */
    const int32_t *index; /* [k]: the group of each column; NULL: they follow each other */
    /* [k]: the columns by group, in which order blocks have them; NULL: as they are. Floats: NULL */
    const int32_t *columns;
    enum quant_type type; /* of the blocks */
};
/* Scales, and zero points in the middle of the codes. false: no memory */
bool hf_words_scales(struct hf_words *w, const float *scale, struct arena *arena);
/* Zero points out of words; awq: in its order; plus: what they lack. */
void hf_words_zeros(struct hf_words *w, const void *words, bool awq, int plus);
/* The columns by group, else in their order, into columns[k]. false: groups are not of one size, so that they cannot be blocks */
bool hf_words_sort(const struct hf_words *w, int32_t *columns);
/* The smallest type that holds every value exactly: Q4_0, Z4, Q8_0 or F32. */
enum quant_type hf_words_type(const struct hf_words *w);
void hf_words_blocks(const struct hf_words *w, void *out);

/* Bytes [n][k] with a scale, times, for row_share rows and col_share columns: scale[rows][cols]. */
struct hf_bytes {
    int64_t n, k, rows, cols, row_share, col_share;
    const void *bytes;
    const float *scale;
    float times;
    enum quant_type type; /* of the blocks: that of the bytes, or F32 */
};
void hf_bytes_blocks(const struct hf_bytes *b, void *out, enum quant_type of);

/* n numbers, a multiple of 16, out of two codes a byte, the first in the low bits, and scales of 16: blocks of NVFP4, or F32. false: a
 * scale is negative or no number */
bool hf_nvfp4_blocks(void *out, enum quant_type type, const void *codes, const void *scales, int64_t n);
/* 2^(e - 127), below 2^-126 a subnormal float; e: at most 254. */
float hf_power(uint8_t e);
/* n times 32 bytes e4m3 with a power of two each, whose exponents are at most 246: whether BF16 holds every product, and the products as
 * BF16 or F32. */
bool hf_mxfp8_fits(const uint8_t *bytes, const uint8_t *scales, int64_t n);
void hf_mxfp8_rows(void *out, enum quant_type type, const uint8_t *bytes, const uint8_t *scales, int64_t n);
/* n bytes e4m3 as BF16, which has them all. */
void hf_e4m3_floats(uint16_t *out, const uint8_t *bytes, int64_t n);
/* n numbers out of two codes a byte, the first in the high bits, and the largest of each 64: blocks of the type of, which is NF4 or FP4, or
 * F32. */
void hf_bnb4_blocks(void *out, enum quant_type type, enum quant_type of, const void *codes,
                    const float *absmax, int64_t n);
/* What quant_state says, a text of JSON. errors: INFER_E_INPUT, INFER_E_UNSUPPORTED name the tensor */
struct hf_state4 {
    int64_t n, k, nested_block;
    float nested_offset;
};
enum infer_status hf_state4_read(struct hf_state4 *out, const char *path, const struct tensor *t);
