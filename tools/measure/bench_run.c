/* The measurements of `infer bench`. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "cuda/bench/cuda_bench.h"
#include "tools/measure/bench.h"
#include "base/mem.h"
#include "tools/tool.h"
#include "base/host.h"

/* One test: the prompt, or the decoding of n tokens in every one of n_seq sequences, behind depth positions. */
struct test {
    bool decode;
    int n, n_seq, depth;
};

/* The state of the measurement of one test. */
struct timing {
    const struct test *test;
    int *seq; /* seq[n_seq], open and depth long */
    struct infer_row *rows;
    double *step;     /* seconds of each decode step of this repetition */
    double processor; /* seconds of it that the last repetition took, where one thread did all; else NAN */
    uint64_t random;
};

/* A token id; which one does not matter for speed, that they differ does (experts, cache lines of the embedding). */
static int32_t random_id(const struct bench *b, struct timing *t) {
    t->random = t->random * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
    return (int32_t)((t->random >> 33) % (uint64_t)b->session.info.n_vocab);
}

/* The clock of the slowdown below. */
static double now(const struct bench *b) { return b->alone ? probe_ran() : host_seconds(); }

/* --turns PERCENT: waits for so much of the time since begin, a slowdown of known size. Step by step, since OpenMP's threads
 * go to sleep after some milliseconds. */
static void wait_longer(const struct bench *b, double begin) {
    double end = now(b);
    end += (end - begin) * (b->o->turns > 0 ? b->o->turns / 100 : 0);
    while (b->o->turns > 0 && now(b) < end) {
    }
}

/* Computes n prompt rows of one sequence; the last one wants a token. */
static enum infer_status prompt_rows(struct bench *b, struct timing *t, int seq, int n) {
    struct session *s = &b->session;
    int pos = infer_seq_length(s->engine, seq), end = pos + n;
    while (pos < end) {
        int m = end - pos < s->place.n_batch ? end - pos : s->place.n_batch;
        for (int i = 0; i < m; i++)
            t->rows[i] = (struct infer_row){.id = random_id(b, t),
                                            .pos = pos + i,
                                            .seq = seq,
                                            .want = pos + i + 1 == end ? INFER_WANT_TOKEN : INFER_WANT_NONE};
        struct infer_output out;
        double begin = now(b);
        TRY(infer_step(s->engine, t->rows, m, &out));
        wait_longer(b, begin);
        pos += m;
    }
    return INFER_OK;
}

static enum infer_status submit_decode(struct bench *b, struct timing *t, int i) {
    for (int k = 0; k < t->test->n_seq; k++)
        t->rows[k] = (struct infer_row){.id = i ? INFER_LAST : random_id(b, t),
                                        .pos = t->test->depth + i,
                                        .seq = t->seq[k],
                                        .decode = true,
                                        .want = INFER_WANT_TOKEN};
    return infer_submit(b->session.engine, t->rows, t->test->n_seq);
}

/* Decodes n steps; on a device that works by itself the next step is queued before the one is read. */
static enum infer_status decode_rows(struct bench *b, struct timing *t) {
    struct session *s = &b->session;
    const int ahead = s->place.async, n = t->test->n;
    int queued = 0;
    double before = host_seconds(), begin = now(b);
    for (int i = 0; i < n; i++) {
        while (queued < n && queued <= i + ahead) TRY(submit_decode(b, t, queued++));
        struct infer_output out;
        TRY(infer_wait(s->engine, &out));
        wait_longer(b, begin);
        double end = host_seconds();
        t->step[i] = end - before;
        before = end, begin = now(b);
    }
    return INFER_OK;
}

/* The same as requests that are guessed. */
static enum infer_status guess_rows(struct bench *b, struct timing *t, double *seconds) {
    const struct bench_guess_test test = {b->sched,
                                          b->draft,
                                          b->o->accept,
                                          t->test->n,
                                          t->test->n_seq,
                                          t->test->depth,
                                          b->session.info.n_vocab,
                                          &t->random};
    return bench_guess_repeat(&test, &b->guesses, seconds);
}

