/* A budget of thinking: where it ends, that nothing changes before, that no other thought begins, that neighbours, guesses and steps queued
 * ahead change no token, and thoughts that go in circles. */
#include "infer_request.h"
#include "engine/request/request_impl.h"
#include "tests/lib/test.h"
#include "tests/lib/synth_model.h"

enum { CTX = 1024, MOST = 700, PROMPT = 3, AGAIN = 77 };
static struct infer_model *model;
static int ctx = CTX;
static const int32_t end_ids[] = {50, 51, 52};

static int open_model(void **state) {
    (void)state;
    model = synth_model(&(struct synth_options){.shape = "tiny", .type = "f16", .seed = 3});
    return 0;
}
static int close_model(void **state) {
    (void)state;
    infer_model_close(model);
    return 0;
}

struct told {
    int n;
    int32_t id[MOST];
    int32_t ends, begins; /* tokens that end and begin a thought; -1: none begins */
};
static void add(void *user, int32_t id) {
    struct told *a = user;
    if (a->n < MOST) a->id[a->n++] = id;
}
/* From the first token on, and again behind `begins`. */
static bool thinks(void *user) {
    const struct told *a = user;
    bool is = true;
    for (int i = 0; i < a->n; i++) is = is ? a->id[i] != a->ends : a->id[i] == a->begins;
    return is;
}

struct how {
    bool ahead, lookup;
    int others; /* requests beside it */
};
static struct infer_request_figures run(struct told *out, struct infer_request_params p,
                                        const struct how *how, enum infer_request_why *why) {
    static const int32_t ids[PROMPT] = {3, 1, 4}, other[2] = {9, 2};
    const struct infer_engine_options o = {.device = "cpu",
                                           .kv_type = "f32",
                                           .ctx = ctx,
                                           .slots = 4,
                                           .decode_rows = 4 * (INFER_REQUEST_DRAFT + 1),
                                           .threads = 1,
                                           .gpu_layers = -1,
                                           .cpu_experts = -1};
    struct infer_engine *e;
    struct infer_sched *s;
    struct infer_request *r, *beside[3];
    assert_ok(infer_engine_create(&e, model, &o));
    assert_ok(infer_sched_open(&s, e, model));
    s->ahead = how->ahead;
    for (int i = 0; i < how->others; i++) {
        struct infer_request_params q = infer_request_defaults();
        q.ids = other, q.n_id = 1 + i % 2, q.n_predict = 40 + 30 * i;
        assert_ok(infer_request_new(&beside[i], s, &q));
        for (int k = 0; k < 3 * i; k++) infer_sched_step(s);
    }
    p.ids = ids, p.n_id = PROMPT;
    p.on_token = add, p.user = out;
    if (how->lookup) p.drafter = INFER_DRAFT_LOOKUP;
    out->n = 0;
    assert_ok(infer_request_new(&r, s, &p));
    assert_ok(infer_request_run(r));
    *why = infer_request_why(r);
    const struct infer_request_figures f = *infer_request_figures(r);
    infer_sched_close(s);
    infer_engine_free(e);
    return f;
}

static const struct how hows[] = {
    {0}, {.ahead = true}, {.others = 3}, {.ahead = true, .others = 3}, {.lookup = true}};
enum { N_HOW = sizeof hows / sizeof *hows };

/* Nothing ends an answer but its limit; and one more bias. */
static struct infer_sample_bias barred[16];
static int n_barred;

static struct infer_request_params params(int n_predict, bool drawn, const int32_t *end, int n_end) {
    struct infer_request_params p = infer_request_defaults();
    p.n_predict = n_predict;
    p.sample.temp = drawn ? 1.1f : 0;
    p.sample.seed = 5;
    p.thinks = thinks;
    p.think_end = end, p.n_think_end = n_end;
    n_barred = 0;
    for (int32_t id = 0; id < 512 && n_barred < 15; id++)
        if (infer_is_stop(model, id)) barred[n_barred++] = (struct infer_sample_bias){id, -100};
    p.sample.bias = barred, p.sample.n_bias = n_barred;
    return p;
}
static void also(struct infer_request_params *p, int32_t id, float bias) {
    barred[n_barred++] = (struct infer_sample_bias){id, bias};
    p->sample.n_bias = n_barred;
}
static int find(const struct told *a, const int32_t *ids, int n, int from) {
    for (int i = from; i + n <= a->n; i++)
        if (memcmp(a->id + i, ids, (size_t)n * sizeof *ids) == 0) return i;
    return -1;
}

/* The tokens of an answer that thinks on and on, until the last tenth; there it ends. */
static void it_ends_in_the_last_tenth(void **state) {
    (void)state;
    for (int drawn = 0; drawn < 2; drawn++) {
        struct told free = {.ends = 52, .begins = -1}, first = free, a = free;
        enum infer_request_why why;
        struct infer_request_params p = params(90, drawn, NULL, 0);
        run(&free, p, &hows[0], &why);
        assert_int_equal(find(&free, end_ids, 3, 0), -1);
        for (int k = 0; k < N_HOW; k++) { /* what would end it changes nothing by itself */
            p = params(90, drawn, end_ids, 3);
            const struct infer_request_figures f = run(&a, p, &hows[k], &why);
            assert_int_equal(a.n, 90);
            assert_memory_equal(a.id, free.id, 90 * sizeof *a.id);
            assert_false(f.thought_ended);
        }
        for (int k = 0; k < N_HOW; k++) {
            p.n_think = 40;
            const struct infer_request_figures f = run(&a, p, &hows[k], &why);
            const int at = find(&a, end_ids, 3, 0);
            assert_in_range(at, 36, 40);
            assert_memory_equal(a.id, free.id, 36 * sizeof *a.id);
            assert_int_equal(find(&a, end_ids, 3, at + 3), -1); /* once */
            assert_true(f.thought_ended && f.n_thought >= at && f.n_thought <= at + 3);
            assert_int_equal(a.n, 90);
            if (!k) first = a;
            assert_memory_equal(a.id, first.id, 90 * sizeof *a.id);
        }
    }
}

