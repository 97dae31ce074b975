/* Inside the CPU backend: the compiled list and the team's shared state.
 *
 * A step is one parallel region. Every thread walks the compiled list; an op takes its share itself: fixed
 * rows, or units from the op's ranges (cpu_unit_next), and one thread sums one element in a fixed order, so
 * the bits do not depend on who computes what. Every buffer is float32. Kernels come from one table per
 * instruction set (struct cpu_kernels), filled by the files compiled for it. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "seam/draw.h"
#include "seam/last_tokens.h"
#include "seam/op_list.h"
#include "cpu/cpu_isa.h"
#include "cpu/kernels/kernels.h"
#include "base/mem.h"
#include "base/numa.h"

/* ---- the compiled list ---- */

struct cpu_op;
struct cpu_step;
typedef void cpu_fn(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread);

/* How a prompt matmul multiplies. */
enum cpu_route { CPU_ROUTE_F32, CPU_ROUTE_BF16 /* AMX tiles */, CPU_ROUTE_INT8, CPU_ROUTE_INT16 };

/* What a matmul does with its outputs. */
enum cpu_epilogue { CPU_EPI_STORE, CPU_EPI_ADD, CPU_EPI_GLU, CPU_EPI_MAP };

/* A weight's units of one decode matmul as its kernel reads them, one every step bytes; made by the first step that reads the file. */
struct cpu_copy {
    uint8_t *data;
    size_t step;
    uint8_t *made; /* [units] */
};

/* A unit's copy in this step: read it where it is made, else write it and then set *mark; NULL: neither. at_once: made in the first step
 * that reads the unit, for the step reads little of the weights. */
struct cpu_copied {
    uint8_t *to, *mark;
    bool made;
};
struct cpu;
struct cpu_copied cpu_copied(const struct cpu *c, const struct cpu_copy *copy, int unit, bool at_once);

