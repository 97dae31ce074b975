/* Who may compute: requests that wait for a slot and for pages, and those that are put aside when pages run out. What was put aside is
 * computed again, prompt rows as prompt rows and rows of the answer as such, so that it has the bits that it had. */
#include "base/mem.h"
#include "request/request_impl.h"

#include <string.h>

enum {
    AHEAD = 64,       /* of an answer, at least, that have to find room beside the prompt */
    LOOK = 4,         /* steps until one that waits is looked at again where no page came free */
    WORTH_WAITING = 4 /* pages that another request is computing */
};

static int pages_of(int n) { return (n + SCHED_PAGE - 1) / SCHED_PAGE; }

int pages_free(const struct infer_sched *s) { return infer_kv_free(s->engine) / SCHED_PAGE; }

int pages_more(const struct infer_request *r, int rows, int length) {
    const int now = infer_seq_length(r->sched->engine, r->p.seq);
    return pages_of(rows ? now + rows : length) - pages_of(now);
}

int rows_that_fit(const struct infer_request *r, int pages) {
    const int now = infer_seq_length(r->sched->engine, r->p.seq);
    return (pages_of(now) + pages) * SCHED_PAGE - now;
}

bool request_runs(const struct infer_request *r) { return !r->why && !r->waits; }

static int n_running(const struct infer_sched *s) {
    int n = 0;
    for (const struct infer_request *r = s->first; r; r = r->next) n += request_runs(r);
    return n;
}

/* ---- the end of an answer tells how long the next ones may be ---- */

void admit_saw(struct infer_sched *s, int n_answer) {
    const double step = s->expected / 16 + 1; /* to the length that three of four answers do not exceed */
    s->expected += n_answer > s->expected ? 0.75 * step : -0.25 * step;
    if (s->expected < 0) s->expected = 0;
}

static int expected(const struct infer_request *r) {
    const int left = r->p.n_predict < 0 ? (int)r->sched->expected : r->p.n_predict - r->figures.n_answer;
    return left < (int)r->sched->expected ? left : (int)r->sched->expected;
}

/* ---- who begins ---- */

/* Whether a comes before b. */
static bool before(const struct infer_request *a, const struct infer_request *b) {
    if (a->p.priority != b->p.priority) return a->p.priority > b->p.priority;
    const bool again = a->figures.n_aside > 0, other = b->figures.n_aside > 0;
    return again != other ? again : a->order < b->order;
}

static struct infer_request *next_waiting(const struct infer_sched *s) {
    struct infer_request *best = NULL;
    for (struct infer_request *r = s->first; r; r = r->next)
        if (!r->why && r->waits && !r->skip && (!best || before(r, best))) best = r;
    return best;
}

/* Pages that the prompts of those that run will still take. */
static int promised(const struct infer_sched *s) {
    int n = 0;
    for (const struct infer_request *r = s->first; r; r = r->next)
        if (request_runs(r) && !r->decodes) {
            const int more = pages_more(r, 0, r->n_feed + r->n_again + 1);
            n += more > 0 ? more : 0;
        }
    return n;
}

/* Whether what one computes is found by the other. */
static bool is_shared(const struct infer_request *a, const struct infer_request *b) {
    const struct infer_prefix *x = &a->p.prefix, *y = &b->p.prefix;
    const size_t n = (size_t)a->sched->n_adapter * sizeof *x->adapter;
    return x->salt == y->salt &&
           (x->adapter == y->adapter || (x->adapter && y->adapter && memcmp(x->adapter, y->adapter, n) == 0));
}

/* Whether another one computes a beginning of r's prompt just now that r can take over then; who waits for it does so to the end. */
static bool is_being_computed(const struct infer_request *r, int known) {
    const int worth = r->passed ? 0 : WORTH_WAITING * SCHED_PAGE;
    for (const struct infer_request *q = r->sched->first; q; q = q->next) {
        int k = 0;
        if (!request_runs(q) || q->decodes || !is_shared(q, r)) continue;
        while (k < q->n_feed && k < embed_shares(r) - 1 && q->feed[k] == r->feed[k]) k++;
        if (k / SCHED_PAGE * SCHED_PAGE - known > worth) return true;
    }
    return false;
}

