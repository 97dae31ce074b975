/* Folders of Hugging Face: what is broken is refused, and a folder computes what its GGUF twin does. */
#include "tests/lib/test.h"
#include "tests/lib/folder.h"
#include "infer.h"
#include "files/json.h"
#include "base/mem.h"
#include "tools/file/quantize.h"
#include "files/tensorfile.h"
#include "tests/lib/tolerance.h"
#include <jansson.h>
#include <math.h>

static const struct tensorfile_options plain = {0}, copied = {.no_mmap = true};

static const char config[] =
    "{\"model_type\": \"llama\", \"hidden_act\": \"silu\", \"num_hidden_layers\": 1, \"hidden_size\": 8,"
    " \"intermediate_size\": 8, \"vocab_size\": 4, \"num_attention_heads\": 2, \"max_position_embeddings\": "
    "64, \"rms_norm_eps\": 1e-5}";

/* length of the header, header, n bytes of value 1 */
static void put_safetensors(const struct folder *d, const char *name, const char *header, size_t n) {
    uint64_t len = strlen(header);
    unsigned char *p = malloc(8 + len + n);
    assert_non_null(p);
    memcpy(p, &len, 8);
    memcpy(p + 8, header, len);
    memset(p + 8 + len, 1, n);
    folder_put(d, name, p, 8 + len + n);
    free(p);
}

static void expect(const struct folder *d, enum infer_status want, const char *says) {
    for (int i = 0; i < 2; i++) {
        struct tensorfile *f;
        enum infer_status s = tensorfile_open(&f, d->path, i ? &copied : &plain);
        if (s == INFER_OK) fail_msg("accepted, '%s' wanted", says);
        const char *m = err_message();
        if (s != want || !strstr(m, says))
            fail_msg("status %d, not %d, or not '%s' in: %s", s, want, says, m);
        if (!strstr(m, d->path)) fail_msg("the folder is not named in: %s", m);
        assert_null(strchr(m, '\n'));
    }
}

/* ---- one file ---- */

#define BAD         INFER_E_INPUT
#define UNSUP       INFER_E_UNSUPPORTED
#define T(entry)    "{\"a\": " entry "}"
#define F(shape, o) "{\"dtype\": \"F32\", \"shape\": " shape ", \"data_offsets\": " o "}"

