/* Requests side by side in one engine: each gives what it gives alone, whatever the others ask for, and however they end. */
#include "request/constrain.h"
#include "infer_request.h"
#include "engine/request/request_impl.h"
#include <math.h>
#include "tests/lib/chi_square.h"
#include "tests/lib/free_guesses.h"
#include "tests/lib/test.h"
#include "tests/lib/pace.h"
#include "text/grammar/grammar.h"
#include "tests/lib/synth_model.h"

enum { CTX = 64, MOST = 128, N_CASE = 12 };

static const char *const stops[] = {"zzzz", "5t4"};
static const struct infer_sample_bias biases[] = {{300, 3}, {301, -INFINITY}, {40, 2}},
                                      two_ids[] = {{40, 1000}, {41, 1000}};

/* What a request asks for; how many tokens of the answer are waited for before it is cancelled (0: it is not). */
struct wish {
    const char *name, *prompt;
    struct infer_sample_params sample; /* by .temp and others; the rest is the default */
    const char *gbnf, *schema;
    bool two_ids; /* no other ids come */
    int n_stop, n_bias, n_predict, n_logprob, cancel_at;
    enum infer_request_overflow overflow;
    enum infer_request_drafter drafter;
    enum infer_request_why why; /* INFER_REQUEST_RUNS: any */
    const int32_t *ids;         /* ids[n_id] instead of the prompt */
    int n_id;
    const int32_t *told;
    int n_told;
};

static const struct wish wishes[N_CASE] = {
    {"greedy", "one two", .n_predict = 40, .n_logprob = -1, .why = INFER_REQUEST_LIMIT},
    {"temperature", "one two", {.temp = 0.9f, .seed = 7}, .n_predict = 40, .n_logprob = -1},
    {"top-k, top-p, min-p",
     "three",
     {.temp = 1.2f, .seed = 3, .top_k = 40, .top_p = 0.9f, .min_p = 0.02f},
     .n_predict = 30,
     .n_logprob = -1},
    {"penalties and DRY",
     "four four four four",
     {.temp = 0.7f, .seed = 5, .repeat_penalty = 1.3f, .frequency_penalty = 0.2f, .dry_multiplier = 0.8f},
     .n_predict = 30,
     .n_logprob = -1},
    {"penalties of two tokens", /* which of them comes hangs on the last ones */
     "four four",
     {.temp = 0.7f, .seed = 8, .frequency_penalty = 0.4f},
     .two_ids = true,
     .n_predict = 30,
     .n_logprob = -1},
    {"grammar",
     "five",
     {.temp = 0.8f, .seed = 2},
     .gbnf = "root ::= [a-z]{3,8} (\", \" [0-9t]{2,6})+ \".\"",
     .n_predict = 24,
     .n_logprob = 2},
    {"schema",
     "six",
     {.temp = 1, .seed = 4},
     .schema = "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}, \"b\": {\"enum\": "
               "[true, null]}}, \"required\": [\"a\", \"b\"], \"additionalProperties\": false}",
     .n_predict = 40,
     .n_logprob = -1},
    {"stop text",
     "seven",
     {.temp = 1, .seed = 6},
     .n_stop = 2,
     .n_predict = 50,
     .n_logprob = -1,
     .why = INFER_REQUEST_STOP},
    {"bias and log probabilities", "eight", .n_bias = 3, .n_predict = 20, .n_logprob = 5,
     .why = INFER_REQUEST_LIMIT},
    {"overflow shift",
     "nine nine nine nine nine nine nine nine",
     {.temp = 0.5f, .seed = 9},
     .n_predict = 90,
     .overflow = INFER_OVERFLOW_SHIFT,
     .n_logprob = 1},
    {"overflow end", "ten ten ten", .n_predict = -1, .n_logprob = -1, .why = INFER_REQUEST_FULL},
    {"cancelled", "eleven", .n_predict = 50, .cancel_at = 9, .n_logprob = -1, .why = INFER_REQUEST_CANCELLED},
};

