/* Layers that draft (nextn_predict_layers): the logits of transformers, from the folder and from the GGUF file that convert makes of it;
 * answers that they guess. */
#include "tests/lib/test.h"
#include "tests/lib/answered.h"
#include <math.h>
#include <unistd.h>
#include "tests/lib/cuda_there.h"
#include "infer.h"
#include "tests/lib/free_guesses.h"
#include "tests/lib/tolerance.h"
#include "tools/file/quantize.h"

enum { MAX = 256, VOCAB = 61, N_EMBD = 32, N_PROMPT = 3 };
static const char *const folders[] = {"glm4_moe-draft", "deepseek_v3-draft", "qwen3_5-image",
                                      "qwen3_5_moe-image"};
enum { N_FOLDER = sizeof folders / sizeof *folders };
static const char *const devices[] = {"ref", "cpu", "cuda"};
static int n_device = 3; /* without the card where none is there */

struct prompt {
    int32_t n, n_rows;
    int32_t ids[MAX], rows[MAX]; /* rows[n_rows]: t, after h of t and token t + 1 */
    float logits[MAX][VOCAB];
};
static struct golden {
    double sd;
    struct prompt prompt[N_PROMPT];
} golden;

static void golden_read(const char *name) {
    char file[128], path[512];
    int32_t n_prompt, n_vocab;
    snprintf(file, sizeof file, "golden/hf/%s/draft.bin", name);
    FILE *f = fopen(test_path(path, sizeof path, file), "rb");
    if (!f) fail_msg("%s cannot be opened", path);
    read_words(f, &n_prompt, 1);
    read_words(f, &n_vocab, 1);
    float sd;
    read_words(f, &sd, 1);
    golden.sd = (double)sd;
    assert_int_equal(n_prompt, N_PROMPT);
    assert_int_equal(n_vocab, VOCAB);
    for (struct prompt *p = golden.prompt; p < golden.prompt + N_PROMPT; p++) {
        read_words(f, &p->n, 1);
        read_words(f, &p->n_rows, 1);
        assert_in_range(p->n, 1, MAX);
        assert_in_range(p->n_rows, 1, p->n);
        read_words(f, p->ids, (size_t)p->n);
        read_words(f, p->rows, (size_t)p->n_rows);
        for (int i = 0; i < p->n_rows; i++) read_words(f, p->logits[i], VOCAB);
    }
    assert_int_equal(fgetc(f), EOF);
    fclose(f);
}

/* ---- a file's models and their engines ---- */

struct both {
    struct infer_model *model, *draft;
    struct infer_engine *engine, *drafter;
};
static void open_both(struct both *b, const char *path, const char *device, int batch) {
    const struct infer_engine_options o = {.device = device,
                                           .kv_type = "f32",
                                           .ctx = MAX,
                                           .slots = 2,
                                           .batch = batch,
                                           .decode_rows = 2 * INFER_REQUEST_DRAFT + 2,
                                           .threads = 2,
                                           .gpu_layers = -1,
                                           .hidden = true,
                                           .inputs = true,
                                           .all_logits = true,
                                           .nan_guard = true};
    struct infer_model_info info;
    assert_ok(infer_model_open(&b->model, path, NULL));
    assert_ok(infer_model_draft(&b->draft, b->model));
    infer_model_info(b->model, &info);
    assert_int_equal(info.n_draft, 1);
    assert_false(info.wants_hidden);
    infer_model_info(b->draft, &info);
    assert_true(info.wants_hidden);
    assert_int_equal(info.n_layer, 1);
    assert_ok(infer_engine_create(&b->engine, b->model, &o));
    assert_ok(infer_engine_create(&b->drafter, b->draft, &o));
}
static void close_both(struct both *b) {
    infer_engine_free(b->drafter);
    infer_engine_free(b->engine);
    infer_model_close(b->draft);
    infer_model_close(b->model);
}

/* The folder, or with of = 1 the GGUF file of it, which is the caller's to remove. */
static void path_of(char *path, size_t n, const char *name, int of) {
    char file[128];
    snprintf(file, sizeof file, "golden/hf/%s", name);
    test_path(path, n, file);
    if (!of) return;
    char to[] = "/tmp/infer-test-XXXXXX";
    struct quantize_report report;
    int fd = mkstemp(to);
    assert_true(fd >= 0);
    close(fd);
    unlink(to);
    assert_ok(quantize_file(&(struct quantize_options){.in = path, .out = to, .type = "f32"}, &report));
    snprintf(path, n, "%s", to);
}