static const struct {
    const char *header;
    size_t n;
    enum infer_status status;
    const char *says;
} hostile[] = {
    {"", 8, BAD, "header does not begin with '{'"},
    {"[]", 0, BAD, "header does not begin with '{'"},
    {" {}", 0, BAD, "header does not begin with '{'"},
    {"{", 8, BAD, "header does not begin with '{'"},
    {"{\"a\"", 8, BAD, "JSON, line 1"},
    {"{}x", 0, BAD, "end of file expected"},
    {"{\"a\": 1, \"a\": 2}", 0, BAD, "duplicate"},
    {"{\"a\\u0000b\": 1}", 0, BAD, "\\u0000"},
    {"{\"\xff\": 1}", 0, BAD, "JSON, line 1"},
    {T("1"), 0, BAD, "tensor 'a': its entry is no object"},
    {T("[]"), 0, BAD, "its entry is no object"},
    {T("{}"), 0, BAD, "no 'dtype'"},
    {T("{\"dtype\": 3}"), 0, BAD, "no 'dtype'"},
    {T("{\"dtype\": \"F32\"}"), 0, BAD, "no 'shape'"},
    {T("{\"dtype\": \"F32\", \"shape\": 4}"), 0, BAD, "no 'shape'"},
    {T("{\"dtype\": \"F32\", \"shape\": [2]}"), 8, BAD, "'data_offsets' are not two numbers"},
    {T("{\"dtype\": \"F64\", \"shape\": [1], \"data_offsets\": [0, 8]}"), 8, UNSUP,
     "type F64 is not supported"},
    {T("{\"dtype\": \"F8_E4M3\", \"shape\": [8], \"data_offsets\": [0, 8]}"), 8, UNSUP, "type F8_E4M3"},
    {T("{\"dtype\": \"I8\", \"shape\": [8], \"data_offsets\": [0, 8]}"), 8, UNSUP, "type I8"},
    {T(F("[1, 1, 1, 1, 1]", "[0, 4]")), 4, BAD, "more than 4 dimensions"},
    {"{\"model.norm.weight\": " F("[0]", "[0, 0]") "}", 0, BAD, "no positive number"},
    {"{\"lm_head.weight\": " F("[0, 4611686018427387904]", "[0, 0]") "}", 0, BAD, "no positive number"},
    {T(F("[-2]", "[0, 8]")), 8, BAD, "no positive number"},
    {T(F("[2.0]", "[0, 8]")), 8, BAD, "no positive number"},
    {T(F("[\"2\"]", "[0, 8]")), 8, BAD, "no positive number"},
    {T(F("[18446744073709551616]", "[0, 8]")), 8, BAD, "no positive number"},
    {T(F("[4611686018427387904]", "[0, 8]")), 8, BAD, "product of its dimensions"},
    {T(F("[4294967296, 4294967296]", "[0, 8]")), 8, BAD, "product of its dimensions"},
    {T(F("[2, 4611686018427387904, 2]", "[0, 8]")), 8, BAD, "product of its dimensions"},
    {T(F("[2]", "[0]")), 8, BAD, "not two numbers"},
    {T(F("[2]", "[0, 8, 9]")), 8, BAD, "not two numbers"},
    {T(F("[2]", "[0, 8.0]")), 8, BAD, "not two numbers"},
    {T(F("[2]", "[8, 0]")), 8, BAD, "end before they begin"},
    {T(F("[2]", "[-8, 0]")), 8, BAD, "negative"},
    {T(F("[2]", "[0, 7]")), 8, BAD, "span 7 bytes, its shape has 8"},
    {T(F("[2]", "[0, 16]")), 16, BAD, "span 16 bytes, its shape has 8"},
    {T(F("[2]", "[0, 8]")), 7, BAD, "ends at 8, after the file (7 bytes of data)"},
    {T(F("[2]", "[9223372036854775799, 9223372036854775807]")), 8, BAD, "after the file"},
    {T(F("[2]", "[4, 12]")), 12, BAD, "leaves a hole"},
    {T(F("[2]", "[0, 8]")), 9, BAD, "1 bytes follow the data of the last tensor"},
    {"{}", 1, BAD, "1 bytes follow"},
    {"{\"a\": " F("[2]", "[0, 8]") ", \"b\": " F("[2]", "[0, 8]") "}", 8, BAD, "overlaps"},
    {"{\"a\": " F("[2]", "[0, 8]") ", \"b\": " F("[2]", "[4, 12]") "}", 12, BAD, "overlaps"},
    {"{\"a\": " F("[2]", "[0, 8]") ", \"b\": " F("[2]", "[12, 20]") "}", 20, BAD, "leaves a hole"},
    {"{\"\": " F("[2]", "[0, 8]") "}", 8, BAD, "its name is empty"},
    {"{\"__metadata__\": 1}", 0, BAD, "'__metadata__' is no object"},
    {"{\"__metadata__\": {\"a\": 1}}", 0, BAD, "no string ('a')"},
    {"{\"model.norm.weight\": " F("[2]", "[0, 8]") ", \"output_norm.weight\": " F("[2]", "[8, 16]") "}", 16,
     BAD, "two tensors stand for output_norm.weight"},
};

