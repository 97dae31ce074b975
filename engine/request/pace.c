/* How many rows of prompts go into a step beside those that decode, so that the gap between tokens stays as short as was asked for. */
#include "request/request_impl.h"

enum { LEAST = 64 };              /* rows: fewer read the weights for little */
static const double fades = 0.95; /* what a step of prompts before the last one counts */

int pace_rows(const struct sched *s, bool decoding) {
    const struct step_pace *p = &s->pace;
    const int most = decoding && p->rows > 0 && p->rows < s->n_batch ? p->rows : s->n_batch;
    if (!decoding || p->goal <= 0 || most <= LEAST) return most;
    if (p->n <= 0) return LEAST;
    const double spread = p->n * p->xx - p->x * p->x;
    double each = p->y / p->x, first = 0;
    if (spread >
        1e-3 * p->xx * p->n) { /* steps of different sizes: what one costs is told from what a row does */
        each = (p->n * p->xy - p->x * p->y) / spread;
        first = (p->y - each * p->x) / p->n;
        if (each <= 0 || first < 0) each = p->y / p->x, first = 0;
    }
    const double rows = (p->goal - p->decode - first) / (each > 0 ? each : 1e-9);
    return rows <= LEAST ? LEAST : rows >= most ? most : (int)rows;
}

void pace_saw(struct sched *s, int n_prompt, int n_decode, double seconds) {
    struct step_pace *p = &s->pace;
    if (!n_prompt) {
        p->decode += (seconds - p->decode) / (p->decode > 0 ? 8 : 1);
        return;
    }
    const double x = n_prompt, more = n_decode ? seconds - p->decode : seconds, y = more > 0 ? more : 0;
    p->n = fades * p->n + 1;
    p->x = fades * p->x + x, p->y = fades * p->y + y;
    p->xx = fades * p->xx + x * x, p->xy = fades * p->xy + x * y;
}

void sched_pace(struct sched *s, int rows, double milliseconds) {
    s->pace.rows = rows;
    s->pace.goal = milliseconds / 1e3;
}
