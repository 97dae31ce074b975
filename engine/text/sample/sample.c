#include "text/sample/sample_int.h"
#include <math.h>
#include <string.h>
#include "base/mem.h"
#include "seam/draw.h"

/* ---- parameters ---- */

struct infer_sample_params infer_sample_defaults(void) {
    struct infer_sample_params p = {
#define INFER_SAMPLE(type, field, def, ...) .field = (INFER_SAMPLE_##type)(def),
#include "infer_sample.def"
        .seed = 1};
    for (int i = 0; i + 1 < INFER_SAMPLE_STEPS; i++) p.order[i] = (uint8_t)(i + 1);
    return p;
}

bool sample_is_greedy(const struct infer_sample_params *p) {
    bool argmax = p->temp == 0 || p->top_k == 1;
    return argmax && p->repeat_penalty == 1 && p->frequency_penalty == 0 && p->presence_penalty == 0 &&
           p->dry_multiplier == 0 && p->n_bias == 0;
}

enum infer_status infer_sample_set_order(struct infer_sample_params *p, const char *names) {
    static const char *const known[INFER_SAMPLE_STEPS] = {
        NULL,
#define INFER_STEP(ID, name, active) #name,
#include "infer_sample.def"
    };
    static const char listed[] =
#define INFER_STEP(ID, name, active) ", " #name
#include "infer_sample.def"
        ;
    uint8_t order[INFER_SAMPLE_STEPS] = {0};
    int n = 0;
    while (*names) {
        size_t len = strcspn(names, ";,");
        int step = 1;
        while (step < INFER_SAMPLE_STEPS &&
               !(strlen(known[step]) == len && memcmp(known[step], names, len) == 0))
            step++;
        if (step == INFER_SAMPLE_STEPS)
            return err_set(INFER_E_INPUT, "no sampler named '%.*s'; known are %s", (int)(len > 60 ? 60 : len),
                           names, listed + 2);
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

enum infer_status infer_sample_check(const struct infer_sample_params *p) {
#define INFER_SAMPLE(type, field, def, least, most, ...)                                                     \
    TRY(within("." #field, p->field, (float)(least), (float)(most)));
#include "infer_sample.def"
    TRY(within("number of DRY breakers", p->n_dry_breaker, 0, INFER_SAMPLE_MAX_BREAKER));
    if (p->mirostat != 0 && p->mirostat != 2)
        return err_set(INFER_E_INPUT, "mirostat %d: only version 2 is there (0: off)", p->mirostat);
    if (p->n_bias < 0 || (p->n_bias && !p->bias)) return err_set(INFER_E_INPUT, "%d logit biases", p->n_bias);
    for (int i = 0; i < p->n_bias; i++)
        if (isnan(p->bias[i].bias))
            return err_set(INFER_E_INPUT, "the logit bias of token %d is not a number", p->bias[i].id);
    uint16_t seen = 0;
    for (int i = 0; i < INFER_SAMPLE_STEPS && p->order[i]; i++) {
        if (p->order[i] >= INFER_SAMPLE_STEPS || i == INFER_SAMPLE_STEPS - 1 || (seen >> p->order[i] & 1))
            return err_set(INFER_E_INPUT, "the order of the samplers names %d at place %d", p->order[i], i);
        seen |= (uint16_t)(1 << p->order[i]);
    }
    return INFER_OK;
}

/* ---- life ---- */

enum infer_status sample_room_open(struct sample_room **out, int n_vocab) {
    struct sample_room *r;
    const size_t n = (size_t)n_vocab;
    *out = NULL;
    if (n_vocab < 1) return err_set(INFER_E_INPUT, "a vocabulary of %d tokens", n_vocab);
    TRY(mem_new(&r, sizeof *r, "sampler"));
    r->n_vocab = n_vocab;
    enum infer_status st = mem_new(&r->c, n * sizeof *r->c, "sampler");
    if (!st) st = mem_new(&r->other, n * sizeof *r->other, "sampler");
    if (!st) st = mem_new(&r->count, n * sizeof *r->count, "sampler");
    if (!st) st = mem_new(&r->edit_of, n * sizeof *r->edit_of, "sampler");
    if (st)
        sample_room_close(r);
    else
        *out = r;
    return st;
}

void sample_room_close(struct sample_room *r) {
    if (!r) return;
    mem_free(r->c);
    mem_free(r->other);
    mem_free(r->count);
    mem_free(r->edit_of);
    mem_free(r);
}

enum infer_status sample_open_in(struct sampler **out, struct sample_room *room,
                                 const struct infer_sample_params *p) {
    struct sampler *s;
    *out = NULL;
    TRY(infer_sample_check(p));
    TRY(mem_new(&s, sizeof *s, "sampler"));
    s->n_vocab = room->n_vocab;
    s->c = room->c, s->other = room->other;
    s->count = room->count, s->edit_of = room->edit_of;
    s->params = *p;
    sample_reset(s);
    *out = s;
    return INFER_OK;
}

enum infer_status sample_open(struct sampler **out, int n_vocab, const struct infer_sample_params *p) {
    struct sample_room *room;
    *out = NULL;
    TRY(infer_sample_check(p));
    TRY(sample_room_open(&room, n_vocab));
    enum infer_status st = sample_open_in(out, room, p);
    if (st)
        sample_room_close(room);
    else
        (*out)->own = room;
    return st;
}

void sample_close(struct sampler *s) {
    if (!s) return;
    sample_room_close(s->own);
    mem_free(s);
}

enum infer_status sample_set(struct sampler *s, const struct infer_sample_params *p) {
    TRY(infer_sample_check(p));
    if (p->seed != s->params.seed) s->n_drawn = 0;
    if (p->mirostat != s->params.mirostat || p->mirostat_tau != s->params.mirostat_tau)
        s->mu = 2 * p->mirostat_tau;
    s->params = *p;
    return INFER_OK;
}

void sample_reset(struct sampler *s) {
    s->n_drawn = 0;
    s->n_last = s->next = s->n_supposed = 0;
    s->mu = 2 * s->params.mirostat_tau;
}

void sample_accept(struct sampler *s, int32_t id) {
    s->last[s->next] = id;
    s->next = (s->next + 1) % INFER_SAMPLE_MAX_LAST;
    if (s->n_last < INFER_SAMPLE_MAX_LAST) s->n_last++;
}

/* Number n_drawn + ahead of a stream of the seed. source: SplitMix64 (Steele, Lea, Flood 2014, figure 16) */
double sample_uniform(const struct sampler *s, enum sample_stream stream, int ahead) {
    uint64_t z = s->params.seed + (s->n_drawn + (uint64_t)ahead + 1) * 0x9e3779b97f4a7c15u +
                 (uint64_t)stream * 0xd1342543de82ef95u;
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
    const struct infer_sample_params *p = &s->params;
    for (int i = 0; i < s->n_vocab; i++) s->c[i] = (struct sample_candidate){.id = i, .logit = logits[i]};
    for (int i = 0; i < p->n_bias; i++)
        if (p->bias[i].id >= 0 && p->bias[i].id < s->n_vocab) s->c[p->bias[i].id].logit += p->bias[i].bias;
    s->n = 0;
    for (int i = 0; i < s->n_vocab; i++)
        if (isfinite(s->c[i].logit)) s->c[s->n++] = s->c[i];
    s->sorted = false;
}

static bool is_edit(enum infer_sample_step step) {
    return step == INFER_SAMPLE_PENALTIES || step == INFER_SAMPLE_DRY;
}

/* Whether the step does anything. */
bool sample_is_active(const struct infer_sample_params *p, enum infer_sample_step step) {
    if (p->mirostat && !is_edit(step) && step != INFER_SAMPLE_TEMP) return false;
    switch (step) {
#define INFER_STEP(ID, name, active)                                                                         \
    case INFER_SAMPLE_##ID:                                                                                  \
        return active;
#include "infer_sample.def"
    default:
        return false;
    }
}

void sample_take_step(struct sampler *s, enum infer_sample_step step) {
    static void (*const run[INFER_SAMPLE_STEPS])(struct sampler *) = {
#define INFER_STEP(ID, name, active) [INFER_SAMPLE_##ID] = sample_##name,
#include "infer_sample.def"
    };
    if (sample_is_active(&s->params, step)) run[step](s);
}

bool sample_takes_first(const struct infer_sample_params *p) {
    return p->temp == 0 && memchr(p->order, INFER_SAMPLE_TEMP, sizeof p->order);
}

/* The steps of the order on the candidates; edited: penalties and DRY are in the logits already. */
static void take_steps(struct sampler *s, bool edited) {
    const struct infer_sample_params *p = &s->params;
    for (int i = 0; i < INFER_SAMPLE_STEPS && p->order[i] && s->n > 0; i++)
        if (is_edit(p->order[i]) ? !edited : !sample_takes_first(p)) sample_take_step(s, p->order[i]);
    if (s->n == 0) {
        s->c[0] = (struct sample_candidate){.id = 0};
        s->n = 1;
    }
    if (sample_takes_first(p))
        sample_keep(s, 1);
    else if (p->mirostat)
        sample_mirostat(s);
    sample_softmax(s);
}

int sample_distribution(struct sampler *s, const float *logits, const struct sample_candidate **out) {
    gather(s, logits);
    take_steps(s, false);
    *out = s->c;
    return s->n;
}

/* Draws from the candidates, the likeliest first. */
static int32_t choose(struct sampler *s) {
    int chosen = 0;
    if (s->n > 1) {
        double r = sample_uniform(s, SAMPLE_STREAM_TOKEN, 0), sum = 0;
        sample_keep(s, s->n);
        for (int i = 0; i < s->n; i++) {
            if (s->c[i].p > 0) chosen = i; /* rounding may leave the sum just under 1 */
            if ((sum += s->c[i].p) > r) break;
        }
    }
    if (s->params.mirostat)
        s->mu -= s->params.mirostat_eta * (-log2f(s->c[chosen].p) - s->params.mirostat_tau);
    s->n_drawn++;
    return s->c[chosen].id;
}

/* ---- a token that is drawn where the logits are ---- */

/* The chain, as far as a draw knows it. */
static enum sample_by chain_of(const struct infer_sample_params *p, struct infer_draw *d) {
    static const uint8_t known[INFER_SAMPLE_STEPS] = {[INFER_SAMPLE_TOP_K] = INFER_DRAW_TOP_K,
                                                      [INFER_SAMPLE_TOP_P] = INFER_DRAW_TOP_P,
                                                      [INFER_SAMPLE_MIN_P] = INFER_DRAW_MIN_P,
                                                      [INFER_SAMPLE_TEMP] = INFER_DRAW_TEMP};
    enum infer_sample_step first = INFER_SAMPLE_END;
    bool all = !p->mirostat;
    int n = 0;
    *d = (struct infer_draw){0};
    d->temp = p->temp, d->top_p = p->top_p, d->min_p = p->min_p, d->top_k = p->top_k;
    for (int i = 0; i < INFER_SAMPLE_STEPS && p->order[i]; i++) {
        enum infer_sample_step step = p->order[i];
        if (!sample_is_active(p, step) || (sample_takes_first(p) && !is_edit(step))) continue;
        if (is_edit(step)) {
            if (first) return SAMPLE_BY_ROW;
            continue;
        }
        if (!first) first = step;
        all &= known[step] && (step != INFER_SAMPLE_TEMP || (p->temp_range <= 0 && p->temp >= 1e-6f));
        if (all) d->order[n++] = known[step];
    }
    if (sample_takes_first(p)) d->order[n++] = INFER_DRAW_TOP_K, d->top_k = 1;
    if (all) return SAMPLE_BY_DRAW;
    memset(d->order, 0, sizeof d->order);
    return first == INFER_SAMPLE_TOP_K && p->top_k <= INFER_TOP && !p->mirostat ? SAMPLE_BY_TOP
                                                                                : SAMPLE_BY_ROW;
}

bool sample_ignores_text(const struct infer_sample_params *p) {
    struct infer_draw d;
    return chain_of(p, &d) == SAMPLE_BY_DRAW && !sample_is_active(p, INFER_SAMPLE_PENALTIES) &&
           !sample_is_active(p, INFER_SAMPLE_DRY) && p->n_bias <= INFER_EDITS_MAX;
}

enum sample_by sample_draw(struct sampler *s, int ahead, struct infer_draw *d) {
    enum sample_by by = chain_of(&s->params, d);
    d->edit = s->edit;
    if (by == SAMPLE_BY_ROW) return by;
    d->n_edit = sample_edits(s);
    if (d->n_edit < 0) return SAMPLE_BY_ROW;
    d->u = sample_uniform(s, SAMPLE_STREAM_TOKEN, ahead);
    return by;
}

void sample_was_drawn(struct sampler *s) { s->n_drawn++; }

int32_t sample_from_top(struct sampler *s, const struct infer_top *t) {
    s->n = t->n;
    s->sorted = true;
    for (int i = 0; i < t->n; i++) s->c[i] = (struct sample_candidate){.id = t->id[i], .logit = t->x[i]};
    take_steps(s, true);
    return choose(s);
}

int32_t sample_token(struct sampler *s, const float *logits) {
    struct infer_draw d;
    struct infer_top t;
    const struct sample_candidate *c;
    if (sample_draw(s, 0, &d) == SAMPLE_BY_DRAW) {
        float *x = (float *)(void *)s->c; /* the candidates' memory */
        memcpy(x, logits, (size_t)s->n_vocab * sizeof *x);
        draw_edit(x, 0, s->n_vocab, &d);
        draw_top(&t, x, s->n_vocab, &d);
        s->n_drawn++;
        return draw_token(&t, x, s->n_vocab, &d, (struct draw_candidate *)(void *)s->other);
    }
    sample_distribution(s, logits, &c);
    return choose(s);
}
