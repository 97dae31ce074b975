/* What the CPU backend calls of its kernels: a table an instruction set, filled by the files compiled for it. */
#pragma once
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include "cpu/simd/act_q8.h"
#include "seam/backend.h"

enum {
    CPU_UNIT_ROWS = 32,                  /* weight rows of a unit: 32, or 16 where there are few */
    CPU_LANES = 16,                      /* tokens side by side in a prompt panel */
    CPU_PANEL_ROWS = 32,                 /* weight rows of a prompt unit */
    CPU_PANEL_K = 2048,                  /* columns of weights unpacked at a time */
    CPU_PANEL_STRIDE = CPU_PANEL_K + 32, /* elements of an unpacked row: neighbours in other cache sets */
    CPU_TILE_ROWS = 16,                  /* decode rows of one AMX product */
    CPU_TILE_ELEMS = 16 * 32,            /* BF16 of one AMX tile: 16 rows x 32 columns */
    CPU_PANEL_TOKENS = 512               /* prompt tokens that share one unpacking */
};

/* Rows of activations as a kernel reads them: columns 256 c .. of row t are at + t row + c chunk; struct cpu_x8 or
 * cpu_x16 (a prompt has the same columns of all rows one after the other, so that they are one stream), or floats. */
struct cpu_x {
    const uint8_t *at;
    size_t row, chunk; /* bytes */
};

/* Bytes of a scale in a copy. */
static inline size_t cpu_copied_scale(enum quant_scale_form form) {
    return form == QUANT_SCALES_ANY ? sizeof(float) : form == QUANT_SCALES_HALF ? sizeof(uint16_t) : 1;
}
/* out[t * CPU_UNIT_ROWS + r] = W[r] . x[t] for n <= CPU_UNIT_ROWS rows. w: first row, stride bytes apart. x: T rows. out is
 * written in panels of CPU_LANES rows. copy: of these rows in the order of the kernel's own reading, cpu_copy_bytes, NULL: none;
 * copied: read it instead of w, else it is written. The sum of one output is the same for every T and n. */
typedef void cpu_row_fn(const uint8_t *w, size_t stride, int n, int k, struct cpu_x x, int T, float *out,
                        uint8_t *copy, bool copied);
static inline size_t cpu_copy_bytes(enum quant_type type, size_t stride, int n, int k) {
    const struct quant_code_set *set = quant_code_set(type);
    const size_t rows = (size_t)(n + 15) / 16 * 16, columns = (size_t)cpu_kp(k);
    const size_t twice = type == QUANT_Q3_K ? columns / 128 : 0; /* two bytes of 256 columns are read twice */
    if (!set) return (rows * (stride + twice) + 63) / 64 * 64;
    return rows * (columns * (size_t)quant_code_bits(set->form) / 8 + /* gemm_code_copy.h */
                   columns / (size_t)set->group * cpu_copied_scale(set->scales) +
                   (set->scales == QUANT_SCALES_STEPS ? columns / 64 : 0));
}

/* The same of CPU_TILE_ROWS rows of x from a copy, by AMX, where the last 256 columns have 64 at least; NULL for some types. */
typedef void cpu_tiles_fn(uint8_t *copy, int n, int k, struct cpu_x x, float *out);
extern cpu_tiles_fn *const cpu_gemm_int8_amx[QUANT_COUNT];
static inline bool cpu_tiles_can(enum quant_type t, int k) {
    return cpu_gemm_int8_amx[t] && (k % 256 == 0 || k % 256 >= 64);
}

/* Decodes k elements of one row (whole blocks): to float, or to bf16 in tiles (32 columns together, the next 32
 * CPU_TILE_ELEMS further; zeros up to a multiple of 32). */
typedef void cpu_dequant_fn(void *y, const void *blocks, const uint8_t *end, int k);

