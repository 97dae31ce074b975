/* The choice of positions: who scores and who chooses what.
 *
 * Of few rows the positions are shared in parts of whole pages; of many, rows. A position's score is one kernel's sum either way. */
#include "cpu/cpu_list.h"
#include "seam/choose.h"

static bool shares_positions(const struct cpu_step *s) { return s->n_row <= CPU_PART_ROWS; }
/* Where there are no more than can be chosen no score is looked at. */
static bool has_scores(const struct op_index *o, int pos) { return choice_runs(&o->by, pos) > o->by.n_top; }

static int parts(const struct cpu_step *s) {
    int pos = 0;
    for (int t = 0; t < s->n_row; t++)
        if (s->s->pos[t] > pos) pos = s->s->pos[t];
    return pos / KV_PAGE / CPU_PART_PAGES + 1;
}
int cpu_index_units(const struct cpu_step *s) { return shares_positions(s) ? s->n_row * parts(s) : s->n_row; }

size_t cpu_index_floats(const struct backend_config *c, const struct op_index *o, int n_thread) {
    const size_t rows = n_thread > CPU_PART_ROWS ? (size_t)n_thread : CPU_PART_ROWS;
    return rows * (size_t)(op_index_lists(o) * cpu_index_row_floats(c));
}

static void score_pages(const struct op_index *o, struct cpu_step *s, int thread, int t, int page, int end,
                        float *score) {
    struct cpu *c = s->cpu;
    const struct kv_store *st = &c->config.store[o->store];
    const struct kv_group *g = &c->config.kv_group[st->group];
    const struct cpu_attend_arg arg = {.store = st,
                                       .k_pool = c->k_pool[o->store],
                                       .page_stride = c->page_stride[st->group],
                                       .pages = s->s->pages[st->group] +
                                                (size_t)s->s->slot[t] * (size_t)g->max_pages};
    if (has_scores(o, s->s->pos[t]))
        c->k->index_row(&arg, o, s->s->pos[t], page, end, cpu_row(s, o->q, t),
                        o->w.buf >= 0 ? cpu_row(s, o->w, t) : NULL, score, cpu_index_row_floats(&c->config),
                        c->work[thread].scratch);
}
static void choose(const struct op_index *o, struct cpu_step *s, int t, float *score) {
    const int room = choice_room(&o->by), row = cpu_index_row_floats(&s->cpu->config);
    for (int l = 0; l < op_index_lists(o); l++)
        choose_positions(&o->by, score + (size_t)l * (size_t)row, s->s->pos[t],
                         cpu_row(s, o->chosen, t) + l * room);
}

void cpu_op_index(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread) {
    const struct op_index *o = &op->op->index;
    const size_t row = (size_t)(op_index_lists(o) * cpu_index_row_floats(&s->cpu->config));
    float *scores = s->cpu->index;
    int victim = 0, u, a, b;
    if (!shares_positions(s)) {
        float *own = scores + (size_t)thread * row;
        while ((u = cpu_unit_next(op, s, thread, n_thread, &victim)) >= 0) {
            score_pages(o, s, thread, u, 0, s->s->pos[u] / KV_PAGE + 1, own);
            choose(o, s, u, own);
        }
        return;
    }
    while ((u = cpu_unit_next(op, s, thread, n_thread, &victim)) >= 0) {
        const int t = u % s->n_row, page = u / s->n_row * CPU_PART_PAGES;
        score_pages(o, s, thread, t, page, page + CPU_PART_PAGES, scores + (size_t)t * row);
    }
    cpu_barrier(s);
    cpu_share(s->n_row, thread, n_thread, &a, &b);
    for (int t = a; t < b; t++) choose(o, s, t, scores + (size_t)t * row);
}