/* One repetition: its seconds. The sequences are depth long before and after. */
static enum infer_status repeat_once(struct bench *b, struct timing *t, double *seconds) {
    double begin = host_seconds(), ran = b->alone ? probe_ran() : NAN;
    t->processor = NAN;
    if (t->test->decode && b->sched) return guess_rows(b, t, seconds);
    TRY(t->test->decode ? decode_rows(b, t) : prompt_rows(b, t, t->seq[0], t->test->n));
    *seconds = host_seconds() - begin, t->processor = probe_ran() - ran;
    for (int k = 0; k < t->test->n_seq; k++) { /* what a window or a state has let go of is computed again */
        TRY(infer_seq_rewind(b->session.engine, t->seq[k], t->test->depth));
        TRY(prompt_rows(b, t, t->seq[k], t->test->depth - infer_seq_length(b->session.engine, t->seq[k])));
    }
    return INFER_OK;
}

/* As repeat_once, for bench_answer. */
struct answering {
    struct bench *b;
    struct timing *t;
};
static enum infer_status repeat_asked(void *user, struct bench_took *took) {
    struct answering *a = user;
    TRY(repeat_once(a->b, a->t, &took->seconds));
    took->processor = a->t->processor;
    return INFER_OK;
}

/* Repeats until two repetitions in a row differ by less than 3%, at most 8 of them or 3 seconds. */
static enum infer_status warm_up(struct bench *b, struct timing *t) {
    double before = 0, seconds, begin = host_seconds();
    for (int i = 0; i < 8; i++) {
        TRY(repeat_once(b, t, &seconds));
        if (fabs(seconds - before) < 0.03 * seconds || host_seconds() - begin > 3) return INFER_OK;
        before = seconds;
    }
    return INFER_OK;
}

/* GB/s of memory, kept for the median of the run; NAN: cannot be measured. */
static enum infer_status probe_memory(struct bench *b, double *gb_s) {
    *gb_s = NAN;
#ifdef INFER_CUDA
    if (b->card) *gb_s = cuda_ceiling_read(b->card, 0.02);
#endif
    if (b->probe.data) *gb_s = probe_read(&b->probe, 0.08);
    if (!isfinite(*gb_s)) return INFER_OK;
    if (b->n_probed == b->cap_probed) {
        size_t cap = 2 * b->cap_probed + 64;
        double *p = mem_realloc(b->probed, cap * sizeof *p);
        if (!p) return err_set(INFER_E_MEMORY, "%zu probes", cap);
        b->probed = p;
        b->cap_probed = cap;
    }
    b->probed[b->n_probed++] = *gb_s;
    return INFER_OK;
}

/* The ceiling of the test, now: GB/s of memory for decode rows, operations a second for prompt rows; NAN: none. */
static enum infer_status probe_once(struct bench *b, const struct test *test, double *ceiling) {
    if (test->decode) return probe_memory(b, ceiling);
    *ceiling = b->peak ? peak_measure(b->peak, b->session.place.n_thread, 0.05) : NAN;
    return INFER_OK;
}

/* Bytes that one decode step reads: the weights once, and of every sequence the keys and values so far. */
static double step_bytes(const struct bench *b, const struct test *test) {
    const struct session *s = &b->session;
    return (double)s->info.token_bytes +
           test->n_seq * infer_kv_read_bytes(&s->place, test->depth + test->n / 2.0);
}

static void test_name(char *name, const struct test *t) {
    int n = snprintf(name, BENCH_NAME, "%s%d", t->decode ? "tg" : "pp", t->n);
    if (t->n_seq > 1) n += snprintf(name + n, BENCH_NAME - (size_t)n, "x%d", t->n_seq);
    if (t->depth) snprintf(name + n, BENCH_NAME - (size_t)n, "@d%d", t->depth);
}

