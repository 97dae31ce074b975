#include "text/sample/sample_int.h"
#include <math.h>
#include <string.h>
#include "base/mem.h"

/* ---- parameters ---- */

struct sample_params sample_defaults(void) {
    struct sample_params p = {.top_p = 1,
                              .repeat_penalty = 1,
                              .repeat_last = 64,
                              .seed = 1,
                              .temp_exponent = 1,
                              .typical_p = 1,
                              .xtc_threshold = 0.1f,
                              .dry_base = 1.75f,
                              .dry_allowed = 2,
                              .dry_last = SAMPLE_MAX_LAST,
                              .mirostat_tau = 5,
                              .mirostat_eta = 0.1f};
    for (int i = 0; i + 1 < SAMPLE_STEPS; i++) p.order[i] = (uint8_t)(i + 1);
    return p;
}

bool sample_is_greedy(const struct sample_params *p) {
    bool argmax = p->temp == 0 || p->top_k == 1;
    return argmax && p->repeat_penalty == 1 && p->frequency_penalty == 0 && p->presence_penalty == 0 &&
           p->dry_multiplier == 0 && p->n_bias == 0;
}

enum infer_status sample_set_order(struct sample_params *p, const char *names) {
    static const char *const known[SAMPLE_STEPS] = {NULL,      "penalties", "dry",   "top_n_sigma", "top_k",
                                                    "typical", "top_p",     "min_p", "xtc",         "temp"};
    uint8_t order[SAMPLE_STEPS] = {0};
    int n = 0;
    while (*names) {
        size_t len = strcspn(names, ";,");
        int step = 1;
        while (step < SAMPLE_STEPS && !(strlen(known[step]) == len && memcmp(known[step], names, len) == 0))
            step++;
        if (step == SAMPLE_STEPS)
            return err_set(INFER_E_INPUT,
                           "no sampler named '%.*s'; known are penalties, dry, top_n_sigma, top_k, typical, "
                           "top_p, min_p, xtc, temp",
                           (int)(len > 60 ? 60 : len), names);
        if (memchr(order, step, (size_t)n))
            return err_set(INFER_E_INPUT, "sampler '%s' is given twice", known[step]);
        order[n++] = (uint8_t)step;
        names += len;
        names += *names != 0;
    }
    memcpy(p->order, order, sizeof order);
    return INFER_OK;
}

/* One parameter that has to lie in least..most. */
static enum infer_status within(const char *name, double x, double least, double most) {
    if (x >= least && x <= most) return INFER_OK;
    return err_set(INFER_E_INPUT, "%s %g is not within %g to %g", name, x, least, most);
}

