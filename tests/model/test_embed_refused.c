/* Folders and files of encoders with one thing wrong: each is refused in one line that names it. */
#include "tests/lib/test.h"
#include "tests/lib/folder.h"
#include "tests/lib/gguf_copy.h"
#include "infer_request.h"
#include "tools/file/quantize.h"

/* Every `from` of a file of the folder becomes `to`, which is as long; once: the first alone. */
static void replace(const struct folder *d, const char *name, const char *from, const char *to, bool once) {
    char path[256];
    size_t n, len = strlen(from);
    int found = 0;
    assert_int_equal(len, strlen(to));
    FILE *f = fopen(folder_file(d, path, name), "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    n = (size_t)ftell(f);
    rewind(f);
    char *all = malloc(n);
    assert_non_null(all);
    assert_int_equal(fread(all, 1, n, f), n);
    fclose(f);
    for (size_t i = 0; i + len <= n && !(once && found); i++)
        if (memcmp(all + i, from, len) == 0) memcpy(all + i, to, len), found++;
    if (!found) fail_msg("%s has no %s", name, from);
    folder_put(d, name, all, n);
    free(all);
}

static void copy(struct folder *d, const char *name) {
    char file[256], path[512], command[900];
    folder_make(d);
    snprintf(file, sizeof file, "golden/%s", name);
    snprintf(command, sizeof command, "cp -r '%s/.' '%s'", test_path(path, sizeof path, file), d->path);
    assert_int_equal(system(command), 0);
}

static const struct {
    const char *folder, *file, *from, *to, *task, *says;
} bad[] = {
    {"embed/jina-bert-v3-tasks", "model.safetensors", "mlp.fc1.parametrizations.weight.0.lora_A",
     "mlp.fc1.parametrizations.weight.0.lora_X", "separation", "has no parametrizations.weight.0.lora_A"},
    {"embed/jina-bert-v3-tasks", "model.safetensors",
     "mlp.fc2.parametrizations.weight.0.lora_B\":{\"dtype\":\"BF16\",\"shape\":[3,48,3]",
     "mlp.fc2.parametrizations.weight.0.lora_B\":{\"dtype\":\"BF16\",\"shape\":[3,3,48]", "separation",
     "does not fit its matrix"},
    {"embed/jina-bert-v3-tasks", "config.json", "\"separation\"", "\"separatio_\"", "separation",
     "there are: retrieval.query, separatio_, text-matching"},
    {"embed/jina-bert-v3-tasks", "config.json", "\"rotary\"", "\"alibis\"", NULL, "'lora_adaptations'"},
    {"embed/nomic-bert-moe", "config.json", "\"moe_every_n_layers\": 2", "\"moe_every_n_layers\": 1", NULL,
     "'moe_every_n_layers'"},
    {"embed/nomic-bert-moe", "config.json", "\"num_experts\": 5", "\"num_experts\": 7", NULL,
     "as many rows of each expert"},
    {"embed/nomic-bert-moe", "config.json", "\"mlp_fc2_bias\": true", "\"mlp_fc2_bias\":false", NULL,
     "'mlp_fc2_bias'"},
    {"embed/nomic-bert-moe", "config.json", "\"moe_normalize_expert_weights\": false",
     "\"moe_normalize_expert_weights\":  true", NULL, "'moe_normalize_expert_weights'"},
    {"embed/jina-bert-v2-code", "model.safetensors", "encoder.layer.1.layer_norm_1.bias",
     "encoder.layer.1.layer_norm_1.axis", NULL, "blk.1.attn_norm_2.bias"},
    {"embed/jina-bert-v2-code", "model.safetensors", "encoder.layer.1.attention.self.layer_norm_q.weight",
     "encoder.layer.9.attention.self.layer_norm_q.weight", NULL, "attn_q_norm"},
    {"hf/minicpm", "config.json", "\"scale_depth\"", "\"scale_width\"", NULL, "scale_"},
    {"embed/nomic-bert", "config.json", "\"vocab_size\"", "\"vocab_size\"", "separation",
     "the folder has no adapters for tasks"},
};

static void one_thing_wrong(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct folder d;
        struct infer_model *m;
        copy(&d, bad[i].folder);
        replace(&d, bad[i].file, bad[i].from, bad[i].to, true);
        const struct infer_model_options o = {.task = bad[i].task};
        if (infer_model_open(&m, d.path, &o) == INFER_OK)
            fail_msg("%s: %s is read", bad[i].folder, bad[i].to);
        if (!strstr(infer_error(), bad[i].says) || strchr(infer_error(), '\n'))
            fail_msg("%s: '%s' says nothing of %s", bad[i].folder, infer_error(), bad[i].says);
        folder_remove(&d);
    }
}

