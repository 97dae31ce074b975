/* Many requests in few pages and slots: who waits, who makes room, how long prompts may take, and that none of it changes a bit of what
 * is answered. */
#include "request/constrain.h"
#include "infer_request.h"
#include "engine/request/request_impl.h"
#include <math.h>
#include "tests/lib/test.h"
#include "tests/lib/pace.h"
#include "text/grammar/grammar.h"
#include "tests/lib/synth_model.h"

enum { CTX = 512, MOST = 128, CROWD = 32, COMMON = 150 };

static struct infer_model *tiny;

static struct infer_model *open_model(const char *shape) {
    return synth_model(&(struct synth_options){.shape = shape, .type = "f16", .seed = 3});
}

struct place {
    struct infer_model *model;
    const char *device;
    bool ahead; /* as on a device that works by itself */
    int slots, kv_tokens, batch;
    struct infer_engine *e;
    struct infer_sched *s;
};
static void place_open(struct place *p) {
    const struct infer_engine_options o = {.device = p->device,
                                           .ctx = CTX,
                                           .slots = p->slots,
                                           .kv_tokens = p->kv_tokens,
                                           .batch = p->batch,
                                           .threads = 1,
                                           .gpu_layers = -1};
    assert_ok(infer_engine_create(&p->e, p->model, &o));
    assert_ok(infer_sched_open(&p->s, p->e, p->model));
    p->s->ahead = p->ahead;
}
static void place_close(struct place *p) {
    assert_null(p->s->first);
    infer_sched_close(p->s);
    infer_engine_free(p->e);
}

/* A request and what came of it. */
struct ask {
    struct infer_request *r;
    int32_t ids[CTX];
    int n_id, n_predict, priority, step, first, last; /* first, last: steps in which tokens came */
    bool exact, plain;                                /* plain: no log probabilities */
    uint64_t salt;
    struct infer_sample_params sample;
    int n, n_prompt[CTX], n_parts; /* tokens; what was done of the prompt, part by part */
    int32_t id[MOST];
    struct infer_logprob top[MOST][3];
    struct infer_request_figures figures;
    enum infer_request_why why;
};
static int step_now;

static void on_token(void *user, int32_t id) {
    struct ask *a = user;
    assert_true(a->n < MOST);
    if (!a->n) a->first = step_now;
    a->last = step_now;
    a->id[a->n++] = id;
}
static void on_prompt(void *user, int done, int n) {
    struct ask *a = user;
    (void)n;
    assert_true(a->n_parts < CTX);
    a->n_prompt[a->n_parts++] = done;
}

static void ask(struct ask *a, struct infer_sched *s) {
    struct infer_request_params p = infer_request_defaults();
    a->n = a->n_parts = 0;
    p.ids = a->ids, p.n_id = a->n_id;
    p.sample = a->sample, p.n_predict = a->n_predict, p.n_logprob = a->plain ? -1 : 2;
    p.priority = a->priority;
    p.prefix = (struct infer_prefix){.salt = a->salt, .exact = a->exact};
    p.on_token = on_token, p.on_prompt = on_prompt, p.user = a;
    assert_ok(infer_request_new(&a->r, s, &p));
}
static void end(struct ask *a) {
    assert_true(infer_request_done(a->r));
    assert_ok(infer_request_status(a->r));
    a->why = infer_request_why(a->r);
    a->figures = *infer_request_figures(a->r);
    const struct infer_logprobs *p = infer_request_logprobs(a->r);
    for (int i = 0; i < a->n && !a->plain; i++) memcpy(a->top[i], infer_logprobs_at(p, i), sizeof a->top[i]);
    infer_request_free(a->r);
    a->r = NULL;
}
static bool go(struct place *p) {
    step_now++;
    return infer_sched_step(p->s);
}

/* A prompt of n tokens, whose first `common` all have. */
static void fill(struct ask *a, int which, int common, int n) {
    *a = (struct ask){.n_id = n, .n_predict = 40, .exact = true, .sample = infer_sample_defaults()};
    for (int i = 0; i < n; i++) a->ids[i] = 3 + (i < common ? i * 5 : i * 7 + which * 31) % 250;
}

