#include "files/hf/hf_words.h"
#include "base/host.h"
#include "files/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TILE_ROWS = 16, TILE_COLS = 256 };
/* Where AWQ has column i of eight. */
static const int awq_place[8] = {0, 4, 1, 5, 2, 6, 3, 7};

static uint32_t word_at(const void *words, int64_t i) {
    uint32_t v;
    memcpy(&v, (const char *)words + 4 * i, 4);
    return v;
}

/* ---- scales and zero points ---- */

bool hf_words_scales(struct hf_words *w, const float *scale, struct arena *arena) {
    const size_t n = (size_t)(w->n * w->groups);
    float *by_row = w->by_row ? NULL : arena_alloc(arena, n * sizeof *by_row);
    w->zero = arena_alloc(arena, n * sizeof *w->zero);
    if (!w->zero || (!w->by_row && !by_row)) return false;
    for (size_t i = 0; i < n; i++) w->zero[i] = (uint16_t)(1 << (w->bits - 1));
    for (int64_t r = 0; r < w->n && by_row; r++)
        for (int64_t g = 0; g < w->groups; g++) by_row[r * w->groups + g] = scale[g * w->n + r];
    w->scale = by_row ? by_row : scale;
    return true;
}

void hf_words_zeros(struct hf_words *w, const void *words, bool awq, int plus) {
    const int per = 32 / w->bits;
    const uint32_t mask = (1u << w->bits) - 1;
    for (int64_t r = 0; r < w->n; r++)
        for (int64_t g = 0; g < w->groups; g++) {
            const int64_t at = w->by_row ? r / per * w->groups + g : g * (w->n / per) + r / per;
            const int place = awq ? awq_place[r % 8] : (int)(r % per);
            w->zero[r * w->groups + g] =
                (uint16_t)((word_at(words, at) >> w->bits * place & mask) + (uint32_t)plus);
        }
}

bool hf_words_sort(const struct hf_words *w, int32_t *columns) {
    const int64_t size = w->k / w->groups;
    bool even = true;
    int64_t *next = calloc((size_t)w->groups, sizeof *next);
    if (!next) return false;
    for (int64_t k = 0; even && k < w->k; k++) {
        const int32_t g = w->index[k];
        even = next[g] < size;
        if (even) columns[g * size + next[g]++] = (int32_t)k;
    }
    free(next);
    return even;
}

enum quant_type hf_words_type(const struct hf_words *w) {
    const int64_t group = w->k / w->groups;
    bool middle = true;
    if ((w->index && !w->columns) || group % 32) return QUANT_F32;
    for (int64_t i = 0; i < w->n * w->groups; i++) {
        if (f16_to_f32(f32_to_f16(w->scale[i])) != w->scale[i]) return QUANT_F32;
        middle &= w->zero[i] == 1 << (w->bits - 1);
    }
    if (w->bits == 4) return middle ? QUANT_Q4_0 : QUANT_Z4;
    return middle ? QUANT_Q8_0 : QUANT_F32;
}

/* ---- codes ---- */

struct code_tile {
    uint8_t u[TILE_ROWS][TILE_COLS];
};

/* Codes of columns k0 .. k0 + nk of rows r0 .. r0 + nr. */
static void read_tile(struct code_tile *t, const struct hf_words *w, int64_t r0, int nr, int64_t k0, int nk) {
    const int per = 32 / w->bits;
    const uint32_t mask = (1u << w->bits) - 1;
    for (int i = 0; i < nk; i++) {
        const int64_t k = w->columns ? w->columns[k0 + i] : k0 + i;
        for (int r = 0; r < nr; r++) {
            const int64_t row = r0 + r;
            int64_t at;
            int place = (int)(k % per);
            if (w->order == HF_WORDS_DOWN)
                at = k / per * w->n + row;
            else if (w->order == HF_WORDS_AWQ)
                at = k * (w->n / 8) + row / 8, place = awq_place[row % 8];
            else
                at = row * w->row_words + k / per;
            t->u[r][i] = (uint8_t)(word_at(w->words, at) >> w->bits * place & mask);
        }
    }
}

/* ---- blocks ---- */

static void put_nibbles(uint8_t q[16], const uint8_t *u) {
    for (int j = 0; j < 16; j++) q[j] = (uint8_t)(u[j] | u[j + 16] << 4);
}
/* 32 codes of row r from column k on, as the block at that place of out. */
static void put_block(const struct hf_words *w, void *out, int64_t r, int64_t k, const uint8_t *u) {
    const int64_t at = r * w->groups + k / (w->k / w->groups), block = (r * w->k + k) / 32;
    const uint16_t d = f32_to_f16(w->scale[at]);
    if (w->type == QUANT_Q4_0) {
        struct block_Q4_0 *b = (struct block_Q4_0 *)out + block;
        b->d = d;
        put_nibbles(b->q, u);
    } else if (w->type == QUANT_Z4) {
        struct block_Z4 *b = (struct block_Z4 *)out + block;
        *b = (struct block_Z4){.d = d, .z = (uint8_t)w->zero[at]};
        put_nibbles(b->q, u);
    } else {
        struct block_Q8_0 *b = (struct block_Q8_0 *)out + block;
        b->d = d;
        for (int j = 0; j < 32; j++) b->q[j] = (int8_t)(u[j] - 128);
    }
}
static void put_floats(const struct hf_words *w, float *out, int64_t r, int64_t k, const uint8_t *u, int n) {
    for (int i = 0; i < n; i++) {
        const int64_t group = w->index ? w->index[k + i] : (k + i) / (w->k / w->groups),
                      at = r * w->groups + group;
        out[r * w->k + k + i] = w->scale[at] * (float)((int)u[i] - (int)w->zero[at]);
    }
}

