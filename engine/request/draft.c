/* Guesses of what follows, from the text so far. */
#include "request/request_impl.h"

/* The tokens behind the last place where the three tokens at the end stood before. */
int request_guess(const struct request *r, int most, int32_t *draft) {
    const int32_t *ids = infer_seq_ids(r->sched->engine, r->p.seq);
    const int n = r->figures.n_held, room = r->sched->n_ctx - n - 1;
    int at = n - 2, count = 0;
    if (n < 3) return 0;
    while (at >= 2 && (ids[at] != r->last || ids[at - 1] != ids[n - 1] || ids[at - 2] != ids[n - 2])) at--;
    if (at < 2) return 0;
    if (most > REQUEST_DRAFT) most = REQUEST_DRAFT;
    if (most > room) most = room;
    for (; count < most && at + 1 + count < n; count++) draft[count] = ids[at + 1 + count];
    return count;
}
