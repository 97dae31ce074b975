/* Inside the CPU backend: the compiled list, the team's shared state, the kernel tables.
 *
 * A step is one parallel region. Every thread walks the compiled list; an op takes its share itself: fixed
 * rows, or units from the op's ranges (cpu_unit_next), and one thread sums one element in a fixed order, so
 * the bits do not depend on who computes what. Every buffer is float32. Kernels come from one table per
 * instruction set (struct cpu_kernels), filled by the files compiled for it. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "backend.h"
#include "cpu_isa.h"
#include "mem.h"
#include "topology.h"

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

/* ---- activations, quantised: what a matmul on quantised weights reads ---- */

/* 256 columns of one row: x = d (q + 128 hi), |q| <= 127. hi is 0 but in CPU_FAR groups of four columns, those of the
 * largest |x|: outliers would else cost all others their bits. s: sums of x / d over 32 and 16 columns; p: sums of q over the
 * columns with k % 4 < 2 (low half) and >= 2 (high half). far: index of a group, in order of size; hi: its four int8; hp:
 * their sums as p; 0 of group 0 where there are fewer. Zeros past the last column. */
enum { CPU_FAR = 5 };
struct cpu_x8 {
    int8_t q[256];
    float d, s32[8], s16[16];
    int32_t p32[8], p16[16];
    int32_t hi[CPU_FAR], hp[CPU_FAR];
    uint8_t far[CPU_FAR];
};
/* 256 columns of one row in 16 bits, for F16 and BF16 weights: x = d q. The sum of |q| over each 64 columns, times
 * the largest weight CPU_X16_WEIGHT, is below 2^31. */
enum { CPU_X16_WEIGHT = 8191 };
struct cpu_x16 {
    int16_t q[256];
    float d;
};
static inline int cpu_kp(int k) { return (k + 255) & ~255; }
/* Floats from one normed row to the next: a line more than whole pages, or 16 rows would share the sets of the cache. */
static inline size_t cpu_norm_floats(int k) { return (size_t)cpu_kp(k) + 16; }
static inline size_t cpu_x8_bytes(int k) { return (size_t)cpu_kp(k) / 256 * sizeof(struct cpu_x8); }

static inline size_t cpu_x16_bytes(int k) { return (size_t)cpu_kp(k) / 256 * sizeof(struct cpu_x16); }

/* ---- kernels ---- */

/* Rows of activations as a kernel reads them: columns 256 c .. of row t are at + t row + c chunk; struct cpu_x8 or
 * cpu_x16 (a prompt has the same columns of all rows one after the other, so that they are one stream), or floats. */
struct cpu_x {
    const uint8_t *at;
    size_t row, chunk; /* bytes */
};

/* out[t * CPU_UNIT_ROWS + r] = W[r] . x[t] for n <= CPU_UNIT_ROWS rows. w: first row, stride bytes apart. x: T rows. out is
 * written in panels of CPU_LANES rows. copy: of these rows in the order of the kernel's own reading, cpu_copy_bytes, NULL: none;
 * copied: read it instead of w, else it is written. The sum of one output is the same for every T and n. */
typedef void cpu_row_fn(const uint8_t *w, size_t stride, int n, int k, struct cpu_x x, int T, float *out,
                        uint8_t *copy, bool copied);
static inline size_t cpu_copy_bytes(size_t stride, int n, int k) { /* two bytes of Q3_K are read twice */
    return ((size_t)(n + 15) / 16 * 16 * (stride + (size_t)cpu_kp(k) / 128) + 63) / 64 * 64;
}

/* The same of CPU_TILE_ROWS rows of x from a copy, by AMX, where the last 256 columns have 64 at least; NULL for some types. */
typedef void cpu_tiles_fn(uint8_t *copy, int n, int k, struct cpu_x x, float *out);
extern cpu_tiles_fn *const cpu_tiles_amx[QUANT_COUNT];
static inline bool cpu_tiles_can(enum quant_type t, int k) {
    return cpu_tiles_amx[t] && (k % 256 == 0 || k % 256 >= 64);
}

