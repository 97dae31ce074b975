/* infer bench --draft, --lookup: answers that are guessed, as requests side by side have them. */
#include <string.h>
#include "base/host.h"
#include "base/mem.h"
#include "tools/measure/bench_guess.h"

/* Tokens of a prompt at least: three of them have to be alike for a lookup. Of an answer, so many more are told and allowed than are timed:
 * whoever is first goes on until the last has enough. */
enum { PROMPT = 32, MORE = 64 };

struct guessing {
    const struct bench_guess_test *test;
    struct infer_request **request; /* request[n_seq] */
    int32_t *ids, *told;            /* ids[n_seq][n_id]; told[n_seq][n_predict] */
    int *n_told;                    /* n_told[n_seq] */
    int n_id, n_predict;
    struct one {
        struct guessing *all;
        int i;
    } * one; /* one[n_seq]: for callbacks */
};

static uint64_t next_random(uint64_t *x) {
    *x = *x * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
    return *x >> 33;
}

static void keep_token(void *user, int32_t id) {
    const struct one *o = user;
    if (o->all->n_told[o->i] < o->all->n_predict)
        o->all->told[o->i * o->all->n_predict + o->all->n_told[o->i]++] = id;
}
static bool holds_by_lot(void *user, int32_t chosen, int32_t guess) {
    const struct one *o = user;
    (void)chosen, (void)guess;
    return (double)(next_random(o->all->test->random) & 0xffffff) / 0x1000000 < o->all->test->share;
}

static enum infer_status open_requests(struct guessing *g, bool guess) {
    const struct bench_guess_test *t = g->test;
    for (int i = 0; i < t->n_seq; i++) {
        struct infer_request_params p = infer_request_defaults();
        g->one[i] = (struct one){g, i};
        p.user = &g->one[i];
        p.ids = g->ids + i * g->n_id, p.n_id = g->n_id, p.n_predict = g->n_predict;
        p.no_turn = true;
        if (!guess) p.on_token = keep_token;
        if (guess) p.drafter = t->draft.by, p.n_draft = t->draft.most;
        if (guess && t->share >= 0) p.holds = holds_by_lot;
        if (guess && g->n_told[i]) p.told = g->told + i * g->n_predict, p.n_told = g->n_told[i];
        TRY(infer_request_new(&g->request[i], t->sched, &p));
    }
    return INFER_OK;
}
static void close_requests(struct guessing *g) {
    for (int i = 0; i < g->test->n_seq; i++) {
        infer_request_free(g->request[i]);
        g->request[i] = NULL;
    }
}

/* Sums of all requests; *least: tokens of the one that has fewest. errors: the first one's */
static enum infer_status sum_up(const struct guessing *g, struct bench_guesses *out, int *least) {
    *out = (struct bench_guesses){0};
    *least = INT32_MAX;
    for (int i = 0; i < g->test->n_seq; i++) {
        const struct infer_request_figures *f = infer_request_figures(g->request[i]);
        TRY(infer_request_status(g->request[i]));
        out->tokens += f->n_answer, out->steps += f->n_step;
        out->guessed += f->n_guessed, out->right += f->n_right;
        if (f->n_answer < *least) *least = f->n_answer;
    }
    return INFER_OK;
}

/* Until every request has its first token, then until all together have n more each. */
static enum infer_status run_requests(struct guessing *g, struct bench_guesses *out, double *seconds) {
    struct bench_guesses first = {0}, now;
    const int wanted = g->test->n * g->test->n_seq;
    int least = 0;
    while (least < 1 && infer_sched_step(g->test->sched)) TRY(sum_up(g, &first, &least));
    const double begin = host_seconds();
    now = first;
    while (now.tokens - first.tokens < wanted && infer_sched_step(g->test->sched))
        TRY(sum_up(g, &now, &least));
    const int made = now.tokens - first.tokens;
    if (made < wanted) return err_set(INFER_E_FULL, "answers ended after %d of %d tokens", made, wanted);
    *seconds = (host_seconds() - begin) * wanted / made;
    out->tokens += made, out->steps += now.steps - first.steps;
    out->guessed += now.guessed - first.guessed, out->right += now.right - first.right;
    return INFER_OK;
}

static enum infer_status run_all(struct guessing *g, struct bench_guesses *out, double *seconds) {
    const struct bench_guess_test *t = g->test;
    enum infer_status st = INFER_OK;
    if (t->draft.by == INFER_DRAFT_LOOKUP) { /* what they copy is what they are told */
        st = open_requests(g, false);
        while (!st && infer_sched_step(t->sched)) continue;
        for (int i = 0; !st && i < t->n_seq; i++) st = infer_request_status(g->request[i]);
        close_requests(g);
    }
    if (!st) st = open_requests(g, true);
    if (!st) st = run_requests(g, out, seconds);
    close_requests(g);
    return st;
}

int bench_guess_ctx(int n, int depth) { return (depth > PROMPT ? depth : PROMPT) + 2 * n + 2 * MORE; }

enum infer_status bench_guess_repeat(const struct bench_guess_test *t, struct bench_guesses *out,
                                     double *seconds) {
    struct guessing g = {
        .test = t, .n_id = t->depth > PROMPT ? t->depth : PROMPT, .n_predict = 2 * t->n + MORE};
    const size_t n = (size_t)t->n_seq;
    enum infer_status st = mem_new(&g.ids, n * (size_t)g.n_id * sizeof *g.ids, "prompts");
    if (!st) st = mem_new(&g.told, n * (size_t)g.n_predict * sizeof *g.told, "answers");
    if (!st) st = mem_new(&g.n_told, n * sizeof *g.n_told, "answers");
    if (!st) st = mem_new(&g.request, n * sizeof *g.request, "requests");
    if (!st) st = mem_new(&g.one, n * sizeof *g.one, "requests");
    for (size_t i = 0; !st && i < n * (size_t)g.n_id; i++)
        g.ids[i] = (int32_t)(next_random(t->random) % (uint64_t)t->n_vocab);
    if (!st) st = run_all(&g, out, seconds);
    mem_free(g.ids);
    mem_free(g.told);
    mem_free(g.n_told);
    mem_free(g.request);
    mem_free(g.one);
    return st;
}