/* ---- logits ---- */

/* Steps of so many rows; hidden[n][N_EMBD] of all of them. */
static void hidden_of(struct infer_engine *e, const struct prompt *p, int step, bool decode, float *hidden) {
    struct infer_row rows[MAX];
    struct infer_output out;
    const float *h;
    int seq;
    assert_ok(infer_seq_open(e, &seq));
    for (int at = 0; at < p->n; at += step) {
        int n = p->n - at < step ? p->n - at : step;
        for (int i = 0; i < n; i++)
            rows[i] = (struct infer_row){.id = p->ids[at + i], .pos = at + i, .seq = seq, .decode = decode};
        assert_ok(infer_step(e, rows, n, &out));
        assert_int_equal(infer_hidden(e, decode, 0, n + 1, &h), INFER_E_INPUT);
        assert_int_equal(infer_hidden(e, !decode, 0, 1, &h), INFER_E_INPUT);
        assert_ok(infer_hidden(e, decode, n / 2, n - n / 2, &h));
        memcpy(hidden + (at + n / 2) * N_EMBD, h, sizeof(float) * N_EMBD * (size_t)(n - n / 2));
        assert_ok(infer_hidden(e, decode, 0, n, &h));
        memcpy(hidden + at * N_EMBD, h, sizeof(float) * N_EMBD * (size_t)(n - n / 2));
    }
    infer_seq_close(e, seq);
}

/* Row t: after h of t and token t + 1. */
static void drafts_of(struct infer_engine *e, const struct prompt *p, const float *hidden, int step,
                      bool decode, float logits[MAX][VOCAB]) {
    struct infer_row rows[MAX];
    struct infer_output out;
    int seq;
    assert_ok(infer_seq_open(e, &seq));
    for (int at = 0; at < p->n - 1; at += step) {
        int n = p->n - 1 - at < step ? p->n - 1 - at : step;
        for (int i = 0; i < n; i++)
            rows[i] = (struct infer_row){.id = p->ids[at + i + 1],
                                         .pos = at + i,
                                         .seq = seq,
                                         .decode = decode,
                                         .want = INFER_WANT_LOGITS};
        assert_ok(infer_step_hidden(e, rows, hidden + at * N_EMBD, n, &out));
        for (int i = 0; i < n; i++) memcpy(logits[at + i], out.logits[i], sizeof logits[0]);
    }
    infer_seq_close(e, seq);
}

static double tolerance(const struct both *b, bool gguf) {
    struct infer_engine_info info;
    infer_engine_info(b->drafter, &info);
    if (strcmp(info.device, "ref") == 0) return TOL_LOGITS_REF;
    if (strstr(info.device, "cuda")) return TOL_LOGITS_TF32;
    if (gguf) return TOL_LOGITS_FAST;
    return strstr(info.isa, "amx") ? TOL_LOGITS_AMX : TOL_LOGITS_BF16;
}

static void layers_that_draft(void **state) {
    static const struct {
        int step;
        bool decode;
    } cuts[] = {{MAX, false}, {5, false}, {1, false}, {1, true}, {7, true}};
    static float hidden[MAX][N_EMBD], logits[MAX][VOCAB];
    (void)state;
    for (int k = 0; k < 2 * N_FOLDER; k++) {
        char path[512];
        golden_read(folders[k / 2]);
        path_of(path, sizeof path, folders[k / 2], k % 2);
        for (int d = 0; d < n_device; d++) {
            struct both b;
            open_both(&b, path, devices[d], 0);
            const double most = tolerance(&b, k % 2);
            for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++)
                for (const struct prompt *p = golden.prompt; p < golden.prompt + N_PROMPT; p++) {
                    hidden_of(b.engine, p, cuts[c].step, cuts[c].decode, hidden[0]);
                    drafts_of(b.drafter, p, hidden[0], cuts[c].step, cuts[c].decode, logits);
                    for (int i = 0; i < p->n_rows; i++)
                        for (int v = 0; v < VOCAB; v++) {
                            double away =
                                fabs((double)logits[p->rows[i]][v] - (double)p->logits[i][v]) / golden.sd;
                            if (!(away < most))
                                fail_msg("%s%s on %s, steps of %d, row %d, token %d: %g of sd away",
                                         folders[k / 2], k % 2 ? " as GGUF" : "", devices[d], cuts[c].step,
                                         (int)p->rows[i], v, away);
                        }
                }
            close_both(&b);
        }
        if (k % 2) unlink(path);
    }
}