/* Decodes k elements of one row (whole blocks): to float, or to bf16 in tiles (32 columns together, the next 32
 * CPU_TILE_ELEMS further; zeros up to a multiple of 32). */
typedef void cpu_unpack_fn(void *y, const void *blocks, const uint8_t *end, int k);

struct cpu_attend_arg {
    const struct op_attend *op;
    const struct kv_store *store;
    enum kv_type type;
    const uint8_t *k_pool,
        *v_pool; /* [n_kv_head][KV_PAGE][row bytes], the next page page_stride bytes further */
    size_t page_stride;
    const int32_t *pages; /* pages of the rows' sequence */
};

typedef void cpu_attend_block_fn(const struct cpu_attend_arg *a, int kv_head, const int32_t *pos, int n,
                                 int head0, int heads, const float *q, size_t q_stride, float *out,
                                 size_t out_stride, float *scratch);

struct cpu_kernels {
    const char *name;
    void (*norm)(const struct op_norm *op, const float *x, float *out, int n);
    void (*rope)(const struct op_rope *op, const float *cs, float *x);
    void (*glu)(enum act_kind act, const float *gate, const float *up, float *out, int n);
    void (*add)(const float *a, const float *b, float *out, int n);
    /* One row of x, 256 columns every chunk bytes. */
    void (*quantise)(void *y, size_t chunk, const float *x, int k);   /* struct cpu_x8 */
    void (*quantise16)(void *y, size_t chunk, const float *x, int k); /* struct cpu_x16 */
    void (*kv_store)(enum kv_type type, uint8_t *dst, const float *src, int n);
    void (*kv_load)(enum kv_type type, float *dst, const uint8_t *src, int n);
    bool (*finite)(const float *x, int n);
    /* lowest index of the maximum of x[n], n > 0 */
    int (*argmax)(const float *x, int n);
    cpu_row_fn *const *row;   /* row[QUANT_COUNT]: float types; these read float rows of x */
    cpu_row_fn *const *panel; /* panel[QUANT_COUNT]: quantised types, reading struct cpu_x8 */
    cpu_row_fn *const
        *panel16; /* panel16[QUANT_COUNT]: prompts by struct cpu_x16; NULL for the other types */
    /* Decode rows: one row, one kv head with its G query heads, q [G][hk]: the pages page .. end of its context.
     * part: out [G][hv], not yet divided; maximum [G]; sum [G]. Then all parts in order: out [G][hv]. */
    void (*attend_row)(const struct cpu_attend_arg *a, int kv_head, int pos, int page, int end,
                       const float *q, float *part, float *scratch);
    void (*attend_merge)(const struct cpu_attend_arg *a, int kv_head, int n, const float *part, float *out);
    /* Prompt rows: n rows of one sequence, the query heads head0 .. head0 + heads of one kv head, n * heads <=
     * CPU_ATTEND_LANES. q, out: rows q_stride, out_stride floats apart, already at head0. pos[n]. */
    cpu_attend_block_fn *attend_block;
    /* Prompt matmul (cpu_matmul.c): x panel[k][CPU_LANES]; acc[panel][CPU_PANEL_ROWS][CPU_LANES] += w x; the
     * transpose of one panel's acc. */
    void (*prep_f32)(float *panel, const float *x, size_t x_stride, int n_row, int k);
    void (*gemm_f32)(const float *w, int k, const float *panel, size_t panel_stride, int n_panel, float *acc);
    void (*untile)(const float *acc, float *y);
    cpu_unpack_fn *const *unpack_f32;  /* [QUANT_COUNT] */
    cpu_unpack_fn *const *unpack_bf16; /* [QUANT_COUNT], NULL on AVX2 */
};
static inline bool cpu_is_float(enum quant_type t) {
    return t == QUANT_F32 || t == QUANT_F16 || t == QUANT_BF16;
}
extern cpu_row_fn *const cpu_rows_avx2[QUANT_COUNT], *const cpu_rows_avx512[QUANT_COUNT];
extern cpu_row_fn *const cpu_panels_avx2[QUANT_COUNT], *const cpu_panels_avxvnni[QUANT_COUNT],
                                                           *const cpu_panels_avx512[QUANT_COUNT];
