/* How the files of a folder are read: what is absent and what is broken, limits, wide integers, stop tokens, sampling. */
#include "tests/lib/test.h"
#include "tests/lib/folder.h"
#include "infer.h"
#include "files/json.h"
#include "base/mem.h"
#include "files/tensorfile.h"
#include "files/textfile.h"
#include "tools/file/quantize.h"
#include <errno.h>
#include <sys/stat.h>

static const struct tensorfile_options vocab = {.vocab_only = true};

static const char tokenizer[] =
    "{\"added_tokens\": [{\"id\": 4, \"content\": \"<end>\", \"special\": true}],"
    " \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false},"
    " \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, \"c\": 3},"
    " \"merges\": [\"a b\"]}}";

/* ---- JSON ---- */

static void integers_beyond_64_bits_are_reals(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double want; /* of the first element */
    } wide[] = {{"[1000000000000000019884624838656, 9007199254740993, \"9999999999999999999\"]", 1e30},
                {"[9223372036854775808, 9007199254740993, \"9999999999999999999\"]", 0x1p63},
                {"[-9223372036854775809, 9007199254740993, \"9999999999999999999\"]", -0x1p63},
                {"[18446744073709551615, 9007199254740993, \"9999999999999999999\"]", 0x1p64}};
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        json_t *j;
        assert_ok(json_read(&j, "x", wide[i].text, strlen(wide[i].text), 0));
        assert_true(json_is_real(json_array_get(j, 0)));
        assert_true(json_real_value(json_array_get(j, 0)) == wide[i].want);
        assert_int_equal(json_integer_value(json_array_get(j, 1)), 9007199254740993); /* no double has it */
        assert_string_equal(json_string_value(json_array_get(j, 2)), "9999999999999999999");
        json_decref(j);
    }
    static const char exact[] = "{\"a\\\"1\": [9223372036854775807, -9223372036854775808]}";
    json_t *j;
    assert_ok(json_read(&j, "x", exact, strlen(exact), 0));
    assert_int_equal(json_integer_value(json_array_get(json_object_get(j, "a\"1"), 0)), INT64_MAX);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(j, "a\"1"), 1)), INT64_MIN);
    json_decref(j);
    static const char broken[] = "[99999999999999999999,\n1,]";
    assert_int_equal(json_read(&j, "x", broken, strlen(broken), 0), INFER_E_INPUT);
    assert_non_null(strstr(err_message(), "x: JSON, line 2"));
    assert_null(j);
    static const char huge[] = "[1e999]";
    assert_int_equal(json_read(&j, "x", huge, strlen(huge), 0), INFER_E_INPUT);
}

/* ---- absence ---- */

enum { LOOP, NOWHERE, DIRECTORY, PIPE, TOO_LONG, EMPTY, HOW_MANY };

static void put_broken(const struct folder *d, const char *name, int how) {
    char path[256];
    folder_file(d, path, name);
    unlink(path);
    int failed = 0;
    switch (how) {
    case LOOP:
        failed = symlink(name, path);
        break;
    case NOWHERE:
        failed = symlink("../nowhere/at/all", path);
        break;
    case DIRECTORY:
        failed = mkdir(path, 0700);
        break;
    case PIPE:
        failed = mkfifo(path, 0600);
        break;
    case TOO_LONG:
        folder_text(d, name, "");
        failed = truncate(path, 200 << 20); /* a hole: no disk is taken */
        break;
    case EMPTY:
        folder_text(d, name, "");
        break;
    }
    assert_int_equal(failed, 0);
}