enum infer_status sample_check(const struct sample_params *p) {
    if (!(p->temp >= 0) || !isfinite(p->temp))
        return err_set(INFER_E_INPUT, "temperature %g is below 0", p->temp);
    if (p->top_k < 0) return err_set(INFER_E_INPUT, "top-k %d is below 0", p->top_k);
    TRY(within("top-p", p->top_p, 0, 1));
    TRY(within("min-p", p->min_p, 0, 1));
    if (!(p->repeat_penalty > 0) || !isfinite(p->repeat_penalty))
        return err_set(INFER_E_INPUT, "repetition penalty %g is not above 0", p->repeat_penalty);
    if (p->repeat_last < 0 || p->repeat_last > SAMPLE_MAX_LAST)
        return err_set(INFER_E_INPUT, "the repetition penalty looks back %d tokens, at most %d are kept",
                       p->repeat_last, SAMPLE_MAX_LAST);
    TRY(within("frequency penalty", p->frequency_penalty, -1000, 1000));
    TRY(within("presence penalty", p->presence_penalty, -1000, 1000));
    TRY(within("range of the temperature", p->temp_range, 0, 1000));
    TRY(within("exponent of the temperature", p->temp_exponent, 0, 1000));
    TRY(within("typical-p", p->typical_p, 0, 1));
    TRY(within("top-n-sigma", p->top_n_sigma, 0, 1e6));
    TRY(within("probability of XTC", p->xtc_probability, 0, 1));
    TRY(within("threshold of XTC", p->xtc_threshold, 0, 1));
    TRY(within("multiplier of DRY", p->dry_multiplier, 0, 1000));
    TRY(within("base of DRY", p->dry_base, 1, 1000));
    TRY(within("allowed length of DRY", p->dry_allowed, 1, SAMPLE_MAX_LAST));
    TRY(within("length that DRY looks back", p->dry_last, 0, SAMPLE_MAX_LAST));
    TRY(within("number of DRY breakers", p->n_dry_breaker, 0, SAMPLE_MAX_BREAKER));
    if (p->mirostat != 0 && p->mirostat != 2)
        return err_set(INFER_E_INPUT, "mirostat %d: only version 2 is there (0: off)", p->mirostat);
    TRY(within("tau of mirostat", p->mirostat_tau, 0, 100));
    TRY(within("eta of mirostat", p->mirostat_eta, 0, 1));
    if (p->n_bias < 0 || (p->n_bias && !p->bias)) return err_set(INFER_E_INPUT, "%d logit biases", p->n_bias);
    for (int i = 0; i < p->n_bias; i++)
        if (isnan(p->bias[i].bias))
            return err_set(INFER_E_INPUT, "the logit bias of token %d is not a number", p->bias[i].id);
    uint16_t seen = 0;
    for (int i = 0; i < SAMPLE_STEPS && p->order[i]; i++) {
        if (p->order[i] >= SAMPLE_STEPS || i == SAMPLE_STEPS - 1 || (seen >> p->order[i] & 1))
            return err_set(INFER_E_INPUT, "the order of the samplers names %d at place %d", p->order[i], i);
        seen |= (uint16_t)(1 << p->order[i]);
    }
    return INFER_OK;
}

/* ---- life ---- */

enum infer_status sample_open(struct sampler **out, int n_vocab, const struct sample_params *p) {
    *out = NULL;
    TRY(sample_check(p));
    if (n_vocab < 1) return err_set(INFER_E_INPUT, "a vocabulary of %d tokens", n_vocab);
    struct sampler *s;
    TRY(mem_new(&s, sizeof *s, "sampler"));
    s->n_vocab = n_vocab;
    enum infer_status st = mem_new(&s->c, (size_t)n_vocab * sizeof *s->c, "sampler");
    if (!st) st = mem_new(&s->other, (size_t)n_vocab * sizeof *s->other, "sampler");
    if (!st) st = mem_new(&s->count, (size_t)n_vocab * sizeof *s->count, "sampler");
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
    mem_free(s->c);
    mem_free(s->other);
    mem_free(s->count);
    mem_free(s);
}

enum infer_status sample_set(struct sampler *s, const struct sample_params *p) {
    TRY(sample_check(p));
    if (p->seed != s->params.seed) s->random = p->seed;
    if (p->mirostat != s->params.mirostat || p->mirostat_tau != s->params.mirostat_tau)
        s->mu = 2 * p->mirostat_tau;
    s->params = *p;
    return INFER_OK;
}

void sample_reset(struct sampler *s) {
    s->random = s->params.seed;
    s->n_last = s->next = 0;
    s->mu = 2 * s->params.mirostat_tau;
}

void sample_accept(struct sampler *s, int32_t id) {
    s->last[s->next] = id;
    s->next = (s->next + 1) % SAMPLE_MAX_LAST;
    if (s->n_last < SAMPLE_MAX_LAST) s->n_last++;
}

