/* Tokens that another model has guessed. source: Leviathan et al. 2023 (arXiv 2211.17192), Chen et al. 2023 (arXiv 2302.01318) */
#include <string.h>
#include "text/sample/sample_int.h"

int32_t sample_guess(struct sampler *s, const struct infer_top *t, int ahead, struct sample_guess *g) {
    static const bool kept[INFER_SAMPLE_STEPS] = {[INFER_SAMPLE_TOP_K] = true,
                                                  [INFER_SAMPLE_TOP_P] = true,
                                                  [INFER_SAMPLE_MIN_P] = true,
                                                  [INFER_SAMPLE_TEMP] = true};
    const struct infer_sample_params *p = &s->params;
    s->n = 0;
    s->sorted = true;
    for (int i = 0; i < t->n; i++) /* another vocabulary may have more tokens, which mean nothing */
        if (t->id[i] < s->n_vocab) s->c[s->n++] = (struct sample_candidate){.id = t->id[i], .logit = t->x[i]};
    if (s->n == 0) s->c[s->n++] = (struct sample_candidate){.id = 0};
    if (sample_takes_first(p)) s->n = 1;
    for (int i = 0; i < INFER_SAMPLE_STEPS && p->order[i] && s->n > 1; i++)
        if (kept[p->order[i]]) sample_take_step(s, p->order[i]);
    sample_softmax(s);
    double u = sample_uniform(s, SAMPLE_STREAM_GUESS, ahead), sum = 0;
    int drawn = -1;
    g->n = s->n;
    for (int i = 0; i < s->n; i++) {
        g->id[i] = s->c[i].id, g->p[i] = s->c[i].p;
        if ((sum += s->c[i].p) > u && drawn < 0) drawn = i;
    }
    return g->id[drawn < 0 ? 0 : drawn];
}

/* The place of candidate id; -1: it is none. */
static int find(const struct sampler *s, int32_t id) {
    int i = s->n - 1;
    while (i >= 0 && s->c[i].id != id) i--;
    return i;
}

/* Draws from max(p - q, 0), which p of the candidates becomes; -1: that is nothing. */
static int draw_rest(struct sampler *s, const struct sample_guess *g) {
    int drawn = -1;
    double sum = 0, r = sample_uniform(s, SAMPLE_STREAM_REST, 0);
    for (int k = 0; k < g->n; k++) s->count[g->id[k]] = 1 + k;
    for (int i = 0; i < s->n; i++) {
        int k = s->count[s->c[i].id] - 1;
        float rest = s->c[i].p - (k < 0 ? 0 : g->p[k]);
        s->c[i].p = rest > 0 ? rest : 0;
        sum += s->c[i].p;
    }
    for (int k = 0; k < g->n; k++) s->count[g->id[k]] = 0;
    r *= sum;
    for (int i = 0; i < s->n && sum > 0; i++) {
        if (s->c[i].p <= 0) continue;
        drawn = i; /* rounding may leave r at the end of all */
        if ((r -= s->c[i].p) < 0) break;
    }
    return drawn;
}

int32_t sample_guessed(struct sampler *s, const float *logits, int32_t guess, const struct sample_guess *g) {
    const struct sample_candidate *c;
    if (g->n == 1) return sample_token(s, logits);
    sample_distribution(s, logits, &c);
    const int at = find(s, guess);
    float q = 0, of_drawn = 0;
    for (int k = 0; k < g->n; k++)
        if (g->id[k] == guess) q = g->p[k];
    if (at >= 0 && sample_uniform(s, SAMPLE_STREAM_TOKEN, 0) * (double)q < c[at].p)
        return sample_choose(s, at, c[at].p);
    int drawn = draw_rest(s, g);
    if (drawn < 0) drawn = at < 0 ? 0 : at; /* p is q but for rounding */
    for (int k = 0; k < g->n; k++)
        if (g->id[k] == c[drawn].id) of_drawn = g->p[k];
    return sample_choose(s, drawn, c[drawn].p + of_drawn);
}