static void hostile_files_are_refused(void **state) {
    (void)state;
    struct folder d;
    folder_make(&d);
    folder_text(&d, "config.json", config);
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        put_safetensors(&d, "model.safetensors", hostile[i].header, hostile[i].n);
        expect(&d, hostile[i].status, hostile[i].says);
    }
    folder_text(&d, "model.safetensors", "");
    expect(&d, BAD, "0 bytes, too few");
    folder_text(&d, "model.safetensors", "1234567");
    expect(&d, BAD, "7 bytes, too few");
    folder_put(&d, "model.safetensors", "\x80\0\0\0\0\0\0\0{}", 10);
    expect(&d, BAD, "length is 128, the file has 10 bytes");
    folder_put(&d, "model.safetensors", "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
    expect(&d, BAD, "length is 18446744073709551615");
    folder_put(&d, "model.safetensors", "\0\0\0\x03\0\0\0\0{", 9); /* 48 MiB, mostly a hole of the disk */
    char path[256];
    assert_int_equal(truncate(folder_file(&d, path, "model.safetensors"), 64 << 20), 0);
    expect(&d, BAD, "50331648 bytes, more than 33554432");
    size_t deep = 100000;
    char *nested = malloc(deep + 1);
    memset(nested, '[', deep);
    memcpy(nested, "{\"a\":", 5);
    nested[deep] = 0;
    put_safetensors(&d, "model.safetensors", nested, 0);
    free(nested);
    expect(&d, BAD, "maximum parsing depth");
    folder_remove(&d);
}

static void odd_files_are_read(void **state) {
    (void)state;
    static const struct {
        const char *header;
        size_t n;
    } odd[] = {
        {"{\"b\": " F("[2]", "[8, 16]") ", \"a\": " F("[1, 2]", "[0, 8]") "}", 16},
        {"{\"__metadata__\": {\"format\": \"pt\"}, \"a\": " F("[2]", "[0, 8]") "}   ", 8},
        {"{\"a\":" F("[]", "[0, 4]") "}", 4},
        {"{ \"a\":" F("[1]", "[0, 4]") "}", 4}, /* with the line above: an odd address either way */
        {"{  \"a\":" F("[1]", "[0, 4]") "}", 4},
        {"{   \"a\":" F("[1]", "[0, 4]") "}", 4},
        {"{\"a\": {\"dtype\": \"BF16\", \"shape\": [3, 1], \"data_offsets\": [0, 6]}}", 6},
    };
    struct folder d;
    folder_make(&d);
    folder_text(&d, "config.json", config);
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        struct tensorfile *f;
        put_safetensors(&d, "model.safetensors", odd[i].header, odd[i].n);
        assert_ok(tensorfile_open(&f, d.path, &plain));
        const struct tensor *t = tensorfile_find(f, "a");
        assert_non_null(t);
        assert_int_equal((uintptr_t)t->data % quant_info(t->type)->bytes, 0);
        for (size_t k = 0; k < t->bytes; k++) assert_int_equal(((const unsigned char *)t->data)[k], 1);
        tensorfile_close(f);
    }
    folder_remove(&d);
}

/* ---- the index ---- */