/* ---- answers ---- */

/* Answers ids[n] with n_predict tokens; drafts, a row for each position of the text, NULL: unchecked. */
static struct infer_request_figures answer(struct infer_sched *s, int seq, const int32_t *ids, int n,
                                           int n_predict, float temp, enum infer_request_drafter by,
                                           float drafts[MAX][VOCAB], struct answered *out) {
    struct infer_request_params p = infer_request_defaults();
    struct infer_request *r;
    *out = (struct answered){0};
    p.seq = seq, p.ids = ids, p.n_id = n, p.n_predict = n_predict, p.drafter = by, p.sample.temp = temp;
    p.on_token = add_id, p.user = out;
    assert_ok(infer_request_new(&r, s, &p));
    while (!infer_request_done(r)) {
        const int guessed = r->figures.n_guessed, held = r->figures.n_held;
        assert_true(infer_sched_step(s));
        if (!drafts || r->figures.n_guessed == guessed) continue;
        int best = 0;
        for (int v = 0; v < VOCAB; v++)
            if (drafts[held - 1][v] > drafts[held - 1][best]) best = v;
        assert_int_equal(r->draft[0], best);
    }
    assert_ok(infer_request_status(r));
    struct infer_request_figures f = r->figures;
    infer_request_free(r);
    return f;
}

/* A prompt with rows that are no tokens: nobody drafts from those, and the answer is what it is without guesses. */
static void behind_a_picture(struct both *b, struct infer_sched *s, int seq) {
    static float embed[6][N_EMBD];
    const struct infer_prompt_rows rows = {.at = 9, .n = 6, .embed = embed[0]};
    int32_t ids[40];
    struct answered told[2] = {{0}, {0}};
    for (int i = 0; i < 6; i++)
        for (int k = 0; k < N_EMBD; k++) embed[i][k] = 0.05f * (float)((i + k * k) % 13 - 6);
    for (int i = 0; i < 40; i++) ids[i] = i * 7 % VOCAB;
    for (int k = 0; k < 2; k++) {
        struct infer_request_params p = infer_request_defaults();
        struct infer_request *r;
        assert_ok(infer_seq_rewind(b->engine, seq, 0));
        p.seq = seq, p.ids = ids, p.n_id = 40, p.rows = &rows, p.n_rows = 1, p.n_predict = 30;
        p.drafter = k ? INFER_DRAFT_MODEL : INFER_DRAFT_NONE;
        p.on_token = add_id, p.user = &told[k];
        assert_ok(infer_request_new(&r, s, &p));
        assert_ok(infer_request_run(r));
        assert_true(!k == !infer_request_figures(r)->n_guessed);
        infer_request_free(r);
    }
    assert_int_equal(told[0].n, 30);
    assert_memory_equal(&told[0], &told[1], sizeof told[0]);
}

/* Where rows of a prompt are rounded as those of an answer: the guesses are those of drafts_of. */
static bool rounds_alike(const struct both *b) {
    struct infer_engine_info info;
    infer_engine_info(b->drafter, &info);
    return !strstr(info.isa, "amx") && !strstr(info.device, "cuda");
}

/* Where somebody else says whether a guess counts as right, all do or none does, and those that do are the answer. */
struct lot {
    bool all;
    int asked;
    int32_t right[MAX];
};
static bool by_lot(void *user, int32_t chosen, int32_t guess) {
    struct lot *l = user;
    (void)chosen;
    assert_true(l->asked < MAX);
    l->right[l->asked++] = guess;
    return l->all;
}
static void what_counts_as_right(struct both *b, struct infer_sched *s, int seq) {
    int32_t ids[40];
    for (int i = 0; i < 40; i++) ids[i] = i * 5 % VOCAB;
    for (int i = 0; i < 3; i++) { /* the last time two at once, though they do not pay */
        const bool all = i > 0;
        struct infer_request_params p = infer_request_defaults();
        struct infer_request *r;
        struct lot lot = {.all = all};
        if (i == 2) s->times.seconds[TIMES_ROWS] = 1e9f;
        assert_ok(infer_seq_rewind(b->engine, seq, 0));
        p.seq = seq, p.ids = ids, p.n_id = 40, p.n_predict = 40, p.drafter = INFER_DRAFT_MODEL;
        p.holds = by_lot, p.user = &lot, p.n_draft = i == 2 ? 2 : 0;
        assert_ok(infer_request_new(&r, s, &p));
        assert_ok(infer_request_run(r));
        const struct infer_request_figures *f = infer_request_figures(r);
        assert_true(f->n_guessed > 5);
        assert_int_equal(f->n_right, all ? lot.asked : 0);
        assert_true(!all || f->n_step < f->n_decoded);
        if (i == 2)
            assert_in_range(f->n_guessed, f->n_step + 1,
                            2 * f->n_step); /* a guess of an end has none behind it */
        const int32_t *held = infer_seq_ids(b->engine, seq);
        for (int k = 0, at = 40; all && k < lot.asked - INFER_REQUEST_DRAFT; k++) {
            while (at < f->n_held && held[at] != lot.right[k]) at++;
            assert_true(at++ < f->n_held);
        }
        infer_request_free(r);
    }
}

