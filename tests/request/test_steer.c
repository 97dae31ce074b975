/* Requests that want numbers (hidden rows, logits), and what steers an answer beside its sampler: no end before so many tokens, a budget
 * of thinking, a grammar that begins on the way. */
#include "infer_request.h"
#include "engine/request/request_impl.h"
#include <math.h>
#include "tests/lib/test.h"
#include "text/grammar/grammar.h"
#include "tests/lib/synth_model.h"

enum { CTX = 128, MOST = 100 };
static struct {
    struct infer_model *model;
    struct infer_grammar_vocab *vocab;
    struct infer_model_info info;
} m;

static int open_model(void **state) {
    (void)state;
    m.model = synth_model(&(struct synth_options){.shape = "tiny", .type = "f16", .seed = 3});
    infer_model_info(m.model, &m.info);
    assert_ok(infer_grammar_vocab_open(&m.vocab, m.model));
    return 0;
}

static int close_model(void **state) {
    (void)state;
    infer_grammar_vocab_close(m.vocab);
    infer_model_close(m.model);
    return 0;
}

static enum infer_status open_engine(struct infer_engine **e, const char *device, bool hidden, int slots,
                                     int kv_tokens) {
    const struct infer_engine_options o = {.device = device,
                                           .kv_type = "f32",
                                           .ctx = CTX,
                                           .slots = slots,
                                           .kv_tokens = kv_tokens,
                                           .batch = kv_tokens ? 24 : CTX,
                                           .threads = 1,
                                           .gpu_layers = -1,
                                           .cpu_experts = -1,
                                           .hidden = hidden};
    return infer_engine_create(e, m.model, &o);
}

/* ---- numbers ---- */

static const enum infer_request_make kinds[] = {INFER_MAKE_LAST, INFER_MAKE_MEAN, INFER_MAKE_FIRST,
                                                INFER_MAKE_LOGITS};
static const int32_t of[] = {7, 0, 300};
enum { N_KIND = 4, N_PROMPT = 4, N_OF = 3 };
static const int lengths[N_PROMPT] = {66, 1, 30, 66}; /* the last one is the first again, but for its end */

static void prompt_ids(int which, int32_t *ids) {
    for (int i = 0; i < lengths[which]; i++) ids[i] = (i * i + (which % 3) * 31) % m.info.n_vocab;
    if (which == 3) ids[lengths[which] - 1] = 5;
}

/* want[n]: what a prompt makes, from rows of a single step. */
static void make_plainly(struct infer_engine *e, bool hidden, int which, enum infer_request_make kind,
                         double *want) {
    const int n = lengths[which];
    struct infer_row rows[CTX];
    struct infer_output out;
    int32_t ids[CTX];
    const float *h;
    int seq;
    prompt_ids(which, ids);
    assert_ok(infer_seq_open(e, &seq));
    for (int i = 0; i < n; i++) rows[i] = (struct infer_row){.id = ids[i], .pos = i, .seq = seq};
    rows[n - 1].want = INFER_WANT_LOGITS;
    assert_ok(infer_step(e, rows, n, &out));
    for (int i = 0; i < N_OF; i++) want[i] = (double)out.logits[0][of[i]];
    for (int i = 0; hidden && kind != INFER_MAKE_LOGITS && i < m.info.n_embd; i++) {
        assert_ok(infer_hidden(e, false, 0, n, &h));
        want[i] = 0;
        for (int t = 0; t < n; t++)
            if (kind == INFER_MAKE_MEAN || t == (kind == INFER_MAKE_LAST ? n - 1 : 0))
                want[i] += (double)h[t * m.info.n_embd + i] / (kind == INFER_MAKE_MEAN ? n : 1);
    }
    infer_seq_close(e, seq);
}

static void made_is(const struct infer_request *r, const char *device, int which,
                    enum infer_request_make kind, const double *want) {
    int n;
    const float *made = infer_request_made(r, &n);
    assert_ok(infer_request_status(r));
    assert_int_equal(infer_request_why(r), INFER_REQUEST_LIMIT);
    assert_int_equal(infer_request_figures(r)->n_answer, 0);
    assert_int_equal(n, kind == INFER_MAKE_LOGITS ? N_OF : m.info.n_embd);
    for (int i = 0; i < n; i++)
        if (!(fabs((double)made[i] - want[i]) < 2e-4))
            fail_msg("%s, prompt %d, kind %d, number %d: %g is not %g", device, which, (int)kind, i,
                     (double)made[i], want[i]);
}

