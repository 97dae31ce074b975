/* What an operation reads and writes, told once for each kind (op_list.c), and what follows from it: how long buffers
 * live, which memory two views share, which neighbours in a list may become one kernel. Whoever emits, places, runs or
 * fuses a list asks here. Read by C and C++. */
#pragma once
#include "seam/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { OP_READS = 4, OP_WRITES = 1, OP_CONSTANTS = 3 };

/* Numbers beside the weights: norm weights, frequencies, sinks, decays, and orders of columns, which are int32_t; a hash's of 64 bits. */
struct op_constant {
    const void *data; /* float or int32_t data[n], or half as many int64_t, never NULL */
    int n;
};

/* Rows of a step that an operation works on. */
enum op_span {
    OP_SPAN_STEP,   /* all of them */
    OP_SPAN_WANTED, /* those that want an output */
    OP_SPAN_BUFFER  /* those that its buffers hold */
};

/* Everything that running an operation reads and writes, beside the step itself. Every element of a written view is
 * replaced, in the rows of the span; a view that is updated in place is in both lists. */
struct op_use {
    enum op_span span;
    int n_read, n_write, n_constant, n_weight;
    struct view read[OP_READS], write[OP_WRITES];
    struct op_constant constant[OP_CONSTANTS];
    const struct weight *weight;      /* weight[n_weight] */
    const struct weight_group *group; /* of these weights; NULL: a table of its own */
    int reads_store, writes_store;    /* of keys and values; -1: none */
    int reads_entries;                /* a store beside the first; -1: none */
    int state;                        /* state store, read and written; -1: none */
};
struct op_use op_uses(const struct op *op);
const char *op_kind_name(enum op_kind kind); /* "matmul" */

/* The rows that op works on, as a buffer has them; and how many these are in a step. */
enum buf_rows op_rows_kind(const struct op_list *l, const struct op *op);
static inline int op_rows_count(const struct op_list *l, const struct op *op, int n_row, int n_out) {
    return op_rows_kind(l, op) == BUF_ROWS_OUT ? n_out : n_row;
}
/* INFER_E_NAN, with the place; element -1: somewhere in the row, or (norms) in what it reads. */
enum infer_status op_not_finite(const struct op *op, int pos, int element);
/* The position of row t of those that op works on. */
static inline int op_row_pos(const struct op_list *l, const struct op *op, const struct step *s, int t) {
    const int row = op_rows_kind(l, op) == BUF_ROWS_OUT && s->out_row ? s->out_row[t] : t;
    return s->pos ? s->pos[row] : row;
}

/* ---- views and buffers ---------------------------------------------------------------------------------- */

static inline struct view view_columns(struct view v, int col, int width) {
    v.col += col;
    v.width = width;
    return v;
}
static inline bool view_same(struct view a, struct view b) {
    return a.buf == b.buf && a.col == b.col && a.width == b.width;
}

/* Sets first and last of every buffer: the operations that touch it first and last. */
void list_lives(struct op_list *l);
/* Whether some operation comes when both hold something. */
static inline bool buf_lives_meet(const struct buf *a, const struct buf *b) {
    return a->first <= b->last && b->first <= a->last;
}
/* Rows of the largest step. */
static inline size_t buf_max_rows(const struct op_list *l, const struct buf *b) {
    return (size_t)(b->rows == BUF_ROWS_OUT ? l->max_out : l->max_rows);
}
/* Whether the buffers of two views share memory: the plan reuses places whose life is over. After the plan. */
bool list_overlaps(const struct op_list *l, struct view a, struct view b);
/* Two operations that both work row by row: whether a thread may do some rows of the one while another does other rows of the other.
 * What either writes is then not touched by the other, or lies in step with it: row t of both views in the same bytes, for all t.
 * After the plan. */
bool list_rows_apart(const struct op_list *l, const struct op *a, const struct op *b);

/* The position that turns pair i of row t. */
static inline int step_axis(const struct step *s, const struct rope *r, int t, int i) {
    const int axis = r->axis ? r->axis[i] : 0;
    const int pos = axis && s->axis[axis - 1] ? s->axis[axis - 1][t] : s->pos[t];
    return r->every > 1 ? pos - pos % r->every : pos;
}
/* What row t of the step is told of its experts; NULL: nothing. */
static inline const int32_t *step_told(const struct step *s, const struct op_route *o, int t) {
    if (!o->told || (s->input && s->input[t]) || s->id[t] < 0 || s->id[t] >= o->n_told) return NULL;
    return o->told + (size_t)s->id[t] * (size_t)o->router->n_used;
}

/* The last position that row t sees. */
static inline int step_last(const struct step *s, const struct op_attend *o, int t) {
    return o->both && s->until && s->until[t] > s->pos[t] ? s->until[t] : s->pos[t];
}

/* ---- neighbours: what fused kernels ask ------------------------------------------------------------------ */

/* Whether only operation i + 1 reads what i writes, so that it need not be written where both are one kernel. */
bool list_hands_over(const struct op_list *l, int i);
/* Whether operation i is the matmul of gate and up (or those of experts), of equal size, and i + 1 the glu of both. */
bool list_is_gated(const struct op_list *l, int i);
/* Whether operations i and i + 1 rotate q and k, and i + 2 puts that k into its store. */
bool list_is_rotated(const struct op_list *l, int i);

/* ---- configurations -------------------------------------------------------------------------------------- */

/* Whether an operation of the lists names the group of weights, or the store. */
bool config_uses_group(const struct backend_config *c, int id);
/* The group whose first member is this table of embeddings; -1: none, it is the model's own. */
int config_table_group(const struct backend_config *c, const struct weight *table);
bool config_uses_store(const struct backend_config *c, int store);
bool config_uses_state(const struct backend_config *c, int store);

#ifdef __cplusplus
}
#endif
