/* Of the reference backend's files. */
#pragma once
#include <stdatomic.h>
#include "seam/last_tokens.h"
#include "seam/op_list.h"

struct ref {
    struct backend base;
    struct backend_config c;
    unsigned char *activation;
    unsigned char **k, **v;      /* k[store], v[store]: pools */
    float **state;               /* state[store][n_state_slot][n_elem] */
    float *row;                  /* row[max k]: one decoded row of weights */
    float *head;                 /* head[max head_dim]: one decoded row of the cache */
    double *score;               /* score[2 n_ctx + 2]: of positions, and of entries */
    float *index;                /* index[n_ctx + 1] */
    float *x;                    /* x[n_vocab]: a row of logits as a draw changes it */
    struct draw_candidate *heap; /* heap[n_vocab] */
    struct last_tokens last;
    struct ref_result {
        int32_t *token;        /* token[max_out] */
        struct infer_top *top; /* top[max_out] */
        float *logits;         /* logits[n_logits][n_vocab], the first has_logits of them filled */
        int has_logits;
        bool has_top;
        enum infer_status status;
    } result[2 * ROW_CLASS_COUNT];
    unsigned n_run, n_wait;
    atomic_bool cancelled;
    const struct op_list *list;
    struct step step; /* with the ids of last tokens */
    struct ref_result *out;
};

static inline float *ref_row(struct ref *r, struct view v, int t) {
    const struct buf *b = &r->list->buf[v.buf];
    return (float *)(r->activation + b->offset + (size_t)t * b->row_bytes) + v.col;
}

static inline int ref_rows_in(const struct ref *r, struct view v) {
    return r->list->buf[v.buf].rows == BUF_ROWS_OUT ? r->step.n_out : r->step.n_row;
}

/* A slot of a state store. */
static inline float *ref_state(struct ref *r, int store, int slot) {
    return r->state[store] + (size_t)slot * (size_t)r->c.state[store].n_elem;
}

/* An operation with a state (ref_state.c). */
void ref_run_state(struct ref *r, const struct op *op);

/* ref_attend.c. Byte offset of one head's row of one position inside a pool; n numbers of it, turned as the type has them (kv_turn_of). */
size_t ref_kv_offset(const struct kv_store *s, size_t row_bytes, int page, int head, int i);
void ref_kv_store_row(enum kv_type type, void *dst, const float *x, int n, int turn);
void ref_kv_load_row(enum kv_type type, float *y, const void *src, int n, int turn);
void ref_kv_put(struct ref *r, const struct op_kv_put *o);
void ref_index(struct ref *r, const struct op_index *o);
void ref_attend(struct ref *r, const struct op_attend *o);