/* What came of it. */
struct outcome {
    struct infer_request *request;
    struct infer_constraint *constraint;
    struct infer_grammar *grammar;
    int cancel_at, n_id, n_text, fail_at;
    int32_t id[MOST];
    char text[8 * MOST];
    enum infer_request_why why;
    struct infer_request_figures figures;
    struct infer_logprob top[MOST][6];
};

static struct {
    struct infer_model *model, *smaller, *other; /* smaller: the same weights, rounded more */
    struct infer_grammar_vocab *vocab;
    struct infer_model_info info;
} m;

static void open_tiny(struct infer_model **out, const char *type, uint64_t seed) {
    *out = synth_model(&(struct synth_options){.shape = "tiny", .type = type, .seed = seed});
}

static int open_model(void **state) {
    (void)state;
    open_tiny(&m.model, "f16", 3);
    open_tiny(&m.smaller, "q8_0", 3);
    open_tiny(&m.other, "f16", 4);
    assert_ok(infer_vocab_same(m.model, m.smaller));
    infer_model_info(m.model, &m.info);
    assert_ok(infer_grammar_vocab_open(&m.vocab, m.model));
    return 0;
}

static int close_model(void **state) {
    (void)state;
    infer_grammar_vocab_close(m.vocab);
    infer_model_close(m.model);
    infer_model_close(m.smaller);
    infer_model_close(m.other);
    return 0;
}

static void open_engine(struct infer_engine **e, const struct infer_model *model, const char *device,
                        int slots) {
    const struct infer_engine_options o = {.device = device,
                                           .kv_type = "f32",
                                           .ctx = CTX,
                                           .slots = slots,
                                           .batch = 24,
                                           .decode_rows = slots + INFER_REQUEST_DRAFT,
                                           .threads = 1,
                                           .gpu_layers = -1};
    assert_ok(infer_engine_create(e, model, &o));
}

/* An engine and its requests; ahead: steps are queued one before the other, as on a device that works by itself. */
static struct infer_sched *open_sched(struct infer_engine **e, const char *device, bool ahead, int slots) {
    struct infer_sched *s;
    open_engine(e, m.model, device, slots);
    assert_ok(infer_sched_open(&s, *e, m.model));
    s->ahead = ahead;
    return s;
}

static void on_token(void *user, int32_t id) {
    struct outcome *o = user;
    assert_true(o->n_id < MOST);
    o->id[o->n_id++] = id;
    if (o->n_id == o->cancel_at) infer_request_cancel(o->request);
}

static enum infer_status on_text(void *user, const char *text, size_t n, bool thinking) {
    struct outcome *o = user;
    assert_false(thinking);
    assert_true((size_t)o->n_text + n < sizeof o->text);
    memcpy(o->text + o->n_text, text, n);
    o->n_text += (int)n;
    if (o->fail_at && o->n_id >= o->fail_at) return err_set(INFER_E_WRITE, "the reader of %d went", o->n_id);
    return INFER_OK;
}

static struct infer_sample_params sampling(const struct wish *w) {
    struct infer_sample_params p = infer_sample_defaults();
    const struct infer_sample_params *s = &w->sample;
    p.temp = s->temp, p.seed = s->seed, p.top_k = s->top_k;
    if (s->top_p > 0) p.top_p = s->top_p;
    p.min_p = s->min_p;
    if (s->repeat_penalty > 0) p.repeat_penalty = s->repeat_penalty;
    p.frequency_penalty = s->frequency_penalty;
    p.dry_multiplier = s->dry_multiplier;
    p.bias = biases, p.n_bias = w->n_bias;
    if (w->two_ids) p.bias = two_ids, p.n_bias = 2;
    return p;
}