/* Without the factors, which files from before these keys have not. */
static void minicpm_without_factors(void **state) {
    (void)state;
    static const char *const keys[] = {"minicpm.embedding_scale", "minicpm.residual_scale",
                                       "minicpm.logit_scale"};
    struct folder d;
    struct quantize_report r;
    struct tensorfile *f;
    struct infer_model *m;
    char in[512], whole[256], part[256];
    folder_make(&d);
    const struct quantize_options to = {.in = test_path(in, sizeof in, "golden/hf/minicpm"),
                                        .out = folder_file(&d, whole, "whole.gguf"),
                                        .type = "f32"};
    assert_ok(quantize_file(&to, &r));
    assert_ok(tensorfile_open(&f, whole, NULL));
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        struct gguf_writer *w;
        assert_ok(gguf_writer_open(&w, folder_file(&d, part, "part.gguf")));
        for (size_t i = 0; i < f->n_meta; i++)
            if (f->meta[i].key.len != strlen(keys[k]) ||
                memcmp(f->meta[i].key.data, keys[k], f->meta[i].key.len) != 0)
                gguf_writer_meta(w, &f->meta[i]);
        gguf_copy_tensors(w, f);
        assert_int_equal(infer_model_open(&m, part, NULL), INFER_E_INPUT);
        if (!strstr(infer_error(), keys[k])) fail_msg("'%s' says nothing of %s", infer_error(), keys[k]);
    }
    tensorfile_close(f);
    folder_remove(&d);
}

static int text_length(const char *path) {
    struct infer_model *m;
    struct infer_model_info info;
    assert_ok(infer_model_open(&m, path, NULL));
    infer_model_info(m, &info);
    infer_model_close(m);
    return info.n_text;
}
/* Texts of a decoder that makes vectors end where its folder says, also as GGUF; no later than the context does. */
static void texts_of_decoders_are_cut(void **state) {
    (void)state;
    struct folder d;
    struct quantize_report r;
    char whole[256];
    copy(&d, "embed/qwen3-body");
    const int all = text_length(d.path);
    folder_text(&d, "sentence_bert_config.json", "{\"max_seq_length\": 6}");
    assert_int_equal(text_length(d.path), 6);
    const struct quantize_options to = {
        .in = d.path, .out = folder_file(&d, whole, "whole.gguf"), .type = "f32"};
    assert_ok(quantize_file(&to, &r));
    assert_int_equal(text_length(whole), 6);
    folder_text(&d, "sentence_bert_config.json", "{\"max_seq_length\": 60000000}");
    assert_int_equal(text_length(d.path), all);
    folder_remove(&d);
}

/* A model without its head: no text, no logits, neither by requests nor by steps. */
static void no_head(void **state) {
    (void)state;
    char path[512];
    struct infer_model *m;
    struct infer_engine *e;
    struct infer_sched *s;
    struct infer_request *r;
    static const int32_t ids[] = {0, 7, 8, 2};
    assert_ok(infer_model_open(&m, test_path(path, sizeof path, "golden/embed/qwen3-body"), NULL));
    assert_ok(infer_engine_create(&e, m, &(struct infer_engine_options){.device = "cpu", .threads = 1}));
    int seq;
    assert_ok(infer_seq_open(e, &seq));
    const struct infer_row row = {.seq = seq, .id = 7, .want = INFER_WANT_LOGITS};
    struct infer_output out;
    assert_int_equal(infer_step(e, &row, 1, &out), INFER_E_INPUT);
    assert_non_null(strstr(infer_error(), "have no head"));
    infer_seq_close(e, seq);
    assert_ok(infer_sched_open(&s, e, m));
    for (int i = 0; i < 2; i++) {
        struct infer_request_params p = infer_request_defaults();
        p.ids = ids, p.n_id = 4;
        if (i) p.make = INFER_MAKE_LOGITS, p.make_id = ids, p.n_make_id = 1;
        assert_int_equal(infer_request_new(&r, s, &p), INFER_E_INPUT);
        assert_non_null(strstr(infer_error(), "have no head"));
    }
    infer_sched_close(s);
    infer_engine_free(e);
    infer_model_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thing_wrong),
        cmocka_unit_test(minicpm_without_factors),
        cmocka_unit_test(texts_of_decoders_are_cut),
        cmocka_unit_test(no_head),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