/* Side by side, but on ref in two rounds, in so few pages that some have to wait; the second round finds what the first one has computed. */
static void made_on(const char *device, bool hidden) {
    static double want[N_PROMPT][N_KIND][4096];
    struct infer_engine *e;
    struct infer_sched *s;
    if (open_engine(&e, device, hidden, 1, 0)) {
        const char *must = getenv("INFER_REQUIRE_CUDA");
        if (strcmp(device, "cuda") != 0 || (must && *must == '1')) fail_msg("%s: %s", device, infer_error());
        print_message("no card: not tried\n");
        return;
    }
    for (int p = 0; p < N_PROMPT; p++)
        for (int k = 0; k < N_KIND; k++) make_plainly(e, hidden, p, kinds[k], want[p][k]);
    infer_engine_free(e);
    assert_ok(open_engine(&e, device, hidden, 5, 3 * CTX));
    assert_ok(infer_sched_open(&s, e, m.model));
    for (int round = strcmp(device, "ref") == 0; round < 2; round++) {
        struct infer_request *r[N_PROMPT][N_KIND];
        for (int p = 0; p < N_PROMPT; p++)
            for (int k = hidden ? 0 : N_KIND - 1; k < N_KIND; k++) {
                struct infer_request_params q = infer_request_defaults();
                int32_t ids[CTX];
                prompt_ids(p, ids);
                q.ids = ids, q.n_id = lengths[p], q.make = kinds[k];
                q.make_id = of, q.n_make_id = N_OF;
                assert_ok(infer_request_new(&r[p][k], s, &q));
            }
        while (infer_sched_step(s)) continue;
        for (int p = 0; p < N_PROMPT; p++)
            for (int k = hidden ? 0 : N_KIND - 1; k < N_KIND; k++) {
                made_is(r[p][k], device, p, kinds[k], want[p][k]);
                infer_request_free(r[p][k]);
            }
    }
    infer_sched_close(s);
    infer_engine_free(e);
}

static void numbers_are_those_of_the_rows(void **state) {
    (void)state;
    made_on("ref", true);
    made_on("cpu", true);
    made_on("cpu", false); /* logits need no hidden rows */
    made_on("cuda", true);
    made_on("cuda", false);
}

static void numbers_that_cannot_be_had(void **state) {
    const int32_t ids[] = {1, 2}, wrong[] = {-1};
    struct infer_engine *e;
    struct infer_sched *s;
    struct infer_request *r;
    (void)state;
    assert_ok(open_engine(&e, "cpu", false, 1, 0));
    assert_ok(infer_sched_open(&s, e, m.model));
    struct infer_request_params p = infer_request_defaults();
    p.ids = ids, p.n_id = 2, p.make = INFER_MAKE_LOGITS;
    assert_int_equal(infer_request_new(&r, s, &p), INFER_E_INPUT);
    p.make_id = wrong, p.n_make_id = 1;
    assert_int_equal(infer_request_new(&r, s, &p), INFER_E_INPUT);
    p.make = INFER_MAKE_LAST;
    assert_ok(infer_request_new(&r, s, &p));
    assert_int_equal(infer_request_run(r), INFER_E_INPUT);
    assert_non_null(strstr(infer_error(), "without .hidden"));
    infer_request_free(r);
    infer_sched_close(s);
    infer_engine_free(e);
}

/* ---- steering ---- */

struct answered {
    int n, think_from, woken_at;
    int32_t id[MOST];
};
static void add_id(void *user, int32_t id) {
    struct answered *a = user;
    if (a->n < MOST) a->id[a->n++] = id;
}
static bool thinks(void *user) {
    const struct answered *a = user;
    return a->n > a->think_from;
}
static const char *wakes(void *user) {
    const struct answered *a = user;
    return a->n == a->woken_at ? "[" : NULL;
}

static enum infer_request_why answer(struct answered *out, struct infer_request_params p, bool ahead) {
    const int32_t ids[] = {3, 1, 4};
    struct infer_engine *e;
    struct infer_sched *s;
    struct infer_request *r;
    assert_ok(open_engine(&e, "cpu", false, 1, 0));
    assert_ok(infer_sched_open(&s, e, m.model));
    s->ahead = ahead;
    p.ids = ids, p.n_id = 3;
    p.on_token = add_id, p.user = out;
    out->n = 0;
    assert_ok(infer_request_new(&r, s, &p));
    assert_ok(infer_request_run(r));
    enum infer_request_why why = infer_request_why(r);
    if (why == INFER_REQUEST_TURN) assert_int_not_equal(infer_request_figures(r)->end_id, -1);
    infer_request_free(r);
    infer_sched_close(s);
    infer_engine_free(e);
    return why;
}

static void an_answer_has_least_tokens(void **state) {
    struct answered a, b;
    (void)state;
    for (int turn = 0; turn < 4; turn++) {
        struct infer_request_params p = infer_request_defaults();
        p.n_predict = 30;
        p.sample.temp = turn & 2 ? 1.1f : 0;
        answer(&a, p, turn & 1);
        const int32_t end[] = {a.id[4], a.id[9]}; /* which come early, and end the answer */
        p.end_ids = end, p.n_end_id = 2;
        assert_int_equal(answer(&a, p, turn & 1), INFER_REQUEST_TURN);
        assert_in_range(a.n, 0, 4);
        p.min_tokens = 20;
        answer(&b, p, turn & 1);
        assert_in_range(b.n, 20, 30);
        assert_memory_equal(a.id, b.id, (size_t)a.n * sizeof *a.id);
        for (int i = 0; i < 20; i++) assert_true(b.id[i] != end[0] && b.id[i] != end[1]);
    }
}