static void start(struct outcome *o, struct infer_sched *s, const struct wish *w, int seq) {
    struct infer_prompt prompt;
    struct infer_request_params p = infer_request_defaults();
    *o = (struct outcome){.cancel_at = w->cancel_at};
    if (w->gbnf) assert_ok(infer_grammar_from_gbnf(&o->grammar, w->gbnf, strlen(w->gbnf)));
    if (w->schema) assert_ok(infer_grammar_from_schema(&o->grammar, w->schema, strlen(w->schema)));
    if (o->grammar) assert_ok(infer_constraint_open(&o->constraint, o->grammar, m.vocab, m.info.n_vocab));
    assert_ok(infer_prompt_text(&prompt, m.model, w->prompt, strlen(w->prompt), false));
    p.seq = seq, p.ids = w->ids ? w->ids : prompt.ids, p.n_id = w->ids ? w->n_id : prompt.n;
    p.sample = sampling(w);
    p.constraint = o->constraint;
    p.stop = stops, p.n_stop = w->n_stop;
    p.n_predict = w->n_predict, p.n_logprob = w->n_logprob;
    p.overflow = w->overflow, p.drafter = w->drafter;
    p.told = w->told, p.n_told = w->n_told;
    p.on_token = on_token, p.on_text = on_text, p.user = o;
    assert_ok(infer_request_new(&o->request, s, &p));
    infer_prompt_free(&prompt);
}

static void end(struct outcome *o) {
    const struct infer_request *r = o->request;
    assert_true(infer_request_done(r));
    o->why = infer_request_why(r);
    o->figures = *infer_request_figures(r);
    if (o->why != INFER_REQUEST_FAILED) {
        size_t n;
        assert_ok(infer_request_status(r));
        const char *text = answer_text(request_answer(r), &n);
        assert_int_equal(n, o->n_text);
        assert_memory_equal(text, o->text, n);
    }
    const struct infer_logprobs *p = infer_request_logprobs(r);
    for (int i = 0; p->n_top >= 0 && i < o->figures.n_answer; i++)
        memcpy(o->top[i], infer_logprobs_at(p, i), (size_t)(1 + p->n_top) * sizeof o->top[i][0]);
    infer_request_free(o->request);
    infer_constraint_close(o->constraint);
    infer_grammar_free(o->grammar);
}

static void alone(struct outcome *o, const struct wish *w, const char *device, bool ahead) {
    struct infer_engine *e;
    struct infer_sched *s = open_sched(&e, device, ahead, 1);
    int seq;
    assert_ok(infer_seq_open(e, &seq));
    start(o, s, w, seq);
    infer_request_run(o->request);
    end(o);
    infer_sched_close(s);
    infer_engine_free(e);
}

static void assert_same(const char *name, const struct outcome *a, const struct outcome *b) {
    if (a->why != b->why || a->n_id != b->n_id || memcmp(a->id, b->id, (size_t)a->n_id * sizeof *a->id) ||
        a->n_text != b->n_text || memcmp(a->text, b->text, (size_t)a->n_text))
        fail_msg("%s: %d tokens, ended by %d; alone %d, ended by %d", name, b->n_id, b->why, a->n_id, a->why);
    assert_int_equal(a->figures.n_prompt, b->figures.n_prompt);
    assert_int_equal(a->figures.n_shift, b->figures.n_shift);
    for (int i = 0; i < a->figures.n_answer; i++)
        for (int k = 0; k < 6; k++) {
            assert_int_equal(a->top[i][k].id, b->top[i][k].id);
            assert_true(fabsf(a->top[i][k].logprob - b->top[i][k].logprob) < 1e-4f);
        }
}

static const struct {
    const char *device;
    bool ahead;
} places[] = {{"ref", false}, {"cpu", false}, {"cpu", true}};
enum { N_PLACE = sizeof places / sizeof *places };

/* What each is alone there, [N_CASE], computed once. */
static const struct outcome *all_alone(int place) {
    static struct outcome one[N_PLACE][N_CASE];
    for (int i = 0; i < N_CASE && !one[place][i].n_id; i++) {
        struct outcome *o = &one[place][i];
        alone(o, &wishes[i], places[place].device, places[place].ahead);
        if (wishes[i].why) assert_int_equal(o->why, wishes[i].why);
        assert_true(o->n_id > 4);
        assert_true(wishes[i].overflow != INFER_OVERFLOW_SHIFT || o->figures.n_shift > 0);
        assert_true(!wishes[i].cancel_at || o->n_id == wishes[i].cancel_at);
    }
    return one[place];
}

