#include "sample.h"
#include <math.h>
#include "mem.h"

struct sampler {
    struct sample_params params;
    int n_vocab;
    uint64_t random;               /* state of the random stream */
    struct sample_candidate *heap; /* heap[n_vocab] */
    struct sample_candidate *kept; /* kept[n_vocab], likeliest first */
    int32_t last[SAMPLE_MAX_LAST]; /* ring of recent tokens */
    int n_last, next;
};

struct sample_params sample_defaults(void) {
    return (struct sample_params){.top_p = 1, .repeat_penalty = 1, .repeat_last = 64, .seed = 1};
}

bool sample_is_greedy(const struct sample_params *p) {
    return (p->temp == 0 || p->top_k == 1) && p->repeat_penalty == 1;
}

static enum infer_status check(const struct sample_params *p) {
    if (!(p->temp >= 0) || !isfinite(p->temp))
        return err_set(INFER_E_INPUT, "temperature %g is below 0", p->temp);
    if (p->top_k < 0) return err_set(INFER_E_INPUT, "top-k %d is below 0", p->top_k);
    if (!(p->top_p >= 0 && p->top_p <= 1))
        return err_set(INFER_E_INPUT, "top-p %g is not within 0 to 1", p->top_p);
    if (!(p->min_p >= 0 && p->min_p <= 1))
        return err_set(INFER_E_INPUT, "min-p %g is not within 0 to 1", p->min_p);
    if (!(p->repeat_penalty > 0) || !isfinite(p->repeat_penalty))
        return err_set(INFER_E_INPUT, "repetition penalty %g is not above 0", p->repeat_penalty);
    if (p->repeat_last < 0 || p->repeat_last > SAMPLE_MAX_LAST)
        return err_set(INFER_E_INPUT, "the repetition penalty looks back %d tokens, at most %d are kept",
                       p->repeat_last, SAMPLE_MAX_LAST);
    return INFER_OK;
}

enum infer_status sample_open(struct sampler **out, int n_vocab, const struct sample_params *p) {
    *out = NULL;
    TRY(check(p));
    if (n_vocab < 1) return err_set(INFER_E_INPUT, "a vocabulary of %d tokens", n_vocab);
    struct sampler *s;
    TRY(mem_new(&s, sizeof *s, "sampler"));
    s->n_vocab = n_vocab;
    enum infer_status st = mem_new(&s->heap, (size_t)n_vocab * sizeof *s->heap, "sampler");
    if (!st) st = mem_new(&s->kept, (size_t)n_vocab * sizeof *s->kept, "sampler");
    if (st) {
        sample_close(s);
        return st;
    }
    s->params = *p;
    sample_reset(s);
    *out = s;
    return INFER_OK;
}

void sample_close(struct sampler *s) {
    if (!s) return;
    mem_free(s->heap);
    mem_free(s->kept);
    mem_free(s);
}

enum infer_status sample_set(struct sampler *s, const struct sample_params *p) {
    TRY(check(p));
    if (p->seed != s->params.seed) s->random = p->seed;
    s->params = *p;
    return INFER_OK;
}

void sample_reset(struct sampler *s) {
    s->random = s->params.seed;
    s->n_last = s->next = 0;
}

void sample_accept(struct sampler *s, int32_t id) {
    s->last[s->next] = id;
    s->next = (s->next + 1) % SAMPLE_MAX_LAST;
    if (s->n_last < SAMPLE_MAX_LAST) s->n_last++;
}

