/* How many rows of prompts go into a step beside those that decode, so that the gap between tokens stays as short as was asked for; and when,
 * so that short prompts share what a step with any costs. */
#include "request/request_impl.h"

enum { LEAST = 64 };              /* rows: fewer read the weights for little */
static const double fades = 0.95; /* what a step of prompts before the last one counts */
/* Times what was to be expected: what is beyond that was something else's, a machine that stood still. */
static const double strange = 4;
/* Of the goal, what steps take that cost what they are thought to: behind a long context, or with many short prompts, a row costs more. */
static const double margin = 0.9;

/* Seconds that prompts cost a step: *first, and *each of their rows. */
static void fit(const struct step_pace *p, double *first, double *each) {
    const double spread = p->n * p->xx - p->x * p->x;
    *each = p->y / p->x, *first = 0;
    if (spread <= 1e-3 * p->xx * p->n) return; /* steps of like sizes do not tell them apart */
    const double slope = (p->n * p->xy - p->x * p->y) / spread, at_0 = (p->y - slope * p->x) / p->n;
    if (slope > 0 && at_0 >= 0) *each = slope, *first = at_0;
}

int pace_rows(const struct infer_sched *s, bool decoding) {
    const struct step_pace *p = &s->pace;
    const int most = decoding && p->rows > 0 && p->rows < s->n_batch ? p->rows : s->n_batch;
    if (!decoding || p->goal <= 0 || most <= LEAST) return most;
    if (p->n <= 0) return LEAST;
    double first, each;
    fit(p, &first, &each);
    const double rows = (margin * p->goal - p->decode - first) / (each > 0 ? each : 1e-9);
    return rows <= LEAST ? LEAST : rows >= most ? most : (int)rows;
}

/* What a step with rows of prompts costs beside its rows, everybody who decodes waits for: 9 ms of an 8B on an H100, where 200 rows more take
 * 4. With a step of prompts in 8 times that it takes an eighth of the time; where few decode, who waits for his first token weighs more. */
bool pace_waits(const struct infer_sched *s, int rows, int n_decode, double now) {
    enum { TIMES = 8 };
    static const double longest = 0.1; /* seconds */
    const struct step_pace *p = &s->pace;
    double first, each;
    if (p->n <= 0 || n_decode < 1 || rows >= pace_rows(s, true)) return false;
    fit(p, &first, &each);
    if (first <= 0) first = p->decode; /* it reads the weights, too */
    const double wait = first * (n_decode < TIMES ? n_decode : TIMES);
    return now < p->began + (wait < longest ? wait : longest);
}

void pace_saw(struct infer_sched *s, int n_prompt, int n_decode, double seconds) {
    struct step_pace *p = &s->pace;
    if (!n_prompt) {
        if (p->decode > 0 && seconds > strange * p->decode) seconds = strange * p->decode;
        p->decode += (seconds - p->decode) / (p->decode > 0 ? 8 : 1);
        return;
    }
    const double x = n_prompt, more = n_decode ? seconds - p->decode : seconds;
    double first, each, y = more > 0 ? more : 0;
    if (p->n > 0) {
        fit(p, &first, &each);
        const double likely = first + each * x;
        if (likely > 0 && y > strange * likely) y = strange * likely;
    }
    p->n = fades * p->n + 1;
    p->x = fades * p->x + x, p->y = fades * p->y + y;
    p->xx = fades * p->xx + x * x, p->xy = fades * p->xy + x * y;
}

void infer_sched_pace(struct infer_sched *s, int rows, double milliseconds) {
    s->pace.rows = rows;
    s->pace.goal = milliseconds / 1e3;
}
