#include "request/logprobs.h"
#include <math.h>
#include "base/mem.h"

void logprobs_start(struct infer_logprobs *p, int n_top) {
    if (n_top != p->n_top) logprobs_free(p);
    p->n_top = n_top;
    p->n = 0;
}

void logprobs_free(struct infer_logprobs *p) {
    mem_free(p->row);
    *p = (struct infer_logprobs){.n_top = -1};
}

static size_t row_at(const struct infer_logprobs *p, int i) { return (size_t)i * (size_t)(1 + p->n_top); }

const struct infer_logprob *infer_logprobs_at(const struct infer_logprobs *p, int i) {
    return p->row + row_at(p, i);
}

enum infer_status logprobs_add(struct infer_logprobs *p, const struct infer_top *t, int32_t id, float logit) {
    if (p->n == p->cap) {
        int cap = p->cap ? 2 * p->cap : 256;
        struct infer_logprob *grown =
            mem_realloc(p->row, (size_t)cap * (size_t)(1 + p->n_top) * sizeof *grown);
        if (!grown) return err_set(INFER_E_MEMORY, "log probabilities of %d tokens", cap);
        p->row = grown;
        p->cap = cap;
    }
    struct infer_logprob *row = p->row + row_at(p, p->n++);
    double all = (t->n ? (double)t->x[0] : 0) + log(t->sum);
    row[0] = (struct infer_logprob){id, (float)(logit - all)};
    for (int i = 1; i <= p->n_top; i++) /* a tiny vocabulary has fewer */
        row[i] = i <= t->n ? (struct infer_logprob){t->id[i - 1], (float)(t->x[i - 1] - all)}
                           : (struct infer_logprob){-1, -INFINITY};
    return INFER_OK;
}