struct cpu_attend_arg {
    const struct op_attend *op;
    const struct kv_store *store;
    /* [n_kv_head][KV_PAGE][row bytes], the next page page_stride bytes further */
    const uint8_t *k_pool, *v_pool;
    size_t page_stride;
    int heads;            /* query heads of a call of attend_row and attend_merge */
    const int32_t *pages; /* pages of the rows' sequence */
    const int32_t
        *until; /* until[n] of the rows of a block: what they see beyond themselves; NULL: nothing */
    /* Of one row: the positions that it looks at, which are then counted in the place of its sequence's, from 0 on; NULL: all */
    const float *chosen;
    /* Of such a row: the first n_near of the list are positions from near on of its own store, the others chosen (every > 0: the last ones of
     * runs of so many) positions of this one, whose pages these are. listed: there is a list */
    bool listed;
    int n_near, near, every;
    const uint8_t *list_pool;
    const struct kv_store *list_store;
    size_t list_stride;
    const int32_t *list_pages;
};
/* The last position that row t of a block sees. */
static inline int cpu_attend_last(const struct cpu_attend_arg *a, const int32_t *pos, int t) {
    return a->until && a->until[t] > pos[t] ? a->until[t] : pos[t];
}

/* The scale of a row's scores. */
static inline float cpu_attend_scale(const struct op_attend *op, int pos) {
    if (op->temp_beta == 0) return op->scale;
    return op->scale * (1 + op->temp_beta * logf((float)(1 + (pos + op->temp_offset) / op->temp_len)));
}

/* Attention over the rows of a step, one head: k[n_row][k_stride], v[n_row][v_stride], already at the head's columns. */
struct cpu_rows_arg {
    const struct op_attend *op;
    const float *k, *v;
    size_t k_stride, v_stride;
    int dk, dv;
    const int32_t *slot; /* slot[n_row]: a row sees those that have its own; NULL: all */
    int n_row;
    const float *sink; /* of the head; NULL: none */
    const float *bias; /* of the head, bias[2 op->n_bias + 1]; NULL: none */
};

typedef void cpu_attend_block_fn(const struct cpu_attend_arg *a, int kv_head, const int32_t *pos, int n,
                                 int head0, int heads, const float *q, size_t q_stride, float *out,
                                 size_t out_stride, float *scratch);

/* Rows of one sequence for an operation with a matrix of each head: what comes of a convolution, the steps (and, delta, beta), the output;
 * floats from a row to the next; how many, and the position of the first. */
enum { CPU_STATE_COLUMNS = 32 }; /* of a matrix, whose work is not shared */
struct cpu_state_rows {
    const float *x, *a, *b;
    float *out;
    size_t x_stride, a_stride, b_stride, out_stride;
    int n, pos;
};

/* What becomes of rows of a product: v [T][n], bias [n], other [T][n], act (all three NULL: none), out [T][n]; rows so many floats
 * apart. */
struct cpu_sums {
    const float *v, *bias, *other;
    float *out;
    size_t v_stride, other_stride, out_stride;
    const struct op_glu *act; /* without up */
};

