#include "request/logprobs.h"
#include <math.h>
#include <string.h>
#include "base/mem.h"

void logprobs_start(struct logprobs *p, int n_top) {
    if (n_top != p->n_top) logprobs_free(p);
    p->n_top = n_top;
    p->n = 0;
}

void logprobs_free(struct logprobs *p) {
    mem_free(p->row);
    *p = (struct logprobs){.n_top = -1};
}

/* The likeliest of logits[n_vocab] into top[n_top]; how many there are. */
static int likeliest(const float *logits, int n_vocab, struct logprob *top, int n_top) {
    int n = 0;
    for (int id = 0; id < n_vocab; id++) {
        if (n == n_top && !(n && logits[id] > top[n - 1].logprob)) continue;
        int at = n < n_top ? n++ : n - 1;
        for (; at > 0 && logits[id] > top[at - 1].logprob; at--) top[at] = top[at - 1];
        top[at] = (struct logprob){id, logits[id]};
    }
    return n;
}

static size_t row_at(const struct logprobs *p, int i) { return (size_t)i * (size_t)(1 + p->n_top); }

const struct logprob *logprobs_at(const struct logprobs *p, int i) { return p->row + row_at(p, i); }

enum infer_status logprobs_add(struct logprobs *p, const float *logits, int n_vocab, int32_t id) {
    if (p->n == p->cap) {
        int cap = p->cap ? 2 * p->cap : 256;
        struct logprob *grown = mem_realloc(p->row, (size_t)cap * (size_t)(1 + p->n_top) * sizeof *grown);
        if (!grown) return err_set(INFER_E_MEMORY, "log probabilities of %d tokens", cap);
        p->row = grown;
        p->cap = cap;
    }
    struct logprob *row = p->row + row_at(p, p->n++);
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < n_vocab; i++) max = logits[i] > max ? logits[i] : max;
    for (int i = 0; i < n_vocab; i++) sum += exp(logits[i] - max);
    double all = max + log(sum);
    row[0] = (struct logprob){id, (float)(logits[id] - all)};
    int n = likeliest(logits, n_vocab, row + 1, p->n_top);
    for (int i = 1; i <= n; i++) row[i].logprob = (float)(row[i].logprob - all);
    for (int i = n + 1; i <= p->n_top; i++) row[i] = (struct logprob){-1, -INFINITY}; /* a tiny vocabulary */
    return INFER_OK;
}