/* The mark of the end is a control token: it gains weight, so that drawn thoughts end by themselves before the budget has. */
static void the_mark_gains_weight(void **state) {
    (void)state;
    struct infer_model *plain = model;
    ctx = 256;
    char path[512];
    int32_t mark[1], end[2] = {'o'};
    size_t n;
    assert_ok(infer_model_open(&model, test_path(path, sizeof path, "golden/chat/chat-llama.gguf"), NULL));
    assert_ok(infer_tokenize(model, "<|im_start|>", NULL, 12, INFER_TOK_SPECIAL, mark, 1, &n));
    assert_int_equal(n, 1);
    end[1] = mark[0];
    int gained = 0;
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct told free = {.ends = mark[0], .begins = -1}, a = free, b = free;
        enum infer_request_why why;
        struct infer_request_params p = params(140, true, end, 2);
        p.sample.seed = seed;
        also(&p, mark[0], -5);
        for (const char *c = "\n.!?"; *c; c++)
            also(&p, *c, -100); /* no sentence ends; ids of bytes are these */
        run(&free, p, &hows[0], &why);
        p.n_think = 100;
        run(&a, p, &hows[0], &why);
        run(&b, p, &hows[3], &why);
        assert_int_equal(a.n, b.n);
        assert_memory_equal(a.id, b.id, (size_t)a.n * sizeof *a.id);
        const int at = find(&a, mark, 1, 0), was = find(&free, mark, 1, 0);
        assert_true(at >= 0 && at <= 101);
        if (was >= 0 && was < 90) assert_int_equal(at, was);
        gained += (was < 0 || was > at) && at < 100 && a.id[at - 1] != end[0]; /* drawn, and not told */
    }
    assert_true(gained > 1);
    infer_model_close(model);
    model = plain;
    ctx = CTX;
}

/* A model that would think again and again is told each time that it has ended. */
static void it_is_not_begun_again(void **state) {
    (void)state;
    for (int k = 0; k < 4; k++) {
        struct told a = {.ends = 52, .begins = AGAIN};
        enum infer_request_why why;
        struct infer_request_params p = params(40, false, end_ids, 3);
        also(&p, AGAIN, 90);
        p.n_think = 10;
        run(&a, p, &hows[k], &why);
        const int at = find(&a, end_ids, 3, 0);
        assert_in_range(at, 9, 10);
        for (int i = at; i + 4 <= a.n; i += 4) {
            assert_memory_equal(a.id + i, end_ids, sizeof end_ids);
            assert_int_equal(a.id[i + 3], AGAIN);
        }
    }
}

static void circles_are_cut(void **state) {
    (void)state;
    for (int k = 0; k < N_HOW; k++) {
        struct told a = {.ends = 52, .begins = -1};
        enum infer_request_why why;
        struct infer_request_params p = params(400, false, end_ids, 3);
        also(&p, AGAIN, 90);
        p.n_think = 100000;
        run(&a, p, &hows[k], &why);
        assert_int_equal(find(&a, end_ids, 3, 0), 128);
        assert_int_equal(a.n, 400);
        p.n_think = 0; /* without a budget: where the answer would end */
        p.loop_stop = true;
        struct infer_request_figures f = run(&a, p, &hows[k], &why);
        assert_int_equal(find(&a, end_ids, 3, 0), 256);
        assert_true(f.thought_ended && a.n > 259 && a.n <= 400);
        p.n_think_end = 0;
        f = run(&a, p, &hows[k], &why);
        assert_int_equal(why, INFER_REQUEST_LOOP);
        assert_int_equal(a.n, 256);
        p.n_think_end = 3, p.loop_stop = false;
        run(&a, p, &hows[k], &why);
        assert_int_equal(find(&a, end_ids, 3, 0), -1);
        assert_int_equal(a.n, 400);
    }
}

static void seconds_end_it(void **state) {
    (void)state;
    struct told a = {.ends = 52, .begins = -1};
    enum infer_request_why why;
    struct infer_request_params p = params(60, false, end_ids, 3);
    p.think_seconds = 1e-9;
    run(&a, p, &hows[0], &why);
    assert_in_range(find(&a, end_ids, 3, 0), 1, 2);
    p.think_seconds = 1e6;
    run(&a, p, &hows[0], &why);
    assert_int_equal(find(&a, end_ids, 3, 0), -1);
}

static void ends_of_sentences(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool ends;
    } cases[] = {{"so.", true},
                 {"so. ", true},
                 {"so!", true},
                 {"so?\"", true},
                 {"so", false},
                 {"3.", false},
                 {"3.14", false},
                 {"so,", false},
                 {"a line\n", true},
                 {"", false},
                 {"...", true},
                 {"(so.)", true},
                 {"\u6240\u4ee5\u3002", true},
                 {"\u6240\u4ee5", false},
                 {"**so.**", true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct answer a = {0};
        answer_start(&a, NULL, 0, INFER_ANSWER_THINKING);
        assert_ok(answer_push(&a, cases[i].text, strlen(cases[i].text)));
        if (answer_sentence(&a) != cases[i].ends) fail_msg("'%s'", cases[i].text);
        answer_free(&a);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_ends_in_the_last_tenth),
        cmocka_unit_test(the_mark_gains_weight),
        cmocka_unit_test(it_is_not_begun_again),
        cmocka_unit_test(circles_are_cut),
        cmocka_unit_test(seconds_end_it),
        cmocka_unit_test(ends_of_sentences),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
