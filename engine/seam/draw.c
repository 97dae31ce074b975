#include "seam/draw.h"

#include <float.h>
#include <math.h>

/* ---- the first candidates of a row ---- */

/* h[i] sinks until the one above comes behind (last) or before (first) those below. */
static void sink(struct draw_candidate *h, int n, int i, bool last_on_top) {
    struct draw_candidate c = h[i];
    for (int k; (k = 2 * i + 1) < n; i = k) {
        if (k + 1 < n && draw_before(h[k + 1], h[k]) != last_on_top) k++;
        if (draw_before(h[k], c) == last_on_top) break;
        h[i] = h[k];
    }
    h[i] = c;
}

void draw_push(struct draw_candidate *h, int *n, struct draw_candidate c) {
    if (*n == INFER_TOP) {
        if (!draw_before(c, h[0])) return;
        h[0] = c;
        sink(h, *n, 0, true);
        return;
    }
    int i = (*n)++;
    for (; i && draw_before(h[(i - 1) / 2], c); i = (i - 1) / 2) h[i] = h[(i - 1) / 2];
    h[i] = c;
}

void draw_sort(struct infer_top *t, struct draw_candidate *h, int n) {
    t->n = n;
    while (n) {
        struct draw_candidate last = h[0];
        h[0] = h[--n];
        if (n) sink(h, n, 0, true);
        t->id[n] = last.id, t->x[n] = last.x;
    }
}

double draw_scale(const struct infer_draw *d) {
    for (int i = 0; d && d->order[i]; i++)
        if (d->order[i] == INFER_DRAW_TEMP) return 1 / (double)d->temp;
    return 1;
}

void draw_edit(float *x, int first, int n, const struct infer_draw *d) {
    for (int i = 0; i < n; i++) x[i] = isfinite(x[i]) ? x[i] : -INFINITY;
    for (int i = 0; d && i < d->n_edit; i++) {
        const struct infer_edit *e = &d->edit[i];
        if (e->id < first || e->id >= first + n) continue;
        float y = x[e->id - first] + e->add;
        y = (y > 0 ? y / e->ratio : y * e->ratio) - e->less;
        x[e->id - first] = isfinite(y) ? y : -INFINITY;
    }
    for (int i = 0; d && d->mask && i < n; i += 64) {
        uint64_t bits = d->mask[(first + i) / 64];
        for (int k = 0; ~bits && k < 64 && i + k < n; k++)
            if (!(bits >> k & 1)) x[i + k] = -INFINITY;
    }
}

void draw_top(struct infer_top *t, const float *x, int n_vocab, const struct infer_draw *d) {
    struct draw_candidate heap[INFER_TOP];
    int n = 0;
    double scale = draw_scale(d);
    for (int i = 0; i < n_vocab; i++)
        if (x[i] > -INFINITY) draw_push(heap, &n, (struct draw_candidate){x[i], i});
    draw_sort(t, heap, n);
    t->sum = t->sum_temp = 0;
    for (int i = 0; n && i < n_vocab; i++) {
        if (!(x[i] > -INFINITY)) continue;
        double away = (double)x[i] - t->x[0];
        t->sum += exp(away);
        t->sum_temp += exp(away * scale);
    }
}

/* ---- the draw ---- */

/* Candidates in their order, as far as they were asked for: those of a top, and behind them a heap of the row. */
struct queue {
    const struct infer_top *t;
    struct draw_candidate *heap; /* NULL: t is all there is to look at */
    struct draw_candidate *done; /* done[n_done]: popped, in their order, from the end of the heap's memory */
    int n_heap, n_done, n_vocab;
};
/* How many are kept: so many, all of them, or some number above INFER_TOP that only the row can tell. */
enum { ALL = -1, BEYOND = -2 };

/* x of candidate i; false: there is none, or it cannot be seen (then i is t->n). */
static bool candidate(struct queue *q, int i, struct draw_candidate *out) {
    if (i < q->t->n) {
        *out = (struct draw_candidate){q->t->x[i], q->t->id[i]};
        return true;
    }
    if (!q->heap) return false;
    while (q->n_done <= i && q->n_heap) { /* the place that leaves the heap takes what was popped */
        struct draw_candidate c = q->heap[0];
        q->heap[0] = q->heap[--q->n_heap];
        if (q->n_heap) sink(q->heap, q->n_heap, 0, false);
        q->heap[q->n_heap] = c;
        q->n_done++;
    }
    if (i >= q->n_done) return false;
    *out = q->done[-i];
    return true;
}