/* Uniform in [0, 1) with 53 bits. source: SplitMix64 (Steele, Lea, Flood 2014, figure 16) */
static double uniform(struct sampler *s) {
    uint64_t z = s->random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

/* ---- a heap whose top is the likeliest; equal logits: the lower id ---- */

static bool before(const struct sample_candidate *a, const struct sample_candidate *b) {
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

static void heap_sink(struct sample_candidate *h, int n, int i) {
    struct sample_candidate x = h[i];
    for (int child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(&h[child + 1], &h[child])) child++;
        if (!before(&h[child], &x)) break;
        h[i] = h[child];
    }
    h[i] = x;
}

static struct sample_candidate heap_pop(struct sample_candidate *h, int *n) {
    struct sample_candidate top = h[0];
    h[0] = h[--*n];
    if (*n) heap_sink(h, *n, 0);
    return top;
}

/* ---- the steps ---- */

/* Copies the finite logits into the heap array with the penalty applied; returns how many. */
static int gather(struct sampler *s, const float *logits) {
    struct sample_candidate *h = s->heap;
    for (int i = 0; i < s->n_vocab; i++) h[i] = (struct sample_candidate){.id = i, .logit = logits[i]};
    if (s->params.repeat_penalty != 1) {
        int back = s->n_last < s->params.repeat_last ? s->n_last : s->params.repeat_last;
        for (int k = 1; k <= back; k++) {
            int32_t id = s->last[(s->next - k + SAMPLE_MAX_LAST) % SAMPLE_MAX_LAST];
            if (id < 0 || id >= s->n_vocab || h[id].p != 0) continue;
            h[id].p = 1; /* penalised once, however often it came */
            h[id].logit *= h[id].logit > 0 ? 1 / s->params.repeat_penalty : s->params.repeat_penalty;
        }
    }
    int n = 0;
    for (int i = 0; i < s->n_vocab; i++)
        if (isfinite(h[i].logit)) h[n++] = h[i];
    return n;
}

static double sum_exp(const struct sample_candidate *c, int n, float max) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += exp((double)c[i].logit - max);
    return sum;
}

/* Moves what top-k and top-p keep of heap[n] to kept, likeliest first; returns how many. */
static int take_likeliest(struct sampler *s, int n) {
    const struct sample_params *p = &s->params;
    for (int i = n / 2 - 1; i >= 0; i--) heap_sink(s->heap, n, i);
    float max = s->heap[0].logit;
    int most = p->top_k && p->top_k < n ? p->top_k : n, kept = 0;
    if (most < n || p->top_p == 1) {
        while (kept < most) s->kept[kept++] = heap_pop(s->heap, &n);
        if (p->top_p == 1) return kept;
        double limit = p->top_p * sum_exp(s->kept, kept, max), sum = 0;
        for (int i = 0; i < kept; i++)
            if ((sum += exp((double)s->kept[i].logit - max)) >= limit) return i + 1;
        return kept;
    }
    double limit = p->top_p * sum_exp(s->heap, n, max), sum = 0;
    do {
        s->kept[kept] = heap_pop(s->heap, &n);
        sum += exp((double)s->kept[kept++].logit - max);
    } while (n && sum < limit);
    return kept;
}

int sample_distribution(struct sampler *s, const float *logits, const struct sample_candidate **out) {
    const struct sample_params *p = &s->params;
    int n = gather(s, logits);
    *out = s->kept;
    s->kept[0] = (struct sample_candidate){.p = 1};
    if (n == 0) return 1;
    float max = s->heap[0].logit;
    int best = 0;
    for (int i = 1; i < n; i++)
        if (s->heap[i].logit > max) max = s->heap[i].logit, best = i;
    if (p->temp == 0) {
        s->kept[0] = s->heap[best];
        s->kept[0].p = 1;
        return 1;
    }
    /* filters: min-p keeps p >= min_p * p_max, which is a bound on the logit */
    int kept = 0;
    float least = p->min_p > 0 ? max + logf(p->min_p) : -INFINITY;
    if (p->top_k || p->top_p < 1) {
        int m = take_likeliest(s, n);
        while (kept < m && (kept == 0 || s->kept[kept].logit >= least)) kept++;
    } else {
        for (int i = 0; i < n; i++)
            if (s->heap[i].logit >= least) s->kept[kept++] = s->heap[i];
    }
    /* softmax at the temperature */
    double sum = 0;
    for (int i = 0; i < kept; i++) sum += exp(((double)s->kept[i].logit - max) / p->temp);
    for (int i = 0; i < kept; i++)
        s->kept[i].p = (float)(exp(((double)s->kept[i].logit - max) / p->temp) / sum);
    return kept;
}

int32_t sample_token(struct sampler *s, const float *logits) {
    const struct sample_candidate *c;
    int n = sample_distribution(s, logits, &c);
    if (n == 1) return c[0].id;
    double r = uniform(s), sum = 0;
    int last = 0;
    for (int i = 0; i < n; i++) {
        if (c[i].p > 0) last = i; /* rounding may leave the sum just under 1 */
        if ((sum += c[i].p) > r) return c[i].id;
    }
    return c[last].id;
}