/* An answer of n tokens, whatever the model says. */
static void goes_on(struct ask *a, int n) {
    static struct infer_sample_bias no_end = {0, -INFINITY};
    no_end.id = infer_eos(tiny); /* as in all shapes of the tests */
    a->sample.bias = &no_end, a->sample.n_bias = 1;
    a->n_predict = n;
}

/* Of a crowd: prompts of 10 to 150 tokens, some with a common beginning; greedy, drawn, and with penalties. */
static void member(struct ask *a, int k) {
    fill(a, k, k % 3 ? COMMON : 0, k % 3 ? COMMON + 2 + k : 10 + k * 4);
    a->n_predict = 10 + k * 37 % 110;
    if (k % 2) a->sample.temp = 1, a->sample.seed = (uint64_t)k;
    if (k % 4 == 1) a->sample.top_p = 0.9f, a->sample.top_k = 60;
    if (k % 8 == 3) a->sample.repeat_penalty = 1.2f;
    a->priority = k % 5 == 0;
    if (k % 4 > 1) goes_on(a, a->n_predict);
}

static void expect_same(const struct ask *alone, const struct ask *a, int k, const char *what) {
    assert_int_equal(alone->why, a->why);
    if (alone->n != a->n || memcmp(alone->id, a->id, (size_t)a->n * sizeof *a->id))
        fail_msg("request %d %s: other tokens than alone (%d, alone %d)", k, what, a->n, alone->n);
    for (int i = 0; i < a->n; i++)
        for (int j = 0; j < 3; j++)
            if (alone->top[i][j].id != a->top[i][j].id || alone->top[i][j].logprob != a->top[i][j].logprob)
                fail_msg("request %d %s: other log probabilities than alone, token %d", k, what, i);
}

/* Each by itself. */
static void alone(struct infer_model *model, struct ask *all, int n) {
    struct place p = {.model = model, .device = "cpu", .slots = 1, .batch = 256};
    place_open(&p);
    for (int k = 0; k < n; k++) {
        member(&all[k], k);
        all[k].salt = (uint64_t)k + 1; /* nobody has left anything for it */
        ask(&all[k], p.s);
        infer_request_run(all[k].r);
        end(&all[k]);
        assert_int_equal(all[k].figures.n_reused, 0);
    }
    place_close(&p);
}

/* All at once in a place that has neither slots nor pages for them; then once more, when their prompts are known. Each has the bits
 * that it has alone. */
static void crowd(struct infer_model *model, bool ahead, const struct ask *want, int n) {
    struct place p = {
        .model = model, .device = "cpu", .ahead = ahead, .slots = 8, .kv_tokens = 704, .batch = 48};
    static struct ask all[CROWD];
    int aside = 0, reused = 0;
    place_open(&p);
    const int pages = infer_kv_free(p.e);
    for (int again = 0; again < 2; again++) {
        for (int k = 0; k < n; k++) {
            member(&all[k], k);
            ask(&all[k], p.s);
        }
        while (go(&p)) p.s->expected = 0; /* so that too many begin */
        for (int k = 0; k < n; k++) {
            end(&all[k]);
            aside += all[k].figures.n_aside;
            reused += all[k].figures.n_reused;
            assert_int_equal(all[k].figures.n_prompt + all[k].figures.n_reused, all[k].n_id);
            expect_same(&want[k], &all[k], k, again ? "once more" : "in a crowd");
        }
        assert_int_equal(infer_kv_free(p.e), pages);
    }
    assert_true(aside > 0);
    assert_true(reused > 0);
    place_close(&p);
}
/* Steps are stopped for nobody's sake, and some requests are given up on the way, running, waiting or put aside: the others do not
 * notice, and what those have is the beginning of what they have alone. How often one was put aside. */
