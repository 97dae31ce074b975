/* Heads that draft for another model (EAGLE-3): the logits of a torch implementation of theirs, on what infer_tapped gives of the model and on what
 * they make themselves; answers that they guess; heads of other models. */
#include "tests/lib/test.h"
#include "tests/lib/answered.h"
#include <math.h>
#include "tests/lib/cuda_there.h"
#include "infer.h"
#include "request/request_impl.h"
#include "tests/lib/free_guesses.h"
#include "tests/lib/tolerance.h"

enum { MAX = 256, N_PROMPT = 5, N_LOGIT = 300, N_GIVEN = 320, N_MORE = 3 };
static const struct {
    const char *head, *target, *golden;
} pairs[] = {{"golden/head/llama", "golden/hf/llama", "golden/head/llama"},
             {"golden/head/gemma3", "golden/hf/gemma3", "golden/head/gemma3"},
             {"golden/head/chat", "golden/chat/chat-llama.gguf", "golden/head/chat"},
             {"golden/head/chat.gguf", "golden/chat/chat-llama.gguf", "golden/head/chat"}};
enum { N_PAIR = sizeof pairs / sizeof *pairs, CHAT = 2 };
static const char *const devices[] = {"ref", "cpu"};

struct prompt {
    int32_t n, n_rows, n_more;
    int32_t ids[MAX], rows[MAX],
        more[N_MORE]; /* rows: t, after what is tapped of t and token t + 1; more: what is guessed behind */
    float logits[MAX][N_LOGIT], more_logits[N_MORE][N_LOGIT];
};
static struct golden {
    double sd;
    int32_t n_prompt, n_logit;
    struct prompt prompt[N_PROMPT];
} golden;

static void golden_read(const char *folder) {
    char file[128], path[512];
    float sd;
    snprintf(file, sizeof file, "%s/head.bin", folder);
    FILE *f = fopen(test_path(path, sizeof path, file), "rb");
    if (!f) fail_msg("%s cannot be opened", path);
    read_words(f, &golden.n_prompt, 1);
    read_words(f, &golden.n_logit, 1);
    read_words(f, &sd, 1);
    golden.sd = (double)sd;
    assert_in_range(golden.n_prompt, 1, N_PROMPT);
    assert_in_range(golden.n_logit, 1, N_LOGIT);
    const size_t n = (size_t)golden.n_logit;
    for (struct prompt *p = golden.prompt; p < golden.prompt + golden.n_prompt; p++) {
        read_words(f, &p->n, 1);
        read_words(f, &p->n_rows, 1);
        read_words(f, &p->n_more, 1);
        assert_in_range(p->n, 2, MAX);
        assert_in_range(p->n_rows, 1, p->n);
        assert_int_equal(p->n_more, N_MORE);
        read_words(f, p->ids, (size_t)p->n);
        read_words(f, p->rows, (size_t)p->n_rows);
        read_words(f, p->more, N_MORE);
        for (int i = 0; i < p->n_rows; i++) read_words(f, p->logits[i], n);
        for (int i = 0; i < N_MORE; i++) read_words(f, p->more_logits[i], n);
    }
    assert_int_equal(fgetc(f), EOF);
    fclose(f);
}

/* ---- a model and its head ---- */

struct both {
    struct infer_model *model, *head;
    struct infer_engine *engine, *drafter;
    struct infer_model_info info; /* of the head */
};
static void open_both(struct both *b, int pair, const char *device, int batch) {
    char path[512];
    struct infer_engine_options o = {.device = device,
                                     .kv_type = "f32",
                                     .ctx = MAX,
                                     .slots = 2,
                                     .batch = batch,
                                     .decode_rows = 2 * INFER_REQUEST_DRAFT + 2,
                                     .threads = 2,
                                     .gpu_layers = -1,
                                     .all_logits = true,
                                     .hidden = true, /* for embeddings, beside */
                                     .nan_guard = true};
    assert_ok(infer_model_open(&b->model, test_path(path, sizeof path, pairs[pair].target), NULL));
    assert_ok(
        infer_model_open_drafter(&b->head, test_path(path, sizeof path, pairs[pair].head), NULL, b->model));
    infer_model_info(b->head, &b->info);
    assert_true(b->info.wants_hidden);
    assert_in_range(b->info.n_given, b->info.n_tapped + 1, N_GIVEN);
    assert_ok(infer_engine_create(&b->drafter, b->head, &o));
    o.hidden_for = b->head;
    assert_ok(infer_engine_create(&b->engine, b->model, &o));
}
static void close_both(struct both *b) {
    infer_engine_free(b->drafter);
    infer_engine_free(b->engine);
    infer_model_close(b->head);
    infer_model_close(b->model);
}