static void indexes(void **state) {
    (void)state;
    static const struct {
        const char *map;
        enum infer_status status; /* INFER_OK: read */
        const char *says;
    } cases[] = {
        {"{\"a\": \"x.safetensors\", \"b\": \"y.safetensors\"}", INFER_OK, NULL},
        {"{\"a\": \"x.safetensors\", \"b\": \"link.safetensors\"}", INFER_OK, NULL}, /* caches hold links */
        {"{\"a\": \"../x.safetensors\"}", BAD, "not a plain name"},
        {"{\"a\": \"/etc/x.safetensors\"}", BAD, "not a plain name"},
        {"{\"a\": \"s/x.safetensors\"}", BAD, "not a plain name"},
        {"{\"a\": \"s\\\\x.safetensors\"}", BAD, "not a plain name"},
        {"{\"a\": \"..safetensors\"}", BAD, "not a plain name"},
        {"{\"a\": \".safetensors\"}", BAD, "not a plain name"},
        {"{\"a\": \"x.bin\"}", BAD, "not a plain name"},
        {"{\"a\": \"\"}", BAD, "not a plain name"},
        {"{\"a\": 1}", BAD, "not a plain name"},
        {"{\"a\": null}", BAD, "not a plain name"},
        {"{}", BAD, "'weight_map' is empty"},
        {"[]", BAD, "no 'weight_map'"},
        {"{\"a\": \"x.safetensors\", \"a\": \"y.safetensors\"}", BAD, "duplicate"},
        {"{\"a\": \"absent.safetensors\"}", INFER_E_IO, "absent.safetensors: No such file"},
        {"{\"a\": \"y.safetensors\"}", BAD, "'a' is not in it, but the index says so"},
        {"{\"a\": \"x.safetensors\", \"c\": \"x.safetensors\"}", BAD, "'c' is not in it"},
        {"{\"a\": \"x.safetensors\", \"b\": \"twice.safetensors\"}", BAD, "is also in"},
    };
    struct folder d;
    char path[256], text[512];
    folder_make(&d);
    folder_text(&d, "config.json", config);
    put_safetensors(&d, "x.safetensors", "{\"a\": " F("[2]", "[0, 8]") "}", 8);
    put_safetensors(&d, "y.safetensors", "{\"b\": " F("[2]", "[0, 8]") "}", 8);
    put_safetensors(&d, "twice.safetensors",
                    "{\"a\": " F("[2]", "[0, 8]") ", \"b\": " F("[2]", "[8, 16]") "}", 16);
    assert_int_equal(symlink("y.safetensors", folder_file(&d, path, "link.safetensors")), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text, "{\"metadata\": {}, \"weight_map\": %s}", cases[i].map);
        folder_text(&d, "model.safetensors.index.json", text);
        if (cases[i].status) {
            expect(&d, cases[i].status, cases[i].says);
            continue;
        }
        struct tensorfile *f;
        assert_ok(tensorfile_open(&f, d.path, &plain));
        assert_int_equal(f->n_part, 2);
        assert_int_equal(f->n_tensor, 2);
        tensorfile_close(f);
    }
    folder_text(&d, "model.safetensors.index.json", "{");
    expect(&d, BAD, "model.safetensors.index.json: JSON, line 1");
    folder_remove(&d);
}

/* ---- config.json ---- */

static void configs(void **state) {
    (void)state;
    static const struct {
        const char *from, *to; /* a piece of config[] and what stands there instead */
        enum infer_status status;
        const char *says;
    } cases[] = {
        {"\"num_hidden_layers\": 1,", "", BAD, "'num_hidden_layers' is missing"},
        {"layers\": 1", "layers\": \"1\"", BAD, "'num_hidden_layers' is not an integer"},
        {"layers\": 1", "layers\": -1", BAD, "'num_hidden_layers' is not an integer"},
        {"layers\": 1", "layers\": 4294967296", BAD, "'num_hidden_layers' is not an integer"},
        {"layers\": 1", "layers\": 1.5", BAD, "'num_hidden_layers' is not an integer"},
        {"{", "{\"hidden_size\": 8,", BAD, "duplicate"},
        {"{", "{\"head_dim\": 0,", BAD, "'head_dim'"},
        {"{", "{\"head_dim\": 4000000000,", BAD, "'num_attention_heads'"},
        {": 1e-5", ": \"x\"", BAD, "'rms_norm_eps' is not a number"},
        {": 1e-5", ": null", BAD, "'rms_norm_eps' is missing"},
        {"silu", "gelu", UNSUP, "'hidden_act' is 'gelu'"},
        {"\"model_type\": \"llama\",", "", BAD, "'model_type'"},
        {"\"llama\"", "\"rwkv7\"", UNSUP, "architecture 'rwkv7' is not supported; nothing near"},
        {"\"llama\"", "\"qwen3_nex\"", UNSUP, "the nearest that is: qwen3"},
    };
    struct folder d;
    char text[1024];
    folder_make(&d);
    expect(&d, BAD, "no config.json");
    folder_text(&d, "config.json", config);
    expect(&d, BAD, "no model.safetensors");
    put_safetensors(&d, "model.safetensors", "{\"a\": " F("[2]", "[0, 8]") "}", 8);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *at = strstr(config, cases[i].from);
        assert_non_null(at);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - config), config, cases[i].to,
                 at + strlen(cases[i].from));
        folder_text(&d, "config.json", text);
        folder_text(&d, "tokenizer.json", "{"); /* the model's own fault comes first */
        expect(&d, cases[i].status, cases[i].says);
    }
    folder_text(&d, "config.json", "");
    expect(&d, BAD, "config.json");
    folder_remove(&d);
}