/* Every file that may be absent: a file that is there and cannot be read is an error that names it. */
static void only_absence_is_absence(void **state) {
    (void)state;
    static const char *const names[] = {
        "config.json",         "generation_config.json",       "tokenizer.json",   "tokenizer_config.json",
        "chat_template.jinja", "model.safetensors.index.json", "model.safetensors"};
    static const char *const says[] = {"Too many levels",    "No such file",       "is a directory",
                                       "not a regular file", "MiB, the most that", ""};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int how = 0; how < HOW_MANY; how++) {
            if (how == TOO_LONG && strcmp(names[i], "model.safetensors") == 0) continue;
            if (how == EMPTY && strcmp(names[i], "chat_template.jinja") == 0) continue;
            struct folder d;
            struct tensorfile *f;
            folder_make(&d);
            folder_text(&d, "tokenizer.json", tokenizer);
            assert_ok(tensorfile_open(&f, d.path, &vocab));
            tensorfile_close(f);
            put_broken(&d, names[i], how);
            enum infer_status s = tensorfile_open(&f, d.path, &vocab);
            if (s == INFER_OK) fail_msg("%s: accepted, '%s' wanted", names[i], says[how]);
            if (!strstr(err_message(), names[i]) || !strstr(err_message(), says[how]))
                fail_msg("'%s' and '%s' wanted: %s", names[i], says[how], err_message());
            folder_remove(&d);
        }
}

/* tokenizer_config.json beside a tokenizer.json that is named by itself */
static void a_lone_tokenizer_has_a_config(void **state) {
    (void)state;
    struct folder d;
    struct tensorfile *f;
    char path[256];
    folder_make(&d);
    folder_text(&d, "tokenizer.json", tokenizer);
    assert_ok(tensorfile_open(&f, folder_file(&d, path, "tokenizer.json"), &vocab));
    tensorfile_close(f);
    put_broken(&d, "tokenizer_config.json", LOOP);
    assert_int_equal(tensorfile_open(&f, path, &vocab), INFER_E_IO);
    assert_non_null(strstr(err_message(), "tokenizer_config.json: Too many levels"));
    folder_remove(&d);
}

/* ---- limits ---- */

static void texts_end_at_their_limit(void **state) {
    (void)state;
    static const struct {
        enum text_kind kind;
        const char *says;
    } cases[] = {{TEXT_TEMPLATE, "1 MiB, the most that a chat template may have"},
                 {TEXT_GRAMMAR, "4 MiB, the most that a grammar may have"},
                 {TEXT_SCHEMA, "16 MiB, the most that a JSON schema may have"},
                 {TEXT_PROMPT, "64 MiB, the most that a prompt may have"}};
    char *text, path[256];
    size_t n;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(text_read(&text, &n, "/dev/zero", cases[i].kind), INFER_E_INPUT);
        if (!strstr(err_message(), cases[i].says)) fail_msg("'%s' not in: %s", cases[i].says, err_message());
    }
    assert_int_equal(text_read(&text, &n, "/tmp", TEXT_PROMPT), INFER_E_IO);
    assert_non_null(strstr(err_message(), "/tmp: Is a directory"));
    struct folder d;
    folder_make(&d);
    folder_text(&d, "x", "");
    assert_int_equal(truncate(folder_file(&d, path, "x"), 1 << 20), 0);
    assert_ok(text_read(&text, &n, path, TEXT_TEMPLATE)); /* the limit itself is read */
    assert_int_equal(n, 1 << 20);
    assert_int_equal(text[n], 0);
    mem_free(text);
    assert_int_equal(truncate(path, (1 << 20) + 1), 0);
    assert_int_equal(text_read(&text, &n, path, TEXT_TEMPLATE), INFER_E_INPUT);
    folder_remove(&d);
}

/* ---- generation_config.json ---- */

static float sampling(const struct tensorfile *f, const char *name) {
    char key[64];
    bool there;
    float x = -1;
    snprintf(key, sizeof key, "general.sampling.%s", name);
    const struct meta *m = tensorfile_meta(f, key);
    if (m && m->type == META_U32) return (float)meta_elem_i64(m, 0);
    assert_ok(meta_f32(f, key, &x, &there));
    return x;
}