/* ---- logits ---- */

/* given[n][n_given], what is tapped of steps of so many rows. */
static void tapped_of(const struct both *b, const struct prompt *p, int step, bool decode,
                      float given[][N_GIVEN]) {
    struct infer_row rows[MAX];
    struct infer_output out;
    const float *h;
    const size_t n_own = (size_t)(b->info.n_given - b->info.n_tapped), n_tapped = (size_t)b->info.n_tapped;
    int seq;
    assert_ok(infer_seq_open(b->engine, &seq));
    for (int at = 0; at < p->n; at += step) {
        const int n = p->n - at < step ? p->n - at : step;
        for (int i = 0; i < n; i++)
            rows[i] = (struct infer_row){.id = p->ids[at + i], .pos = at + i, .seq = seq, .decode = decode};
        assert_ok(infer_step(b->engine, rows, n, &out));
        assert_int_equal(infer_tapped(b->engine, decode, 0, n + 1, &h), INFER_E_INPUT);
        assert_int_equal(infer_tapped(b->engine, !decode, 0, 1, &h), INFER_E_INPUT);
        assert_ok(infer_hidden(b->engine, decode, 0, n, &h));
        for (int i = 0; i < n; i++) { /* each for itself: in any part of what was read */
            assert_ok(infer_tapped(b->engine, decode, i, 1, &h));
            memset(given[at + i], 0, sizeof given[0]);
            memcpy(given[at + i] + n_own, h, n_tapped * sizeof *h);
        }
    }
    infer_seq_close(b->engine, seq);
}

static void same_row(const float *have, const float *want, double most, int pair, const char *device,
                     int row) {
    for (int v = 0; v < golden.n_logit; v++) {
        const double away = fabs((double)have[v] - (double)want[v]) / golden.sd;
        if (!(away < most))
            fail_msg("%s on %s, row %d, token %d: %g of sd away", pairs[pair].head, device, row, v, away);
    }
}

/* All rows of a prompt, then by what the head makes of its own: guesses are golden ones, in the target's ids. */
static void rows_of(const struct both *b, const struct prompt *p, int step, bool decode, double most,
                    int pair, const char *device) {
    static float given[MAX][N_GIVEN], flat[MAX * N_GIVEN];
    const size_t width = (size_t)b->info.n_given;
    struct infer_row rows[MAX];
    struct infer_output out;
    int seq, next = 0;
    tapped_of(b, p, step, decode, given);
    for (int i = 0; i < p->n; i++) memcpy(flat + (size_t)i * width, given[i], width * sizeof *flat);
    assert_ok(infer_seq_open(b->drafter, &seq));
    for (int at = 0; at < p->n - 1; at += step) {
        const int n = p->n - 1 - at < step ? p->n - 1 - at : step;
        for (int i = 0; i < n; i++)
            rows[i] = (struct infer_row){.id = p->ids[at + i + 1],
                                         .pos = at + i,
                                         .seq = seq,
                                         .decode = decode,
                                         .want = INFER_WANT_LOGITS | INFER_WANT_TOKEN | INFER_WANT_TOP};
        assert_ok(infer_step_hidden(b->drafter, rows, flat + (size_t)at * width, n, &out));
        for (; next < p->n_rows && p->rows[next] < at + n; next++)
            same_row(out.logits[p->rows[next] - at], p->logits[next], most, pair, device, p->rows[next]);
        if (at + n < p->n - 1) continue;
        for (int k = 0; k < N_MORE; k++) {
            const int last = k ? 0 : n - 1;
            const float *h;
            assert_int_equal(out.token[last], p->more[k]);
            assert_int_equal(out.top[last]->id[0], p->more[k]);
            assert_ok(infer_hidden(b->drafter, k ? true : decode, last, 1, &h));
            memset(flat, 0, width * sizeof *flat);
            memcpy(flat, h, (size_t)b->info.n_embd * sizeof *h);
            const struct infer_row row = {.id = p->more[k],
                                          .pos = p->n - 1 + k,
                                          .seq = seq,
                                          .decode = true,
                                          .want = INFER_WANT_LOGITS | INFER_WANT_TOKEN | INFER_WANT_TOP};
            assert_ok(infer_step_hidden(b->drafter, &row, flat, 1, &out));
            same_row(out.logits[0], p->more_logits[k], most, pair, device, p->n - 1 + k);
        }
    }
    assert_int_equal(next, p->n_rows);
    infer_seq_close(b->drafter, seq);
}

