/* quantize --bpw: the types that lose least at a size. Of each matrix some rows are written in every type that may be, and what that
 * loses is measured: the part of the products' power that is error, as if columns came with the importance that is given, or all alike.
 * All matrices begin with the cheapest type; then always the step that takes most error a byte is made, of those that still fit. */
#include <stdlib.h>
#include "tools/file/quantize_impl.h"

enum { SAMPLE = 1 << 17 };

static const struct {
    enum quant_type type;
    bool weighed; /* only where importance is known */
} candidates[] = {
#define STEP(type, weighed) {QUANT_##type, weighed},
#include "tools/mixes.def"
};
enum {
    N_CANDIDATE = sizeof candidates / sizeof *candidates,
    N_WAY = N_CANDIDATE + 1 /* and as it is */
};

/* What a matrix may become, from the fewest bytes on, each step down in error steeper than the next. */
struct way {
    enum quant_type type;
    double bytes, error;
};
struct choice {
    size_t tensor; /* of the list */
    int n, at;
    struct way way[N_WAY];
};

/* ---- what types lose ---- */

/* Rows from all over the tensor into j->values and j->importance; how many. */
static int sample(struct job *j, const struct listed *l, const struct imatrix_entry *e) {
    const struct tensor *t = &l->t;
    const struct quant_info *q = quant_info(t->type);
    const int64_t cols = t->shape[3], rows = t->shape[2], all = t->shape[1] * rows;
    int64_t n = SAMPLE / cols < SHARES ? SAMPLE / cols : SHARES;
    n = n < 1 ? 1 : n > all ? all : n;
    const int64_t rows_part = all / l->n_part;
#pragma omp parallel for
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = (2 * i + 1) * all / (2 * n);
        float *x = j->values + i * cols;
        q->decode(x,
                  (const char *)l->part[row / rows_part] +
                      (size_t)(row % rows_part) * quant_row_bytes(q, (size_t)cols),
                  (size_t)cols);
        for (int64_t k = 0; t->row_factor && k < cols; k++) x[k] *= t->row_factor[row % rows];
        if (e) imatrix_importance(e, row / rows, cols, 0, cols, j->importance + i * cols);
    }
    return (int)n;
}

/* The share of the sampled rows' weighted squares that is error in a type. */
static double measure(struct job *j, enum quant_type type, int n, size_t cols, bool weighed) {
    const struct quant_info *q = quant_info(type);
    struct loss sum = {0};
#pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < n; i++) {
        const size_t at = (size_t)i * cols;
        const float *importance = weighed ? j->importance + at : NULL;
        unsigned char *blocks = j->blocks + quant_row_bytes(q, at);
        q->encode(blocks, j->values + at, cols, importance);
        q->decode(j->again + at, blocks, cols);
        j->share_loss[i] = quantize_loss(j->values + at, j->again + at, importance, cols);
    }
    for (int i = 0; i < n; i++) quantize_add_loss(&sum, &j->share_loss[i]);
    return sum.weighted_square > 0 ? sum.weighted_error2 / sum.weighted_square : 0;
}

/* ---- one matrix ---- */

static int by_bytes(const void *a, const void *b) {
    const struct way *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes > y->bytes) - (x->bytes < y->bytes)
                                : (x->error > y->error) - (x->error < y->error);
}

/* Leaves the lower hull of error over bytes. */
static void make_hull(struct choice *c) {
    int n = 0;
    qsort(c->way, (size_t)c->n, sizeof *c->way, by_bytes);
    for (int i = 0; i < c->n; i++) {
        if (n && c->way[i].error >= c->way[n - 1].error) continue;
        while (n > 1 &&
               (c->way[n - 2].error - c->way[n - 1].error) * (c->way[i].bytes - c->way[n - 2].bytes) <=
                   (c->way[n - 2].error - c->way[i].error) * (c->way[n - 1].bytes - c->way[n - 2].bytes))
            n--;
        c->way[n++] = c->way[i];
    }
    c->n = n;
}

static enum infer_status measure_tensor(struct job *j, struct choice *c) {
    const struct listed *l = &j->list[c->tensor];
    const struct tensor *t = &l->t;
    const double elements = (double)(t->shape[1] * t->shape[2] * t->shape[3]);
    const struct imatrix_entry *e;
    TRY(quantize_importance(j, t, &e));
    if ((size_t)t->shape[3] > CHUNK)
        return err_set(INFER_E_UNSUPPORTED, "%s: tensor %s has rows of %lld elements", j->f->path, t->name,
                       (long long)t->shape[3]);
    const int n = sample(j, l, e);
    for (int i = -1; i < N_CANDIDATE; i++) {
        const enum quant_type type = i < 0 ? t->type : candidates[i].type; /* what it is now loses nothing */
        const struct quant_info *q = quant_info(type);
        if (q->gguf < 0 || t->shape[3] % q->elems ||
            (i >= 0 && (type == t->type || (candidates[i].weighed && !e))))
            continue;
        c->way[c->n++] = (struct way){type, elements / q->elems * q->bytes,
                                      i < 0 ? 0 : measure(j, type, n, (size_t)t->shape[3], e != NULL)};
    }
    make_hull(c);
    return INFER_OK;
}

/* ---- all of them ---- */

/* The step that takes most error a byte and fits into room; NULL: none. */
static struct choice *next_step(struct choice *list, size_t n, double room) {
    struct choice *best = NULL;
    double most = 0;
    for (size_t i = 0; i < n; i++) {
        struct choice *c = &list[i];
        if (c->at + 1 >= c->n) continue;
        const double bytes = c->way[c->at + 1].bytes - c->way[c->at].bytes;
        const double gain = (c->way[c->at].error - c->way[c->at + 1].error) / bytes;
        if (bytes <= room && gain > most) most = gain, best = c;
    }
    return best;
}

static enum infer_status choose(struct job *j, struct choice *list, size_t n, double bytes, double elements) {
    const double limit = j->o->bpw * elements / 8;
    for (size_t i = 0; i < n; i++) bytes += list[i].way[0].bytes;
    if (bytes > limit)
        return err_set(INFER_E_INPUT, "%s: %g bits a weight are too few: at least %.4f%s", j->f->path,
                       j->o->bpw, bytes * 8 / elements,
                       j->o->imatrix
                           ? ""
                           : "; less with an importance matrix (--imatrix), which types below 2.5 bits need");
    for (struct choice *c; (c = next_step(list, n, limit - bytes)); c->at++)
        bytes += c->way[c->at + 1].bytes - c->way[c->at].bytes;
    for (size_t i = 0; i < n; i++) j->target[list[i].tensor] = list[i].way[list[i].at].type;
    j->report->bpw = bytes * 8 / elements;
    return INFER_OK;
}

enum infer_status quantize_best(struct job *j) {
    struct choice *list;
    size_t n = 0;
    double bytes = 0, elements = 0;
    TRY(mem_new(&list, j->n_list * sizeof *list, "choices of types"));
    enum infer_status s = INFER_OK;
    for (size_t i = 0; i < j->n_list && !s; i++) {
        const struct tensor *t = &j->list[i].t;
        const struct quant_info *q = quant_info(j->target[i]);
        const double count = (double)(t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3]);
        elements += count;
        if (!quantize_is_free(j, t)) {
            bytes += count / q->elems * q->bytes;
            continue;
        }
        list[n].tensor = i;
        s = measure_tensor(j, &list[n++]);
        if (j->o->progress)
            j->o->progress(j->o->user, "measuring", (double)(i + 1), (double)j->n_list, "tensors");
    }
    if (!s) s = choose(j, list, n, bytes, elements);
    mem_free(list);
    return s;
}