static void recommended_sampling(void **state) {
    (void)state;
    static const char *const names[] = {"temp", "top_k", "top_p", "min_p", "penalty_repeat"};
    static const struct {
        const char *json;
        float want[5]; /* -1: no key */
        const char *says;
    } cases[] = {
        {"{\"do_sample\": true, \"temperature\": 0.7, \"top_k\": 20, \"top_p\": 0.8, \"min_p\": 0,"
         " \"repetition_penalty\": 1.05, \"max_length\": 1000000000000000019884624838656}",
         {0.7f, 20, 0.8f, 0, 1.05f},
         NULL},
        {"{\"temperature\": 1, \"top_k\": null}", {1, -1, -1, -1, -1}, NULL},
        {"{\"do_sample\": true, \"top_k\": -1}", {1, 0, -1, -1, -1}, NULL},
        {"{\"do_sample\": false, \"temperature\": 0.7, \"top_k\": 5, \"repetition_penalty\": 1.1}",
         {0, -1, -1, -1, 1.1f},
         NULL},
        {"{\"eos_token_id\": 4}", {-1, -1, -1, -1, -1}, NULL},
        {"{\"temperature\": \"0.7\"}", {0}, "generation_config.json: 'temperature' is not a number"},
        {"{\"temperature\": -1}", {0}, "'temperature' is not a number from 0"},
        {"{\"top_p\": 2}", {0}, "'top_p' is not a number from 0 to 1"},
        {"{\"top_k\": 2.5}", {0}, "'top_k' is not an integer"},
        {"{\"do_sample\": 1}", {0}, "'do_sample' is not true or false"},
        {"{\"repetition_penalty\": 0}", {0}, "'repetition_penalty'"},
        {"{\"eos_token_id\": \"<end>\"}", {0}, "'eos_token_id' is not an id"},
        {"{\"eos_token_id\": [4, null]}", {0}, "'eos_token_id' is not an id"},
        {"[]", {0}, "no JSON object"},
        {"{", {0}, "generation_config.json: JSON, line 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct folder d;
        struct tensorfile *f;
        folder_make(&d);
        folder_text(&d, "tokenizer.json", tokenizer);
        folder_text(&d, "generation_config.json", cases[i].json);
        enum infer_status s = tensorfile_open(&f, d.path, &vocab);
        if (cases[i].says) {
            assert_int_equal(s, INFER_E_INPUT);
            if (!strstr(err_message(), cases[i].says))
                fail_msg("'%s' not in: %s", cases[i].says, err_message());
        } else {
            assert_ok(s);
            for (int k = 0; k < 5; k++)
                if (sampling(f, names[k]) != cases[i].want[k])
                    fail_msg("%s: %s is %g", cases[i].json, names[k], (double)sampling(f, names[k]));
            tensorfile_close(f);
        }
        folder_remove(&d);
    }
}

static void eos_ids_end_an_answer(void **state) {
    (void)state;
    static const struct {
        const char *config, *generation, *tokenizer_config;
        int32_t eos;
        const char *stops; /* of ids 0 to 4 */
    } cases[] = {
        {NULL, NULL, NULL, -1, "....."},
        {NULL, "{\"eos_token_id\": 3}", NULL, 3, "...x."},
        {NULL, "{\"eos_token_id\": [3, 1, 3]}", NULL, 3, ".x.x."},
        {NULL, "{\"eos_token_id\": [3, 1, 77]}", "{\"eos_token\": \"<end>\"}", 4, ".x.xx"},
        {"{\"model_type\": \"llama\", \"num_hidden_layers\": 1, \"hidden_size\": 8, \"intermediate_size\": 8,"
         " \"vocab_size\": 5, \"num_attention_heads\": 2, \"max_position_embeddings\": 64,"
         " \"rms_norm_eps\": 1e-6, \"eos_token_id\": [0, 4]}",
         "{\"eos_token_id\": 2}", NULL, 2, "x.x.x"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct folder d;
        struct infer_model *m;
        char stops[6] = "";
        folder_make(&d);
        folder_text(&d, "tokenizer.json", tokenizer);
        if (cases[i].config) folder_text(&d, "config.json", cases[i].config);
        if (cases[i].generation) folder_text(&d, "generation_config.json", cases[i].generation);
        if (cases[i].tokenizer_config) folder_text(&d, "tokenizer_config.json", cases[i].tokenizer_config);
        assert_ok(infer_model_open(&m, d.path, &(struct infer_model_options){.vocab_only = true}));
        for (int id = 0; id < 5; id++) stops[id] = infer_is_stop(m, id) ? 'x' : '.';
        if (infer_eos(m) != cases[i].eos || strcmp(stops, cases[i].stops) != 0)
            fail_msg("case %zu: eos %d, stops %s", i, infer_eos(m), stops);
        infer_model_close(m);
        folder_remove(&d);
    }
}

/* ---- tokenizer_config.json ---- */

#define BPE(added, processor)                                                                                \
    "{\"added_tokens\": [" added "], \"post_processor\": " processor ","                                     \
    " \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false},"                            \
    " \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, \"<s>\": 3, \"\\u0120\": "   \
    "4},"                                                                                                    \
    " \"merges\": [\"a b\"]}}"
#define END          "{\"id\": 5, \"content\": \"<end>\", \"special\": true}"
#define TEMPLATE(t)  "{\"type\": \"TemplateProcessing\", \"single\": [" t "]}"
#define SPECIAL(s)   "{\"SpecialToken\": {\"id\": \"" s "\", \"type_id\": 0}}"
#define THE_TEXT     "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}"
#define DECODER(...) "{\"added_tokens_decoder\": {" __VA_ARGS__ "}}"

static const struct {
    const char *tokenizer, *config, *text, *ids; /* ids of text, with what the model adds */
} tokenized[] = {
    {BPE(END, "null"), NULL, "ab<end>", "2 5"},
    /* special tokens by name: of the vocabulary, and in no list of added ones */
    {BPE(END, "null"), NULL, "a<s>", "0"}, /* bytes without a token are dropped */
    {BPE(END, "null"), "{\"bos_token\": \"<s>\"}", "a<s>", "0 3"},
    {BPE(END, "null"), "{\"additional_special_tokens\": [{\"content\": \"<s>\"}]}", "a<s>", "0 3"},
    {BPE(END, "null"), "{\"pad_token\": \"<pad>\"}", "ab", "2"},
    /* what is added */
    {BPE(END, "null"), "{\"bos_token\": \"<s>\", \"add_bos_token\": true}", "ab", "3 2"},
    {BPE(END, "null"), "{\"bos_token\": {\"content\": \"<s>\"}, \"add_bos_token\": true}", "ab", "3 2"},
    {BPE(END, "null"), "{\"eos_token\": \"<end>\", \"add_eos_token\": true, \"add_bos_token\": null}", "ab",
     "2 5"},
    {BPE(END, TEMPLATE(SPECIAL("<s>") "," THE_TEXT)), NULL, "ab", "3 2"},
    {BPE(END, TEMPLATE(SPECIAL("<s>") "," THE_TEXT)), "{\"add_bos_token\": false}", "ab", "2"},
    {BPE(END, TEMPLATE(SPECIAL("<s>") "," THE_TEXT)), "{\"add_bos_token\": true}", "ab", "3 2"},
    {BPE(END,
         TEMPLATE(SPECIAL("<s>") "," SPECIAL("<end>") "," THE_TEXT "," SPECIAL("<end>") "," SPECIAL("<s>"))),
     NULL, "ab", "3 5 2 5 3"},
    {BPE(END, "{\"type\": \"TemplateProcessing\", \"single\": [" SPECIAL(
                  "x") "," THE_TEXT "], \"special_tokens\": {\"x\": {\"id\": \"x\", \"ids\": [5, 3], "
                       "\"tokens\": [\"<end>\", \"<s>\"]}}}"),
     NULL, "ab", "5 3 2"},
    {BPE(END, "{\"type\": \"Sequence\", \"processors\": [" TEMPLATE(SPECIAL("<s>") "," THE_TEXT) "," TEMPLATE(
                  SPECIAL("<end>") "," THE_TEXT "," SPECIAL("<s>")) "]}"),
     NULL, "ab", "5 3 2 3"},
    /* added_tokens_decoder: more tokens, by rising id */
    {BPE(END, "null"), DECODER("\"7\": {\"content\": \"<y>\"}, \"6\": {\"content\": \"<x>\"}"), "<x>a<y>",
     "6 0 7"},
    {BPE(END, "null"), DECODER("\"5\": {\"content\": \"<end>\", \"special\": true}"), "a<end>", "0 5"},
    {BPE(END, "null"), DECODER("\"99\": {\"content\": \"<end>\", \"special\": true}"), "a<end>", "0 5"},
    {BPE(END, "null"), DECODER("\"2\": {\"content\": \"ab\"}"), "aab", "0 2"},
    /* and corrected ones */
    {BPE(END, "null"), NULL, "a <end> b", "0 4 5 4 1"},
    {BPE(END, "null"), DECODER("\"5\": {\"content\": \"<end>\", \"lstrip\": true, \"rstrip\": true}"),
     "a <end> b", "0 5 1"},
    {BPE("{\"id\": 5, \"content\": \"<end>\", \"lstrip\": true}", "null"),
     DECODER("\"5\": {\"content\": \"<end>\"}"), "a <end> b", "0 4 5 4 1"},
    /* single_word */
    {BPE("{\"id\": 1, \"content\": \"b\", \"single_word\": true}", "null"), NULL, "ab b", "2 4 1"},
    {BPE("{\"id\": 1, \"content\": \"b\", \"single_word\": true}", "null"), NULL, "ba b", "1 0 4 1"},
    {BPE("{\"id\": 1, \"content\": \"b\", \"single_word\": true}", "null"), NULL, "b\xc3\xa9", "1"},
    {BPE(END, "null"), DECODER("\"1\": {\"content\": \"b\", \"single_word\": true}"), "ab b<end>b",
     "2 4 1 5 1"},
};

static const char small_config[] =
    "{\"model_type\": \"llama\", \"num_hidden_layers\": 1, \"hidden_size\": 8, \"intermediate_size\": 8,"
    " \"vocab_size\": 8, \"num_attention_heads\": 2, \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-6,"
    " \"tie_word_embeddings\": true}";

/* {"a": F32 [2]}: tensors enough to be converted, though no model */
static void put_tensors(const struct folder *d) {
    static const char header[] = "{\"a\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 8]}}";
    char file[8 + sizeof header - 1 + 8] = {sizeof header - 1};
    memcpy(file + 8, header, sizeof header - 1);
    folder_put(d, "model.safetensors", file, sizeof file);
}

static void ids_are(const char *path, const char *text, const char *want) {
    struct infer_model *m;
    int32_t ids[32];
    size_t n;
    char got[256] = "", *at = got;
    assert_ok(infer_model_open(&m, path, &(struct infer_model_options){.vocab_only = true}));
    assert_ok(infer_tokenize(m, text, NULL, strlen(text), INFER_TOK_SPECIAL | INFER_TOK_ADD, ids, 32, &n));
    for (size_t i = 0; i < n; i++) at += sprintf(at, "%s%d", i ? " " : "", ids[i]);
    if (strcmp(got, want) != 0) fail_msg("%s: '%s' is %s, not %s", path, text, got, want);
    infer_model_close(m);
}

/* A folder and the file it is converted to give the same ids. */
static void folders_and_files_tokenize_alike(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof tokenized / sizeof *tokenized; i++) {
        struct folder d;
        struct quantize_report r;
        char out[256];
        folder_make(&d);
        folder_text(&d, "config.json", small_config);
        folder_text(&d, "tokenizer.json", tokenized[i].tokenizer);
        if (tokenized[i].config) folder_text(&d, "tokenizer_config.json", tokenized[i].config);
        put_tensors(&d);
        folder_file(&d, out, "out.gguf");
        assert_ok(quantize_file(&(struct quantize_options){.in = d.path, .out = out, .type = "f32"}, &r));
        ids_are(d.path, tokenized[i].text, tokenized[i].ids);
        ids_are(out, tokenized[i].text, tokenized[i].ids);
        folder_remove(&d);
    }
}

static void odd_tokenizers_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *tokenizer, *config, *says;
    } cases[] = {
        {BPE(END, TEMPLATE(SPECIAL("<nowhere>") "," THE_TEXT)), NULL, "adds '<nowhere>', which is no token"},
        {BPE(END, TEMPLATE(SPECIAL("<s>"))), NULL, "a template without the text"},
        {BPE(END, TEMPLATE(THE_TEXT "," THE_TEXT)), NULL, "a template with the text twice"},
        {BPE(END, "{\"type\": \"TemplateProcessing\", \"single\": [" SPECIAL(
                      "x") "," THE_TEXT "], \"special_tokens\": {\"x\": {\"ids\": [77]}}}"),
         NULL, "'x' is id 77, which is no token"},
        {BPE(END, "{\"type\": \"Other\"}"), NULL, "post_processor of type 'Other'"},
        {BPE(END, "null"), "{\"add_bos_token\": true}", "add_bos_token is true, but bos_token is no token"},
        {BPE(END, "null"), "{\"add_eos_token\": true, \"eos_token\": \"<x>\"}",
         "add_eos_token is true, but eos_token"},
        {BPE(END, "null"), DECODER("\"7\": {\"content\": \"<x>\"}"),
         "'<x>' has id 7, but the next one of the vocabulary is 6"},
        {BPE(END, "null"), DECODER("\"0\": {\"content\": \"<x>\"}"), "'<x>' has id 0, but the next"},
        {BPE(END, "null"), DECODER("\"x\": {\"content\": \"<x>\"}"), "'x' is no id"},
        {BPE(END, "null"), DECODER("\"6\": {}"), "'6' is no id, or its token has no content"},
        {BPE(END, "null"), "[]", "tokenizer_config.json: it is no JSON object"},
        {BPE(END, "null"), "{", "tokenizer_config.json: JSON, line 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct folder d;
        struct tensorfile *f;
        folder_make(&d);
        folder_text(&d, "tokenizer.json", cases[i].tokenizer);
        if (cases[i].config) folder_text(&d, "tokenizer_config.json", cases[i].config);
        assert_int_not_equal(tensorfile_open(&f, d.path, &vocab), INFER_OK);
        if (!strstr(err_message(), cases[i].says)) fail_msg("'%s' not in: %s", cases[i].says, err_message());
        folder_remove(&d);
    }
}