struct cpu_op {
    cpu_fn *fn;
    const struct op *op;
    bool barrier;  /* after this op */
    int index;     /* of its ranges */
    int n_unit;    /* units to share; 0: fixed shares; of one expert */
    int unit_rows; /* weight rows of a matmul's unit; rows of a block of prompt attention */
    bool per_row;  /* n_unit units for every unit_rows rows of the step */
    /* matmul: what compile folded in */
    const struct op *norm; /* norm of the input, NULL: none */
    const struct op *post; /* add or glu that follows, by epilogue */
    enum cpu_epilogue epilogue;
    bool need_x8;          /* a member reads quantised activations */
    bool twice;            /* these are two rows for one (quantise_twice) */
    struct cpu_copy *copy; /* [n_member], NULL: none */
    enum cpu_route route;  /* of experts: what the rows of x become, in a decode list too */
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

/* Where a step failed; element -1: not looked for. */
struct cpu_fault {
    const struct op *op;
    int pos, element;
};

struct cpu_result {
    enum infer_status status;
    struct cpu_fault fault;
    int32_t *token;        /* [max_out] */
    float *logits;         /* [n_logits of the plan][n_vocab] */
    struct infer_top *top; /* [max_out] */
    int n_logits;          /* rows of logits that are there */
    bool has_top;
};

/* A row of logits on its way to a token, shared by the team (cpu_select.c). */
struct cpu_top {
    struct draw_candidate heap[INFER_TOP];
    int n;
};
struct cpu_select {
    struct cpu_top *top;         /* top[n_thread] */
    struct draw_candidate *heap; /* heap[n_vocab] */
    float *sums;                 /* [tiles][3]: maximum, sums of exponentials */
    float *x;                    /* x[n_vocab]: the row as the draw changes it */
};
int cpu_select_vocab(const struct backend_config *c);
size_t cpu_select_bytes(int n_vocab, int n_thread);
void cpu_select_open(struct cpu_select *c, void *memory, int n_vocab, int n_thread);

/* Rows and their choices in the order of experts (cpu_experts.c): pair t * n_used + j at order[place[pair]] */
struct cpu_pairs {
    int32_t *order, *place;
    int32_t *first; /* first[n_expert + 1]: where an expert's pairs begin */
    int32_t *hit;   /* hit[n_hit]: experts that have some */
    int n_hit;
};
struct cpu_experts_need {
    size_t pairs, own_x, x; /* bytes: rows of x of one row's choices, of all pairs */
    int experts;
};

struct cpu_work {     /* one thread's own memory */
    float *norm;      /* [CPU_OWN_ROWS][kp max]: normed rows */
    uint8_t *x8;      /* [CPU_OWN_ROWS][2]: quantised rows */
    float *out;       /* [2][2][decode rows][CPU_UNIT_ROWS]: a unit's outputs; the second for a folded glu */
    float *scratch;   /* attention */
    float *part;      /* [CPU_ATTEND_PARTS] parts of one kv head */
    uint8_t *weights; /* [CPU_PANEL_ROWS][CPU_PANEL_STRIDE] float or bf16 */
    float *acc;       /* [2][CPU_PANEL_TOKENS / CPU_LANES][CPU_PANEL_ROWS][CPU_LANES] */
    struct cpu_pairs pairs;
    uint8_t *pair_x; /* of one row's choices */
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
    /* node[n_thread]: the hardware threads that each thread is bound to, NULL: one NUMA node */
    struct topology_set *node;
    unsigned placement; /* its number, for threads to know whether they are bound by it */
    char description[160];
    struct arena arena; /* everything below */
    char *activations;
    uint8_t **k_pool, **v_pool; /* page 0 of each store */
    float **state;              /* slot 0 of each state store */
    size_t *page_stride; /* bytes from page to page of each group: a page of all its stores lies together,
                                   so memory is touched as the context grows */
    struct cpu_list list[ROW_CLASS_COUNT];
    const struct rope *rope[CPU_ROPES];
    int n_rope;
    float *cs;       /* [n_rope][max rows][2][n_rot_max/2]: cos, sin */
    int cs_width;    /* floats of one row of one rope */
    int cs_rows;     /* max rows */
    uint8_t *x8;     /* shared quantised activations of decode rows */
    float *norm;     /* shared normed rows of decode steps */
    uint8_t *panel;  /* shared x panels, or quantised rows, of prompt steps */
    uint8_t *pair_x; /* shared rows of x in the order of experts */
    float *low;      /* cpu_lowrank.c */
    float *index;    /* cpu_index.c: scores of up to CPU_PART_ROWS rows, or of a row a thread */
    float *part;     /* parts of up to CPU_PART_ROWS decode rows: [row][kv head][CPU_ATTEND_PARTS] */
    struct cpu_work *work;
    struct cpu_range *range; /* [operations of a list][n_thread] */
    float *best_value;       /* argmax of the head: [n_thread][best_rows] */
    int32_t *best_index;
    int best_rows;
    struct cpu_select select[2]; /* of one row and the next */
    struct last_tokens last;
    struct cpu_result ring[CPU_RING];
    unsigned head, tail; /* results written, results taken */
    atomic_int cancel;
    struct
    { /* of a step that has run in part: the operation that it goes on with, and the team for which its units are laid out, 0: none are */
        int at, team;
    } paused;
    unsigned n_decode; /* decode steps so far */
    void *copies;      /* cpu_repack.c */
    size_t copies_bytes;
};

/* What varies: the step, and what the team shares while it runs. */
struct cpu_step {
    struct cpu *cpu;
    const struct cpu_list *list;
    const struct step *s;
    struct cpu_result *result;
    int n_row, n_out;
    int first, end;                  /* operations of the list that run */
    bool goes_on;                    /* from cpu.paused */
    int64_t told;                    /* thread 0, with a profile: until when it knows */
    int64_t due;                     /* cpu_now() at which it pauses; 0: never */
    atomic_bool given;               /* a unit, which each piece has at least */
    _Alignas(64) atomic_int arrived; /* at the barrier */
    _Alignas(64) atomic_uint turn;   /* barriers passed */
    atomic_int n_team;               /* threads of this step */
    atomic_llong lost;               /* ns: its threads had no processor, all together */
    _Alignas(64) atomic_int stop_at; /* the op after whose barrier all leave */
    atomic_int fault;                /* enum infer_status */
    struct cpu_fault where;          /* written by who set fault */
    bool guard;                      /* every operation's output is looked at */
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
/* The first operation of a step that goes on, some of its units done. */
bool cpu_in_middle(const struct cpu_step *s, const struct cpu_op *op);
void cpu_barrier(struct cpu_step *s);
/* Where a thread may be late (cpu_delays_pretend). */
extern uint32_t cpu_delays;
void cpu_delay(void);
static inline void cpu_late(void) {
    if (__builtin_expect(cpu_delays != 0, 0)) cpu_delay();
}
/* The first fault wins. */
void cpu_fault(struct cpu_step *s, const struct op *op, enum infer_status status);
/* The NaN guard: INFER_E_NAN where x[n], of op's row t, is not finite. */
void cpu_guard(struct cpu_step *s, const struct op *op, int t, const float *x, int n);

/* One head of one row into its page. */
void cpu_put_head(const struct op *op, struct cpu_step *s, int t, int h);
/* Decode attention (cpu_attend.c): its units in this step; floats of all parts of a row's heads. */
int cpu_attend_units(const struct cpu_op *op, const struct cpu_step *s);
/* Without a store: units of a block of rows, and rows of such a block. */
int cpu_attend_rows_shape(const struct op_attend *at, int *unit_rows);
size_t cpu_attend_part_floats(int heads, int hv);

cpu_fn cpu_op_conv, cpu_op_delta, cpu_op_ssm, cpu_op_embed, cpu_op_norm, cpu_op_rope, cpu_op_kv_put,
    cpu_op_glu, cpu_op_add, cpu_op_columns, cpu_op_position, cpu_op_rows, cpu_op_select, cpu_op_merge,
    cpu_op_input;
cpu_fn cpu_op_matmul_decode, cpu_op_matmul_prompt, cpu_op_attend_decode, cpu_op_attend_prompt;
cpu_fn cpu_op_route, cpu_op_experts, cpu_op_mix, cpu_op_remote, cpu_op_attend_rows, cpu_op_heads;
cpu_fn cpu_op_compress, cpu_op_balance, cpu_op_streams; /* cpu_streams.c */
cpu_fn cpu_op_ngram;                                    /* cpu_ngram.c */
cpu_fn cpu_op_reduce, cpu_op_gather, cpu_op_lowrank, cpu_op_index;
/* The choice of positions (cpu_index.c): its units in this step; floats of a row's scores for a list, of all. */
int cpu_index_units(const struct cpu_step *s);
static inline int cpu_index_row_floats(const struct backend_config *c) {
    return (c->n_ctx / KV_PAGE + 1) * KV_PAGE;
}
size_t cpu_index_floats(const struct backend_config *c, const struct op_index *o, int n_thread);
/* Of adapters (cpu_lowrank.c): floats of what the rows of an operation become between its two products. */
size_t cpu_lowrank_floats(const struct op_list *l, const struct op_lowrank *o);

/* Experts (cpu_experts.c): what the rows of x become; memory; units of a step. */
enum cpu_route cpu_experts_form(const struct backend_config *c, const struct cpu_kernels *k,
                                enum row_class cls, const struct weight_group *w);
bool cpu_experts_twice(const struct cpu_kernels *k, const struct weight_group *w);
struct cpu_experts_need cpu_experts_need(const struct backend_config *c, const struct cpu_kernels *k);
int cpu_experts_units(const struct cpu_op *op, const struct cpu_step *s);
/* out[t * CPU_UNIT_ROWS + r] = row (row + r) of one matrix, unpacked to float32, times T rows of floats; n rows, at most CPU_UNIT_ROWS. */
void cpu_multiply_unpacked(const struct cpu *c, struct cpu_work *work, const struct weight *w, int row, int n,
                           struct cpu_x x, int T, float *out);

/* Copies for the matmuls of a compiled decode list (cpu_repack.c); bytes: 0 where memory is not plenty. */
enum { CPU_REPACK_STEPS = 4 };
size_t cpu_repack_bytes(const struct backend_config *c, int n_thread);
/* Where the copies of a group's units of unit_rows rows are from data on: data and step of copy[n_member], NULL: only counted. paired: the
 * members' are read side by side (a folded glu), and have as many rows. Bytes of all. */
size_t cpu_copies_place(const struct weight_group *g, int unit_rows, bool paired, struct cpu_copy *copy,
                        uint8_t *data);
void cpu_repack_open(struct cpu *c, struct cpu_list *list);
void cpu_repack_close(struct cpu *c);

/* Compile (cpu_compile.c): ops of one list; units and routes. Needs l->op of list->n_op entries. */
enum infer_status cpu_compile_list(struct cpu *c, enum row_class cls);

static inline bool cpu_tiles_read(enum kv_type type) { return type != KV_F32 && !kv_turned(type); }
/* Prompt attention on tiles? Not where 32 bits are asked for, or values are in keys. */
static inline bool cpu_attend_tiles(const struct cpu *c, const struct kv_store *st) {
    return c->isa == CPU_ISA_AMX && cpu_tiles_read(st->k_type) && cpu_tiles_read(st->v_type) &&
           !c->config.strict_fp32 && !st->v_in_k;
}
/* Rows of a decode unit: enough units for an even end, long enough runs for the prefetchers. */
int cpu_decode_unit_rows(int n_thread, const struct weight_group *w);

/* Prompt attention: rows and query heads of one block, and in how many parts the heads of one kv head come. */
void cpu_attend_shape(const struct cpu *c, const struct op_attend *at, int *tokens, int *heads, int *parts);

/* Prompt matmul (cpu_matmul.c): bytes of the shared panels for rows of k columns. */
size_t cpu_x_panel_bytes(int rows, int k);
