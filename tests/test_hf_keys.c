/* No key of config.json is passed over, in any folder of tests/golden/hf that runs: each is changed, deep down too, and the logits
 * change, or the folder is refused with a message, or the key stands among those that mean nothing to the mathematics.
 * usage: test_hf_keys [PATTERN]    the folders whose names match */
#define _GNU_SOURCE
#include "test.h"
#include "folder.h"
#include "infer.h"
#include "files/model_keys.h"
#include <jansson.h>
#include <unistd.h>

static const char *const models[] = {
#define READY(name) name,
#define LATER(name)
#include "golden/hf/models.def"
#undef READY
#undef LATER
};
enum { N_MODEL = sizeof models / sizeof *models, N_TOKEN = 70, CTX = 160, MAX_VOCAB = 256 };

/* Keys that change nothing in the folder of that name, or in all ("*"). */
static const struct {
    const char *folder, *keys, *why;
} idle[] = {
    {"*", "vision_config|audio_config|architectures", "of images and sound; of names, by test_keys"},
    {"*", "use_sliding_window|max_window_layers|sliding_window_pattern|_sliding_window_pattern",
     "layer_types says it"},
    {"*", "no_rope_layer_interval", "no_rope_layers says it"},
    {"*", "vocab_size_per_layer_input|max_position_embeddings", "of longer contexts than the test has"},
    {"gemma3-image", "tie_word_embeddings", "the outer one counts"},
    {"gemma4-image", "tie_word_embeddings", "the outer one counts"},
    {"mistral3", "tie_word_embeddings", "the outer one counts"},
    {"qwen3_vl*", "tie_word_embeddings", "the outer one counts"},
    {"phi3", "original_max_position_embeddings", "of scaling, which this folder has not"},
    {"hunyuan_v1_*", "beta_fast|beta_slow|factor|mscale|mscale_all_dim", "'dynamic' reads alpha alone"},
    {"falcon*", "num_ln_in_parallel_attn", "the tensors say it"},
    {"falcon*", "multi_query|num_kv_heads", "new_decoder_architecture decides which of the two counts"},
    {"glm4_moe*", "num_nextn_predict_layers", "layers that draft are not read"},
    {"qwen2_moe*", "sliding_window", "use_sliding_window is false"},
    {"qwen2_moe-stacked", "intermediate_size", "no layer is dense"},
    {"qwen3_moe-stacked", "intermediate_size", "no layer is dense"},
    {"gemma4", "moe_intermediate_size|top_k_experts|num_experts", "enable_moe_block is false"},
    {"gemma4-image", "moe_intermediate_size|top_k_experts|num_experts", "enable_moe_block is false"},
    {"gemma4-values", "moe_intermediate_size|top_k_experts|num_experts", "enable_moe_block is false"},
    {"dots1", "layer_types|sliding_window", "the window is wider than the test's texts"},
    {"exaone_moe", "first_k_dense_replace", "mlp_layer_types says it"},
    {"gpt_oss-mxfp4", "modules_to_not_convert", "the tensors say it"},
    {"qwen3_vl_moe", "intermediate_size", "no layer is dense"},
    {"phi3-long", "short_factor", "the context is a long one"},
    {"phi3-partial", "short_factor", "the context is a long one"},
    {"phi3-short", "long_factor", "the context is a short one"},
    {"qwen3_vl*", "mrope_section|mrope_interleaved", "positions of texts are one number"},
    {"gemma4*", "attention_k_eq_v", "the tensors say it"},
    {"gpt2", "summary_activation|summary_first_dropout|summary_proj_to_labels|summary_type|summary_use_proj",
     "another head"},
    {"gpt2", "n_ctx", "n_positions counts"},
    {"*", "embedding_dropout|residual_dropout|hidden_dropout|eod_token_id|attention_dropout",
     "of training, of the tokenizer"},
};

struct result {
    enum infer_status status;
    char why[512];
    int n_vocab, n_ctx_train;
    float logits[MAX_VOCAB];
};

static void compute(const char *path, struct result *r) {
    const struct infer_engine_options o = {
        .device = "ref", .kv_type = "f32", .ctx = CTX, .threads = 1, .gpu_layers = -1};
    struct infer_model *m = NULL;
    struct infer_engine *e = NULL;
    struct infer_model_info info;
    struct infer_output out;
    struct infer_row rows[N_TOKEN];
    int seq;
    *r = (struct result){.status = infer_model_open(&m, path, NULL)};
    if (!r->status) r->status = infer_engine_create(&e, m, &o);
    if (!r->status) {
        infer_model_info(m, &info);
        r->n_vocab = info.n_vocab;
        r->n_ctx_train = info.n_ctx_train;
        assert_in_range(info.n_vocab, 2, MAX_VOCAB);
        for (int i = 0; i < N_TOKEN; i++)
            rows[i] = (struct infer_row){i * 7 % info.n_vocab,
                                         i,
                                         0,
                                         false,
                                         i == N_TOKEN - 1 ? INFER_WANT_LOGITS : INFER_WANT_NONE,
                                         NULL};
        assert_ok(infer_seq_open(e, &seq));
        assert_ok(infer_step(e, rows, N_TOKEN, &out));
        memcpy(r->logits, out.logits[0], (size_t)info.n_vocab * sizeof(float));
    }
    snprintf(r->why, sizeof r->why, "%s", r->status ? infer_error() : "");
    infer_engine_free(e);
    infer_model_close(m);
}
static bool same(const struct result *a, const struct result *b) {
    return !a->status && !b->status && a->n_vocab == b->n_vocab && a->n_ctx_train == b->n_ctx_train &&
           memcmp(a->logits, b->logits, (size_t)a->n_vocab * sizeof(float)) == 0;
}