/* source: SplitMix64 (Steele, Lea, Flood 2014, figure 16) */
double sample_uniform(struct sampler *s) {
    uint64_t z = s->random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

/* ---- a token ---- */

void sample_softmax(struct sampler *s) {
    float max = -INFINITY;
    double sum = 0;
    for (int i = 0; i < s->n; i++) max = s->c[i].logit > max ? s->c[i].logit : max;
    for (int i = 0; i < s->n; i++) sum += exp((double)s->c[i].logit - max);
    for (int i = 0; i < s->n; i++) s->c[i].p = (float)(exp((double)s->c[i].logit - max) / sum);
}

/* The finite logits with their biases become the candidates. */
static void gather(struct sampler *s, const float *logits) {
    const struct sample_params *p = &s->params;
    for (int i = 0; i < s->n_vocab; i++) s->c[i] = (struct sample_candidate){.id = i, .logit = logits[i]};
    for (int i = 0; i < p->n_bias; i++)
        if (p->bias[i].id >= 0 && p->bias[i].id < s->n_vocab) s->c[p->bias[i].id].logit += p->bias[i].bias;
    s->n = 0;
    for (int i = 0; i < s->n_vocab; i++)
        if (isfinite(s->c[i].logit)) s->c[s->n++] = s->c[i];
    s->sorted = false;
}

static void take_step(struct sampler *s, enum sample_step step) {
    if (s->params.mirostat && step != SAMPLE_PENALTIES && step != SAMPLE_DRY && step != SAMPLE_TEMP) return;
    switch (step) {
    case SAMPLE_PENALTIES:
        sample_penalties(s);
        break;
    case SAMPLE_DRY:
        sample_dry(s);
        break;
    case SAMPLE_TOP_N_SIGMA:
        sample_top_n_sigma(s);
        break;
    case SAMPLE_TOP_K:
        if (s->params.top_k) sample_top_k(s, s->params.top_k);
        break;
    case SAMPLE_TYPICAL:
        sample_typical(s);
        break;
    case SAMPLE_TOP_P:
        sample_top_p(s);
        break;
    case SAMPLE_MIN_P:
        sample_min_p(s);
        break;
    case SAMPLE_XTC:
        sample_xtc(s);
        break;
    case SAMPLE_TEMP:
        sample_temperature(s);
        break;
    default:
        break;
    }
}

/* The greatest logit alone; the lowest id on ties. */
static void keep_best(struct sampler *s) {
    int best = 0;
    for (int i = 1; i < s->n; i++) {
        const struct sample_candidate *a = &s->c[i], *b = &s->c[best];
        if (a->logit > b->logit || (a->logit == b->logit && a->id < b->id)) best = i;
    }
    s->c[0] = s->c[best];
    s->n = 1;
}

int sample_distribution(struct sampler *s, const float *logits, const struct sample_candidate **out) {
    const struct sample_params *p = &s->params;
    gather(s, logits);
    bool has_temp = memchr(p->order, SAMPLE_TEMP, sizeof p->order) != NULL;
    bool greedy = p->temp == 0 && has_temp;
    for (int i = 0; i < SAMPLE_STEPS && p->order[i] && s->n > 0; i++)
        if (!greedy || p->order[i] == SAMPLE_PENALTIES || p->order[i] == SAMPLE_DRY)
            take_step(s, p->order[i]);
    if (s->n == 0) {
        s->c[0] = (struct sample_candidate){.id = 0};
        s->n = 1;
    }
    if (greedy)
        keep_best(s);
    else if (p->mirostat)
        sample_mirostat(s);
    sample_softmax(s);
    *out = s->c;
    return s->n;
}

int32_t sample_token(struct sampler *s, const float *logits) {
    const struct sample_candidate *c;
    int n = sample_distribution(s, logits, &c), chosen = 0;
    if (n > 1) {
        double r = sample_uniform(s), sum = 0;
        for (int i = 0; i < n; i++) {
            if (c[i].p > 0) chosen = i; /* rounding may leave the sum just under 1 */
            if ((sum += c[i].p) > r) break;
        }
    }
    if (s->params.mirostat) s->mu -= s->params.mirostat_eta * (-log2f(c[chosen].p) - s->params.mirostat_tau);
    return c[chosen].id;
}