/* ---- the same model in both containers ---- */

/* GGUF's tensors as Hugging Face has them: names, and the rows of llama's q and k in their own order. */
static void hf_name(const char *name, char *out, size_t size) {
    static const char *const names[][2] = {{"token_embd.weight", "model.embed_tokens.weight"},
                                           {"output_norm.weight", "model.norm.weight"},
                                           {"output.weight", "lm_head.weight"},
                                           {"attn_q.", "self_attn.q_proj."},
                                           {"attn_k.", "self_attn.k_proj."},
                                           {"attn_v.", "self_attn.v_proj."},
                                           {"attn_output.", "self_attn.o_proj."},
                                           {"attn_q_norm.", "self_attn.q_norm."},
                                           {"attn_k_norm.", "self_attn.k_norm."},
                                           {"ffn_gate.", "mlp.gate_proj."},
                                           {"ffn_up.", "mlp.up_proj."},
                                           {"ffn_down.", "mlp.down_proj."},
                                           {"attn_norm.", "input_layernorm."},
                                           {"ffn_norm.", "post_attention_layernorm."}};
    int layer = 0, used = 0;
    int in_layer = sscanf(name, "blk.%d.%n", &layer, &used) == 1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t n = strlen(names[i][0]);
        if (strncmp(name + used, names[i][0], n) != 0) continue;
        if (in_layer)
            snprintf(out, size, "model.layers.%d.%s%s", layer, names[i][1], name + used + n);
        else
            snprintf(out, size, "%s", names[i][1]);
        return;
    }
    fail_msg("no name for %s", name);
}

static uint32_t key_u32(const struct tensorfile *f, const char *arch, const char *name, uint32_t absent) {
    char key[128];
    uint32_t v = absent;
    bool present;
    snprintf(key, sizeof key, "%s.%s", arch, name);
    assert_ok(meta_u32(f, key, &v, &present));
    return v;
}
static float key_f32(const struct tensorfile *f, const char *arch, const char *name, float absent) {
    char key[128];
    float v = absent;
    bool present;
    snprintf(key, sizeof key, "%s.%s", arch, name);
    assert_ok(meta_f32(f, key, &v, &present));
    return v;
}

static void write_config(const struct folder *d, const struct tensorfile *f, const char *arch) {
    char text[2048];
    uint32_t heads = key_u32(f, arch, "attention.head_count", 0),
             embd = key_u32(f, arch, "embedding_length", 0);
    const char *rope = "null";
    if (tensorfile_find(f, "rope_freqs.weight")) /* what scripts/make-goldens.py gave it */
        rope = "{\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": "
               "4.0,"
               " \"original_max_position_embeddings\": 64}";
    if (tensorfile_meta(f, "llama.rope.scaling.type")) rope = "{\"type\": \"linear\", \"factor\": 4.0}";
    snprintf(
        text, sizeof text,
        "{\"model_type\": \"%s\", \"hidden_act\": \"silu\", \"num_hidden_layers\": %u, \"hidden_size\": %u,"
        " \"intermediate_size\": %u, \"vocab_size\": %d, \"num_attention_heads\": %u, "
        "\"num_key_value_heads\": %u,"
        " \"head_dim\": %u, \"max_position_embeddings\": 512, \"rms_norm_eps\": %.9g, \"rope_theta\": %.9g,"
        " \"rope_scaling\": %s, \"tie_word_embeddings\": %s}",
        arch, key_u32(f, arch, "block_count", 0), embd, key_u32(f, arch, "feed_forward_length", 0),
        (int)tensorfile_find(f, "token_embd.weight")->shape[2], heads,
        key_u32(f, arch, "attention.head_count_kv", heads),
        key_u32(f, arch, "attention.key_length", embd / heads),
        (double)key_f32(f, arch, "attention.layer_norm_rms_epsilon", 0),
        (double)key_f32(f, arch, "rope.freq_base", 10000), rope,
        tensorfile_find(f, "output.weight") ? "false" : "true");
    folder_text(d, "config.json", text);
}