struct cpu_kernels {
    const char *name;
    void (*norm)(const struct op_norm *op, const float *x, float *out, int n);
    void (*rope)(const struct op_rope *op, const float *cs, float *x);
    /* up NULL: 1 */
    void (*glu)(const struct op_glu *op, const float *gate, const float *up, float *out, int n);
    /* Channels c0 .. c1 of n rows of one sequence that begin at position pos; rows of x and out begin at channel 0. */
    void (*conv)(const struct op_conv *op, int c0, int c1, int n, int pos, const float *x, size_t x_stride,
                 float *out, size_t out_stride, float *state);
    /* Columns c0 .. c1 of the state of value head h; state: of the sequence. */
    void (*delta)(const struct op_delta *op, int h, int c0, int c1, const struct cpu_state_rows *rows,
                  float *state);
    void (*ssm)(const struct op_ssm *op, int h, int c0, int c1, const struct cpu_state_rows *rows,
                float *state);
    void (*add)(const float *a, const float *b, float *out, int n);
    /* out[n] = scale * shared[n] (NULL: 0) + sum_j w[j] (NULL: 1) * x[j * stride ..], j < n_x ascending */
    void (*mix)(const float *w, int n_x, const float *x, size_t stride, const float *shared, float scale,
                float *out, int n);
    /* One row of x, 256 columns every chunk bytes. */
    void (*quantise)(void *y, size_t chunk, const float *x, int k);   /* struct cpu_x8 */
    void (*quantise16)(void *y, size_t chunk, const float *x, int k); /* struct cpu_x16 */
    /* Two rows of struct cpu_x8: x, and behind it what is lost in that, whose products are added (struct weight, fine). */
    void (*quantise_twice)(void *y, const float *x, int k);
    void (*kv_store)(enum kv_type type, uint8_t *dst, const float *src, int n,
                     int turn);                                                /* turn: kv_turn_of */
    void (*kv_load)(enum kv_type type, float *dst, const uint8_t *src, int n); /* turned as it was kept */
    void (*kv_turn)(float *x, int n, int block, int lanes);                    /* kv_low.h */
    bool (*finite)(const float *x, int n);
    /* lowest index of the maximum of x[n], n > 0 */
    int (*argmax)(const float *x, int n);
    /* at[..] = the places of x[n] that are at least limit, ascending; how many */
    int (*above)(const float *x, int n, float limit, int32_t *at);
    /* out: m, the maximum of x[n]; the sums of exp(x - m) and of exp(scale (x - m)), 0 where m is -infinity. x without NaN. */
    void (*exp_sums)(const float *x, int n, float scale, float out[3]);
    cpu_row_fn *const *gemv_float; /* gemv_float[QUANT_COUNT]: float types; these read float rows of x */
    /* gemv_fine[QUANT_COUNT]: the same of fine weights whose values codes of 8 bits do not hold */
    cpu_row_fn *const *gemv_fine;
    cpu_row_fn *const *gemm_int8; /* gemm_int8[QUANT_COUNT]: quantised types, reading struct cpu_x8 */
    cpu_row_fn *const
        *gemm_int16; /* gemm_int16[QUANT_COUNT]: prompts by struct cpu_x16; NULL for the other types */
    cpu_row_fn *const *fine_int16; /* fine_int16[QUANT_COUNT]: the same of fine weights: types of folders */
    /* Decode rows: one row, one kv head with G = heads of its query heads, q [G][hk]: the pages page .. end of its context.
     * part: out [G][hv], not yet divided; maximum [G]; sum [G]. Then all parts in order: out [G][hv]. */
    void (*attend_row)(const struct cpu_attend_arg *a, int kv_head, int pos, int page, int end,
                       const float *q, float *part, float *scratch);
    void (*attend_merge)(const struct cpu_attend_arg *a, int kv_head, int n, const float *part, float *out);
    /* score[p] of the positions of pages page .. end, for the row at pos with q [n_head][hk] and w [n_head], NULL: 1; by_head: score[h][p], rows
     * row floats apart. */
    void (*index_row)(const struct cpu_attend_arg *a, const struct op_index *op, int pos, int page, int end,
                      const float *q, const float *w, float *score, int row, float *scratch);
    /* Prompt rows: n rows of one sequence, the query heads head0 .. head0 + heads of one kv head, n * heads <=
     * CPU_ATTEND_LANES. q, out: rows q_stride, out_stride floats apart, already at head0. pos[n]. */
    cpu_attend_block_fn *attend_block;
    /* Rows t .. t + n of a step, of one slot, n <= CPU_ATTEND_LANES; q, out already at row t and the head's columns. */
    void (*attend_rows)(const struct cpu_rows_arg *a, int t, int n, const float *q, size_t q_stride,
                        float *out, size_t out_stride, float *scratch);
    /* out = act(v + bias + other), in that order, of n columns and T rows. */
    void (*sum_rows)(const struct cpu_sums *s, int n, int T);
    /* Prompt matmul (cpu_matmul.c): x panel[k][CPU_LANES]; acc[panel][CPU_PANEL_ROWS][CPU_LANES] += w x; the
     * transpose of one panel's acc. */
    void (*prep_f32)(float *panel, const float *x, size_t x_stride, int n_row, int k);
    void (*gemm_f32)(const float *w, size_t w_stride, int k, const float *panel, size_t panel_stride,
                     int n_panel, float *acc);
    void (*untile)(const float *acc, float *y);
    cpu_dequant_fn *const *dequant_f32;  /* [QUANT_COUNT] */
    cpu_dequant_fn *const *dequant_bf16; /* [QUANT_COUNT], NULL on AVX2 */
};
static inline bool cpu_is_float(enum quant_type t) {
    return t == QUANT_F32 || t == QUANT_F16 || t == QUANT_BF16;
}
/* Does a weight's decode kernel take x as it is; or twice, as quantise_twice has it; else in 8 bits. */
static inline bool cpu_reads_floats(const struct cpu_kernels *k, const struct weight *w) {
    return cpu_is_float(w->type) || (w->fine && k->gemv_fine[w->type]);
}
static inline bool cpu_reads_twice(const struct cpu_kernels *k, const struct weight *w) {
    return w->fine && !cpu_reads_floats(k, w);
}
/* A prompt's kernel by struct cpu_x16, NULL: none. */
static inline cpu_row_fn *cpu_int16(const struct cpu_kernels *k, const struct weight *w) {
    return w->fine ? k->fine_int16[w->type] : k->gemm_int16[w->type];
}
extern cpu_row_fn *const cpu_gemv_float_avx2[QUANT_COUNT], *const cpu_gemv_float_avx512[QUANT_COUNT];
extern cpu_row_fn *const cpu_gemv_fine_avx2[QUANT_COUNT], *const cpu_gemv_fine_avx512[QUANT_COUNT];
extern cpu_row_fn *const cpu_fine_int16_avx2[QUANT_COUNT], *const cpu_fine_int16_avxvnni[QUANT_COUNT],
                                                               *const cpu_fine_int16_avx512[QUANT_COUNT];
