/* Keys of config.json of models with experts: another value gives other logits, or the folder is refused. Each row changes one in a folder of
 * tests/golden/hf. */
#include "test.h"
#include "infer.h"
#include "engine_impl.h"
#include <unistd.h>

enum { N = 40, LONGEST = 1 << 16 };

static const struct {
    const char *folder, *from, *to; /* the text of config.json */
} rows[] = {
    {"qwen3_moe", "\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 3"},
    {"qwen3_moe", "\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 7"},
    {"qwen3_moe", "\"num_local_experts\": 6", "\"num_local_experts\": 5"},
    {"qwen3_moe", "\"num_local_experts\": 6", "\"num_local_experts\": 7"},
    {"qwen3_moe", "\"norm_topk_prob\": true", "\"norm_topk_prob\": false"},
    {"qwen3_moe", "\"norm_topk_prob\": true", "\"norm_topk_prob\": null"},
    {"qwen3_moe", "\"moe_intermediate_size\": 20", "\"moe_intermediate_size\": 40"},
    {"qwen3_moe", "\"decoder_sparse_step\": 1", "\"decoder_sparse_step\": 2"},
    {"qwen3_moe", "\"mlp_only_layers\": [\n    1\n  ]", "\"mlp_only_layers\": [2]"},
    {"qwen3_moe", "\"mlp_only_layers\": [\n    1\n  ]", "\"mlp_only_layers\": []"},
    {"qwen2_moe", "\"norm_topk_prob\": false", "\"norm_topk_prob\": true"},
    {"qwen2_moe", "\"shared_expert_intermediate_size\": 24", "\"shared_expert_intermediate_size\": 0"},
    {"qwen2_moe", "\"qkv_bias\": true", "\"qkv_bias\": false"},
    {"mixtral", "\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 1"},
    {"mixtral", "\"num_local_experts\": 5", "\"num_local_experts\": 0"},
    {"glm4_moe", "\"n_group\": 2", "\"n_group\": 1"},
    {"glm4_moe", "\"n_group\": 2", "\"n_group\": 4"},
    {"glm4_moe", "\"topk_group\": 1", "\"topk_group\": 2"},
    {"glm4_moe", "\"topk_group\": 1", "\"topk_group\": 3"},
    {"glm4_moe", "\"routed_scaling_factor\": 1.7", "\"routed_scaling_factor\": 1.5"},
    {"glm4_moe", "\"first_k_dense_replace\": 1", "\"first_k_dense_replace\": 0"},
    {"glm4_moe", "\"n_shared_experts\": 1", "\"n_shared_experts\": 2"},
    {"glm4_moe", "\"use_qk_norm\": true", "\"use_qk_norm\": false"},
    {"glm4_moe", "\"norm_topk_prob\": true", "\"norm_topk_prob\": false"},
    {"granitemoeshared", "\"shared_intermediate_size\": 24", "\"shared_intermediate_size\": 0"},
    {"granitemoe", "\"residual_multiplier\": 0.4", "\"residual_multiplier\": 0.5"},
    {"ernie4_5_moe", "\"moe_k\": 2", "\"moe_k\": 1"},
    {"ernie4_5_moe", "\"moe_layer_start_index\": 1", "\"moe_layer_start_index\": 0"},
    {"ernie4_5_moe", "\"moe_layer_interval\": 1", "\"moe_layer_interval\": 2"},
    {"ernie4_5_moe", "\"moe_layer_end_index\": 2", "\"moe_layer_end_index\": 1"},
    {"ernie4_5_moe", "\"moe_num_shared_experts\": 2", "\"moe_num_shared_experts\": 1"},
    {"ernie4_5_moe", "\"moe_norm_min\": 1e-12", "\"moe_norm_min\": 0.5"},
    {"hunyuan_v1_moe", "\"moe_topk\": 2", "\"moe_topk\": 3"},
    {"exaone_moe", "\"sparse\",\n    \"sparse\",", "\"dense\",\n    \"sparse\","},
    {"gpt_oss", "\"swiglu_limit\": 0.5", "\"swiglu_limit\": 0.4"},
    {"gpt_oss", "\"swiglu_alpha\": 1.702", "\"swiglu_alpha\": 1.5"},
    {"gpt_oss", "\"truncate\": false", "\"truncate\": true"},
    {"gpt_oss-mxfp4", "\"quant_method\": \"mxfp4\"", "\"quant_method\": \"mxfp8\""},
    {"gpt_oss-mxfp4", "\"intermediate_size\": 64", "\"intermediate_size\": 32"},
    {"gemma4-moe", "\"enable_moe_block\": true", "\"enable_moe_block\": false"},
    {"gemma4-moe", "\"top_k_experts\": 2", "\"top_k_experts\": 1"},
};

