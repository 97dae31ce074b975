#include "seam/ngram.h"

int64_t ngram_row(const struct ngram *by, int h, const int32_t *a) {
    const int n = 2 + h / (by->n_head / (by->size - 1));
    int64_t mixed = a[0] * by->mult[0];
    for (int s = 1; s < n; s++) mixed ^= a[s] * by->mult[s];
    return mixed % by->rows[h] + by->first[h];
}

/* The id of s positions before row t, whatever stands behind it. */
static int32_t id_before(const struct ngram *by, const struct step *s, int t, int i, int back,
                         const float *state) {
    if (s->pos[t] < back) return by->end;
    if (back > i) return (int32_t)state[by->size - 1 - (back - i)];
    return s->input && s->input[t - back] ? by->given : s->id[t - back];
}

void ngram_ids(const struct ngram *by, const struct step *s, int t, int i, const float *state, int32_t *a) {
    for (int back = 0; back < by->size; back++) {
        const bool ended = back > 1 && a[back - 1] == by->end;
        a[back] = ended ? by->end : id_before(by, s, t, i, back, state);
    }
}

void ngram_keep(const struct ngram *by, const struct step *s, int t, int i, float *state) {
    float kept[NGRAM_SIZE_MAX];
    const int n = by->size - 1;
    for (int k = 0; k < n; k++) kept[k] = (float)id_before(by, s, t, i, n - 1 - k, state);
    for (int k = 0; k < n; k++) state[k] = kept[k];
}