/* A list of templates: the one that is named default. */
static void the_default_template_is_taken(void **state) {
    (void)state;
    struct folder d;
    struct infer_model *m;
    struct infer_model_info info;
    folder_make(&d);
    folder_text(&d, "tokenizer.json", tokenizer);
    folder_text(&d, "tokenizer_config.json",
                "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"x\"},"
                " {\"name\": \"default\", \"template\": \"mine\"}]}");
    assert_ok(infer_model_open(&m, d.path, &(struct infer_model_options){.vocab_only = true}));
    infer_model_info(m, &info);
    assert_int_equal(info.chat_template_len, 4);
    assert_memory_equal(info.chat_template, "mine", 4);
    infer_model_close(m);
    folder_remove(&d);
}

/* ---- tensors that nothing reads ---- */

static void tensors_that_nothing_reads(void **state) {
    (void)state;
    static const struct {
        const char *name, *dtype, *shape;
        size_t bytes;
        const char *says; /* NULL: left out */
    } cases[] = {
        {"bn.num_batches_tracked", "I64", "[]", 8, NULL},
        {"some.step", "I64", "[1]", 8, NULL},
        {"some.flag", "BOOL", "[]", 1, NULL},
        {"model.embeddings.position_ids", "I64", "[1, 2]", 16, NULL},
        {"model.layers.0.self_attn.rotary_emb.inv_freq", "F64", "[2]", 16, NULL},
        {"model.rotary_emb.inv_freq", "F32", "[2]", 8, NULL},
        {"empty", "F32", "[0]", 0, NULL},
        {"empty", "F64", "[3, 0, 1, 1, 1]", 0, NULL},
        {"some.ids", "I64", "[2]", 16, "tensor 'some.ids': type I64 is not supported"},
        {"some.scale", "F64", "[]", 8, "type F64 is not supported"},
        {"some.deep", "F32", "[1, 1, 1, 1, 1]", 4, "more than 4 dimensions"},
        {"model.norm.weight", "I64", "[]", 8, "'model.norm.weight': type I64"},
        {"model.norm.weight", "F32", "[0]", 0, "'model.norm.weight': a dimension is no positive number"},
        {"model.layers.0.mlp.up_proj.weight", "F32", "[0, 8]", 0, "a dimension is no positive number"},
        {"empty", "F32", "[-1]", 0, "no positive number"},
        {"empty", "F32", "[0]", 8, "its offsets span 8 bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct folder d;
        struct tensorfile *f;
        char header[512], file[1024] = "";
        folder_make(&d);
        folder_text(&d, "config.json", small_config);
        int n = snprintf(header, sizeof header,
                         "{\"%s\": {\"dtype\": \"%s\", \"shape\": %s, \"data_offsets\": [0, %zu]},"
                         " \"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [%zu, %zu]}}",
                         cases[i].name, cases[i].dtype, cases[i].shape, cases[i].bytes, cases[i].bytes,
                         cases[i].bytes + 4);
        memcpy(file, &(uint64_t){(uint64_t)n}, 8);
        memcpy(file + 8, header, (size_t)n);
        folder_put(&d, "model.safetensors", file, 8 + (size_t)n + cases[i].bytes + 4);
        enum infer_status s = tensorfile_open(&f, d.path, NULL);
        if (cases[i].says) {
            assert_int_not_equal(s, INFER_OK);
            if (!strstr(err_message(), cases[i].says))
                fail_msg("'%s' not in: %s", cases[i].says, err_message());
        } else {
            if (s) fail_msg("%s: %s", cases[i].name, err_message());
            assert_int_equal(f->n_tensor, 1);
            assert_null(tensorfile_find(f, cases[i].name));
            tensorfile_close(f);
        }
        folder_remove(&d);
    }
}

struct said {
    int n;
    char text[4][600];
};
static void keep_line(void *user, enum log_level level, const char *line) {
    struct said *s = user;
    if (level >= LOG_WARN && s->n < 4) snprintf(s->text[s->n++], sizeof s->text[0], "%s", line);
}

/* What a converted file lacks of its folder is said, one line each, and what it does not lack is not. */
static void convert_says_what_it_leaves_out(void **state) {
    (void)state;
    static const struct {
        const char *folder;
        bool has_tokenizer;
        const char *says[2]; /* in their order; NULL: no more */
    } cases[] = {{"llama", true, {NULL}},
                 {"llama", false, {"has no tokenizer.json and no tokenizer.model: "}},
                 {"gemma3-image", true, {": 34 tensors for images or sound ("}},
                 {"qwen3_5-image",
                  false,
                  {": 21 tensors for images or sound (", "has no tokenizer.json and no tokenizer.model: "}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct folder d;
        struct said said = {0};
        struct quantize_report r;
        char from[512], file[128], out[256], command[1200];
        folder_make(&d);
        snprintf(file, sizeof file, "golden/hf/%s", cases[i].folder);
        test_path(from, sizeof from, file);
        snprintf(command, sizeof command, "cp '%s/config.json' '%s/model.safetensors' %s", from, from,
                 d.path);
        assert_int_equal(system(command), 0);
        if (cases[i].has_tokenizer) folder_text(&d, "tokenizer.json", tokenizer);
        folder_file(&d, out, "out.gguf");
        log_set(keep_line, &said);
        assert_ok(quantize_file(&(struct quantize_options){.in = d.path, .out = out, .type = "f32"}, &r));
        log_set(NULL, NULL);
        for (int k = 0; k < 2; k++)
            if ((cases[i].says[k] != NULL) != (k < said.n) ||
                (k < said.n && (!strstr(said.text[k], cases[i].says[k]) || !strstr(said.text[k], out))))
                fail_msg("%s: line %d: %s", cases[i].folder, k, said.text[k]);
        folder_remove(&d);
    }
}

int main(void) {
    json_use_mem();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_beyond_64_bits_are_reals),
        cmocka_unit_test(only_absence_is_absence),
        cmocka_unit_test(a_lone_tokenizer_has_a_config),
        cmocka_unit_test(texts_end_at_their_limit),
        cmocka_unit_test(recommended_sampling),
        cmocka_unit_test(eos_ids_end_an_answer),
        cmocka_unit_test(folders_and_files_tokenize_alike),
        cmocka_unit_test(odd_tokenizers_are_refused),
        cmocka_unit_test(the_default_template_is_taken),
        cmocka_unit_test(tensors_that_nothing_reads),
        cmocka_unit_test(convert_says_what_it_leaves_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