static int trouble(struct infer_model *model, bool ahead, const struct ask *want, int n) {
    struct place p = {
        .model = model, .device = "cpu", .ahead = ahead, .slots = 8, .kv_tokens = 704, .batch = 48};
    static struct ask all[CROWD];
    int aside = 0;
    place_open(&p);
    const int pages = infer_kv_free(p.e);
    for (int k = 0; k < n; k++) {
        member(&all[k], k);
        ask(&all[k], p.s);
    }
    for (int step = 0; go(&p); step++) {
        const int k = step / 6;
        p.s->expected = 0;
        if (step % 5 == 3) infer_cancel(p.e);
        if (step % 6 == 0 && k < n && k % 4 == 1) infer_request_cancel(all[k].r);
        if (step % 6 == 0 && k < n && k % 8 == 3) infer_request_free(all[k].r), all[k].r = NULL;
    }
    for (int k = 0; k < n; k++) {
        if (!all[k].r) continue;
        end(&all[k]);
        aside += all[k].figures.n_aside;
        if (all[k].why == INFER_REQUEST_CANCELLED) {
            assert_true(all[k].n <= want[k].n);
            assert_memory_equal(all[k].id, want[k].id, (size_t)all[k].n * sizeof *all[k].id);
        } else {
            expect_same(&want[k], &all[k], k, "in trouble");
        }
    }
    assert_int_equal(infer_kv_free(p.e), pages);
    place_close(&p);
    return aside;
}

static void a_crowd_changes_no_bit(void **state) {
    (void)state;
    static const char *const shapes[] = {"tiny", "tiny-gemma4", "tiny-delta"};
    static struct ask want[CROWD];
    int aside = 0;
    for (int i = 0; i < 3; i++) {
        struct infer_model *m = open_model(shapes[i]);
        const int n = (i ? CROWD / 2 : CROWD) / EVERY(2);
        alone(m, want, n);
        for (int ahead = i == 1; ahead < 1 + (i < 2); ahead++) crowd(m, ahead, want, n);
        aside += trouble(m, i != 1, want, n);
        infer_model_close(m);
    }
    assert_true(aside > 0);
}

/* Answers go on, a token a step, while a long prompt is computed by as many rows as it may have. */
static void prompts_do_not_hold_up_answers(void **state) {
    (void)state;
    for (int ahead = 0; ahead < 2; ahead++) {
        struct place p = {.model = tiny, .device = "cpu", .ahead = ahead, .slots = 4, .batch = 128};
        static struct ask runs, late, brief;
        place_open(&p);
        infer_sched_pace(p.s, 64, 0);
        fill(&runs, 1, 0, 20);
        goes_on(&runs, 40);
        fill(&late, 2, 0, 150);
        fill(&brief, 3, 0, 12);
        goes_on(&late, 5), goes_on(&brief, 5);
        ask(&runs, p.s);
        while (runs.n < 3) assert_true(go(&p));
        ask(&late, p.s);
        ask(&brief, p.s);
        const int from = step_now, tokens = runs.n;
        while (!late.n) assert_true(go(&p));
        const int steps = step_now - from;
        assert_true(steps >= 3);
        assert_in_range(late.n_parts, 2, 5); /* what is less than a step may wait for others meanwhile */
        assert_in_range(runs.n - tokens, steps - 1, steps + 1);
        for (int i = 1; i < late.n_parts; i++)
            assert_in_range(late.n_prompt[i] - late.n_prompt[i - 1], 1, 64);
        assert_true(brief.first < late.first); /* a short one goes along */
        while (go(&p)) continue;
        end(&runs), end(&late), end(&brief);
        fill(&late, 4, 0, 120);
        ask(&late, p.s); /* nobody decodes: as many as a step has */
        while (go(&p)) continue;
        assert_int_equal(late.n_parts, 2);
        end(&late);
        place_close(&p);
    }
}