static void answers_are_the_same(struct both *b, const char *name) {
    static float hidden[MAX][N_EMBD], drafts[MAX][VOCAB];
    struct answered without, with;
    struct prompt text = {.n = 50};
    struct infer_sched *s;
    int seq;
    const bool alike = rounds_alike(b);
    assert_ok(infer_sched_open(&s, b->engine, b->model));
    assert_ok(infer_sched_draft_with(s, b->drafter, b->draft));
    free_guesses(s);
    assert_ok(infer_seq_open(b->engine, &seq));
    for (int i = 0; i < text.n; i++) text.ids[i] = i * i % VOCAB;
    for (int turn = 0; turn < 3; turn++) { /* each behind the text so far, but for its last tokens */
        /* both begin with the same rows as a prompt: where a prompt's rows are rounded more than an answer's, the text may
         * depend on which rows those were, never on whether tokens were guessed */
        const int n = text.n;
        assert_ok(infer_seq_rewind(b->engine, seq, turn ? n - 7 : 0));
        answer(s, seq, text.ids, n, 40, 0, INFER_DRAFT_NONE, NULL, &without);
        assert_int_equal(without.n, 40);
        memcpy(text.ids + n, without.id, 40 * sizeof without.id[0]);
        text.n += 40;
        if (turn == 0) {
            hidden_of(b->engine, &text, 16, false, hidden[0]);
            drafts_of(b->drafter, &text, hidden[0], 16, false, drafts);
        }
        assert_ok(infer_seq_rewind(b->engine, seq, turn ? n - 7 : 0));
        struct infer_request_figures f =
            answer(s, seq, text.ids, n, 40, 0, INFER_DRAFT_MODEL, turn || !alike ? NULL : drafts, &with);
        assert_int_equal(with.n, 40);
        assert_memory_equal(without.id, with.id, 40 * sizeof with.id[0]);
        if (!f.n_guessed) fail_msg("%s: nothing is guessed", name);
        text.n -= 3;
    }
    for (int by = 0; by < 3; by += INFER_DRAFT_MODEL) {
        assert_ok(infer_seq_rewind(b->engine, seq, text.n - 7));
        struct infer_request_figures f = answer(s, seq, text.ids, text.n, 20, 1.5f,
                                                (enum infer_request_drafter)by, NULL, by ? &with : &without);
        if (by && !f.n_guessed) fail_msg("%s: nothing is guessed of a drawn answer", name);
    }
    assert_int_equal(with.n, 20);
    assert_memory_equal(without.id, with.id, 20 * sizeof with.id[0]);
    behind_a_picture(b, s, seq);
    what_counts_as_right(b, s, seq);
    infer_sched_close(s);
}

/* Two requests side by side: each guesses from what the model made of its own rows, also where rows are computed again in the same step, for
 * states that went back. */
