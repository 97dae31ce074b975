/* Guesses of what follows: from the text so far, or by a model that is quicker than the one that answers (drafter.c); and for whom how
 * many are worth it. A token is drawn by its own random number from what the model says behind the tokens before it, guessed or not: a guess
 * that is this token saves a step, another one is dropped. So answers do not depend on guesses, and how many there are may follow the clock.
 * source: Saxena 2023 (prompt lookup); Leviathan et al. 2023 (arXiv 2211.17192) */
#include <math.h>
#include "request/request_impl.h"

enum { PAUSE = 16, PAUSE_MOST = 256 }; /* steps without guesses before they are tried again */
static const float rate_tried = 0.8f;  /* what is thought then */
static const float rate_least = 0.3f;  /* below: nobody keeps a card waiting for guesses */
static const double gain_least = 0.02; /* of the logarithm of a request's rate: less is noise */
/* Of so many guesses, about, a request's share of right ones is known. */
static const float remembered[] = {[INFER_DRAFT_LOOKUP] = 8, [INFER_DRAFT_MODEL] = 32};
static const int plain_steps[] = {
    6, 8}; /* from and to: without guesses, to compare with, and behind those in which a machine warms up */

/* What is thought before anything was seen. */
static const float rate_begin[][DRAFT_SURE] = {
    [INFER_DRAFT_LOOKUP] = {0.4f, 0.6f, 0.9f}, [INFER_DRAFT_MODEL] = {0.6f, 0.6f, 0.6f}};

/* ---- by the text so far ---- */

enum { LEAST_ALIKE = 3, ALIKE = 6, VERY_ALIKE = 12 }; /* tokens that are as they were */

/* The tokens behind the last place where the three tokens at the end stood before. */
static int look_up(struct infer_request *r, int most) {
    const int32_t *ids = infer_seq_ids(r->sched->engine, r->p.seq);
    const int n = r->figures.n_held;
    int at = n - 2, count = 0, alike = LEAST_ALIKE;
    if (n < LEAST_ALIKE) return 0;
    while (at >= 2 && (ids[at] != r->last || ids[at - 1] != ids[n - 1] || ids[at - 2] != ids[n - 2])) at--;
    if (at < 2) return 0;
    while (alike < VERY_ALIKE && alike <= at && ids[at - alike] == ids[n - alike]) alike++;
    r->pace.sure = (alike >= ALIKE) + (alike >= VERY_ALIKE);
    for (; count < most && at + 1 + count < n && ids[at + 1 + count] >= 0; count++)
        r->draft[count] = ids[at + 1 + count];
    return count;
}

/* ---- by what the answer is thought to be ---- */

/* Where in told[n] the answer is: at told[*at] comes next. As long as it goes on as told, one further with each token; behind a difference
 * where the three tokens at its end stand next, from there on or else anywhere. false: nowhere. */
static bool follow(struct infer_request *r) {
    const int32_t *ids = infer_seq_ids(r->sched->engine, r->p.seq), *told = r->told.ids;
    struct draft_told *t = &r->told;
    const int held = r->figures.n_held, n_answer = r->n_token;
    for (; t->seen < n_answer; t->seen++) { /* the token before last lies in ids, last is none of them yet */
        const int back = n_answer - 1 - t->seen;
        const int32_t id = back ? ids[held - back] : r->last;
        const bool same = t->at >= 0 && t->at < t->n && told[t->at] == id;
        t->run = same ? t->run + 1 : 0;
        t->at = same ? t->at + 1 : -1 - (t->at < 0 ? -1 - t->at : t->at);
    }
    if (t->at >= 0 || n_answer < LEAST_ALIKE || held < LEAST_ALIKE) return t->at >= 0 && t->at < t->n;
    const int from = -1 - t->at;
    for (int k = 0; k < t->n; k++) {
        const int end = (from + k) % t->n; /* of the three */
        if (end < 2 || told[end] != r->last || told[end - 1] != ids[held - 1] ||
            told[end - 2] != ids[held - 2])
            continue;
        t->at = end + 1, t->run = LEAST_ALIKE;
        return t->at < t->n;
    }
    return false;
}
static int as_told(struct infer_request *r, int most) {
    const struct draft_told *t = &r->told;
    int count = 0;
    if (!t->n || !follow(r)) return 0;
    for (; count < most && t->at + count < t->n; count++) {
        const int32_t id = t->ids[t->at + count];
        if (id < 0 || id >= r->sched->n_vocab) break;
        r->draft[count] = id;
    }
    r->pace.sure = (t->run >= ALIKE || !r->n_token) + (t->run >= VERY_ALIKE);
    return count;
}

/* ---- how many ---- */

static float rate_of(const struct infer_request *r) {
    const float rate = r->pace.rate[r->pace.sure];
    return r->pace.idle >= r->pace.pause && rate < rate_tried ? rate_tried : rate;
}

/* Guesses that can be had for the next step: of the text they are in r->draft. */
static int offer(struct infer_request *r, int by_row) {
    const struct infer_sched *s = r->sched;
    struct draft_pace *p = &r->pace;
    int most = r->p.n_draft > 0 && r->p.n_draft < INFER_REQUEST_DRAFT ? r->p.n_draft : INFER_REQUEST_DRAFT;
    const int left[] = {s->n_ctx - r->figures.n_held - 1, r->p.n_predict - r->figures.n_answer - 1,
                        r->p.min_tokens - r->n_token - 1, by_row ? s->n_logits / by_row - 1 : 0};
    const bool holds[] = {true, r->p.n_predict >= 0, r->endless, by_row && r->by_row};
    if (!r->p.drafter || !r->decodes || r->telling || r->p.avoid || steer_near(r, INFER_REQUEST_DRAFT + 1))
        return 0;
    for (int i = 0; i < 4; i++)
        if (holds[i] && most > left[i]) most = left[i];
    if (most < 1 || (r->figures.n_step >= plain_steps[0] && r->figures.n_step < plain_steps[1])) return 0;
    if (!p->pause) {
        p->pause = PAUSE;
        for (int i = 0; i < DRAFT_SURE; i++) {
            const float known = s->rate[r->p.drafter][i];
            p->rate[i] = known > 0 ? known : rate_begin[r->p.drafter][i];
        }
    }
    const int told = as_told(r, most);
    if (told) return told;
    if (r->p.drafter == INFER_DRAFT_LOOKUP) return look_up(r, most);
    return drafter_can(r, most);
}

