#include "seam/weight.h"
#include "seam/op_list.h"

static size_t row_bytes(const struct weight *w) { return quant_row_bytes(quant_info(w->type), (size_t)w->k); }
static size_t pitch_of(const struct weight *w) { return w->pitch ? w->pitch : row_bytes(w); }

static int every_of(const struct weight *w) { return w->every ? w->every : 1; }
static int run_of(const struct weight *w) { return w->run ? w->run : 1; }
int weight_run(const struct weight *w) { return run_of(w) == every_of(w) || run_of(w) == 1 ? w->n : w->run; }
size_t weight_stride(const struct weight *w) {
    return pitch_of(w) * (size_t)(run_of(w) == 1 ? every_of(w) : 1);
}
const void *weight_row(const struct weight *w, int i) {
    int row = i / run_of(w) * every_of(w) + i % run_of(w);
    return (const char *)w->data + pitch_of(w) * (size_t)row;
}
const void *weight_end(const struct weight *w) {
    return (const char *)weight_row(w, w->n - 1) + row_bytes(w);
}

struct weight weight_runs(const struct weight *w, int row, int run, int every, int n) {
    struct weight part = *w;
    int last = row + (n - 1) / run * every + (n - 1) % run;
    if (row < 0 || run < 1 || every < run || n < 1 || last >= w->n || every_of(w) != 1 || w->part || w->bias)
        infer_bug("%d rows of %s from %d on, %d of each %d", n, w->name, row, run, every);
    part.n = n, part.run = run, part.every = every;
    part.data = weight_row(w, row);
    part.stack_bias = 0;
    return part;
}

struct weight weight_slice(const struct weight *w, int row, int every, int n) {
    struct weight part = *w;
    const int run = run_of(w); /* whole ones, or rows of one */
    const bool inside = run != 1 && every == 1 && row / run == (row + n - 1) / run,
               runs = run != 1 && !inside;
    if (row < 0 || every < 1 || n < 1 || row + (n - 1) * every >= w->n || (w->part && row) ||
        (w->bias && every > 1) || (runs && (every > 1 || row % run)))
        infer_bug("%d rows of %s from %d on, each %d behind the last", n, w->name, row, every);
    part.n = n;
    part.every = inside ? 1 : every_of(w) * every;
    if (inside) part.run = 1;
    part.data = weight_row(w, row);
    part.stack_bias = w->stack_bias ? w->stack_bias : w->n;
    if (w->bias) part.bias = w->bias + row;
    return part;
}
struct weight weight_rows(const struct weight *w, int row, int n) {
    return weight_slice(w, row, 1, n);
}

struct weight weight_columns(const struct weight *w, int col, int n) {
    struct weight part = *w;
    const struct quant_info *q = quant_info(w->type);
    const int block = (int)q->elems;
    if (col < 0 || n < 1 || col + n > w->k || col % block || n % block || w->part || w->columns)
        infer_bug("%d columns of %s from %d on", n, w->name, col);
    part.k = n;
    part.pitch = pitch_of(w);
    part.data = (const char *)w->data + quant_row_bytes(q, (size_t)col);
    if (col) part.bias = NULL;
    return part;
}

const float *weight_bias(const struct weight *w, int e) {
    return w->bias ? w->bias + (size_t)e * (size_t)(w->stack_bias ? w->stack_bias : w->n) : NULL;
}

struct weight weight_matrix(const struct weight *w, int e) {
    struct weight one = *w;
    if (e < 0 || e >= w->n_stack) infer_bug("matrix %d of %s", e, w->name);
    one.n_stack = 1;
    one.part = NULL;
    one.data = w->part ? w->part[e] : (const char *)w->data + (size_t)e * w->stack_bytes;
    one.bias = weight_bias(w, e);
    return one;
}

void weight_decode_row(const struct weight *w, int i, float *out) {
    quant_info(w->type)->decode(out, weight_row(w, i), (size_t)w->k);
}

size_t weight_bytes(const struct weight *w) { return row_bytes(w) * (size_t)w->n * (size_t)w->n_stack; }

enum infer_status weights_known(const struct backend_config *c, const char *backend) {
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++)
        for (int i = 0; c->list[cls] && i < c->list[cls]->n_op; i++) {
            struct op_use u = op_uses(&c->list[cls]->op[i]);
            const enum op_kind kind = c->list[cls]->op[i].kind;
            for (int k = 0; k < u.n_weight; k++)
                if (u.weight[k].n_stack != 1 && kind != OP_EXPERTS && kind != OP_HEADS && kind != OP_NGRAM)
                    return err_set(
                        INFER_E_UNSUPPORTED,
                        "%s: %s is a stack of %d matrices, which only experts, heads and n-grams read",
                        backend, u.weight[k].name, u.weight[k].n_stack);
        }
    return INFER_OK;
}