/* The rows that keep a step under a goal are found from how long steps take, whatever they cost. */
static void a_goal_becomes_rows(void **state) {
    (void)state;
    static const struct {
        double decode, first, each, goal;
        int least, most;
    } cases[] = {
        {12.4, 3.5, 0.027, 50, 1050, 1100},  {3, 3.5, 0.027, 25, 560, 600},
        {12.4, 3.5, 0.027, 1e6, 4096, 4096}, {12.4, 3.5, 0.027, 13, 64, 64},
        {100, 0, 1, 250, 120, 128},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct infer_sched s = {.n_batch = 4096};
        int rows = 0;
        infer_sched_pace(&s, 0, cases[i].goal);
        assert_int_equal(pace_rows(&s, false), 4096);
        pace_saw(&s, 0, 8, cases[i].decode / 1e3);
        assert_int_equal(pace_rows(&s, true), 64); /* nothing is known */
        for (int step = 0; step < 40; step++) {
            rows = pace_rows(&s, true);
            const double ms = cases[i].decode + cases[i].first + cases[i].each * rows;
            assert_true(rows == 64 || ms < 0.92 * cases[i].goal);
            pace_saw(&s, rows, 8, ms / 1e3);
        }
        assert_in_range(rows, cases[i].least, cases[i].most);
        pace_saw(&s, 64, 8, 0.6 + cases[i].decode / 1e3); /* the machine stood still */
        for (int step = 0; step < 12; step++) {
            rows = pace_rows(&s, true);
            pace_saw(&s, rows, 8, (cases[i].decode + cases[i].first + cases[i].each * rows) / 1e3);
        }
        assert_in_range(rows, cases[i].least / 2, cases[i].most);
        infer_sched_pace(&s, 100, cases[i].goal);
        assert_true(pace_rows(&s, true) <= 100);
    }
}

/* Short prompts wait for each other where a step with any is dear, as long as there are many who decode, and never those that fill a step. */
static void short_prompts_share_a_step(void **state) {
    (void)state;
    struct infer_sched s = {.n_batch = 2048};
    pace_saw(&s, 0, 40, 3e-3);
    assert_false(pace_waits(&s, 200, 40, 0)); /* nothing is known */
    s.pace.began = 100;
    for (int k = 0; k < 40; k++) {
        const int rows = 200 * (1 + k % 3);
        pace_saw(&s, rows, 40, 3e-3 + 9e-3 + 2e-5 * rows);
    }
    assert_true(pace_waits(&s, 200, 40, 100.070));
    assert_false(pace_waits(&s, 200, 40, 100.074));
    assert_true(pace_waits(&s, 200, 3, 100.025));
    assert_false(pace_waits(&s, 200, 3, 100.029)); /* beside few, not as long */
    assert_false(pace_waits(&s, 2048, 40, 100.001));
    assert_false(pace_waits(&s, 200, 0, 100.001));
    for (int k = 0; k < 200; k++) pace_saw(&s, 200 * (1 + k % 3), 40, 1 + 2e-5 * (1 + k % 3));
    assert_true(pace_waits(&s, 200, 40, 100.09));
    assert_false(pace_waits(&s, 200, 40, 100.11)); /* a tenth of a second at most */
}

/* Rows of prompts come into a step again when they have waited long enough. */
static void who_waits_goes_on(void **state) {
    (void)state;
    struct place p = {.model = tiny, .device = "cpu", .slots = 4, .batch = 128};
    static struct ask a, b;
    place_open(&p);
    fill(&a, 1, 0, 40), fill(&b, 2, 0, 40);
    goes_on(&a, 30), goes_on(&b, 4);
    ask(&a, p.s);
    while (!a.n) go(&p);
    p.s->pace.began = 1e9; /* a step of prompts begins later */
    p.s->pace.n = 1, p.s->pace.x = 40, p.s->pace.y = 1;
    ask(&b, p.s);
    for (int k = 0; k < 6; k++) go(&p);
    assert_true(a.n > 4 && !b.n && !b.n_parts);
    p.s->pace.began = 0;
    while (go(&p)) continue;
    assert_int_equal(b.n, 4);
    end(&a), end(&b);
    place_close(&p);
}

