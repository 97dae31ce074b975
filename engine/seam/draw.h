/* select with a draw, in plain C: what ref runs, what cpu asks once it has the greatest candidates, and what a sampler on the
 * host runs on a row of logits. The formulas are those of infer_draw.h; sums are doubles. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "infer_draw.h"

/* A candidate in a heap whose top is the last in order. */
struct draw_candidate {
    float x;
    int32_t id;
};
static inline bool draw_before(struct draw_candidate a, struct draw_candidate b) {
    return a.x > b.x || (a.x == b.x && a.id < b.id);
}
/* heap[INFER_TOP], *n of them: takes c where it is among the first INFER_TOP so far. */
void draw_push(struct draw_candidate *heap, int *n, struct draw_candidate c);
/* The heap's candidates in their order into t->id, t->x and t->n; sums stay. */
void draw_sort(struct infer_top *t, struct draw_candidate *heap, int n);

/* 1 / temp where the draw has INFER_DRAW_TEMP, else 1 (d NULL too). */
double draw_scale(const struct infer_draw *d);
/* x[first .. first + n) of a row, at x, first a multiple of 64: -INFINITY for what is not finite, then edits and mask.
 * d NULL: no such. */
void draw_edit(float *x, int first, int n, const struct infer_draw *d);
/* t of x[n_vocab], all but chosen. */
void draw_top(struct infer_top *t, const float *x, int n_vocab, const struct infer_draw *d);
/* The place in t of the token that d draws; -1: t does not tell, the whole row has to. */
int draw_from_top(const struct infer_top *t, const struct infer_draw *d);
/* The token, and t->chosen. x[n_vocab] edited, t of it; heap: scratch of n_vocab, used where t does not tell.
 * d NULL: the first candidate. */
int32_t draw_token(struct infer_top *t, const float *x, int n_vocab, const struct infer_draw *d,
                   struct draw_candidate *heap);