/* gap: steps before the next one comes. */
static void side_by_side(int place, int gap) {
    const struct outcome *one = all_alone(place);
    struct outcome *all = calloc(N_CASE, sizeof *all);
    struct infer_engine *e;
    struct infer_sched *s = open_sched(&e, places[place].device, places[place].ahead, N_CASE);
    bool more = true;
    int n = 0, seq;
    for (int step = 0; n < N_CASE || more; step++) {
        for (; n < N_CASE && step >= n * gap; n++) {
            assert_ok(infer_seq_open(e, &seq));
            start(&all[n], s, &wishes[n], seq);
        }
        more = infer_sched_step(s);
    }
    for (int i = 0; i < N_CASE; i++) {
        end(&all[i]);
        assert_same(wishes[i].name, &one[i], &all[i]);
    }
    free(all);
    infer_sched_close(s);
    infer_engine_free(e);
}

static void many_are_what_each_is_alone(void **state) {
    (void)state;
    for (int i = 0; i < N_PLACE; i++)
        for (int k = EVERY(2) == 2 ? i & 1 : 0; k < 2; k += EVERY(2)) side_by_side(i, 7 * k);
}

/* The next step is cancelled for nobody's sake, one request is cancelled, and the reader of one fails: the others do not notice. All
 * are greedy, so that steps are queued ahead. */
static void what_happens_to_one_is_its_own(void **state) {
    (void)state;
    const struct wish *const w[] = {&wishes[0], &wishes[N_CASE - 1], &wishes[N_CASE - 2]};
    for (int i = 0; i < N_PLACE; i++) {
        struct infer_engine *e;
        struct infer_sched *s = open_sched(&e, places[i].device, places[i].ahead, 3);
        struct outcome one, o[3];
        int seq;
        for (int k = 0; k < 3; k++) {
            assert_ok(infer_seq_open(e, &seq));
            start(&o[k], s, w[k], seq);
        }
        o[2].fail_at = 4;
        for (int step = 0; infer_sched_step(s); step++)
            if (step % 5 == 4) infer_cancel(e);
        assert_int_equal(infer_request_why(o[2].request), INFER_REQUEST_FAILED);
        err_set(INFER_E_INPUT, "another message");
        assert_int_equal(infer_request_status(o[2].request), INFER_E_WRITE);
        assert_string_equal(err_message(), "the reader of 4 went");
        for (int k = 0; k < 3; k++) {
            end(&o[k]);
            if (k == 2) continue;
            alone(&one, w[k], places[i].device, false);
            assert_same(w[k]->name, &one, &o[k]);
        }
        infer_sched_close(s);
        infer_engine_free(e);
    }
}

/* Where a step has no room for all they take turns. */
static void a_narrow_step_is_shared(void **state) {
    (void)state;
    const struct infer_engine_options options = {.device = "cpu",
                                                 .kv_type = "f32",
                                                 .ctx = CTX,
                                                 .slots = 4,
                                                 .batch = 4,
                                                 .decode_rows = 2,
                                                 .gpu_layers = -1};
    struct infer_engine *e;
    struct infer_sched *s;
    struct outcome o[4], one;
    int seq;
    assert_ok(infer_engine_create(&e, m.model, &options));
    assert_ok(infer_sched_open(&s, e, m.model));
    for (int k = 0; k < 4; k++) {
        assert_ok(infer_seq_open(e, &seq));
        start(&o[k], s, &wishes[k], seq);
    }
    while (!infer_request_done(o[2].request) && !infer_request_done(o[3].request))
        assert_true(infer_sched_step(s));
    for (int k = 0; k < 4; k++) assert_true(o[k].n_id >= 20);
    while (infer_sched_step(s)) continue;
    for (int k = 0; k < 4; k++) {
        end(&o[k]);
        alone(&one, &wishes[k], "cpu", false);
        assert_same(wishes[k].name, &one, &o[k]);
    }
    infer_sched_close(s);
    infer_engine_free(e);
}