static double tolerance(const struct both *b, int pair) {
    struct infer_engine_info info;
    infer_engine_info(b->drafter, &info);
    if (strcmp(info.device, "ref") == 0) return TOL_LOGITS_REF;
    const bool amx = strstr(info.isa, "amx") != NULL;
    if (pair == N_PAIR - 1) return amx ? TOL_LOGITS_BF16 : TOL_LOGITS_FAST;
    return amx ? TOL_LOGITS_AMX : TOL_LOGITS_BF16;
}

static void logits_of_torch(void **state) {
    static const struct {
        int step;
        bool decode;
    } cuts[] = {{MAX, false}, {5, false}, {1, true}, {7, true}};
    (void)state;
    for (int pair = 0; pair < N_PAIR; pair++) {
        golden_read(pairs[pair].golden);
        for (int d = 0; d < 2; d++) {
            struct both b;
            open_both(&b, pair, devices[d], 0);
            assert_int_equal(b.info.n_vocab, golden.n_logit);
            for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++)
                for (const struct prompt *p = golden.prompt; p < golden.prompt + golden.n_prompt; p++)
                    rows_of(&b, p, cuts[c].step, cuts[c].decode, tolerance(&b, pair), pair, devices[d]);
            close_both(&b);
        }
    }
}

/* ---- answers ---- */

/* What was guessed first, behind so many tokens. */
struct guesses {
    int n, held;
    int32_t id[INFER_REQUEST_DRAFT];
};

static struct infer_request_figures answer(struct infer_sched *s, const struct prompt *p, int n, float temp,
                                           enum infer_request_drafter by, struct answered *out,
                                           struct guesses *first) {
    struct infer_request_params q = infer_request_defaults();
    struct infer_request *r;
    *out = (struct answered){0};
    *first = (struct guesses){0};
    q.ids = p->ids, q.n_id = n, q.n_predict = 30, q.drafter = by, q.sample.temp = temp, q.sample.seed = 3;
    q.prefix.salt = (uint64_t)(1 + by); /* computed anew */
    q.on_token = add_id, q.user = out;
    assert_ok(infer_request_new(&r, s, &q));
    while (!infer_request_done(r)) {
        const int held = r->figures.n_held, guessed = r->figures.n_guessed;
        assert_true(infer_sched_step(s));
        if (guessed || !r->figures.n_guessed) continue;
        first->n = r->figures.n_guessed, first->held = held;
        memcpy(first->id, r->draft, (size_t)first->n * sizeof first->id[0]);
    }
    assert_ok(infer_request_status(r));
    const struct infer_request_figures f = *infer_request_figures(r);
    infer_request_free(r);
    return f;
}

/* They are the head's on what is tapped of the text, and then on its own rows. */
static void same_guesses(const struct both *b, const struct prompt *p, int n, const struct answered *told,
                         const struct guesses *have) {
    static float given[MAX][N_GIVEN], flat[MAX * N_GIVEN];
    static struct prompt text;
    struct infer_row rows[MAX];
    struct infer_output out;
    const size_t width = (size_t)b->info.n_given;
    int seq;
    text.n = have->held + 1;
    for (int i = 0; i < text.n; i++) text.ids[i] = i < n ? p->ids[i] : told->id[i - n];
    tapped_of(b, &text, 16, false, given);
    assert_ok(infer_seq_open(b->drafter, &seq));
    for (int i = 0; i < have->held + have->n; i++) {
        const bool own = i >= have->held;
        rows[0] = (struct infer_row){
            .id = own ? have->id[i - have->held] : text.ids[i + 1], .pos = i, .seq = seq, .decode = true};
        rows[0].want = INFER_WANT_TOKEN;
        if (!own) memcpy(flat, given[i], width * sizeof *flat);
        assert_ok(infer_step_hidden(b->drafter, rows, flat, 1, &out));
        const int k = i + 1 - have->held; /* what this row says */
        if (k >= 0 && k < have->n) assert_int_equal(out.token[0], have->id[k]);
        const float *h;
        assert_ok(infer_hidden(b->drafter, true, 0, 1, &h));
        memset(flat, 0, width * sizeof *flat);
        memcpy(flat, h, (size_t)b->info.n_embd * sizeof *h);
    }
    infer_seq_close(b->drafter, seq);
}

