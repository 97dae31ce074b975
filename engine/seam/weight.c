#include "seam/weight.h"
#include "seam/op_list.h"

static size_t row_bytes(const struct weight *w) { return quant_row_bytes(quant_info(w->type), (size_t)w->k); }

static size_t side_bytes(const struct side *s) {
    size_t elem = s->role == SIDE_GROUP_INDEX ? sizeof(int32_t) : quant_info(s->type)->bytes;
    return (size_t)s->rows * (size_t)s->cols * elem;
}

static int every_of(const struct weight *w) { return w->every ? w->every : 1; }
static int run_of(const struct weight *w) { return w->run ? w->run : 1; }
int weight_run(const struct weight *w) { return run_of(w) == every_of(w) || run_of(w) == 1 ? w->n : w->run; }
size_t weight_stride(const struct weight *w) {
    return row_bytes(w) * (size_t)(run_of(w) == 1 ? every_of(w) : 1);
}
const void *weight_row(const struct weight *w, int i) {
    int row = i / run_of(w) * every_of(w) + i % run_of(w);
    return (const char *)w->data + row_bytes(w) * (size_t)row;
}
const void *weight_end(const struct weight *w) {
    return (const char *)weight_row(w, w->n - 1) + row_bytes(w);
}

struct weight weight_runs(const struct weight *w, int row, int run, int every, int n) {
    struct weight part = *w;
    int last = row + (n - 1) / run * every + (n - 1) % run;
    if (row < 0 || run < 1 || every < run || n < 1 || last >= w->n || every_of(w) != 1 || w->part ||
        w->bias || w->n_side)
        infer_bug("%d rows of %s from %d on, %d of each %d", n, w->name, row, run, every);
    part.n = n, part.run = run, part.every = every;
    part.data = weight_row(w, row);
    part.stack_bias = 0;
    return part;
}

struct weight weight_slice(const struct weight *w, int row, int every, int n) {
    struct weight part = *w;
    if (row < 0 || every < 1 || n < 1 || row + (n - 1) * every >= w->n || (w->part && row) ||
        (w->bias && every > 1) || run_of(w) != 1)
        infer_bug("%d rows of %s from %d on, each %d behind the last", n, w->name, row, every);
    part.n = n;
    part.every = every_of(w) * every;
    part.data = (const char *)w->data + (size_t)row * weight_stride(w);
    part.stack_bias = w->stack_bias ? w->stack_bias : w->n;
    if (w->bias) part.bias = w->bias + row;
    for (int i = 0; i < w->n_side; i++) part.side[i].row0 += row * every_of(w);
    return part;
}
struct weight weight_rows(const struct weight *w, int row, int n) {
    return weight_slice(w, row, 1, n);
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
    for (int i = 0; i < w->n_side; i++)
        one.side[i].data = (const char *)w->side[i].data + (size_t)e * side_bytes(&w->side[i]);
    return one;
}

static const struct side *side_of(const struct weight *w, enum side_role role) {
    for (int i = 0; i < w->n_side; i++)
        if (w->side[i].role == role) return &w->side[i];
    return NULL;
}

/* The value of a side for row i of its weight, column col of its own. */
static float side_value(const struct side *s, int i, int col) {
    float v;
    const struct quant_info *q = quant_info(s->type);
    size_t at = (size_t)((s->row0 + i) / s->row_group) * (size_t)s->cols + (size_t)col;
    q->decode(&v, (const char *)s->data + at * q->bytes, 1);
    return v;
}

void weight_decode_row(const struct weight *w, int i, float *out) {
    quant_info(w->type)->decode(out, weight_row(w, i), (size_t)w->k);
    if (!w->n_side) return;
    i *= every_of(w); /* of the file */
    const struct side *scale = side_of(w, SIDE_SCALE), *scale_2 = side_of(w, SIDE_SCALE_2),
                      *zero = side_of(w, SIDE_ZERO), *book = side_of(w, SIDE_CODEBOOK),
                      *index = side_of(w, SIDE_GROUP_INDEX);
    for (int j = 0; j < w->k; j++) {
        const struct side *of[] = {zero, scale, scale_2};
        int col[3] = {0};
        for (int k = 0; k < 3; k++)
            if (of[k])
                col[k] = index && of[k]->cols > 1 ? ((const int32_t *)index->data)[j] : j / of[k]->col_group;
        if (book) out[j] = side_value(book, i, (int)out[j]);
        if (zero) out[j] -= side_value(zero, i, col[0]);
        if (scale) out[j] *= side_value(scale, i, col[1]);
        if (scale_2) out[j] *= side_value(scale_2, i, col[2]);
    }
}

size_t weight_bytes(const struct weight *w) {
    size_t n = row_bytes(w) * (size_t)w->n;
    for (int i = 0; i < w->n_side; i++) n += side_bytes(&w->side[i]);
    return n * (size_t)w->n_stack;
}

static enum infer_status known(const struct weight *w, const char *backend, bool sides, bool stacks) {
    static const char *const name[SIDE_ROLE_COUNT] = {"scales", "scales of scales", "zero points",
                                                      "a codebook", "a group index"};
    if (w->n_stack != 1 && !stacks)
        return err_set(INFER_E_UNSUPPORTED,
                       "%s: %s is a stack of %d matrices, which only experts and heads read", backend,
                       w->name, w->n_stack);
    if (w->n_side && !sides)
        return err_set(INFER_E_UNSUPPORTED,
                       "%s: %s has %s in a tensor of their own; only the device 'ref' computes that", backend,
                       w->name, name[w->side[0].role]);
    return INFER_OK;
}

enum infer_status weights_known(const struct backend_config *c, const char *backend, bool sides) {
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++)
        for (int i = 0; c->list[cls] && i < c->list[cls]->n_op; i++) {
            struct op_use u = op_uses(&c->list[cls]->op[i]);
            const enum op_kind kind = c->list[cls]->op[i].kind;
            for (int k = 0; k < u.n_weight; k++)
                TRY(known(&u.weight[k], backend, sides, kind == OP_EXPERTS || kind == OP_HEADS));
        }
    return INFER_OK;
}