/* One that is freed while it runs leaves its sequence to the next, which finds the common tokens in it. */
static void a_sequence_goes_on(void **state) {
    (void)state;
    for (int i = 0; i < N_PLACE; i++) {
        struct infer_engine *e;
        struct infer_sched *s = open_sched(&e, places[i].device, places[i].ahead, 2);
        struct outcome first, other, again, one;
        int seq, beside;
        assert_ok(infer_seq_open(e, &seq));
        assert_ok(infer_seq_open(e, &beside));
        start(&other, s, &wishes[1], beside);
        start(&first, s, &wishes[0], seq);
        for (int step = 0; step < 8; step++) assert_true(infer_sched_step(s));
        assert_true(first.n_id > 3);
        infer_request_free(first.request);
        start(&again, s, &wishes[0], seq);
        infer_request_run(again.request);
        infer_request_run(other.request);
        end(&again);
        end(&other);
        assert_true(again.figures.n_reused > 0);
        assert_int_equal(again.figures.n_prompt, 1); /* the last token, for its logits */
        alone(&one, &wishes[0], places[i].device, places[i].ahead);
        again.figures.n_prompt = one.figures.n_prompt;
        assert_same("again", &one, &again);
        alone(&one, &wishes[1], places[i].device, places[i].ahead);
        assert_same("beside", &one, &other);
        infer_sched_close(s);
        infer_engine_free(e);
    }
}

/* Guesses are checked by the model: the tokens are those without. The prompt has the beginning of a greedy answer twice. */
static void guesses_change_nothing(void **state) {
    (void)state;
    struct wish w = {"lookup", "one two", .n_predict = 20, .n_logprob = -1};
    int32_t ids[34];
    struct infer_engine *e;
    struct outcome with[2], without;
    alone(&without, &w, "cpu", false);
    for (int i = 0; i < 34; i++) ids[i] = without.id[i % 20];
    w.ids = ids, w.n_id = 34, w.n_predict = 25;
    alone(&without, &w, "cpu", false);
    w.drafter = INFER_DRAFT_LOOKUP;
    struct infer_sched *s = open_sched(&e, "cpu", true, 2);
    free_guesses(s);
    for (int k = 0; k < 2; k++) {
        int seq;
        assert_ok(infer_seq_open(e, &seq));
        start(&with[k], s, &w, seq);
    }
    while (infer_sched_step(s)) continue;
    for (int k = 0; k < 2; k++) {
        end(&with[k]);
        assert_true(with[k].figures.n_right > 0 && with[k].figures.n_right <= with[k].figures.n_guessed);
        assert_same("lookup", &without, &with[k]);
    }
    infer_sched_close(s);
    infer_engine_free(e);
}

/* What an answer is thought to be: right, with tokens that it has not, without some that it has, all wrong, and more than there will be. The
 * answer stays, and as far as it goes on as told it is guessed. */
static void an_answer_as_it_is_told(void **state) {
    enum { N = 40 };
    (void)state;
    struct wish w = {"told", "one two", .sample = {.temp = 1, .seed = 7}, .n_predict = N, .n_logprob = -1};
    struct outcome without, with;
    struct infer_engine *e;
    alone(&without, &w, "cpu", false);
    assert_int_equal(without.n_id, N);
    for (int k = 0; k < 6; k++) {
        int32_t told[N + 8];
        int n = 0, seq;
        for (int i = 0; i < N; i++) {
            if (k == 1 && i == 15)
                for (int j = 0; j < 5; j++) told[n++] = (without.id[i] + 1 + j) % m.info.n_vocab;
            if (k == 2 && i >= 12 && i < 16) continue;
            told[n++] = k == 3 ? (without.id[i] + 1) % m.info.n_vocab : without.id[i];
        }
        if (k == 4) memset(told, 255, sizeof told); /* no tokens */
        if (k == 5) n = 9;
        w.told = told, w.n_told = n;
        struct infer_sched *s = open_sched(&e, "cpu", k % 2, 1);
        free_guesses(s);
        assert_ok(infer_seq_open(e, &seq));
        start(&with, s, &w, seq);
        memset(told, 0, sizeof told); /* they are copied */
        while (infer_sched_step(s)) continue;
        end(&with);
        assert_same("told", &without, &with);
        const int right = with.figures.n_right, least[] = {N - 10, N - 20, N - 20, 0, 0, 6};
        if (right < least[k])
            fail_msg("case %d: %d of %d guesses are right", k, right, with.figures.n_guessed);
        if (k == 0) assert_int_equal(right, with.figures.n_guessed);
        infer_sched_close(s);
        infer_engine_free(e);
        w.told = NULL, w.n_told = 0;
    }
}