/* What else a repetition was like, of all of a test. */
struct conditions {
    double joules, mhz;
    struct held_back held;
    int n, n_known, n_throttled;
};

static void conditions_begin(struct bench *b, struct conditions *c) {
    *c = (struct conditions){0};
    held_look(b->held); /* from here on */
}

static void conditions_add(struct bench *b, struct conditions *c, double joules) {
    c->held = held_look(b->held);
    c->joules += joules, c->mhz += c->held.mhz, c->n++;
    c->n_known += c->held.known, c->n_throttled += c->held.throttled;
}

static void conditions_end(const struct conditions *c, double tokens, struct bench_result *r) {
    r->joules = c->joules / tokens;
    r->celsius = c->held.celsius, r->mhz = c->mhz / c->n;
    r->throttled = c->n_known ? (double)c->n_throttled / c->n : NAN;
}

static void tell_guesses(const struct bench *b, const struct test *test, struct bench_result *r) {
    const struct bench_guesses *g = &b->guesses;
    const bool some = test->decode && b->sched;
    r->right = some && g->guessed ? (double)g->right / g->guessed : NAN;
    r->per_step = some && g->steps ? (double)g->tokens / g->steps : NAN;
}

/* The repetitions of one test, each between two probes. */
static enum infer_status measure(struct bench *b, struct timing *t, struct bench_result *r) {
    const struct test *test = t->test;
    const int reps = b->o->reps, n_step = test->decode && !b->sched ? test->n : 1;
    double rate[BENCH_MAX_REPS], share[BENCH_MAX_REPS], before, after, *ms, waited = 0, total = 0;
    struct conditions conditions;
    TRY(mem_new(&ms, (size_t)reps * (size_t)n_step * sizeof *ms, "times of the steps"));
    enum infer_status st = warm_up(b, t);
    if (!st) st = probe_once(b, test, &before);
    b->guesses = (struct bench_guesses){0};
    conditions_begin(b, &conditions);
    for (int i = 0; !st && i < reps; i++) {
        double seconds, begin = probe_waited();
        const double joules = energy_of(b->energy, b->on_card);
        st = repeat_once(b, t, &seconds);
        conditions_add(b, &conditions, energy_of(b->energy, b->on_card) - joules);
        waited += probe_waited() - begin;
        total += seconds * b->probe.n_thread;
        if (!st) st = probe_once(b, test, &after);
        if (st) break;
        rate[i] = (double)test->n * test->n_seq / seconds;
        double work = test->decode ? step_bytes(b, test) * 1e-9 : (double)b->session.info.token_flops;
        share[i] = work * test->n / seconds / ((before + after) / 2);
        before = after;
        if (test->decode && b->sched)
            ms[i] = NAN;
        else if (test->decode)
            for (int k = 0; k < n_step; k++) ms[i * n_step + k] = 1e3 * t->step[k];
        else
            ms[i] = 1e3 * seconds;
    }
    if (!st) {
        test_name(r->test, test);
        conditions_end(&conditions, (double)reps * test->n * test->n_seq, r);
        r->n_rate = reps < BENCH_KEPT ? reps : BENCH_KEPT;
        memcpy(r->rate, rate, (size_t)r->n_rate * sizeof *rate);
        r->tok_s_min = bench_percentile(rate, (size_t)reps, 0);
        r->tok_s_max = bench_percentile(rate, (size_t)reps, 1);
        r->tok_s = reps % 2 ? rate[reps / 2] : (rate[reps / 2 - 1] + rate[reps / 2]) / 2;
        tell_guesses(b, test, r);
        r->gb_s = test->decode ? r->tok_s / test->n_seq * step_bytes(b, test) * 1e-9 : NAN;
        r->share = bench_percentile(share, (size_t)reps, 0.5);
        if (test->decode && b->sched) r->gb_s = r->share = NAN; /* a step reads them for several tokens */
        size_t n = (size_t)reps * (size_t)n_step;
        r->waited = total > 0 ? waited / total : NAN; /* no probe: the work is not done by threads of ours */
        r->ms_p50 = bench_percentile(ms, n, 0.50);
        r->ms_p95 = bench_percentile(ms, n, 0.95);
        r->ms_p99 = bench_percentile(ms, n, 0.99);
    }
    mem_free(ms);
    return st;
}