/* Whoever came last of the least priority makes room, also for those that came later. */
static void the_least_make_room(void **state) {
    (void)state;
    struct place p = {.model = tiny, .device = "cpu", .slots = 4, .kv_tokens = 384, .batch = 128};
    static struct ask a[4];
    place_open(&p);
    for (int k = 0; k < 4; k++) {
        fill(&a[k], k, 0, 60);
        goes_on(&a[k], 60);
        a[k].priority = k > 0;
        p.s->expected = 0;
        ask(&a[k], p.s);
        go(&p);
    }
    while (go(&p)) continue;
    for (int k = 0; k < 4; k++) {
        end(&a[k]);
        assert_int_equal(a[k].n, 60);
    }
    assert_true(a[0].figures.n_aside > 0);
    assert_int_equal(a[1].figures.n_aside, 0);
    assert_true(a[0].last > a[1].last);
    place_close(&p);
}

/* Many that come to the end of a page with the same token, and not a page for each: what makes room is not taken in again by the same
 * step, which would never end. */
static void all_want_a_page_at_once(void **state) {
    (void)state;
    struct place p = {.model = tiny, .device = "cpu", .slots = 16, .kv_tokens = 1500, .batch = 1024};
    static struct ask a[16];
    int aside = 0;
    place_open(&p);
    for (int k = 0; k < 16; k++) {
        fill(&a[k], k, 0, 60);
        goes_on(&a[k], 60);
        a[k].plain = true;
        ask(&a[k], p.s);
    }
    while (go(&p)) continue;
    for (int k = 0; k < 16; k++) {
        end(&a[k]);
        assert_int_equal(a[k].n, 60);
        aside += a[k].figures.n_aside;
    }
    assert_true(aside > 0);
    place_close(&p);
}

/* One that runs alone and finds no page ends, with what it has; a prompt that no pool of this size holds is refused. */
static void alone_in_a_full_pool(void **state) {
    (void)state;
    struct place p = {.model = tiny, .device = "cpu", .slots = 2, .kv_tokens = 128, .batch = 128};
    static struct ask a;
    struct infer_request *r;
    place_open(&p);
    fill(&a, 0, 0, 100);
    goes_on(&a, 60);
    ask(&a, p.s);
    infer_request_run(a.r);
    end(&a);
    assert_int_equal(a.why, INFER_REQUEST_FULL);
    assert_int_equal(a.n, 29); /* positions 100 to 127, and the token behind them */
    int seq;
    assert_ok(infer_seq_open(p.e, &seq)); /* somebody else has all but a page */
    struct infer_row rows[60];
    struct infer_output out;
    for (int i = 0; i < 60; i++) rows[i] = (struct infer_row){.id = 9, .pos = i, .seq = seq};
    assert_ok(infer_step(p.e, rows, 60, &out));
    ask(&a, p.s);
    assert_int_equal(infer_request_run(a.r), INFER_E_FULL);
    assert_non_null(strstr(err_message(), "no page is left for a prompt of 100 tokens"));
    infer_request_free(a.r);
    infer_seq_close(p.e, seq);
    struct infer_request_params q = infer_request_defaults();
    q.ids = a.ids, q.n_id = 128;
    assert_int_equal(infer_request_new(&r, p.s, &q), INFER_E_FULL);
    assert_non_null(strstr(err_message(), "all pages together hold 128"));
    a.ids[5] = 512;
    q.n_id = 20;
    assert_int_equal(infer_request_new(&r, p.s, &q), INFER_E_INPUT);
    assert_non_null(strstr(err_message(), "token 5 of the prompt is 512"));
    place_close(&p);
}

/* A beginning that several prompts have is computed once, by the first; the others wait for it, but not for each other. */
static void a_common_beginning_is_computed_once(void **state) {
    (void)state;
    struct place p = {.model = tiny, .device = "cpu", .slots = 8, .batch = 64};
    static struct ask a[6];
    int computed = 0;
    place_open(&p);
    for (int k = 0; k < 6; k++) {
        fill(&a[k], k, k < 5 ? 400 : 0, k < 5 ? 404 : 20);
        goes_on(&a[k], 5);
        ask(&a[k], p.s);
    }
    while (go(&p)) continue;
    for (int k = 0; k < 6; k++) {
        end(&a[k]);
        assert_int_equal(a[k].n, 5);
        if (k < 5) computed += a[k].figures.n_prompt;
        if (k && k < 5) assert_int_equal(a[k].figures.n_reused, 384);
    }
    assert_int_equal(computed, 404 + 4 * 20);
    assert_true(a[5].first < a[1].first);
    place_close(&p);
}