/* Whatever a request asks for, what the text or a model guesses does not change it. */
static void any_answer_can_be_guessed(void **state) {
    (void)state;
    int right = 0, guessed = 0;
    for (int k = 0; k < 3 * N_CASE; k++) {
        struct wish w = wishes[k / 3];
        struct outcome without, with;
        struct infer_engine *e, *drafter;
        struct infer_sched *s = open_sched(&e, "cpu", k % 3 == 0, 1);
        int seq;
        alone(&without, &w, "cpu", false);
        free_guesses(s);
        open_engine(&drafter, k % 3 == 1 ? m.model : m.smaller, "cpu", 1);
        assert_ok(infer_sched_draft_with(s, drafter, k % 3 == 1 ? m.model : m.smaller));
        assert_ok(infer_seq_open(e, &seq));
        w.drafter = k % 3 ? INFER_DRAFT_MODEL : INFER_DRAFT_LOOKUP;
        start(&with, s, &w, seq);
        infer_request_run(with.request);
        end(&with);
        assert_same(w.name, &without, &with);
        assert_true(with.figures.n_right <= with.figures.n_guessed && with.n_id > 4);
        right += with.figures.n_right, guessed += with.figures.n_guessed;
        infer_sched_close(s);
        infer_engine_free(e);
        infer_engine_free(drafter);
    }
    assert_true(right > 50 && guessed > right);
}

/* Many requests, of which two in three guess, by the text or a model: each answer is what it is alone without guesses. */
static void a_crowd_guesses(void **state) {
    (void)state;
    int guessed[3] = {0}, right[3] = {0};
    for (int i = EVERY(2) - 1; i < 2 * N_PLACE; i += EVERY(2)) {
        struct outcome *all = calloc(N_CASE, sizeof *all);
        struct infer_engine *e, *drafter;
        const char *device = places[i / 2].device;
        struct infer_sched *s = open_sched(&e, device, places[i / 2].ahead, N_CASE);
        int seq;
        if (i % 2) free_guesses(s); /* else as the clock has it */
        open_engine(&drafter, m.smaller, device, N_CASE);
        assert_ok(infer_sched_draft_with(s, drafter, m.smaller));
        for (int n = 0; n < N_CASE; n++) {
            struct wish w = wishes[n];
            w.drafter = (enum infer_request_drafter)((n + i / 2) % 3);
            assert_ok(infer_seq_open(e, &seq));
            start(&all[n], s, &w, seq);
            for (int k = 0; k < 3; k++) infer_sched_step(s);
        }
        while (infer_sched_step(s)) continue;
        for (int n = 0; n < N_CASE; n++) {
            const int by = (n + i / 2) % 3;
            end(&all[n]);
            assert_same(wishes[n].name, &all_alone(i / 2)[n], &all[n]);
            guessed[by] += all[n].figures.n_guessed, right[by] += all[n].figures.n_right;
            assert_true(all[n].figures.n_right <= all[n].figures.n_guessed);
        }
        free(all);
        infer_sched_close(s);
        infer_engine_free(e);
        infer_engine_free(drafter);
    }
    assert_int_equal(guessed[INFER_DRAFT_NONE], 0);
    for (int by = 1; by < 3; by++) assert_true(right[by] > 0 && right[by] < guessed[by]);
}

enum { DRAW_TOKENS = 7, DRAW_ANSWERS = 3000 / EVERY(12), DRAW_KINDS = 1 << DRAW_TOKENS };

