/* Layers that keep something else than keys and values of their own (states, another layer's store), in tiny models of every such
 * architecture: prompts of any length, cut anywhere, rewound, saved and loaded, two sequences in one step, give the same bits. */
#include "tests/lib/test.h"
#include "tests/lib/steps.h"
#include "tests/lib/pace.h"
#include "base/mem.h"
#include "infer.h"

#include <unistd.h>

enum { LONG = 232, MOST = 200, VOCAB = 80 };

static const char *const models[] = {"gemma4-e2b",     "gemma4-e4b",       "lfm2",
                                     "lfm2-bias",      "lfm2_moe",         "mamba2",
                                     "mamba2-bias",    "granitemoehybrid", "granitemoehybrid-dense",
                                     "nemotron_h",     "nemotron_h-moe",   "falcon_h1",
                                     "falcon_h1-norm", "olmo_hybrid",      "kimi_linear",
                                     "deepseek_v4",    "qwen4_exp",        "deepseek_v4-published"};
enum { N_MODEL = sizeof models / sizeof *models };
static const char *const devices[] = {"ref", "cpu", "cpu+ref"};

static int n_vocab;
static int32_t id_at(int i) { return made_up_id(i, n_vocab); }

static struct infer_model *open_model(const char *name) {
    char path[512], file[128];
    struct infer_model *m;
    struct infer_model_info info;
    snprintf(file, sizeof file, "golden/hf/%s", name);
    assert_ok(infer_model_open(&m, test_path(path, sizeof path, file), NULL));
    infer_model_info(m, &info);
    n_vocab = info.n_vocab;
    assert_in_range(n_vocab, 2, VOCAB);
    return m;
}

/* cpu+ref: the first layer on ref; *e NULL: the model's layers cannot be apart. */
static void open_engine(struct infer_engine **e, const struct infer_model *m, const char *device, int batch) {
    const bool two = strchr(device, '+') != NULL;
    struct infer_engine_options o = {.device = two ? "cpu" : device,
                                     .host_device = two ? "ref" : NULL,
                                     .gpu_layers = two ? 1 : -1,
                                     .ctx = LONG,
                                     .slots = 3,
                                     .batch = batch,
                                     .decode_rows = 8,
                                     .threads = 2,
                                     .nan_guard = true,
                                     .all_logits = true};
    *e = NULL;
    enum infer_status s = infer_engine_create(e, m, &o);
    if (two && s == INFER_E_UNSUPPORTED && strstr(infer_error(), "what others keep")) return;
    assert_ok(s);
}

static void steps(struct infer_engine *e, int seq, int from, int end, int n, bool decode, float *out) {
    compute_steps(e, seq, from, end, n, decode, n_vocab, out);
}

struct check {
    const char *model, *device;
    struct infer_engine *e;
};
static void expect_same(const struct check *c, const float *got, const float *want, const char *what, int n) {
    if (memcmp(got, want, (size_t)n_vocab * sizeof *got))
        fail_msg("%s on %s: logits %s (%d) differ", c->model, c->device, what, n);
}

/* Prompts of n rows, cut at every place. */
static void cut_anywhere(const struct check *c) {
    static const int lengths[] = {1, 2, 63, 64, 65};
    float want[VOCAB], got[VOCAB];
    int a;
    for (int k = 0; k < 5; k++) {
        const int n = lengths[k];
        assert_ok(infer_seq_open(c->e, &a));
        steps(c->e, a, 0, n, n, false, want);
        for (int at = 1; at < n; at += EVERY(7)) {
            assert_ok(infer_seq_rewind(c->e, a, 0));
            steps(c->e, a, 0, at, at, false, got);
            steps(c->e, a, at, n, n, false, got);
            expect_same(c, got, want, "of a prompt cut", at);
        }
        infer_seq_close(c->e, a);
    }
}

/* Back to every so many-th place and forth again; what is ahead of a copy is computed again. */
static void back_and_forth(const struct check *c, const float *at200, const float *end) {
    float got[VOCAB];
    int a;
    assert_ok(infer_seq_open(c->e, &a));
    steps(c->e, a, 0, MOST, 48, false, got);
    expect_same(c, got, at200, "in steps of", 48);
    for (int to = MOST - 1; to >= 0; to -= 13 * EVERY(3)) {
        assert_ok(infer_seq_rewind(c->e, a, to));
        const int n = infer_seq_length(c->e, a);
        assert_in_range(n, 0, to);
        steps(c->e, a, n, MOST, 33, false, got);
        expect_same(c, got, at200, "after a rewind to", to);
    }
    steps(c->e, a, MOST, LONG, 1, true, got);
    expect_same(c, got, end, "decoded", LONG);
    infer_seq_close(c->e, a);
}