void hf_words_blocks(const struct hf_words *w, void *out) {
#pragma omp parallel for schedule(dynamic) num_threads(host_threads_pick(0))
    for (int64_t r0 = 0; r0 < w->n; r0 += TILE_ROWS) {
        const int nr = w->n - r0 < TILE_ROWS ? (int)(w->n - r0) : TILE_ROWS;
        struct code_tile t;
        for (int64_t k0 = 0; k0 < w->k; k0 += TILE_COLS) {
            const int nk = w->k - k0 < TILE_COLS ? (int)(w->k - k0) : TILE_COLS;
            read_tile(&t, w, r0, nr, k0, nk);
            for (int r = 0; r < nr; r++) {
                if (w->type == QUANT_F32) put_floats(w, out, r0 + r, k0, t.u[r], nk);
                for (int i = 0; i < nk && w->type != QUANT_F32; i += 32)
                    put_block(w, out, r0 + r, k0 + i, t.u[r] + i);
            }
        }
    }
}

/* ---- bytes ---- */

/* 128 bytes, or fewer, of row r from column k on as one block. */
static void byte_block(const struct hf_bytes *b, struct block_F8_128 *to, int64_t r, int64_t k) {
    const int64_t n = b->k - k < 128 ? b->k - k : 128;
    to->s = b->scale[r / b->row_share * b->cols + k / b->col_share] * b->times;
    memset(to->q, 0, sizeof to->q);
    memcpy(to->q, (const uint8_t *)b->bytes + r * b->k + k, (size_t)n);
}

void hf_bytes_blocks(const struct hf_bytes *b, void *out, enum quant_type of) {
    _Static_assert(sizeof(struct block_F8_128) == sizeof(struct block_I8_128), "blocks of bytes are alike");
#pragma omp parallel for schedule(static) num_threads(host_threads_pick(0))
    for (int64_t r = 0; r < b->n; r++)
        for (int64_t k = 0; k < b->k; k += 128) {
            struct block_F8_128 *blocks = out, one;
            float x[128];
            if (b->type != QUANT_F32) {
                byte_block(b, blocks + (r * b->k + k) / 128, r, k);
                continue;
            }
            byte_block(b, &one, r, k);
            quant_info(of)->decode(x, &one, 128);
            memcpy((float *)out + r * b->k + k, x, sizeof *x * (size_t)(b->k - k < 128 ? b->k - k : 128));
        }
}

/* ---- powers of two ---- */

float hf_power(uint8_t e) { return quant_bits_to_f32(e ? (uint32_t)e << 23 : 0x400000); }

/* What bytes e4m3 stand for. */
static void e4m3_values(float value[256]) {
    struct block_F8_128 b[2];
    for (int i = 0; i < 2; i++) {
        b[i].s = 1;
        for (int j = 0; j < 128; j++) b[i].q[j] = (uint8_t)(128 * i + j);
    }
    quant_info(QUANT_F8_128)->decode(value, b, 256);
}
bool hf_mxfp8_fits(const uint8_t *bytes, const uint8_t *scales, int64_t n) {
    float value[256];
    e4m3_values(value);
    for (int64_t i = 0; i < n; i++) /* from 2^-117 on, the smallest is a normal number */
        for (int j = 0; scales[i] < 10 && j < 32; j++) {
            const float x = value[bytes[32 * i + j]] * hf_power(scales[i]);
            if (quant_f32_to_bits(x) & 0xffff) return false;
        }
    return true;
}
void hf_mxfp8_rows(void *out, enum quant_type type, const uint8_t *bytes, const uint8_t *scales, int64_t n) {
    float value[256];
    e4m3_values(value);
#pragma omp parallel for schedule(static) num_threads(host_threads_pick(0))
    for (int64_t i = 0; i < n; i++)
        for (int j = 0; j < 32; j++) {
            const float x = value[bytes[32 * i + j]] * hf_power(scales[i]);
            if (type == QUANT_BF16)
                ((uint16_t *)out)[32 * i + j] = (uint16_t)(quant_f32_to_bits(x) >> 16);
            else
                ((float *)out)[32 * i + j] = x;
        }
}