/* How likely each answer of two ids is: odds[2 k + i] of id i behind the answer k, whose highest bit says where it begins. */
static void answer_odds(const struct wish *w, double *odds) {
    struct infer_engine *e;
    struct infer_sample_params p = sampling(w);
    struct sampler *s;
    open_engine(&e, m.model, "cpu", 1);
    assert_ok(sample_open(&s, m.info.n_vocab, &p));
    odds[1] = 1;
    for (int k = 1; k < DRAW_KINDS; k++) {
        const int depth = 31 - __builtin_clz((unsigned)k);
        struct infer_row rows[CTX];
        struct infer_output out;
        const struct sample_candidate *c;
        int seq;
        assert_ok(infer_seq_open(e, &seq));
        for (int i = 0; i < w->n_id + depth; i++) {
            int32_t id = i < w->n_id ? w->ids[i] : 40 + (k >> (depth - (i - w->n_id) - 1) & 1);
            bool last = i + 1 == w->n_id + depth;
            rows[i] = (struct infer_row){
                .id = id, .pos = i, .seq = seq, .decode = i >= w->n_id, .want = last ? INFER_WANT_LOGITS : 0};
        }
        assert_ok(infer_step(e, rows, w->n_id, &out));
        for (int i = 0; i < depth; i++) assert_ok(infer_step(e, rows + w->n_id + i, 1, &out));
        odds[2 * k] = odds[2 * k + 1] = 0;
        for (int i = sample_distribution(s, out.logits[0], &c); i-- > 0;)
            if (c[i].p > 0) odds[2 * k + c[i].id - 40] = odds[k] * (double)c[i].p;
        infer_seq_close(e, seq);
    }
    sample_close(s);
    infer_engine_free(e);
}

/* How often each answer comes; *guessed, *right: of all of them. */
static void count_answers(struct wish w, int *count, int *guessed, int *right) {
    struct infer_engine *e, *drafter;
    struct infer_sched *s = open_sched(&e, "cpu", false, 1);
    int seq;
    free_guesses(s);
    open_engine(&drafter, m.other, "cpu", 1);
    assert_ok(infer_sched_draft_with(s, drafter, m.other));
    assert_ok(infer_seq_open(e, &seq));
    for (int k = 0; k < DRAW_ANSWERS; k++) {
        struct outcome o;
        int answer = 1;
        w.sample.seed = (uint64_t)k + 1;
        start(&o, s, &w, seq);
        infer_request_run(o.request);
        *guessed += infer_request_figures(o.request)->n_guessed,
            *right += infer_request_figures(o.request)->n_right;
        infer_request_free(o.request);
        assert_int_equal(o.n_id, DRAW_TOKENS);
        for (int i = 0; i < DRAW_TOKENS; i++) {
            assert_in_range(o.id[i], 40, 41);
            answer = 2 * answer + o.id[i] - 40;
        }
        count[answer - DRAW_KINDS]++;
    }
    infer_sched_close(s);
    infer_engine_free(e);
    infer_engine_free(drafter);
}

/* Answers that are drawn come as often as they should, whoever guesses: chi-square over 21,000 tokens of a tiny model. */
static void drawn_answers_keep_their_odds(void **state) {
    (void)state;
    static double odds[2 * DRAW_KINDS];
    const int32_t ids[] = {40, 40, 41, 40, 41, 41, 41, 40, 40, 40, 41, 40};
    struct wish w = {"odds",         "", .sample = {.temp = 1.5f}, .two_ids = true, .n_predict = DRAW_TOKENS,
                     .n_logprob = -1};
    w.ids = ids, w.n_id = sizeof ids / sizeof *ids;
    answer_odds(&w, odds);
    for (int by = INFER_DRAFT_LOOKUP; by <= INFER_DRAFT_MODEL; by++) {
        int count[DRAW_KINDS] = {0}, guessed = 0, right = 0;
        w.drafter = (enum infer_request_drafter)by;
        count_answers(w, count, &guessed, &right);
        double away = chi_square(count, odds + DRAW_KINDS, DRAW_KINDS, DRAW_ANSWERS);
        if (away > 5) fail_msg("guesses by %d: %g standard deviations from what it should be", by, away);
        assert_true(right > 0 && right < guessed);
    }
}