/* Opens the i-th sequence; with --lora-each it has one adapter. */
static enum infer_status open_sequence(struct bench *b, int i, int *seq) {
    struct session *s = &b->session;
    const int n = s->adapters.n;
    float scale[ADAPTERS_MAX] = {0};
    int shared;
    TRY(infer_seq_open(s->engine, seq));
    if (!b->o->lora_each || !n) return INFER_OK;
    scale[i % n] = s->adapters.scale[i % n];
    return infer_seq_prefix(s->engine, *seq, NULL, 0, &(struct infer_prefix){.adapter = scale}, &shared);
}

/* Opens the sequences, fills them to the depth, measures, closes them. */
static enum infer_status run_test(struct bench *b, const struct test *test, struct bench_result *r) {
    struct session *s = &b->session;
    int most = s->place.n_batch > test->n_seq ? s->place.n_batch : test->n_seq, opened = 0;
    struct timing t = {.test = test, .random = 1};
    enum infer_status st = mem_new(&t.rows, (size_t)most * sizeof *t.rows, "rows of a step");
    if (!st) st = mem_new(&t.step, (size_t)test->n * sizeof *t.step, "times of the steps");
    if (!st) st = mem_new(&t.seq, (size_t)test->n_seq * sizeof *t.seq, "sequences");
    const bool guessed = test->decode && b->sched; /* requests open their own */
    while (!st && !guessed && opened < test->n_seq) {
        st = open_sequence(b, opened, &t.seq[opened]);
        if (!st && test->depth) st = prompt_rows(b, &t, t.seq[opened], test->depth);
        if (!st) opened++;
    }
    if (!st && b->o->turns >= 0) {
        test_name(r->test, test);
        st = warm_up(b, &t);
        if (!st) st = bench_answer(r->test, repeat_asked, &(struct answering){b, &t});
    } else if (!st) {
        st = measure(b, &t, r);
    }
    while (opened > 0) infer_seq_close(s->engine, t.seq[--opened]);
    mem_free(t.rows);
    mem_free(t.step);
    mem_free(t.seq);
    return st;
}

/* Calls one for each test that is asked for, in the order in which they run, until it gives an error. */
static enum infer_status each_test(const struct options *o,
                                   enum infer_status (*one)(void *user, const struct test *test),
                                   void *user) {
    for (int d = 0; d < o->depth.n; d++) {
        for (int i = 0; i < o->n_prompt.n; i++)
            if (o->n_prompt.value[i])
                TRY(one(user, &(struct test){false, o->n_prompt.value[i], 1, o->depth.value[d]}));
        for (int k = 0; k < o->sequences.n; k++)
            for (int i = 0; i < o->n_decode.n; i++)
                if (o->n_decode.value[i])
                    TRY(one(user, &(struct test){true, o->n_decode.value[i], o->sequences.value[k],
                                                 o->depth.value[d]}));
    }
    return INFER_OK;
}

/* INFER_E_CANCEL: it is the one of this name, so no other is looked at. */
static enum infer_status is_named(void *test, const struct test *t) {
    char name[BENCH_NAME];
    test_name(name, t);
    return strcmp(name, test) == 0 ? INFER_E_CANCEL : INFER_OK;
}

bool bench_asks(const struct options *o, const char *test) {
    return each_test(o, is_named, (void *)test) == INFER_E_CANCEL;
}