void hf_e4m3_floats(uint16_t *out, const uint8_t *bytes, int64_t n) {
    float value[256];
    uint16_t high[256];
    e4m3_values(value);
    for (int i = 0; i < 256; i++) high[i] = (uint16_t)(quant_f32_to_bits(value[i]) >> 16);
#pragma omp parallel for schedule(static) num_threads(host_threads_pick(0))
    for (int64_t i = 0; i < n; i++) out[i] = high[bytes[i]];
}

/* ---- floats of four bits ---- */

/* 64 numbers: four scales, codes of which the first is in the low bits. */
static void nvfp4_block(struct block_NVFP4 *out, const uint8_t *codes, const uint8_t *scales) {
    memcpy(out->s, scales, 4);
    for (int g = 0; g < 4; g++)
        for (int j = 0; j < 8; j++) {
            const uint8_t *q = codes + 8 * g;
            const int low = q[j / 2] >> j % 2 * 4 & 15, high = q[j / 2 + 4] >> j % 2 * 4 & 15;
            out->q[8 * g + j] = (uint8_t)(low | high << 4);
        }
}

bool hf_nvfp4_blocks(void *out, enum quant_type type, const void *codes, const void *scales, int64_t n) {
    bool good = true;
    for (int64_t i = 0; i < n / 16; i++) good &= ((const uint8_t *)scales)[i] < 0x7f;
#pragma omp parallel for schedule(static) num_threads(host_threads_pick(0))
    for (int64_t i = 0; i < n; i += 64) {
        const uint8_t *q = (const uint8_t *)codes + i / 2, *s = (const uint8_t *)scales + i / 16;
        const size_t left = n - i < 64 ? (size_t)(n - i) : 64;
        uint8_t rest[32] = {0}, few[4] = {0};
        struct block_NVFP4 one;
        float x[64];
        if (type == QUANT_NVFP4) {
            nvfp4_block((struct block_NVFP4 *)out + i / 64, q, s);
            continue;
        }
        memcpy(rest, q, left / 2);
        memcpy(few, s, left / 16);
        nvfp4_block(&one, rest, few);
        quant_info(QUANT_NVFP4)->decode(x, &one, 64);
        memcpy((float *)out + i, x, left * sizeof *x);
    }
    return good;
}

/* 64 numbers: their largest, codes of which the first is in the high bits. */
static void bnb4_block(struct block_NF4 *out, const uint8_t *codes, float absmax) {
    out->s = absmax;
    for (int j = 0; j < 32; j++) out->q[j] = (uint8_t)(codes[j] << 4 | codes[j] >> 4);
}

void hf_bnb4_blocks(void *out, enum quant_type type, enum quant_type of, const void *codes,
                    const float *absmax, int64_t n) {
#pragma omp parallel for schedule(static) num_threads(host_threads_pick(0))
    for (int64_t i = 0; i < n; i += 64) {
        const uint8_t *q = (const uint8_t *)codes + i / 2;
        const size_t left = n - i < 64 ? (size_t)(n - i) : 64;
        uint8_t rest[32] = {0};
        struct block_NF4 one;
        float x[64];
        if (type == of) {
            bnb4_block((struct block_NF4 *)out + i / 64, q, absmax[i / 64]);
            continue;
        }
        memcpy(rest, q, (left + 1) / 2);
        bnb4_block(&one, rest, absmax[i / 64]);
        quant_info(of)->decode(x, &one, 64);
        memcpy((float *)out + i, x, left * sizeof *x);
    }
}

static enum infer_status state_of(struct hf_state4 *out, const json_t *root, const char *path,
                                  const char *name) {
    const json_t *shape = json_object_get(root, "shape"), *block = json_object_get(root, "blocksize");
    if (json_array_size(shape) != 2)
        return err_set(INFER_E_INPUT, "%s: tensor %.200s: its 'shape' is not two numbers", path, name);
    if (json_integer_value(block) != 64)
        return err_set(INFER_E_UNSUPPORTED, "%s: tensor %.200s: blocks of 64 are supported, not of %lld",
                       path, name, (long long)json_integer_value(block));
    out->n = json_integer_value(json_array_get(shape, 0)),
    out->k = json_integer_value(json_array_get(shape, 1));
    out->nested_block = json_integer_value(json_object_get(root, "nested_blocksize"));
    out->nested_offset = (float)json_number_value(json_object_get(root, "nested_offset"));
    if (out->n < 1 || out->k < 1 || out->n > INT32_MAX || out->k > INT32_MAX || !isfinite(out->nested_offset))
        return err_set(INFER_E_INPUT, "%s: tensor %.200s: its 'shape' or 'nested_offset' is no such number",
                       path, name);
    return INFER_OK;
}
enum infer_status hf_state4_read(struct hf_state4 *out, const char *path, const struct tensor *t) {
    json_t *root;
    enum infer_status s = json_read(&root, path, t->data, t->bytes, JSON_REJECT_DUPLICATES);
    if (s) return err_prefix(s, "tensor %.200s", t->name);
    s = state_of(out, root, path, t->name);
    json_decref(root);
    return s;
}