static void what_cannot_be_asked(void **state) {
    (void)state;
    struct infer_engine *e;
    struct infer_sched *s = open_sched(&e, "cpu", false, 2);
    int32_t ids[CTX + 1] = {0};
    struct outcome busy;
    struct infer_request *r;
    int seq, spare;
    assert_ok(infer_seq_open(e, &seq));
    assert_ok(infer_seq_open(e, &spare));
    start(&busy, s, &wishes[5], seq);
    const struct {
        int seq, n_id, n_logprob;
        float temp;
        struct infer_constraint *constraint;
        enum infer_status status;
        const char *message;
    } cases[] = {
        {1, 0, -1, 0, NULL, INFER_E_INPUT, "the prompt is empty"},
        {1, CTX + 1, -1, 0, NULL, INFER_E_FULL, "the prompt has 65 tokens, the context holds 64"},
        {1, 2, 21, 0, NULL, INFER_E_INPUT, "21 log probabilities a token, at most 20"},
        {1, 2, -1, -1, NULL, INFER_E_INPUT, ".temp -1 is not within 0 to 100"},
        {7, 2, -1, 0, NULL, INFER_E_INPUT, "sequence 7 is not open"},
        {0, 2, -1, 0, NULL, INFER_E_INPUT, "sequence 0 is another request's"},
        {1, 2, -1, 0, busy.constraint, INFER_E_INPUT, "the constraint of sequence 0 is another request's"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct infer_request_params p = infer_request_defaults();
        p.ids = ids, p.n_id = cases[i].n_id, p.seq = cases[i].seq, p.n_logprob = cases[i].n_logprob;
        p.sample.temp = cases[i].temp, p.constraint = cases[i].constraint;
        assert_int_equal(infer_request_new(&r, s, &p), cases[i].status);
        assert_non_null(strstr(err_message(), cases[i].message));
        assert_null(r);
    }
    const struct infer_request_params p = infer_request_defaults();
    assert_int_equal(infer_request_chat(&r, s, &p, NULL), INFER_E_UNSUPPORTED); /* before messages are read */
    assert_string_equal(infer_error(), "the model's file has no chat template");
    infer_request_run(busy.request);
    end(&busy);
    assert_false(infer_sched_step(s));
    infer_sched_close(s);
    infer_engine_free(e);
}

/* An answer's steps in which the CPU copies weights are told from the others; a short answer has none, and the tokens are the same. */
static void steps_that_copy_weights_are_told(void **state) {
    (void)state;
    static const int after[] = {0, 5, 1000};
    struct outcome o[3];
    for (int i = 0; i < 3; i++) {
        struct infer_engine_options eo = {
            .device = "cpu", .threads = 1, .repack_after = after[i], .gpu_layers = -1, .cpu_experts = -1};
        struct infer_engine *e;
        struct infer_sched *s;
        int seq;
        assert_ok(infer_engine_create(&e, m.model, &eo));
        assert_ok(infer_sched_open(&s, e, m.model));
        assert_ok(infer_seq_open(e, &seq));
        start(&o[i], s, &wishes[0], seq);
        infer_request_run(o[i].request);
        const struct infer_request_figures f = *infer_request_figures(o[i].request);
        const int copying = after[i] < f.n_step ? 4 : 0;
        assert_int_equal(f.n_step, wishes[0].n_predict - 1);
        assert_int_equal(f.n_even_step, f.n_step - copying);
        assert_int_equal(f.n_even, f.n_decoded - copying);
        assert_true(copying ? f.even_seconds < f.answer_seconds : f.even_seconds == f.answer_seconds);
        end(&o[i]);
        assert_int_equal(o[i].n_id, o[0].n_id);
        assert_memory_equal(o[i].id, o[0].id, (size_t)o[0].n_id * sizeof *o[0].id);
        infer_sched_close(s);
        infer_engine_free(e);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_that_copy_weights_are_told),
        cmocka_unit_test(many_are_what_each_is_alone),
        cmocka_unit_test(what_happens_to_one_is_its_own),
        cmocka_unit_test(a_narrow_step_is_shared),
        cmocka_unit_test(a_sequence_goes_on),
        cmocka_unit_test(guesses_change_nothing),
        cmocka_unit_test(an_answer_as_it_is_told),
        cmocka_unit_test(what_cannot_be_asked),
        cmocka_unit_test(any_answer_can_be_guessed),
        cmocka_unit_test(a_crowd_guesses),
        cmocka_unit_test(drawn_answers_keep_their_odds),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
