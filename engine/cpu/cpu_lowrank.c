/* Adapters: B (A x) of the rows whose sequence has one. The kernels are those of float weights of decode rows, which give a row the same
 * sums beside any others. Threads share blocks of rows and of A's rows; behind a barrier, blocks of rows and of columns, where one thread
 * adds all adapters in their order, B by columns. Neighbours in a step that have an adapter are multiplied with A together. */
#include "cpu/cpu_list.h"

#include <string.h>

enum { ROWS = 32, RANKS = 8, COLUMNS = 128 }; /* of a block */

static int pairs_of(const struct op_lowrank *o) { return o->choice.buf >= 0 ? o->n_used : 1; }

size_t cpu_lowrank_floats(const struct op_list *l, const struct op_lowrank *o) {
    return buf_max_rows(l, &l->buf[o->out.buf]) * (size_t)pairs_of(o) * (size_t)o->w->r;
}

struct work {
    struct cpu_step *s;
    const struct op_lowrank *o;
    cpu_row_fn *product;
    int pairs, T;
    bool wanted; /* its rows are those that want an output */
};

static float *low_of(const struct work *w, int t, int j) {
    return w->s->cpu->low + ((size_t)t * (size_t)w->pairs + (size_t)j) * (size_t)w->o->w->r;
}
static int slot_of(const struct work *w, int t) {
    const struct step *s = w->s->s;
    return s->slot[w->wanted ? s->out_row[t] : t];
}
static float scale_of(const struct work *w, const struct lowrank_part *p, int t) {
    return step_adapter(w->s->s, slot_of(w, t), p->adapter);
}
/* Rows from t on, before end, that have the part and can be multiplied together; 0: row t has it not. */
static int run_of(const struct work *w, const struct lowrank_part *p, int t, int end) {
    int n = 0;
    while (t + n < end && scale_of(w, p, t + n) != 0 && (n == 0 || w->pairs == 1)) n++;
    return n;
}
/* -1: the part has none of the expert's. */
static int matrix_of(const struct work *w, const struct lowrank_part *p, int t, int j) {
    return w->o->choice.buf < 0 ? 0 : op_lowrank_matrix(w->o, p, (int)cpu_row(w->s, w->o->choice, t)[j]);
}

/* A's rows r0 .. r0 + n of a part, times rows t0 .. end of x. */
static void down(const struct work *w, const struct lowrank_part *p, int r0, int n, int t0, int end) {
    float y[ROWS * CPU_UNIT_ROWS];
    const size_t k = (size_t)p->k, row = k * sizeof(float);
    for (int t = t0, run; t < end; t += run ? run : 1) {
        run = run_of(w, p, t, end);
        for (int j = 0; run && j < w->pairs; j++) {
            const int e = matrix_of(w, p, t, j);
            if (e < 0) continue;
            const float *a = p->a + ((size_t)e * (size_t)p->r + (size_t)r0) * k,
                        *at = cpu_row(w->s, w->o->x, t) + (w->o->by_choice ? (size_t)j * k : 0);
            const struct cpu_x x = {(const uint8_t *)at, cpu_stride(w->s, w->o->x) * sizeof(float), 0};
            w->product((const uint8_t *)a, row, n, p->k, x, run, y, NULL, false);
            for (int i = 0; i < run; i++)
                memcpy(low_of(w, t + i, j) + p->at + r0, y + i * CPU_UNIT_ROWS, (size_t)n * sizeof *y);
        }
    }
}
/* What adds a vector has nothing to multiply with. */
static void ones(const struct work *w, const struct lowrank_part *p, int r0, int n, int t0, int end) {
    for (int t = t0; t < end; t++)
        for (int i = 0; i < n; i++) low_of(w, t, 0)[p->at + r0 + i] = 1;
}

/* Columns i .. i + n of a part, times what A made of rows t0 .. end. */
static void up(const struct work *w, const struct lowrank_part *p, int i, int n, int t0, int end) {
    const struct op_lowrank *o = w->o;
    float ax[LOWRANK_MAX];
    for (int t = t0; t < end; t++) {
        const float s = scale_of(w, p, t);
        for (int j = 0; s != 0 && j < w->pairs; j++) {
            const int e = matrix_of(w, p, t, j);
            if (e < 0) continue;
            const float *b = p->b + (size_t)e * (size_t)p->r * (size_t)p->n + i,
                        *low = low_of(w, t, j) + p->at;
            const float all = o->weighted ? s * cpu_row(w->s, o->choice, t)[o->n_used + j] : s;
            float *out = cpu_row(w->s, o->out, t) + p->col * w->pairs + j * p->n + i;
            for (int k = 0; k < p->r; k++) ax[k] = all * low[k];
            w->s->cpu->k->mix(ax, p->r, b, (size_t)p->n, out, 1, out, n);
        }
    }
}

/* Whether some row has an adapter: the same for all threads. */
static bool any(const struct work *w) {
    const struct step *s = w->s->s;
    for (int t = 0; s->adapter && t < w->T; t++)
        if (s->adapter[slot_of(w, t)]) return true;
    return false;
}

static int blocks(int n, int block) { return (n + block - 1) / block; }
static int least(int a, int b) { return a < b ? a : b; }

static void all_down(const struct work *w, int thread, int n_thread) {
    const struct lowrank *all = w->o->w;
    int a, b, at = 0;
    for (int i = 0; i < all->n_part; i++) at += blocks(all->part[i].r, RANKS);
    cpu_share(at * blocks(w->T, ROWS), thread, n_thread, &a, &b);
    for (int t = 0, u = 0; t < w->T; t += ROWS)
        for (int i = 0; i < all->n_part; i++) {
            const struct lowrank_part *p = &all->part[i];
            for (int r = 0; r < p->r; r += RANKS, u++)
                if (u >= a && u < b)
                    (p->a ? down : ones)(w, p, r, least(p->r - r, RANKS), t, least(t + ROWS, w->T));
        }
}
static void all_up(const struct work *w, int thread, int n_thread) {
    const struct lowrank *all = w->o->w;
    const int width = w->o->out.width / w->pairs, n = blocks(width, COLUMNS);
    int a, b;
    cpu_share(n * blocks(w->T, ROWS), thread, n_thread, &a, &b);
    for (int u = a; u < b; u++) {
        const int t = u / n * ROWS, first = u % n * COLUMNS, end = least(first + COLUMNS, width);
        for (int i = 0; i < all->n_part; i++) {
            const struct lowrank_part *p = &all->part[i];
            const int from = p->col > first ? p->col : first, to = least(p->col + p->n, end);
            if (from < to) up(w, p, from - p->col, to - from, t, least(t + ROWS, w->T));
        }
    }
}

void cpu_op_lowrank(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread) {
    const struct op_lowrank *o = &op->op->lowrank;
    const struct work w = {.s = s,
                           .o = o,
                           .product = s->cpu->k->gemv_float[QUANT_F32],
                           .pairs = pairs_of(o),
                           .T = cpu_rows(s, o->out),
                           .wanted = s->list->list->buf[o->out.buf].rows == BUF_ROWS_OUT};
    if (!any(&w)) return;
    all_down(&w, thread, n_thread);
    cpu_barrier(s);
    all_up(&w, thread, n_thread);
}