/* Greedy and drawn, a head changes nothing; guesses are the head's. The one that was trained on what the model says is right about the first token
 * of a chain or two. */
static void answers_that_they_guess(void **state) {
    (void)state;
    for (int k = 0; k < 2 * N_PAIR; k++) {
        const int pair = k / 2;
        struct both b;
        struct infer_sched *s;
        struct infer_engine_info info;
        int guessed = 0, right = 0;
        golden_read(pairs[pair].golden);
        open_both(&b, pair, devices[k % 2], 16);
        infer_engine_info(b.drafter, &info);
        const bool alike = !strstr(info.isa, "amx"); /* there rows of a prompt are rounded more */
        assert_ok(infer_sched_open(&s, b.engine, b.model));
        assert_ok(infer_sched_draft_with(s, b.drafter, b.head));
        free_guesses(s);
        for (const struct prompt *p = golden.prompt; p < golden.prompt + golden.n_prompt; p++)
            for (int drawn = 0; drawn < 2; drawn++) {
                struct answered without, with;
                struct guesses first;
                const int n = pair < CHAT ? p->n : p->n / 2; /* what was learned comes behind it */
                answer(s, p, n, (float)drawn, INFER_DRAFT_NONE, &without, &first);
                const struct infer_request_figures f =
                    answer(s, p, n, (float)drawn, INFER_DRAFT_MODEL, &with, &first);
                assert_true(without.n > 0);
                assert_memory_equal(&without, &with, sizeof with);
                assert_true(f.n_guessed > 0);
                if (!drawn && alike) same_guesses(&b, p, n, &with, &first);
                guessed += drawn ? 0 : f.n_guessed, right += drawn ? 0 : f.n_right;
            }
        if (pair >= CHAT && !(6 * right > guessed)) /* of each chain of six more than the first */
            fail_msg("%s on %s: %d of %d are right", pairs[pair].head, devices[k % 2], right, guessed);
        infer_sched_close(s);
        close_both(&b);
    }
}

/* ---- what is refused ---- */

static void refused(const struct infer_model *of, const char *file, enum infer_status st, const char *why) {
    char path[512];
    struct infer_model *m;
    assert_int_equal(infer_model_open_drafter(&m, test_path(path, sizeof path, file), NULL, of), st);
    assert_null(m);
    if (!strstr(infer_error(), why)) fail_msg("'%s' says nothing of '%s'", infer_error(), why);
}

static void heads_of_other_models(void **state) {
    char path[512];
    struct both b;
    struct infer_model *m;
    struct infer_engine *e;
    const float *h;
    (void)state;
    open_both(&b, 0, "ref", 0);
    refused(b.model, "golden/head/chat", INFER_E_INPUT, "rows have 64 numbers; those of");
    refused(b.model, "golden/head/chat.gguf", INFER_E_INPUT, "rows have 64 numbers; those of");
    refused(b.head, "golden/head/llama", INFER_E_UNSUPPORTED, "nothing that it could draft for");
    assert_int_equal(infer_model_open(&m, test_path(path, sizeof path, "golden/head/llama"), NULL),
                     INFER_E_UNSUPPORTED);
    assert_non_null(strstr(infer_error(), "a head that drafts for another model"));
    assert_ok(infer_model_open(&m, test_path(path, sizeof path, "golden/chat/chat-qwen2.gguf"), NULL));
    refused(m, "golden/head/llama", INFER_E_INPUT, "drafts for a model");
    struct infer_engine_options o = {.device = "ref", .ctx = 64, .gpu_layers = -1, .hidden_for = b.head};
    assert_int_equal(infer_engine_create(&e, m, &o), INFER_E_INPUT);
    assert_non_null(strstr(infer_error(), ".hidden_for"));
    infer_model_close(m);
    assert_int_equal(infer_tapped(b.drafter, false, 0, 1, &h), INFER_E_INPUT);
    o.stages = 2, o.device = "cpu";
    assert_int_equal(infer_engine_create(&e, b.model, &o), INFER_E_UNSUPPORTED);
    assert_non_null(strstr(infer_error(), "stages"));
    close_both(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(logits_of_torch),
                                       cmocka_unit_test(answers_that_they_guess),
                                       cmocka_unit_test(heads_of_other_models)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