static enum infer_status add_test(void *bench, const struct test *test) {
    struct bench *b = bench;
    if (b->n == b->cap) {
        int cap = 2 * b->cap + 16;
        struct bench_result *p = mem_realloc(b->result, (size_t)cap * sizeof *p);
        if (!p) return err_set(INFER_E_MEMORY, "%d results", cap);
        b->result = p;
        b->cap = cap;
    }
    char name[BENCH_NAME];
    test_name(name, test);
    if (b->session.progress.on) fprintf(stderr, "\r%s ...\033[K", name);
    TRY(run_test(b, test, &b->result[b->n]));
    if (b->session.progress.on) fputs("\r\033[K", stderr);
    b->n++;
    return INFER_OK;
}

static int largest(const struct option_ints *v) {
    int most = 0;
    for (int i = 0; i < v->n; i++) most = v->value[i] > most ? v->value[i] : most;
    return most;
}

/* What the shares refer to. */
static enum infer_status ceilings_open(struct bench *b) {
    const struct infer_engine_info *place = &b->session.place;
    bool cpu = strcmp(place->device, "cpu") == 0, host = cpu || strcmp(place->device, "ref") == 0;
    if (cpu) b->peak = peak_of_isa(place->isa);
    if (host) return probe_open(&b->probe, place->n_thread > 0 ? place->n_thread : 1);
#ifdef INFER_CUDA
    const bool whole = place->device_layers == b->session.info.n_layer && !place->host_experts;
    if (whole && cuda_ceiling_open(&b->card)) b->card = NULL; /* no room beside the model */
#endif
    return INFER_OK;
}

/* A card's shares of prompts. Products warm it, and what comes next is slower for them: so they are measured behind all tests. */
static void card_shares(struct bench *b, const struct session_need *need) {
    double ops = NAN;
#ifdef INFER_CUDA
    if (b->card && !session_engine_options(b->o, need).block_scaled) /* which are no products of halves */
        ops = cuda_ceiling_products(b->card, 0.05);
#else
    (void)need;
#endif
    for (int i = 0; i < b->n && b->card; i++)
        if (!strncmp(b->result[i].test, "pp", 2))
            b->result[i].share = b->result[i].tok_s * (double)b->session.info.token_flops / ops;
}

enum infer_status bench_run(struct bench *b) {
    const struct options *o = b->o;
    int longest =
        largest(&o->n_prompt) > largest(&o->n_decode) ? largest(&o->n_prompt) : largest(&o->n_decode);
    struct session_need need = {.slots = largest(&o->sequences), .ctx = largest(&o->depth) + longest};
    if (b->draft.by) {
        const int ctx = bench_guess_ctx(largest(&o->n_decode), largest(&o->depth));
        need.draft = &b->draft;
        if (need.ctx < ctx) need.ctx = ctx;
    }
    TRY(session_open(&b->session, o, &need));
    if (b->draft.by) TRY(infer_sched_open(&b->sched, b->session.engine, b->session.model));
    if (b->session.drafter) TRY(infer_sched_draft_with(b->sched, b->session.drafter, b->session.draft_model));
    if (b->session.place.n_ctx < need.ctx)
        return err_set(INFER_E_FULL, "the tests take %d positions, the context has %d (--ctx)", need.ctx,
                       b->session.place.n_ctx);
    b->on_card = strstr(b->session.place.device, "cuda") != NULL;
    b->alone = strcmp(b->session.place.device, "cpu") == 0 && b->session.place.n_thread == 1;
    TRY(energy_open(&b->energy));
    TRY(held_open(&b->held, b->on_card));
    if (o->turns < 0) TRY(ceilings_open(b));
    TRY(each_test(o, add_test, b));
    if (o->turns >= 0) printf("end\n");
    card_shares(b, &need);
    b->bandwidth = bench_percentile(b->probed, b->n_probed, 0.5);
    return INFER_OK;
}