/* Whether n requests that decode could gain by more rows, at most room, if every guess were right, as far as is known. */
static bool could_pay(const struct infer_sched *s, int n, int room) {
    const double plain = times_of(&s->times, n);
    if (plain <= 0) return n <= TIMES_ROWS;
    for (int k = 1; k <= room && n + k <= TIMES_ROWS; k++) {
        const int whole = k / n, rest = k % n; /* guesses of each, and one more of some */
        const double gain = (n - rest) * log(1.0 + whole) + rest * log(2.0 + whole);
        if (gain - n * log(times_of(&s->times, n + k) / plain) > gain_least * n) return true;
    }
    return false;
}

/* What one more guess adds to the logarithm of the tokens that r gets of a step. */
static double gain_of(const struct infer_request *r) {
    const double a = (double)rate_of(r);
    double sum = 1, power = 1;
    for (int i = 0; i < r->pace.planned; i++) sum += power *= a;
    return log(1 + power * a / sum);
}

static struct infer_request *likeliest(const struct infer_sched *s) {
    struct infer_request *best = NULL;
    double most = 0;
    for (struct infer_request *r = s->first; r; r = r->next) {
        if (r->pace.planned >= r->pace.offer) continue;
        const double gain = gain_of(r);
        if (gain > most) most = gain, best = r;
    }
    return best;
}

/* Whether as many are guessed as may be, whatever it brings: for measuring. */
static bool guesses_all(const struct infer_request *r) { return r->p.holds && r->p.n_draft > 0; }

/* Row by row the likeliest guess is added; what counts is the product of all requests' rates, tokens over the time of the step and of
 * guessing: so a step is never longer for those who gain nothing than others gain. */
static void plan_rows(struct infer_sched *s, int n, int room) {
    const double plain = times_of(&s->times, n);
    int round[INFER_REQUEST_DRAFT] = {0}, best_total = 0;
    double gain = 0, best = gain_least * n;
    struct infer_request *r;
    for (int total = 1; plain > 0 && total <= room && n + total <= TIMES_ROWS && (r = likeliest(s));
         total++) {
        double seconds = times_of(&s->times, n + total);
        gain += gain_of(r);
        if (r->p.drafter == INFER_DRAFT_MODEL) round[r->pace.planned]++;
        r->pace.at[r->pace.planned++] = total;
        for (int i = 0; i < INFER_REQUEST_DRAFT && round[i]; i++)
            seconds += times_of(&s->drafter->times, round[i]);
        const double value = gain - n * log(seconds / plain);
        if (value > best || guesses_all(r)) best = value, best_total = total;
    }
    for (r = s->first; r; r = r->next)
        while (r->n_draft < r->pace.planned && r->pace.at[r->n_draft] <= best_total) r->n_draft++;
}

void draft_plan(struct infer_sched *s, int n, int room, bool first) {
    bool some = false, all = false;
    int by_row = 0;
    for (struct infer_request *r = s->first; r; r = r->next) {
        r->pace.planned = r->pace.offer = 0;
        if (!r->n_part) r->n_draft = 0;
        some |= sched_decodes(r) && r->p.drafter;
        all |= sched_decodes(r) && guesses_all(r);
        by_row += sched_decodes(r) && r->by_row;
    }
    if (n) s->drafts_pay = all || could_pay(s, n, room);
    if (!some || !s->drafts_pay || !first) return;
    for (struct infer_request *r = s->first; r; r = r->next)
        if (sched_decodes(r)) r->pace.offer = offer(r, by_row);
    plan_rows(s, n, room);
    if (s->drafter) drafter_guess(s);
}

bool draft_waits(const struct infer_request *r) { return r->p.drafter && (r->n_draft || r->pace.on); }

bool draft_reads(const struct infer_request *r) {
    return r->p.drafter == INFER_DRAFT_MODEL && r->sched->drafter && r->sched->drafter->n_embd &&
           r->sched->drafts_pay && r->sched->n_submit == r->sched->n_wait;
}

void request_guessed(struct infer_request *r, int n, int right, double seconds) {
    struct draft_pace *p = &r->pace;
    double *plain = &r->figures.plain_seconds;
    if (!n && r->figures.n_step >= plain_steps[0] && !(*plain > 0 && *plain < seconds)) *plain = seconds;
    r->figures.n_guessed += n;
    r->figures.n_right += right;
    r->n_draft = 0;
    for (int i = 0; i < n && i <= right; i++) {
        float *all = &r->sched->rate[r->p.drafter][p->sure], hit = i < right;
        if (*all <= 0) *all = rate_begin[r->p.drafter][p->sure];
        p->rate[p->sure] += (hit - p->rate[p->sure]) / remembered[r->p.drafter];
        *all += (hit - *all) / 64;
    }
    if (n) p->pause = right ? PAUSE : p->pause < PAUSE_MOST ? 2 * p->pause : PAUSE_MOST;
    p->idle = n ? 0 : p->idle + 1;
    p->on = r->sched->ahead && r->sched->drafts_pay && offer(r, 0) > 0 && rate_of(r) > rate_least;
}
