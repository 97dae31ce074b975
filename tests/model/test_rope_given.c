/* How positions are turned by the caller's word (rope_scaling and what goes with it): the same bits where it says what the file says, others
 * where it does not, and how far the model reaches then. */
#include "tests/lib/test.h"
#include "infer.h"

enum { N = 24 };
static char path[512];
static int n_vocab;

/* Logits behind N tokens. */
static void logits(const struct infer_model_options *mo, float *out, int *n_ctx) {
    const struct infer_engine_options o = {
        .device = "cpu", .kv_type = "f32", .ctx = 64, .slots = 1, .batch = N, .threads = 1, .gpu_layers = -1};
    struct infer_model *m;
    struct infer_engine *e;
    struct infer_model_info info;
    struct infer_row rows[N];
    struct infer_output got;
    int seq;
    assert_ok(infer_model_open(&m, path, mo));
    infer_model_info(m, &info);
    n_vocab = info.n_vocab;
    *n_ctx = info.n_ctx_train;
    assert_ok(infer_engine_create(&e, m, &o));
    assert_ok(infer_seq_open(e, &seq));
    for (int i = 0; i < N; i++)
        rows[i] = (struct infer_row){
            .id = (i * 7 + 3) % n_vocab, .pos = i, .seq = seq, .want = i == N - 1 ? INFER_WANT_LOGITS : 0};
    assert_ok(infer_step(e, rows, N, &got));
    memcpy(out, got.logits[0], (size_t)n_vocab * sizeof *out);
    infer_engine_free(e);
    infer_model_close(m);
}

static void scaling(void **state) {
    (void)state;
    enum { MOST = 1024 };
    static float file[MOST], got[MOST], linear[MOST];
    int ctx, file_ctx;
    logits(NULL, file, &file_ctx);
    assert_in_range(n_vocab, 1, MOST);
    const size_t bytes = (size_t)n_vocab * sizeof(float);
    logits(&(struct infer_model_options){.rope_scaling = "none"}, got, &ctx);
    assert_memory_equal(got, file, bytes);
    assert_int_equal(ctx, file_ctx);
    logits(&(struct infer_model_options){.rope_scaling = "linear", .rope_scale = 1}, got, &ctx);
    assert_memory_equal(got, file, bytes);
    logits(&(struct infer_model_options){.rope_scaling = "linear", .rope_scale = 2}, linear, &ctx);
    assert_memory_not_equal(linear, file, bytes);
    assert_int_equal(ctx, 2 * file_ctx);
    logits(&(struct infer_model_options){.rope_scaling = "yarn", .rope_scale = 4}, got, &ctx);
    assert_memory_not_equal(got, file, bytes);
    assert_memory_not_equal(got, linear, bytes);
    assert_int_equal(ctx, 4 * file_ctx);
    /* no frequency turns so often in 2 positions that it would stay: all are scaled, and scores grow */
    logits(&(struct infer_model_options){.rope_scaling = "yarn", .rope_scale = 2, .yarn_orig_ctx = 2}, got,
           &ctx);
    assert_int_equal(ctx, file_ctx);
    logits(&(struct infer_model_options){.rope_freq_base = 500}, got, &ctx);
    assert_memory_not_equal(got, file, bytes);
    logits(&(struct infer_model_options){.yarn_attn_factor = 2}, got, &ctx);
    assert_memory_not_equal(got, file, bytes);
}

static void refused(void **state) {
    (void)state;
    static const struct {
        struct infer_model_options o;
        const char *says;
    } list[] = {
        {{.rope_scaling = "longrope"}, ".rope_scaling is 'longrope', must be none, linear or yarn"},
        {{.rope_scaling = "yarn"}, ".rope_scaling yarn needs .rope_scale"},
        {{.rope_scale = 2}, ".rope_scale needs .rope_scaling linear or yarn"},
        {{.rope_scaling = "linear", .rope_scale = 2, .yarn_orig_ctx = 64}, "are of .rope_scaling yarn"}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        struct infer_model *m;
        assert_int_equal(infer_model_open(&m, path, &list[i].o), INFER_E_INPUT);
        if (!strstr(infer_error(), list[i].says)) fail_msg("%s; wanted %s", infer_error(), list[i].says);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(scaling), cmocka_unit_test(refused)};
    test_path(path, sizeof path, "golden/chat/chat-llama.gguf");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
