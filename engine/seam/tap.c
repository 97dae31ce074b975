#include "seam/tap.h"
#include "seam/op_list.h"

#include <stdlib.h>
#include <string.h>

/* Whether an earlier member has the same tensor. */
static bool is_again(const struct weight_group *g, int m) {
    for (int i = 0; i < m; i++)
        if (strcmp(g->member[i].name, g->member[m].name) == 0) return true;
    return false;
}

static void tap_experts(const struct tap *tap, const struct op_experts *o, const struct weight *w,
                        const float *x, const float *choice) {
    for (int j = 0; j < o->n_used; j++)
        tap->row(tap->user, w->name, w->n_stack, (int)choice[j],
                 x + (o->by_choice ? (size_t)j * (size_t)w->k : 0), w->k);
}

static void tap_heads(const struct tap *tap, const struct op_heads *o, const float *x) {
    const struct weight *w = &o->w->member[0];
    const int stride = w->k + op_heads_rest(o);
    for (int h = 0; h < w->n_stack; h++)
        tap->row(tap->user, w->name, w->n_stack, h, x + (size_t)h * (size_t)stride, w->k);
}

/* x, an input that is in the order of the matrix's columns, as the file counts them. */
static void tap_row(const struct tap *tap, const struct weight *w, const float *x) {
    float *in_file = w->columns ? malloc((size_t)w->k * sizeof *in_file) : NULL;
    if (w->columns && !in_file) infer_bug("out of memory for a row of %d numbers", w->k);
    for (int i = 0; in_file && i < w->k; i++) in_file[w->columns[i]] = x[i];
    tap->row(tap->user, w->name, 1, 0, in_file ? in_file : x, w->k);
    free(in_file);
}

static const struct weight_group *group_of(const struct op *op) {
    return op->kind == OP_MATMUL    ? op->matmul.w
           : op->kind == OP_EXPERTS ? op->experts.w
           : op->kind == OP_HEADS   ? op->heads.w
                                    : NULL;
}

static struct infer_watched watched(const struct op_list *l, const struct op *op, struct view v) {
    return (struct infer_watched){.name = op->name,
                                  .kind = op_kind_name(op->kind),
                                  .layer = op->layer,
                                  .decode = l->cls == ROW_DECODE,
                                  .width = v.width};
}

void tap_wrote(const struct tap *tap, const struct op_list *l, const struct op *op, const struct step *s,
               tap_read *read, void *from) {
    const struct op_use u = op_uses(op);
    for (int t = 0; u.n_write && t < op_rows_count(l, op, s->n_row, s->n_out); t++) {
        struct infer_watched w = watched(l, op, u.write[0]);
        w.pos = op_row_pos(l, op, s, t);
        w.x = read(from, u.write[0], t);
        tap->wrote(tap->wrote_user, &w);
    }
}

void tap_list(const struct tap *tap, const struct op_list *l) {
    for (int i = 0; i < l->n_op; i++) {
        const struct op_use u = op_uses(&l->op[i]);
        if (tap->wrote && u.n_write) {
            const struct infer_watched w = watched(l, &l->op[i], u.write[0]);
            tap->wrote(tap->wrote_user, &w);
        }
        const struct weight_group *g = tap->row ? group_of(&l->op[i]) : NULL;
        for (int m = 0; g && m < g->n_member; m++)
            tap->row(tap->user, g->member[m].name, g->member[m].n_stack, 0, NULL, g->member[m].k);
    }
}

void tap_op(const struct tap *tap, const struct op *op, int n_row, tap_read *read, void *from) {
    const struct weight_group *g = group_of(op);
    for (int m = 0; g && m < g->n_member; m++) {
        const struct weight *w = &g->member[m];
        for (int t = 0; t < n_row && !is_again(g, m); t++) {
            if (op->kind == OP_MATMUL)
                tap_row(tap, w, read(from, op->matmul.x, t));
            else if (op->kind == OP_EXPERTS)
                tap_experts(tap, &op->experts, w, read(from, op->experts.x, t),
                            read(from, op->experts.choice, t));
            else
                tap_heads(tap, &op->heads, read(from, op->heads.x, t));
        }
    }
}