static void saved_and_loaded(const struct check *c, const float *end) {
    float got[VOCAB];
    char path[64];
    int a, b, n;
    int32_t ids[LONG];
    for (int i = 0; i < LONG; i++) ids[i] = id_at(i);
    snprintf(path, sizeof path, "/tmp/infer-hybrid-%d", (int)getpid());
    assert_ok(infer_seq_open(c->e, &a));
    for (int at = 5; at < MOST; at += 39 * EVERY(2)) {
        assert_ok(infer_seq_rewind(c->e, a, 0));
        steps(c->e, a, 0, at, 64, false, got);
        assert_ok(infer_seq_save(c->e, a, path));
        assert_ok(infer_seq_open(c->e, &b));
        assert_ok(infer_seq_load(c->e, b, path));
        assert_int_equal(infer_seq_length(c->e, b), at);
        if (at < MOST) steps(c->e, b, at, MOST, 64, false, got);
        steps(c->e, b, MOST, LONG, 1, true, got);
        expect_same(c, got, end, "of a snapshot at", at);
        infer_seq_close(c->e, b);
    }
    unlink(path);
    assert_ok(infer_seq_open(c->e, &b));
    assert_ok(infer_seq_prefix(c->e, b, ids, MOST, NULL, &n));
    steps(c->e, b, n, MOST, 48, false, got);
    steps(c->e, b, MOST, LONG, 1, true, got);
    expect_same(c, got, end, "behind a prefix of", n);
    infer_seq_close(c->e, a);
    infer_seq_close(c->e, b);
}

/* The rows of two sequences in one step, one behind the other. */
static void two_in_a_step(const struct check *c, const float *at200) {
    struct infer_row rows[2 * LONG];
    struct infer_output o;
    int seq[2];
    assert_ok(infer_seq_open(c->e, &seq[0]));
    assert_ok(infer_seq_open(c->e, &seq[1]));
    static const int cut[] = {0, 30, 77, MOST};
    for (int part = 0; part < 3; part++) {
        int n = 0;
        for (int s = 0; s < 2; s++)
            for (int i = cut[part]; i < cut[part + 1]; i++)
                rows[n++] = (struct infer_row){.id = id_at(i),
                                               .pos = i,
                                               .seq = seq[s],
                                               .want = i + 1 == MOST ? INFER_WANT_LOGITS : INFER_WANT_NONE};
        assert_ok(infer_step(c->e, rows, n, &o));
    }
    assert_int_equal(o.n, 2);
    expect_same(c, o.logits[0], at200, "beside another", 1);
    expect_same(c, o.logits[1], at200, "beside another", 2);
    infer_seq_close(c->e, seq[0]);
    infer_seq_close(c->e, seq[1]);
}

static void one_model(void **state) {
    struct infer_model *m = open_model(*state);
    for (int d = 0; d < 3; d++) {
        struct check c = {.model = *state, .device = devices[d]};
        float at200[VOCAB], end[VOCAB];
        int a;
        open_engine(&c.e, m, c.device, 2 * MOST);
        if (!c.e) continue;
        assert_ok(infer_seq_open(c.e, &a));
        steps(c.e, a, 0, MOST, MOST, false, at200);
        steps(c.e, a, MOST, LONG, 1, true, end);
        infer_seq_close(c.e, a);
        cut_anywhere(&c);
        back_and_forth(&c, at200, end);
        saved_and_loaded(&c, end);
        two_in_a_step(&c, at200);
        infer_engine_free(c.e);
    }
    infer_model_close(m);
}

/* Layers that borrow keep nothing; a table of inputs is read by rows; such layers stay on one device. */
static void borrowed_layers_keep_nothing(void **state) {
    (void)state;
    struct infer_model *m = open_model("gemma4-e2b");
    struct infer_model_info info;
    struct infer_engine_info engine;
    struct infer_engine *e;
    open_engine(&e, m, "cpu", 64);
    infer_engine_info(e, &engine);
    /* two layers with windows, of one key head of 16 numbers, and a full one of 32, as F16 */
    assert_int_equal(engine.kv[0].row_bytes + engine.kv[1].row_bytes, (2 * 16 + 32) * 2 * 2);
    infer_engine_free(e);
    open_engine(&e, m, "cpu+ref", 64);
    assert_null(e);
    assert_non_null(strstr(infer_error(), "all 6 are on the card"));
    infer_model_info(m, &info);
    /* 71 rows of 6 * 16 numbers of BF16 stand in the table */
    assert_true(info.token_bytes + 71 * 96 * 2 > info.file_bytes - 71 * 96 * 2 - 8192);
    assert_true(info.token_bytes < info.file_bytes - 70 * 96 * 2);
    infer_model_close(m);
}

int main(int argc, char **argv) {
    struct CMUnitTest tests[N_MODEL + 1] = {cmocka_unit_test(borrowed_layers_keep_nothing)};
    for (int i = 0; i < N_MODEL; i++)
        tests[i + 1] = (struct CMUnitTest){models[i], one_model, NULL, NULL, (void *)(uintptr_t)models[i]};
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