/* Whether there are pages for all that r is thought to take. */
static bool has_room(struct infer_request *r) {
    struct infer_sched *s = r->sched;
    const int free = pages_free(s);
    int unused = 0;
    if (r->looked && s->n_submit + 1 - r->looked < LOOK && free <= r->looked_free)
        return false; /* as before */
    r->looked = s->n_submit + 1;
    r->looked_free = free;
    const int known = infer_prefix_probe(s->engine, r->feed, embed_shares(r), &r->p.prefix, &unused);
    r->passed = is_being_computed(r, known);
    int all = r->n_feed + r->n_again + AHEAD + expected(r);
    if (all > s->n_ctx) all = s->n_ctx;
    const int wanted = pages_of(all) - (known - unused) / SCHED_PAGE;
    return !r->passed && wanted + promised(s) + decode_pages(s) + s->n_page / 50 <= free;
}

/* n tokens of its prompt are there. */
static void begins_with(struct infer_request *r, int n) {
    r->n_begin = r->figures.n_held = n;
    if (!r->figures.n_aside && !r->n_token) r->figures.n_reused = n;
    if (r->reached < n) r->reached = n;
}

static enum infer_status begin(struct infer_request *r) {
    struct infer_sched *s = r->sched;
    int n = 0;
    if (r->p.seq < 0) TRY(infer_seq_open(s->engine, &r->p.seq));
    r->waits = false;
    TRY(infer_seq_prefix(s->engine, r->p.seq, r->feed, embed_shares(r), &r->p.prefix, &n));
    begins_with(r, n);
    r->loads = s->keeps;
    return INFER_OK;
}

bool sched_load(struct infer_sched *s, bool busy) {
    static const double beside = 0.02, alone = 0.25; /* seconds */
    bool more = false;
    for (struct infer_request *r = s->first; r; r = r->next) {
        int n = 0;
        bool done = true;
        if (!request_runs(r) || !r->loads) continue;
        enum infer_status st = infer_seq_kept(s->engine, r->p.seq, r->feed, embed_shares(r), &r->p.prefix,
                                              more   ? 0
                                              : busy ? beside
                                                     : alone,
                                              &n, &done);
        if (st) request_fail(r, st);
        if (st) continue;
        more |= r->loads = !done;
        if (done) begins_with(r, n);
    }
    return more;
}

void sched_admit(struct infer_sched *s) {
    struct infer_request *r;
    for (r = s->first; r; r = r->next) r->skip = false;
    while ((r = next_waiting(s))) {
        const bool alone = n_running(s) == 0;
        if (!alone && !has_room(r)) {
            if (!r->passed) return;
            r->skip = true; /* others need not wait for what it waits for */
            continue;
        }
        enum infer_status st = begin(r);
        if (st == INFER_E_FULL && !alone) return; /* no slot */
        if (st) request_fail(r, st);
    }
}

/* ---- who makes room ---- */

/* Keeps what r has to compute again, and gives its pages up. */
static enum infer_status put_aside(struct infer_request *r) {
    struct infer_engine *e = r->sched->engine;
    TRY(request_keeps_answer(r));
    r->waits = true;
    r->loads = false;
    r->n_begin = r->figures.n_held = 0;
    r->figures.n_aside++;
    if (!r->own_seq) return infer_seq_rewind(e, r->p.seq, 0);
    drafter_leaves(r);
    infer_seq_close(e, r->p.seq);
    r->p.seq = -1;
    return INFER_OK;
}

bool sched_put_aside(struct infer_sched *s) {
    struct infer_request *last = NULL;
    int n = 0;
    for (struct infer_request *r = s->first; r; r = r->next) {
        if (!request_runs(r)) continue;
        n++;
        if (!r->n_part && (!last || r->p.priority < last->p.priority ||
                           (r->p.priority == last->p.priority && r->order > last->order)))
            last = r;
    }
    if (n < 2 || !last) return false;
    enum infer_status st = put_aside(last);
    if (st) request_fail(last, st);
    return true;
}
