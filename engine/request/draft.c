/* Guesses of what follows: from the text so far, or by a model that is quicker than the one that answers. How many, by how many were
 * right. source: Saxena 2023 (prompt lookup); Leviathan et al. 2023 (arXiv 2211.17192) */
#include "request/request_impl.h"

enum { REST = 16 };                   /* steps without guesses where few are right */
static const float rate_least = 0.2f; /* below: they cost more than they bring */
static const float rate_begin = 0.5f; /* nothing is known yet */
static const int plain_steps[] = {
    6, 8}; /* from and to: without guesses, to compare with, and behind those in which a machine warms up */

/* ---- how many ---- */

static int cap(const struct infer_request *r) {
    return r->p.n_draft > 0 && r->p.n_draft < INFER_REQUEST_DRAFT ? r->p.n_draft : INFER_REQUEST_DRAFT;
}

/* Of the next step, one of which r is a part. */
static int pace(struct infer_request *r) {
    struct draft_pace *p = &r->pace;
    if (!p->most)
        *p = (struct draft_pace){r->p.drafter == INFER_DRAFT_LOOKUP ? cap(r) : (cap(r) + 1) / 2, 0,
                                 rate_begin};
    if (r->figures.n_step >= plain_steps[0] && r->figures.n_step < plain_steps[1]) return 0;
    if (p->rest) return p->rest--, 0;
    return p->most;
}

void request_guessed(struct infer_request *r, int n, int right, double seconds) {
    struct draft_pace *p = &r->pace;
    double *plain = &r->figures.plain_seconds;
    if (!n && r->figures.n_step >= plain_steps[0] && !(*plain > 0 && *plain < seconds)) *plain = seconds;
    r->figures.n_guessed += n;
    r->figures.n_right += right;
    if (!n) return;
    p->rate += ((float)right / (float)n - p->rate) / 8;
    p->most = right == n ? p->most + 1 : (p->most + right + 1) / 2;
    if (p->most > cap(r)) p->most = cap(r);
    if (p->rate < rate_least) p->rest = REST, p->rate = rate_begin;
}

/* ---- by the text so far ---- */

/* The tokens behind the last place where the three tokens at the end stood before. */
static int look_up(struct infer_request *r, int most) {
    const int32_t *ids = infer_seq_ids(r->sched->engine, r->p.seq);
    const int n = r->figures.n_held;
    int at = n - 2, count = 0;
    if (n < 3) return 0;
    while (at >= 2 && (ids[at] != r->last || ids[at - 1] != ids[n - 1] || ids[at - 2] != ids[n - 2])) at--;
    if (at < 2) return 0;
    for (; count < most && at + 1 + count < n && ids[at + 1 + count] >= 0; count++) {
        r->draft[count] = ids[at + 1 + count];
        r->guess[count].n = 1; /* nothing else could have been guessed */
    }
    return count;
}

/* ---- */

enum infer_status request_guess(struct infer_request *r, int most, int *n) {
    const int room = r->sched->n_ctx - r->figures.n_held - 1, wanted = pace(r);
    *n = 0;
    if (most > wanted) most = wanted;
    if (most > room) most = room;
    if (r->p.n_predict >= 0 && most > r->p.n_predict - r->figures.n_answer - 1)
        most = r->p.n_predict - r->figures.n_answer - 1;
    if (most < 1) return INFER_OK;
    if (r->p.drafter == INFER_DRAFT_MODEL && r->sched->drafter) return drafter_guess(r, most, n);
    if (r->p.drafter == INFER_DRAFT_LOOKUP) *n = look_up(r, most);
    return INFER_OK;
}