/* out[rows][cols]: neighbours (2i, 2i + 1) of GGUF's llama become (i, i + half) of each head. */
static void unpermute(float *out, const float *in, size_t rows, size_t cols, size_t head_dim) {
    for (size_t r = 0; r < rows; r++) {
        size_t head = r / head_dim, i = r % head_dim, half = head_dim / 2;
        size_t from = head * head_dim + (i < half ? 2 * i : 2 * (i - half) + 1);
        memcpy(out + r * cols, in + from * cols, cols * sizeof *out);
    }
}

/* The tensors from..to of f as one file; names go into map. */
static void write_part(const struct folder *d, const char *file, const struct tensorfile *f, const char *arch,
                       size_t from, size_t to, json_t *map) {
    char name[256];
    json_t *header = json_object();
    size_t at = 0;
    char *data = malloc(f->file_bytes);
    for (size_t i = from; i < to; i++) {
        const struct tensor *t = &f->tensor[i];
        if (strcmp(t->name, "rope_freqs.weight") == 0) continue;
        assert_int_equal(t->type, QUANT_F32);
        hf_name(t->name, name, sizeof name);
        json_t *shape = json_array();
        for (int k = 4 - t->n_dim; k < 4; k++) json_array_append_new(shape, json_integer(t->shape[k]));
        json_object_set_new(header, name,
                            json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape", shape, "data_offsets",
                                      (json_int_t)at, (json_int_t)(at + t->bytes)));
        json_object_set_new(map, name, json_string(file));
        int q = strstr(t->name, "attn_q.") != NULL, k = strstr(t->name, "attn_k.") != NULL;
        uint32_t heads = key_u32(f, arch, q ? "attention.head_count" : "attention.head_count_kv", 1);
        if (strcmp(arch, "llama") == 0 && (q || k))
            unpermute((float *)(data + at), t->data, (size_t)t->shape[2], (size_t)t->shape[3],
                      (size_t)t->shape[2] / heads);
        else
            memcpy(data + at, t->data, t->bytes);
        at += t->bytes;
    }
    char *text = json_dumps(header, JSON_COMPACT);
    uint64_t len = strlen(text);
    char *all = malloc(8 + len + at);
    memcpy(all, &len, 8);
    memcpy(all + 8, text, len);
    memcpy(all + 8 + len, data, at);
    folder_put(d, file, all, 8 + len + at);
    mem_free(text); /* json_set_alloc_funcs */
    free(all);
    free(data);
    json_decref(header);
}

static void write_folder(const struct folder *d, const char *name, int n_part) {
    char path[512], file[128];
    struct tensorfile *f;
    struct str s;
    snprintf(file, sizeof file, "golden/forward/%s.gguf", name);
    assert_ok(tensorfile_open(&f, test_path(path, sizeof path, file), NULL));
    assert_ok(meta_str(f, "general.architecture", &s, NULL));
    char arch[32] = "";
    memcpy(arch, s.data, s.len < 31 ? s.len : 31);
    json_t *map = json_object();
    write_config(d, f, arch);
    for (int p = 0; p < n_part; p++) {
        snprintf(file, sizeof file, "model-%05d-of-%05d.safetensors", p + 1, n_part);
        write_part(d, n_part == 1 ? "model.safetensors" : file, f, arch,
                   f->n_tensor * (size_t)p / (size_t)n_part, f->n_tensor * (size_t)(p + 1) / (size_t)n_part,
                   map);
    }
    if (n_part > 1) {
        json_t *index = json_pack("{s:{}, s:O}", "metadata", "weight_map", map);
        char *text = json_dumps(index, 0);
        folder_text(d, "model.safetensors.index.json", text);
        mem_free(text);
        json_decref(index);
    }
    json_decref(map);
    tensorfile_close(f);
}