/* Those that wait end when they are cancelled, and leave when they are freed. */
static void waiting_can_be_given_up(void **state) {
    (void)state;
    struct place p = {.model = tiny, .device = "cpu", .slots = 1, .batch = 64};
    static struct ask a[3];
    place_open(&p);
    for (int k = 0; k < 3; k++) {
        fill(&a[k], k, 0, 30);
        goes_on(&a[k], 40);
        ask(&a[k], p.s);
    }
    assert_true(go(&p));
    infer_request_cancel(a[1].r);
    infer_request_free(a[2].r);
    assert_true(go(&p));
    end(&a[1]);
    assert_int_equal(a[1].why, INFER_REQUEST_CANCELLED);
    while (go(&p)) continue;
    end(&a[0]);
    assert_int_equal(a[0].n, 40);
    assert_int_equal(infer_kv_free(p.e), 576);
    place_close(&p);
}

/* Of 32 that answer, or read their prompts, 20 are given up: two steps later their pages are free, and the others answer as alone. */
static void given_up(bool ahead) {
    enum { GONE = 20 };
    struct place p = {.model = tiny, .device = "cpu", .ahead = ahead, .slots = CROWD, .batch = 64};
    static struct ask a[CROWD];
    int held = 0;
    place_open(&p);
    const int all = infer_kv_free(p.e);
    for (int k = 0; k < CROWD; k++) {
        fill(&a[k], k, 0,
             k == GONE - 1 || k == CROWD - 1 ? 300 : 8); /* two have not read theirs when it happens */
        goes_on(&a[k], 100);
        a[k].plain = true;
        ask(&a[k], p.s);
    }
    while (!a[CROWD - 2].n) assert_true(go(&p));
    assert_true(all - infer_kv_free(p.e) >= CROWD * 64);
    for (int k = 0; k < CROWD; k++) assert_false(infer_request_done(a[k].r));
    for (int k = 0; k < GONE; k++) infer_request_cancel(a[k].r);
    for (int step = 0; step < 2; step++) assert_true(go(&p));
    for (int k = 0; k < GONE; k++) {
        end(&a[k]);
        assert_int_equal(a[k].why, INFER_REQUEST_CANCELLED);
    }
    for (int k = GONE; k < CROWD; k++) /* and what the step in flight adds: a row each, of a prompt 64 */
        held += (infer_request_figures(a[k].r)->n_held + (k < CROWD - 1 ? 1 : 64) + 63) / 64 * 64;
    assert_true(all - infer_kv_free(p.e) <= held);
    while (go(&p)) continue;
    for (int k = GONE; k < CROWD; k++) {
        end(&a[k]);
        assert_int_equal(a[k].n, 100);
    }
    assert_int_equal(infer_kv_free(p.e), all);
    place_close(&p);
}
static void pages_of_those_given_up_are_free_soon(void **state) {
    (void)state;
    given_up(false);
    given_up(true);
}

static int open_tiny(void **state) {
    (void)state;
    tiny = open_model("tiny");
    return 0;
}
static int close_tiny(void **state) {
    (void)state;
    infer_model_close(tiny);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_crowd_changes_no_bit),
        cmocka_unit_test(prompts_do_not_hold_up_answers),
        cmocka_unit_test(a_goal_becomes_rows),
        cmocka_unit_test(short_prompts_share_a_step),
        cmocka_unit_test(who_waits_goes_on),
        cmocka_unit_test(the_least_make_room),
        cmocka_unit_test(alone_in_a_full_pool),
        cmocka_unit_test(a_common_beginning_is_computed_once),
        cmocka_unit_test(waiting_can_be_given_up),
        cmocka_unit_test(all_want_a_page_at_once),
        cmocka_unit_test(pages_of_those_given_up_are_free_soon),
    };
    return cmocka_run_group_tests(tests, open_tiny, close_tiny);
}
