/* Rows of a table that ids hash: a few numbers each, from anywhere in the map. */
#include "cpu/cpu_list.h"
#include "seam/ngram.h"
#include "seam/weight.h"

/* Each thread has heads of its own, for all rows: their state stays with it. */
void cpu_op_ngram(const struct cpu_op *op, struct cpu_step *s, int thread, int n_thread) {
    const struct op_ngram *o = &op->op->ngram;
    const int kept = o->by->size - 1, k = o->w->k;
    const size_t n_elem = (size_t)s->cpu->config.state[o->state].n_elem;
    int32_t ids[NGRAM_SIZE_MAX];
    int a, b;
    cpu_share(o->by->n_head, thread, n_thread, &a, &b);
    for (int t = 0, i = 0; t < s->n_row; t++) {
        i = t && s->s->slot[t] == s->s->slot[t - 1] ? i + 1 : 0;
        const bool last = t + 1 == s->n_row || s->s->slot[t + 1] != s->s->slot[t];
        float *state = s->cpu->state[o->state] + (size_t)s->s->slot[t] * n_elem;
        for (int h = a; h < b; h++) {
            float *out = cpu_row(s, o->out, t) + h * k;
            ngram_ids(o->by, s->s, t, i, state + h * kept, ids);
            const int64_t row = ngram_row(o->by, h, ids);
            const struct weight part = weight_matrix(o->w, (int)(row / o->w->n));
            weight_decode_row(&part, (int)(row % o->w->n), out);
            for (int e = 0; o->w->factor != 1 && e < k; e++) out[e] *= o->w->factor;
            if (last) ngram_keep(o->by, s->s, t, i, state + h * kept);
        }
    }
}