extern cpu_row_fn *const cpu_panels16_avx2[QUANT_COUNT], *const cpu_panels16_avxvnni[QUANT_COUNT],
                                                             *const cpu_panels16_avx512[QUANT_COUNT];
extern cpu_unpack_fn *const cpu_unpack_f32_avx2[QUANT_COUNT], *const cpu_unpack_f32_avx512[QUANT_COUNT];
extern cpu_unpack_fn *const cpu_unpack_bf16_avx512[QUANT_COUNT];
extern const struct cpu_kernels cpu_kernels_avx2, cpu_kernels_avxvnni, cpu_kernels_avx512;

/* Query rows side by side in attend_block; floats of scratch of the attention kernels. */
enum { CPU_ATTEND_LANES = 32 };
/* Parts of a decode row's context at most, pages of one at least; rows of a step up to which threads share a row. */
enum { CPU_ATTEND_PARTS = 32, CPU_PART_PAGES = 4, CPU_PART_ROWS = 8 };

/* AMX, BF16 (cpu_amx.c): x panels of pairs [kp/2][CPU_LANES][2]; weights in tiles [2][CPU_PANEL_K/32][16][32];
 * kp: k rounded up to 32. */
void cpu_amx_begin(void);
void cpu_amx_end(void);
void cpu_amx_prep(uint16_t *panel, const float *x, size_t x_stride, int n_row, int k);
/* Rows of weights still to be unpacked, 256 columns of a row at a time. */
struct cpu_amx_rows {
    cpu_unpack_fn *unpack;
    uint16_t *dst; /* [2][CPU_PANEL_K / 32][16][32] */
    const uint8_t *src, *end;
    size_t stride, bytes_256; /* of a row; of 256 columns */
    int n, k, next, total;    /* rows, columns; pieces done and to do */
};
void cpu_amx_unpack(struct cpu_amx_rows *r, int pieces);
/* acc[panel] += w . panel; meanwhile, between the products of 256 columns, the rows of the next call are unpacked:
 * the tile unit works by itself for 500 cycles then. */
void cpu_amx_gemm(const uint16_t *w, int kp, const uint16_t *panel, size_t panel_stride, int n_panel,
                  float *acc, struct cpu_amx_rows *next);
/* cpu_attend_amx.c: as attend_block, n * heads <= CPU_AMX_ATTEND_ROWS; floats of its scratch. */
enum { CPU_AMX_ATTEND_ROWS = 128 };
cpu_attend_block_fn cpu_amx_attend_block;
size_t cpu_amx_attend_floats(int hk, int hv);

/* ---- the compiled list ---- */

struct cpu_op;
struct cpu_step;
typedef void cpu_fn(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread);

/* What a matmul does with its outputs. */
/* How a prompt matmul multiplies. */
enum cpu_route { CPU_ROUTE_F32, CPU_ROUTE_BF16 /* AMX tiles */, CPU_ROUTE_INT8, CPU_ROUTE_INT16 };

enum cpu_epilogue { CPU_EPI_STORE, CPU_EPI_ADD, CPU_EPI_GLU };

/* A weight's units of one decode matmul as its kernel reads them; made by the first step that reads the file. */
struct cpu_copy {
    uint8_t *data;
    size_t unit_bytes;
    uint8_t *made; /* [units] */
};

struct cpu_op {
    cpu_fn *fn;
    const struct op *op;
    bool barrier;  /* after this op */
    int index;     /* of its ranges */
    int n_unit;    /* units to share; 0: fixed shares */
    int unit_rows; /* weight rows of a matmul's unit; rows of a block of prompt attention */
    bool per_row;  /* n_unit units for every unit_rows rows of the step */
    /* matmul: what compile folded in */
    const struct op *norm; /* norm of the input, NULL: none */
    const struct op *post; /* add or glu that follows, by epilogue */
    enum cpu_epilogue epilogue;
    bool need_x8;          /* a member reads quantised activations */
    struct cpu_copy *copy; /* [n_member], NULL: none */
    enum cpu_route route;
    /* attend: rope and kv_put folded in */
    const struct op *rope_q, *rope_k, *put;
    int cs; /* rope: index of its cos/sin table */
};