static void read_config(const char *folder, char *text) {
    char name[128], path[512];
    snprintf(name, sizeof name, "golden/hf/%s/config.json", folder);
    FILE *f = fopen(test_path(path, sizeof path, name), "rb");
    assert_non_null(f);
    size_t n = fread(text, 1, LONGEST - 1, f);
    fclose(f);
    text[n] = 0;
}

/* A folder with this config.json and the weights of another; its logits, or the status that it is refused with. */
static enum infer_status compute(const char *folder, const char *config, const char *from, float *out,
                                 int *n_vocab) {
    char name[128], path[512], link[600], file[600];
    struct infer_model *m;
    struct infer_engine *e;
    struct infer_engine_options o = {
        .device = "cpu", .kv_type = "f32", .ctx = 64, .gpu_layers = -1, .nan_guard = true};
    struct infer_row row[N] = {0};
    struct infer_output got;
    struct infer_model_info info;
    int seq;
    snprintf(name, sizeof name, "golden/hf/%s/model.safetensors", from);
    snprintf(link, sizeof link, "%s/model.safetensors", folder);
    snprintf(file, sizeof file, "%s/config.json", folder);
    unlink(link);
    assert_int_equal(symlink(test_path(path, sizeof path, name), link), 0);
    FILE *f = fopen(file, "wb");
    assert_non_null(f);
    assert_int_equal(fputs(config, f) >= 0, 1);
    fclose(f);
    enum infer_status s = infer_model_open(&m, folder, NULL);
    if (s != INFER_OK) return s;
    infer_model_info(m, &info);
    *n_vocab = info.n_vocab;
    assert_ok(infer_engine_create(&e, m, &o));
    assert_ok(infer_seq_open(e, &seq));
    for (int i = 0; i < N; i++)
        row[i] =
            (struct infer_row){(i * 7 + 3) % 50, i, seq, false, i + 1 == N ? INFER_WANT_LOGITS : 0, NULL};
    assert_ok(infer_step(e, row, N, &got));
    memcpy(out, got.logits[0], (size_t)info.n_vocab * sizeof *out);
    infer_engine_free(e);
    infer_model_close(m);
    return INFER_OK;
}

static void keys_of_experts_count(void **state) {
    (void)state;
    static char config[LONGEST], other[LONGEST + 64];
    static float base[4096], got[4096];
    char folder[] = "/tmp/infer-test-XXXXXX", file[600];
    const char *last = "";
    int n = 0, refused = 0;
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(rows[i].folder, last) != 0) {
            read_config(last = rows[i].folder, config);
            assert_ok(compute(folder, config, last, base, &n));
        }
        const char *at = strstr(config, rows[i].from);
        if (!at) fail_msg("%s has no %s", last, rows[i].from);
        snprintf(other, sizeof other, "%.*s%s%s", (int)(at - config), config, rows[i].to,
                 at + strlen(rows[i].from));
        enum infer_status s = compute(folder, other, last, got, &n);
        if (s != INFER_OK && s != INFER_E_INPUT && s != INFER_E_UNSUPPORTED)
            fail_msg("%s: %s: status %d: %s", last, rows[i].to, (int)s, err_message());
        refused += s != INFER_OK;
        if (s == INFER_OK && memcmp(got, base, (size_t)n * sizeof *got) == 0)
            fail_msg("%s: %s changes nothing", last, rows[i].to);
    }
    assert_in_range(refused, 10, 30);
    snprintf(file, sizeof file, "%s/config.json", folder);
    unlink(file);
    snprintf(file, sizeof file, "%s/model.safetensors", folder);
    unlink(file);
    rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(keys_of_experts_count)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