struct walk {
    const char *name;
    struct folder d;
    json_t *root;
    struct result base;
    int n;
};

static bool matches(const char *pattern, const char *name) {
    size_t n = strcspn(pattern, "*");
    return pattern[n] ? strncmp(pattern, name, n) == 0 : strcmp(pattern, name) == 0;
}
/* Known to change nothing: here, or in models/keys.def. */
static bool is_idle(const struct walk *w, const char *key) {
    const struct key_row *row = key_find(KEYS_CONFIG, key);
    if (row && row->use == KEY_HARMLESS) return true;
    for (size_t i = 0; i < sizeof idle / sizeof *idle; i++)
        if (matches(idle[i].folder, w->name) && key_names(idle[i].keys, key, strlen(key))) return true;
    return false;
}

/* Value i to try in the place of v; NULL: no more. */
static json_t *other_value(const json_t *v, int i) {
    double x = json_number_value(v);
    json_t *copy;
    if (json_is_integer(v) && i < 4)
        return json_integer(
            (json_int_t[]){5, (json_int_t)x + 1, 2 * (json_int_t)x + 8, x > 0 ? (json_int_t)x - 1 : 0}[i]);
    if (json_is_real(v) && i < 2) return json_real(i ? 3 * x + 1 : 0.6 * x + 0.01);
    if (json_is_boolean(v) && i < 1) return json_boolean(!json_is_true(v));
    if (json_is_string(v) && i < 1) return json_string("other");
    if (json_is_null(v) && i < 2) return i ? json_true() : json_integer(3);
    if (!json_is_array(v) || i > 1 || !json_array_size(v)) return NULL;
    copy = json_copy((json_t *)v); /* another first element, or last one */
    size_t at = i ? json_array_size(v) - 1 : 0;
    const json_t *was = json_array_get(v, at);
    const char *kind = json_string_value(was);
    json_array_set_new(
        copy, at,
        kind ? json_string(strcmp(kind, "full_attention") ? "full_attention" : "sliding_attention")
        : json_is_real(was) ? json_real(json_real_value(was) + 0.5)
                            : json_integer(!json_integer_value(was)));
    return copy;
}

static void try_config(struct walk *w, struct result *r) {
    char path[256];
    assert_int_equal(json_dump_file(w->root, folder_file(&w->d, path, "config.json"), 0), 0);
    compute(w->d.path, r);
    w->n++;
}

static void change_key(struct walk *w, json_t *object, const char *key, json_t *was) {
    bool noticed = json_is_object(was) || (json_is_array(was) && !json_array_size(was));
    json_t *v;
    for (int i = 0; !noticed && (v = other_value(was, i)); i++) {
        struct result r;
        json_object_set_new(object, key, v);
        try_config(w, &r);
        if (r.status && r.status != INFER_E_INPUT && r.status != INFER_E_UNSUPPORTED)
            fail_msg("%s: '%s': status %d: %s", w->name, key, r.status, r.why);
        noticed = !same(&r, &w->base);
    }
    json_object_set(object, key, was);
    if (!noticed && !is_idle(w, key)) fail_msg("%s: '%s' is passed over", w->name, key);
}

static void walk_object(struct walk *w, json_t *object) {
    json_t *keys = json_object(), *v;
    const char *key;
    json_object_update(keys, object); /* the walk changes the object itself */
    json_object_foreach(keys, key, v) {
        change_key(w, object, key, v);
        if (json_is_object(v) && !is_idle(w, key)) walk_object(w, v);
    }
    json_decref(keys);
}

static void every_key_counts(void **state) {
    struct walk w = {.name = *state};
    char from[512], to[256], file[128];
    json_error_t e;
    folder_make(&w.d);
    snprintf(file, sizeof file, "golden/hf/%s/model.safetensors", w.name);
    test_path(from, sizeof from, file);
    char *whole = realpath(from, NULL);
    assert_non_null(whole);
    assert_int_equal(symlink(whole, folder_file(&w.d, to, "model.safetensors")), 0);
    free(whole);
    snprintf(file, sizeof file, "golden/hf/%s/config.json", w.name);
    w.root = json_load_file(test_path(from, sizeof from, file), 0, &e);
    if (!w.root) fail_msg("%s: %s", from, e.text);
    try_config(&w, &w.base);
    if (w.base.status) fail_msg("%s: %s", w.name, w.base.why);
    walk_object(&w, w.root);
    assert_in_range(w.n, 20, 1000);
    json_decref(w.root);
    folder_remove(&w.d);
}

int main(int argc, char **argv) {
    struct CMUnitTest tests[N_MODEL];
    for (int i = 0; i < N_MODEL; i++)
        tests[i] = (struct CMUnitTest){models[i], every_key_counts, NULL, NULL, (void *)(uintptr_t)models[i]};
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
