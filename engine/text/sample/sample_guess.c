/* Tokens that are guessed, and what is drawn behind guesses. */
#include "text/sample/sample_int.h"

int32_t sample_guess(struct sampler *s, const struct infer_top *t, int ahead) {
    static const bool kept[INFER_SAMPLE_STEPS] = {[INFER_SAMPLE_TOP_K] = true,
                                                  [INFER_SAMPLE_TOP_P] = true,
                                                  [INFER_SAMPLE_MIN_P] = true,
                                                  [INFER_SAMPLE_TEMP] = true};
    const struct infer_sample_params *p = &s->params;
    s->n = 0;
    s->sorted = true;
    for (int i = 0; i < t->n; i++) /* another vocabulary may have more tokens, which mean nothing */
        if (t->id[i] < s->n_vocab) s->c[s->n++] = (struct sample_candidate){.id = t->id[i], .logit = t->x[i]};
    if (s->n == 0) return 0;
    if (sample_takes_first(p)) s->n = 1;
    for (int i = 0; i < INFER_SAMPLE_STEPS && p->order[i] && s->n > 1; i++)
        if (kept[p->order[i]]) sample_take_step(s, p->order[i]);
    sample_softmax(s);
    double u = sample_uniform(s, SAMPLE_STREAM_TOKEN, ahead), sum = 0;
    for (int i = 0; i < s->n; i++)
        if ((sum += (double)s->c[i].p) > u) return s->c[i].id;
    return s->c[0].id;
}

void sample_suppose(struct sampler *s, int32_t id) {
    if (!s->n_supposed) s->n_last_before = s->n_last;
    s->was[s->n_supposed++] = s->last[s->next];
    sample_accept(s, id);
}

void sample_forget(struct sampler *s) {
    if (!s->n_supposed) return;
    s->n_last = s->n_last_before;
    while (s->n_supposed) {
        s->next = (s->next + INFER_SAMPLE_MAX_LAST - 1) % INFER_SAMPLE_MAX_LAST;
        s->last[s->next] = s->was[--s->n_supposed];
    }
}
