/* How long steps take, by their rows that decode, as measured while running. */
#include "request/request_impl.h"

enum { FRESH = 4096 };           /* steps after which a time that was not seen again is forgotten */
static const double strange = 4; /* times what it was: a machine that stood still */
static const double unseen =
    0.1; /* of what twice as many rows cost as much again: more rows are tried once */

static bool known(const struct step_times *t, int n) {
    return t->seconds[n] > 0 && t->n_step - t->seen[n] < FRESH;
}

void times_saw(struct step_times *t, int n, double seconds) {
    if (t->fixed) return;
    t->n_step++;
    if (n < 1 || n > TIMES_ROWS) return;
    float *was = &t->seconds[n], now = (float)seconds;
    if (!known(t, n)) {
        *was = now;
        t->twice[n] = false;
    } else if (!t->twice[n]) { /* the first one of a kind is often a slow one */
        *was = now < *was ? now : *was;
        t->twice[n] = true;
    } else {
        if (now > strange * *was) now = (float)strange * *was;
        *was += (now - *was) / (now < *was ? 4 : 16);
    }
    t->seen[n] = t->n_step;
}

double infer_sched_seconds(const struct infer_sched *s, bool guess, int rows) {
    const struct step_times *t = !guess ? &s->times : s->drafter ? &s->drafter->times : NULL;
    return t && rows >= 1 && rows <= TIMES_ROWS && known(t, rows) ? (double)t->seconds[rows] : 0;
}

/* What lies between, or beyond, what was seen twice; 0: nothing was seen. */
static double between(const struct step_times *t, int n) {
    int below = n < TIMES_ROWS ? n : TIMES_ROWS, above = n + 1;
    while (below > 0 && !(known(t, below) && (t->twice[below] || below < n))) below--;
    if (below == n) return (double)t->seconds[n];
    while (above <= TIMES_ROWS && !known(t, above)) above++;
    if (above > TIMES_ROWS) return below ? (double)t->seconds[below] * (1 + unseen * (n - below) / below) : 0;
    if (!below) return (double)t->seconds[above];
    return (double)t->seconds[below] +
           (double)(t->seconds[above] - t->seconds[below]) * (n - below) / (above - below);
}

double times_of(const struct step_times *t, int n) {
    const double by_others = between(t, n);
    if (n > TIMES_ROWS || !known(t, n) || t->twice[n]) return by_others;
    /* Seen once, which may have been a machine that stood still: it is tried once more. */
    const double once = (double)t->seconds[n];
    return by_others > 0 && by_others < once ? by_others : once;
}