/* Logits of the folder against those of transformers, as standard deviations of the latter. */
static void compare(const struct folder *d, const char *name) {
    char path[512], file[128];
    int32_t n, n_vocab, *ids;
    float *want;
    snprintf(file, sizeof file, "golden/forward/%s.bin", name);
    FILE *in = fopen(test_path(path, sizeof path, file), "rb");
    assert_non_null(in);
    assert_int_equal(fread(&n, 4, 1, in) + fread(&n_vocab, 4, 1, in), 2);
    size_t all = (size_t)n * (size_t)n_vocab;
    ids = malloc((size_t)n * 4);
    want = malloc(all * 4);
    assert_int_equal(fread(ids, 4, (size_t)n, in) + fread(want, 4, all, in), (size_t)n + all);
    fclose(in);
    struct infer_model *m;
    struct infer_engine *e;
    struct infer_output out;
    int seq;
    assert_ok(infer_model_open(&m, d->path, NULL));
    const struct infer_engine_options o = {
        .device = "ref", .kv_type = "f32", .ctx = 128, .batch = 128, .threads = 1, .all_logits = true};
    assert_ok(infer_engine_create(&e, m, &o));
    assert_ok(infer_seq_open(e, &seq));
    struct infer_row *rows = calloc((size_t)n, sizeof *rows);
    for (int i = 0; i < n; i++)
        rows[i] = (struct infer_row){.id = ids[i], .pos = i, .seq = seq, .want = INFER_WANT_LOGITS};
    assert_ok(infer_step(e, rows, n, &out));
    double sum = 0, sum2 = 0, worst = 0;
    for (size_t i = 0; i < all; i++) {
        double w = (double)want[i],
               diff = fabs((double)out.logits[i / (size_t)n_vocab][i % (size_t)n_vocab] - w);
        sum += w;
        sum2 += w * w;
        if (!(diff <= worst)) worst = diff;
    }
    double sd = sqrt(sum2 / (double)all - sum / (double)all * sum / (double)all);
    print_message("%-15s as a folder: %.2e of sd\n", name, worst / sd);
    if (!(worst <= TOL_LOGITS_REF * sd)) fail_msg("%s: error %g of sd", name, worst / sd);
    infer_engine_free(e);
    infer_model_close(m);
    free(rows);
    free(ids);
    free(want);
}

static void folders_compute_the_same(void **state) {
    (void)state;
    static const char *const models[] = {"llama-gqa", "llama-mha-tied", "llama-rope3",  "llama-linear",
                                         "llama-odd", "qwen2",          "qwen3-narrow", "qwen3"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct folder d;
        folder_make(&d);
        write_folder(&d, models[i], 1 + (int)i % 3);
        compare(&d, models[i]);
        folder_remove(&d);
    }
}

/* A folder becomes the GGUF file that it was made from, byte for byte of every tensor. */
static void folders_convert_to_gguf(void **state) {
    (void)state;
    static const char *const models[] = {"llama-gqa", "llama-rope3", "llama-odd", "qwen2", "qwen3"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct folder d;
        struct tensorfile *f, *g;
        struct quantize_report r;
        char out[256], path[512], file[128];
        folder_make(&d);
        write_folder(&d, models[i], 2);
        assert_ok(quantize_file(
            &(struct quantize_options){.in = d.path, .out = folder_file(&d, out, "out.gguf"), .type = "f32"},
            &r));
        assert_ok(tensorfile_open(&f, out, NULL));
        snprintf(file, sizeof file, "golden/forward/%s.gguf", models[i]);
        assert_ok(tensorfile_open(&g, test_path(path, sizeof path, file), NULL));
        assert_int_equal(f->n_tensor, g->n_tensor);
        assert_null(tensorfile_meta(f, "llama.rope.neox"));
        for (size_t k = 0; k < g->n_tensor; k++) {
            const struct tensor *a = &g->tensor[k], *b = tensorfile_find(f, a->name);
            if (!b || b->type != QUANT_F32 || b->bytes != a->bytes) fail_msg("%s: %s", models[i], a->name);
            bool computed = strcmp(a->name, "rope_freqs.weight") == 0; /* by a formula, in double */
            for (size_t e = 0; e < a->bytes / 4; e++) {
                float x = ((const float *)a->data)[e], y = ((const float *)b->data)[e];
                if (fabsf(x - y) > (computed ? 1e-6f * fabsf(x) : 0))
                    fail_msg("%s: %s[%zu] is %g, not %g", models[i], a->name, e, (double)y, (double)x);
            }
        }
        tensorfile_close(f);
        tensorfile_close(g);
        folder_remove(&d);
    }
}