/* One thread's range of units of one op; next is taken by the owner and, when he is late, by others. */
struct cpu_range {
    _Alignas(64) atomic_int next;
    int end;
};

struct cpu_list {
    const struct op_list *list;
    struct cpu_op *op;
    int n_op;
    bool ready;
};

enum { CPU_RING = 4, CPU_ROPES = 8 };

struct cpu_result {
    enum infer_status status;
    const struct op *fault_op;
    int32_t *token; /* [max_out] */
    float *logits;  /* [max_out][n_vocab], NULL without want_logits */
    bool has_logits;
};

struct cpu_work {     /* one thread's own memory */
    float *norm;      /* [CPU_OWN_ROWS][kp max]: normed rows */
    uint8_t *x8;      /* [CPU_OWN_ROWS]: quantised rows */
    float *out;       /* [2][decode rows][CPU_UNIT_ROWS]: a unit's outputs; the second for a folded glu */
    float *scratch;   /* attention */
    float *part;      /* [CPU_ATTEND_PARTS] parts of one kv head */
    uint8_t *weights; /* [CPU_PANEL_ROWS][CPU_PANEL_STRIDE] float or bf16 */
    float *acc;       /* [2][CPU_PANEL_TOKENS / CPU_LANES][CPU_PANEL_ROWS][CPU_LANES] */
};
enum {
    CPU_OWN_ROWS = 2 /* up to so many decode rows every thread prepares its own copy of the activations */
};

/* How many threads the next step has (cpu_team.c). Times in ns. */
struct cpu_team {
    int n;
    bool trial;    /* of one thread more than did well lately */
    int n_failed;  /* windows of steps that had too many threads, less those that did well */
    int64_t wall;  /* of the steps of this window */
    int64_t lost;  /* in them, by threads that had no processor, all together */
    int64_t until; /* no trial before, and for 8 s after it only where there is room */
    bool (*room)(void);
};
/* Do fewer threads want a processor than the machine has? Where it cannot be seen, true; of a container's share it says nothing. */
bool cpu_room(void);
/* After a step that ended now. n_thread: the most there are. */
void cpu_team_next(struct cpu_team *t, int n_thread, int64_t now, int64_t wall, int64_t lost);
int64_t cpu_now(void);

/* How long the calling thread had no processor from begin to end, though it wanted one: ns, 0 where it slept meanwhile. */
struct cpu_watch {
    int64_t wall, own;
    long sleeps;
};
struct cpu_watch cpu_watch_begin(void);
int64_t cpu_watch_end(const struct cpu_watch *begin);

struct cpu {
    struct backend base;
    struct backend_config config;
    enum cpu_isa isa;
    const struct cpu_kernels *k;
    int n_thread;
    struct cpu_team team;
    struct topology_set
        *node; /* node[n_thread]: the hardware threads that each thread is bound to, NULL: one NUMA node */
    unsigned placement; /* its number, for threads to know whether they are bound by it */
    char description[160];
    struct arena arena; /* everything below */
    char *activations;
    uint8_t **k_pool, **v_pool; /* page 0 of each store */
    size_t *page_stride; /* bytes from page to page of each group: a page of all its stores lies together,
                                   so memory is touched as the context grows */
    struct cpu_list list[ROW_CLASS_COUNT];
    const struct rope *rope[CPU_ROPES];
    int n_rope;
    float *cs;      /* [n_rope][max rows][2][n_rot_max/2]: cos, sin */
    int cs_width;   /* floats of one row of one rope */
    int cs_rows;    /* max rows */
    uint8_t *x8;    /* shared quantised activations of decode rows */
    float *norm;    /* shared normed rows of decode steps */
    uint8_t *panel; /* shared x panels, or quantised rows, of prompt steps */
    float *part;    /* parts of up to CPU_PART_ROWS decode rows: [row][kv head][CPU_ATTEND_PARTS] */
    struct cpu_work *work;
    struct cpu_range *range; /* [n_range][n_thread] */
    int n_range;
    float *best_value; /* argmax of the head: [n_thread][best_rows] */
    int32_t *best_index;
    int best_rows;
    int32_t *last; /* last[n_slot] */
    struct cpu_result ring[CPU_RING];
    unsigned head, tail; /* results written, results taken */
    atomic_int cancel;
    unsigned n_decode; /* decode steps so far */
    void *copies;      /* cpu_copy.c */
    size_t copies_bytes;
};

