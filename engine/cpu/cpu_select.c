/* select: each thread looks through its part of the vocabulary, in tiles of one size, so that sums do not depend on the
 * number of threads. */
#include "cpu/cpu_list.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { TILE = 1024 };

static const struct infer_draw *draw_of(const struct cpu_step *s, int j) {
    return s->s->draw ? s->s->draw[j] : NULL;
}
/* Whether more than the greatest logit is wanted of output j. */
static bool is_drawn(const struct cpu_step *s, int j) { return draw_of(s, j) || s->s->want[j] & WANT_TOP; }
static int n_tile(int n_vocab) { return (n_vocab + TILE - 1) / TILE; }

int cpu_select_vocab(const struct backend_config *c) {
    int n = 0;
    for (int cls = 0; cls < ROW_CLASS_COUNT; cls++)
        for (int i = 0; i < c->list[cls]->n_op; i++)
            if (c->list[cls]->op[i].kind == OP_SELECT && c->list[cls]->op[i].select.n_vocab > n)
                n = c->list[cls]->op[i].select.n_vocab;
    return n;
}
size_t cpu_select_bytes(int n_vocab, int n_thread) {
    return (size_t)n_vocab * (sizeof(float) + sizeof(struct draw_candidate)) +
           (size_t)n_tile(n_vocab) * 3 * sizeof(float) + (size_t)n_thread * sizeof(struct cpu_top) + 64;
}
void cpu_select_open(struct cpu_select *c, void *memory, int n_vocab, int n_thread) {
    c->top = memory;
    c->heap = (struct draw_candidate *)(void *)(c->top + n_thread);
    c->sums = (float *)(void *)(c->heap + n_vocab);
    c->x = c->sums + 3 * n_tile(n_vocab);
}

/* This thread's part of the row, changed by the draw: its first candidates and the sums of its tiles. */
static void scan(struct cpu_step *s, struct cpu_select *c, const float *logits, int n_vocab, int j,
                 int thread, int n_thread) {
    const struct infer_draw *draw = draw_of(s, j);
    struct cpu_top *top = &c->top[thread];
    int32_t at[TILE];
    int a, b;
    cpu_share(n_tile(n_vocab), thread, n_thread, &a, &b);
    int first = a * TILE, end = b * TILE < n_vocab ? b * TILE : n_vocab;
    top->n = 0;
    if (end <= first) return;
    memcpy(c->x + first, logits + first, sizeof(float) * (size_t)(end - first));
    draw_edit(c->x + first, first, end - first, draw);
    for (int i = first; i < end; i += TILE) {
        int n = end - i < TILE ? end - i : TILE;
        s->cpu->k->exp_sums(c->x + i, n, (float)draw_scale(draw), c->sums + 3 * (i / TILE));
        float limit = top->n < INFER_TOP ? -FLT_MAX : top->heap[0].x;
        if (c->sums[3 * (i / TILE)] < limit) continue;
        int found = s->cpu->k->above(c->x + i, n, limit, at);
        for (int k = 0; k < found; k++)
            draw_push(top->heap, &top->n, (struct draw_candidate){c->x[i + at[k]], i + at[k]});
    }
}

/* What the threads found of output j, together: the result. */
static void join(struct cpu_step *s, struct cpu_select *c, int n_vocab, int j, int n_thread) {
    const struct infer_draw *draw = draw_of(s, j);
    struct infer_top top;
    struct cpu_top *all = &c->top[0];
    for (int i = 1; i < n_thread; i++)
        for (int k = 0; k < c->top[i].n; k++) draw_push(all->heap, &all->n, c->top[i].heap[k]);
    draw_sort(&top, all->heap, all->n);
    top.sum = top.sum_temp = 0;
    for (int i = 0; top.n && i < n_tile(n_vocab); i++) {
        const float *t = c->sums + 3 * i; /* of exp(x - t[0]) */
        if (!(t[0] > -INFINITY)) continue;
        double away = (double)t[0] - top.x[0];
        top.sum += t[1] * exp(away);
        top.sum_temp += t[2] * exp(away * draw_scale(draw));
    }
    struct cpu_result *r = s->result;
    bool token = s->s->want[j] & WANT_TOKEN;
    if (token && draw) {
        r->token[j] = draw_token(&top, c->x, n_vocab, draw, c->heap);
        s->cpu->last.token[s->s->slot[s->s->out_row[j]]] = r->token[j];
    } else {
        top.chosen = token && top.n ? top.x[0] : 0;
    }
    if (s->s->want[j] & WANT_TOP) r->top[j] = top;
}

/* The best of what the threads found, the lowest id on ties. */
static int32_t best_of_threads(const struct cpu *c, int n_vocab, int j, int n_thread) {
    int best = -1, a, b;
    for (int i = 0; i < n_thread; i++) {
        size_t at = (size_t)i * (size_t)c->best_rows + (size_t)j,
               to = (size_t)(best < 0 ? 0 : best) * (size_t)c->best_rows + (size_t)j;
        cpu_share(n_vocab, i, n_thread, &a, &b);
        if (b > a && (best < 0 || c->best_value[at] > c->best_value[to])) best = i;
    }
    return c->best_index[(size_t)best * (size_t)c->best_rows + (size_t)j];
}

void cpu_op_select(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread) {
    const struct op_select *sel = &op->op->select;
    struct cpu *c = s->cpu;
    const uint8_t *want = s->s->want;
    int a, b, n_logits = 0, n_drawn = 0;
    cpu_share(sel->n_vocab, thread, n_thread, &a, &b);
    for (int j = 0; j < s->n_out; j++) {
        const float *x = cpu_row(s, sel->logits, j);
        if (!c->config.any_logits) cpu_guard(s, op->op, j, x + a, b - a);
        size_t at = (size_t)thread * (size_t)c->best_rows + (size_t)j;
        if (b > a && (want[j] & WANT_TOKEN) && !draw_of(s, j)) {
            c->best_index[at] = a + c->k->argmax(x + a, b - a);
            c->best_value[at] = x[c->best_index[at]];
        }
        if (want[j] & WANT_LOGITS)
            memcpy(s->result->logits + (size_t)n_logits++ * (size_t)sel->n_vocab + a, x + a,
                   sizeof(float) * (size_t)(b - a));
    }
    for (int j = 0; j < s->n_out; j++) { /* one thread joins a row while the others look through the next */
        if (!is_drawn(s, j)) continue;
        struct cpu_select *sel_j = &c->select[n_drawn % 2];
        scan(s, sel_j, cpu_row(s, sel->logits, j), sel->n_vocab, j, thread, n_thread);
        cpu_barrier(s);
        if (n_drawn++ % n_thread == thread) join(s, sel_j, sel->n_vocab, j, n_thread);
    }
    cpu_barrier(s);
    if (thread) return;
    s->result->n_logits = n_logits;
    s->result->has_top = false;
    for (int j = 0; j < s->n_out; j++) {
        s->result->has_top |= (want[j] & WANT_TOP) != 0;
        if (!(want[j] & WANT_TOKEN)) s->result->token[j] = -1;
        if (!(want[j] & WANT_TOKEN) || draw_of(s, j)) continue;
        int32_t id = best_of_threads(c, sel->n_vocab, j, n_thread);
        s->result->token[j] = id;
        c->last.token[s->s->slot[s->s->out_row[j]]] = id;
    }
}