/* The bytes of tokens [n] behind each other. */
static size_t bytes_of(char *to, size_t cap, const int32_t *ids, int n) {
    size_t at = 0, len;
    for (int i = 0; i < n; i++) {
        const char *piece = infer_piece(m.model, ids[i], false, false, &len);
        for (size_t k = 0; k < len && at < cap; k++) to[at++] = piece[k];
    }
    return at;
}

/* Texts across the bounds of tokens do not come, whatever the tokens are that would make them. */
static void texts_are_avoided(void **state) {
    struct answered a, b;
    char said[2048], again[2048];
    (void)state;
    for (int turn = 0; turn < 4; turn++) {
        struct infer_request_params p = infer_request_defaults();
        struct infer_avoid *avoid;
        p.n_predict = 30;
        p.sample.temp = turn & 2 ? 1.1f : 0;
        answer(&a, p, turn & 1);
        const size_t n = bytes_of(said, sizeof said, a.id, a.n),
                     before = bytes_of(again, sizeof again, a.id, 5);
        for (size_t from = before > 2 ? before - 2 : 0, len = 1; len <= 4 && from + len <= n; len++) {
            char text[8] = {0};
            memcpy(text, said + from, len);
            if (memchr(text, 0, len)) continue;
            assert_ok(infer_avoid_open(&avoid, m.model, (const char *const[]){text, "not there at all"}, 2));
            p.avoid = avoid;
            answer(&b, p, turn & 1);
            assert_in_range(b.n, 1, 30);
            const size_t got = bytes_of(again, sizeof again, b.id, b.n);
            assert_null(memmem(again, got, text, len));
            p.min_tokens = 20; /* both at once */
            answer(&b, p, turn & 1);
            assert_null(memmem(again, bytes_of(again, sizeof again, b.id, b.n), text, len));
            p.min_tokens = 0;
            infer_avoid_close(avoid);
        }
        assert_ok(infer_avoid_open(&avoid, m.model, (const char *const[]){"not there at all"}, 1));
        p.avoid = avoid;
        answer(&b, p, turn & 1);
        assert_memory_equal(a.id, b.id, (size_t)a.n * sizeof *a.id);
        infer_avoid_close(avoid);
    }
    struct infer_avoid *none;
    assert_int_equal(infer_avoid_open(&none, m.model, (const char *const[]){""}, 1), INFER_E_INPUT);
    assert_null(none);
}

static void thinking_has_a_budget(void **state) {
    static const int32_t end[] = {50, 51, 52};
    (void)state;
    for (int turn = 0; turn < 4; turn++) {
        struct answered a = {.think_from = 2}, b = {.think_from = 2};
        struct infer_request_params p = infer_request_defaults();
        p.n_predict = 30;
        p.sample.temp = turn & 2 ? 1.1f : 0;
        answer(&a, p, turn & 1);
        p.thinks = thinks, p.n_think = 5, p.think_end = end, p.n_think_end = 3;
        assert_int_equal(answer(&b, p, turn & 1), INFER_REQUEST_LIMIT);
        assert_int_equal(b.n, 30);
        assert_memory_equal(a.id, b.id, 7 * sizeof *a.id); /* two before, five of thinking */
        assert_memory_equal(b.id + 7, end, sizeof end);
    }
}

static void a_grammar_can_sleep(void **state) {
    static const char gbnf[] = "root ::= \"[\" [a-c]{3} \"]\"";
    struct infer_grammar *g;
    (void)state;
    assert_ok(infer_grammar_from_gbnf(&g, gbnf, strlen(gbnf)));
    for (int turn = 0; turn < 2; turn++) {
        struct answered a = {0}, b = {.woken_at = 6};
        struct infer_request_params p = infer_request_defaults();
        char text[64] = "";
        p.n_predict = 20;
        answer(&a, p, turn);
        assert_ok(infer_constraint_open(&p.constraint, g, m.vocab, m.info.n_vocab));
        p.wakes = wakes;
        assert_int_equal(answer(&b, p, turn), INFER_REQUEST_TURN);
        infer_constraint_close(p.constraint);
        assert_memory_equal(a.id, b.id, 6 * sizeof *a.id);
        for (int i = 6; i < b.n; i++) {
            size_t n;
            const char *piece = infer_piece(m.model, b.id[i], false, false, &n);
            strncat(text, piece, n);
        }
        assert_int_equal(strlen(text), 4);
        assert_int_equal(strspn(text, "abc"), 3);
    }
    infer_grammar_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_those_of_the_rows), cmocka_unit_test(numbers_that_cannot_be_had),
        cmocka_unit_test(an_answer_has_least_tokens),    cmocka_unit_test(texts_are_avoided),
        cmocka_unit_test(thinking_has_a_budget),         cmocka_unit_test(a_grammar_can_sleep),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