/* What varies: the step, and what the team shares while it runs. */
struct cpu_step {
    struct cpu *cpu;
    const struct cpu_list *list;
    const struct step *s;
    struct cpu_result *result;
    int n_row, n_out;
    _Alignas(64) atomic_int arrived; /* at the barrier */
    _Alignas(64) atomic_uint turn;   /* barriers passed */
    atomic_int n_team;               /* threads of this step */
    atomic_llong lost;               /* ns: its threads had no processor, all together */
    _Alignas(64) atomic_int stop_at; /* the op after whose barrier all leave */
    atomic_int fault;                /* enum infer_status */
    const struct op *_Atomic fault_op;
};

/* ---- helpers that ops use ---- */

static inline int cpu_rows(const struct cpu_step *s, struct view v) {
    return s->list->list->buf[v.buf].rows == BUF_ROWS_OUT ? s->n_out : s->n_row;
}
static inline size_t cpu_stride(const struct cpu_step *s, struct view v) { /* floats */
    return s->list->list->buf[v.buf].row_bytes / sizeof(float);
}
static inline float *cpu_row(const struct cpu_step *s, struct view v, int t) {
    const struct buf *b = &s->list->list->buf[v.buf];
    return (float *)(void *)(s->cpu->activations + b->offset + (size_t)t * b->row_bytes) + v.col;
}
/* Share of n items: from *a to *b. */
static inline void cpu_share(int n, int thread, int n_thread, int *a, int *b) {
    *a = (int)((int64_t)n * thread / n_thread);
    *b = (int)((int64_t)n * (thread + 1) / n_thread);
}
/* Next unit for this thread, -1: none left. */
int cpu_unit_next(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread, int *victim);
void cpu_barrier(struct cpu_step *s);
/* The first fault wins. */
void cpu_fault(struct cpu_step *s, const struct op *op, enum infer_status status);

/* One head of one row into its page. */
void cpu_put_head(const struct op *op, struct cpu_step *s, int t, int h);
/* Decode attention (cpu_attend.c): its units in this step; floats of all parts of a row's heads. */
int cpu_attend_units(const struct cpu_op *op, const struct cpu_step *s);
size_t cpu_attend_part_floats(int heads, int hv);

cpu_fn cpu_op_embed, cpu_op_norm, cpu_op_rope, cpu_op_kv_put, cpu_op_glu, cpu_op_add, cpu_op_rows,
    cpu_op_select;
cpu_fn cpu_op_matmul_decode, cpu_op_matmul_prompt, cpu_op_attend_decode, cpu_op_attend_prompt;

/* Copies for the matmuls of a compiled decode list (cpu_copy.c); bytes: 0 where memory is not plenty. */
size_t cpu_copies_bytes(const struct backend_config *c, int n_thread);
void cpu_copies_open(struct cpu *c, struct cpu_list *list);
void cpu_copies_close(struct cpu *c);

/* Compile (cpu_compile.c): ops of one list; units and routes. Needs l->op of list->n_op entries. */
enum infer_status cpu_compile_list(struct cpu *c, enum row_class cls);

/* Prompt attention on tiles? Not where 32 bits are asked for. */
static inline bool cpu_attend_tiles(const struct cpu *c) {
    return c->isa == CPU_ISA_AMX && c->config.kv_type != KV_F32 && !c->config.strict_fp32;
}
/* Rows of a decode unit: enough units for an even end, long enough runs for the prefetchers. */
int cpu_decode_unit_rows(int n_thread, const struct weight_group *w);

/* Prompt attention: rows and query heads of one block, and in how many parts the heads of one kv head come. */
void cpu_attend_shape(const struct cpu *c, const struct op_attend *at, int *tokens, int *heads, int *parts);

/* Prompt matmul (cpu_matmul.c): bytes of the shared panels for rows of k columns. */
size_t cpu_panel_bytes(int rows, int k);