extern cpu_row_fn *const cpu_gemm_int8_avx2[QUANT_COUNT], *const cpu_gemm_int8_avxvnni[QUANT_COUNT],
                                                              *const cpu_gemm_int8_avx512[QUANT_COUNT];
extern cpu_row_fn *const cpu_gemm_int16_avx2[QUANT_COUNT], *const cpu_gemm_int16_avxvnni[QUANT_COUNT],
                                                               *const cpu_gemm_int16_avx512[QUANT_COUNT];
extern cpu_dequant_fn *const cpu_dequant_f32_avx2[QUANT_COUNT], *const cpu_dequant_f32_avx512[QUANT_COUNT];
extern cpu_dequant_fn *const cpu_dequant_bf16_avx512[QUANT_COUNT];
extern const struct cpu_kernels cpu_kernels_avx2, cpu_kernels_avxvnni, cpu_kernels_avx512;

/* Query rows side by side in attend_block; floats of scratch of the attention kernels. */
enum { CPU_ATTEND_LANES = 32 };
/* Parts of a decode row's context at most, pages of one at least; rows of a step up to which threads share a row. */
enum { CPU_ATTEND_PARTS = 32, CPU_PART_PAGES = 4, CPU_PART_ROWS = 8 };

/* AMX, BF16 (gemm_bf16_amx.c): x panels of pairs [kp/2][CPU_LANES][2]; weights in tiles [2][CPU_PANEL_K/32][16][32];
 * kp: k rounded up to 32. */
void cpu_amx_begin(void);
void cpu_amx_end(void);
void cpu_amx_prep(uint16_t *panel, const float *x, size_t x_stride, int n_row, int k);
/* Rows of weights still to be unpacked, 256 columns of a row at a time. */
struct cpu_amx_rows {
    cpu_dequant_fn *unpack;
    uint16_t *dst; /* [2][CPU_PANEL_K / 32][16][32] */
    const uint8_t *src, *end;
    size_t stride, bytes_256; /* of a row; of 256 columns */
    int n, k, next, total;    /* rows, columns; pieces done and to do */
};
void cpu_amx_dequant(struct cpu_amx_rows *r, int pieces);
/* acc[panel] += w . panel; meanwhile, between the products of 256 columns, the rows of the next call are unpacked:
 * the tile unit works by itself for 500 cycles then. */
void cpu_amx_gemm(const uint16_t *w, int kp, const uint16_t *panel, size_t panel_stride, int n_panel,
                  float *acc, struct cpu_amx_rows *next);
/* attend_amx.c: as attend_block, n * heads <= CPU_AMX_ATTEND_ROWS; floats of its scratch. */
enum { CPU_AMX_ATTEND_ROWS = 128 };
cpu_attend_block_fn cpu_amx_attend_block;
size_t cpu_amx_attend_floats(int hk, int hv);