/* The first candidates whose weights exceed (or, or_equal, reach) limit; sum over at most n of them. 0: they do not within
 * what is there, *last: the last with a weight. */
static int reach(struct queue *q, int n, double scale, double limit, bool or_equal, int *last) {
    struct draw_candidate c;
    double sum = 0;
    *last = 0;
    for (int i = 0; (n < 0 || i < n) && candidate(q, i, &c); i++) {
        double w = exp(((double)c.x - q->t->x[0]) * scale);
        if (w > 0) *last = i;
        sum += w;
        if (sum > limit || (or_equal && sum == limit)) return i + 1;
    }
    return 0;
}

/* Sum of the weights of the n that are kept; below 0: cannot be told. */
static double total(struct queue *q, int n, double scale, bool with_temp) {
    struct draw_candidate c;
    double sum = 0;
    if (n == ALL) return with_temp ? q->t->sum_temp : q->t->sum;
    if (n == BEYOND) return -1;
    for (int i = 0; i < n && candidate(q, i, &c); i++) sum += exp(((double)c.x - q->t->x[0]) * scale);
    return sum;
}

static int keep_min_p(struct queue *q, int n, double scale, float min_p) {
    struct draw_candidate c;
    double most = q->t->x[0];
    double least = most + log((double)min_p) / scale - FLT_EPSILON * fabs(most);
    int k = 0;
    while ((n < 0 || k < n) && candidate(q, k, &c) && c.x >= least) k++;
    bool seen = q->heap || k < q->t->n || q->t->n < INFER_TOP; /* where they end */
    return seen ? k : n >= 0 ? n : BEYOND;
}

/* The place of the token in the order; -1: it cannot be told. */
static int place(struct queue *q, const struct infer_draw *d) {
    int n = q->t->n < INFER_TOP ? q->t->n : ALL, last;
    double scale = 1;
    bool with_temp = false;
    for (const uint8_t *step = d->order; *step; step++) {
        double sum;
        switch (*step) {
        case INFER_DRAW_TOP_K:
            if (d->top_k <= q->t->n || q->heap)
                n = n >= 0 && n < d->top_k ? n : d->top_k;
            else if (n == ALL)
                n = BEYOND;
            break;
        case INFER_DRAW_TOP_P:
            if (d->top_p >= 1) break;
            sum = total(q, n, scale, with_temp);
            if (sum < 0) return -1;
            int k = reach(q, n, scale, sum * (double)d->top_p, true, &last);
            if (!k && n < 0 && !q->heap) return -1;
            n = k ? k : last + 1;
            break;
        case INFER_DRAW_MIN_P:
            if (d->min_p > 0) n = keep_min_p(q, n, scale, d->min_p);
            break;
        case INFER_DRAW_TEMP:
            scale = 1 / (double)d->temp, with_temp = true;
            break;
        }
    }
    double sum = total(q, n, scale, with_temp);
    if (sum < 0) return -1;
    int k = reach(q, n, scale, d->u * sum, false, &last);
    if (!k && n < 0 && !q->heap) return -1;
    return k ? k - 1 : last; /* rounding may leave the sum just under the whole */
}

int draw_from_top(const struct infer_top *t, const struct infer_draw *d) {
    struct queue q = {.t = t};
    return place(&q, d);
}

int32_t draw_token(struct infer_top *t, const float *x, int n_vocab, const struct infer_draw *d,
                   struct draw_candidate *heap) {
    struct draw_candidate c = {0, 0};
    int at = 0;
    t->chosen = 0;
    if (t->n == 0) return 0;
    struct queue q = {.t = t};
    if (d) at = place(&q, d);
    if (at < 0) {
        for (int i = 0; i < n_vocab; i++)
            if (x[i] > -INFINITY) heap[q.n_heap++] = (struct draw_candidate){x[i], i};
        q.heap = heap;
        q.done = heap + q.n_heap - 1;
        for (int i = q.n_heap / 2 - 1; i >= 0; i--) sink(heap, q.n_heap, i, false);
        at = place(&q, d);
    }
    candidate(&q, at, &c);
    t->chosen = c.x;
    return c.id;
}