static void beside_each_other(struct both *b, const char *name) {
    static float hidden[MAX][N_EMBD], drafts[2][MAX][VOCAB];
    struct prompt text[2] = {{.n = 40}, {.n = 40}};
    struct infer_request *r[2];
    struct infer_sched *s;
    int guessed = 0, seen[2] = {0}, held[2] = {0};
    assert_ok(infer_sched_open(&s, b->engine, b->model));
    assert_ok(infer_sched_draft_with(s, b->drafter, b->draft));
    free_guesses(s);
    for (int by = 0; by < 3; by += INFER_DRAFT_MODEL) {
        struct answered told[2] = {{0}, {0}};
        for (int k = 0; k < 2; k++) {
            struct infer_request_params p = infer_request_defaults();
            for (int i = 0; i < 40; i++) text[k].ids[i] = (i * i + 11 * k * i) % VOCAB;
            p.ids = text[k].ids, p.n_id = 40, p.n_predict = 50, p.drafter = (enum infer_request_drafter)by;
            p.prefix.salt = (uint64_t)(1 + by); /* computed anew */
            p.on_token = add_id, p.user = &told[k];
            assert_ok(infer_request_new(&r[k], s, &p));
        }
        while (!infer_request_done(r[0]) || !infer_request_done(r[1])) {
            for (int k = 0; k < 2; k++) held[k] = r[k]->figures.n_held;
            assert_true(infer_sched_step(s));
            for (int k = 0; by && k < 2; k++) {
                if (r[k]->figures.n_guessed == seen[k]) continue;
                seen[k] = r[k]->figures.n_guessed;
                int best = 0;
                for (int v = 0; v < VOCAB; v++)
                    if (drafts[k][held[k] - 1][v] > drafts[k][held[k] - 1][best]) best = v;
                if (rounds_alike(b) && r[k]->draft[0] != best)
                    fail_msg("%s: request %d guesses %d at %d, not %d", name, k, (int)r[k]->draft[0], held[k],
                             best);
            }
        }
        for (int k = 0; k < 2; k++) {
            guessed += infer_request_figures(r[k])->n_guessed;
            assert_ok(infer_request_status(r[k]));
            infer_request_free(r[k]);
            assert_int_equal(told[k].n, 50);
            if (by) assert_memory_equal(told[k].id, text[k].ids + 40, 50 * sizeof told[k].id[0]);
            memcpy(text[k].ids + 40, told[k].id, 50 * sizeof told[k].id[0]);
            text[k].n = 90;
            if (by) continue;
            hidden_of(b->engine, &text[k], 16, false, hidden[0]);
            drafts_of(b->drafter, &text[k], hidden[0], 16, false, drafts[k]);
            text[k].n = 40;
        }
    }
    assert_true(guessed > 20);
    infer_sched_close(s);
}

/* Guesses are those of the layer on what the model made of the tokens, however the prompt is cut, and change nothing. */
static void answers_that_they_guess(void **state) {
    (void)state;
    for (int k = 0; k < 2 * N_FOLDER; k++) {
        char path[512];
        struct both b;
        path_of(path, sizeof path, folders[k / 2], 0);
        open_both(&b, path, devices[k % n_device], 16);
        answers_are_the_same(&b, path);
        close_both(&b);
        open_both(&b, path, devices[k % n_device], 16);
        beside_each_other(&b, path);
        close_both(&b);
    }
}

/* Hidden rows are asked for and given as they should be. */
static void what_cannot_be_asked(void **state) {
    char path[512];
    struct both b;
    struct infer_output out;
    struct infer_model *none;
    const float *h, zero[N_EMBD] = {0};
    int seq, own;
    (void)state;
    path_of(path, sizeof path, folders[0], 0);
    open_both(&b, path, "ref", 0);
    assert_ok(infer_seq_open(b.engine, &own));
    assert_ok(infer_seq_open(b.drafter, &seq));
    const struct infer_row row = {.id = 1, .seq = seq},
                           two[] = {row, {.id = 1, .pos = 1, .seq = seq, .decode = true}};
    assert_int_equal(infer_hidden(b.engine, false, 0, 1, &h), INFER_E_INPUT);
    assert_int_equal(infer_step(b.drafter, &row, 1, &out), INFER_E_INPUT);
    assert_non_null(strstr(infer_error(), "takes a token and what a model made of the one before"));
    assert_int_equal(infer_step_hidden(b.drafter, two, zero, 2, &out), INFER_E_INPUT);
    assert_non_null(strstr(infer_error(), "rows of one class"));
    assert_int_equal(infer_step_hidden(b.engine, &row, zero, 1, &out), INFER_E_INPUT);
    assert_int_equal(infer_model_draft(&none, b.draft), INFER_E_UNSUPPORTED);
    assert_null(none);
    close_both(&b);
}

static int leave_out_cuda(void **state) {
    (void)state;
    bool must, there = cuda_there(&must);
    if (!there) n_device--;
    return must && !there;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(layers_that_draft),
                                       cmocka_unit_test(answers_that_they_guess),
                                       cmocka_unit_test(what_cannot_be_asked)};
    return cmocka_run_group_tests(tests, leave_out_cuda, NULL);
}