static const char tokenizer[] =
    "{\"version\": \"1.0\", \"added_tokens\": [{\"id\": 4, \"content\": \"<end>\", \"special\": true}],"
    " \"normalizer\": null, \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false,"
    " \"use_regex\": true}, \"post_processor\": null, \"decoder\": {\"type\": \"ByteLevel\"},"
    " \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, \"c\": 3},"
    " \"merges\": [\"a b\"]}}";

/* The text side of a folder: tokenizer.json, its config, a template in a file of its own. */
static void folders_have_text(void **state) {
    (void)state;
    struct folder d;
    struct infer_model *m;
    struct infer_model_info info;
    int32_t ids[16];
    size_t n;
    folder_make(&d);
    write_folder(&d, "llama-gqa", 1);
    folder_text(&d, "tokenizer.json", tokenizer);
    folder_text(&d, "tokenizer_config.json", "{\"eos_token\": \"<end>\", \"chat_template\": \"old\"}");
    for (int file = 0; file < 2; file++) {
        if (file) folder_text(&d, "chat_template.jinja", "{{ messages }}");
        assert_ok(infer_model_open(&m, d.path, NULL));
        infer_model_info(m, &info);
        assert_true(info.has_tokenizer);
        assert_string_equal(info.format, "safetensors");
        assert_int_equal(info.chat_template_len, file ? 14 : 3);
        assert_memory_equal(info.chat_template, file ? "{{ messages }}" : "old", file ? 14 : 3);
        assert_ok(infer_tokenize(m, "cab<end>", NULL, 8, INFER_TOK_SPECIAL, ids, 16, &n));
        assert_int_equal(n, 3);
        assert_true(ids[0] == 3 && ids[1] == 2 && ids[2] == 4 && infer_eos(m) == 4);
        infer_model_close(m);
    }
    folder_text(&d, "tokenizer.json", "{\"model\": {\"type\": \"New\"}}");
    assert_int_not_equal(infer_model_open(&m, d.path, NULL), INFER_OK);
    assert_non_null(strstr(infer_error(), "tokenizer.json"));
    folder_remove(&d);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    struct folder d;
    folder_make(&d);
    write_folder(&d, "llama-rope3", 2);
    folder_text(&d, "tokenizer.json", tokenizer);
    enum infer_status s;
    uint64_t k = 0;
    do {
        struct tensorfile *f;
        mem_fail_at(++k);
        s = tensorfile_open(&f, d.path, &plain);
        mem_fail_at(0);
        if (s == INFER_OK)
            tensorfile_close(f);
        else if (s != INFER_E_MEMORY)
            fail_msg("allocation %d: %s", (int)k, err_message());
    } while (s != INFER_OK && k < 5000);
    assert_true(k > 20 && k < 5000);
    folder_remove(&d);
}

int main(void) {
    json_use_mem();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile_files_are_refused),
        cmocka_unit_test(odd_files_are_read),
        cmocka_unit_test(indexes),
        cmocka_unit_test(configs),
        cmocka_unit_test(folders_compute_the_same),
        cmocka_unit_test(folders_convert_to_gguf),
        cmocka_unit_test(folders_have_text),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
