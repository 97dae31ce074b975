/* No key in the namespace of a GGUF file's architecture is passed over: each of models/keys.def is changed, and either the
 * logits change, or the file is refused, or it stands there as harmless. */
#include "tests/lib/test.h"
#include "files/model_keys.h"
#include "tests/lib/gguf_copy.h"
#include "tests/lib/logits_of.h"
#include <unistd.h>

/* One key: type u, f, b or s, value as text. */
struct key {
    const char *name, *value;
    char type;
    bool yarn; /* on a file whose rope scaling is yarn */
};

static void put_key(struct gguf_writer *w, const struct key *k) {
    char name[160];
    snprintf(name, sizeof name, "llama.%s", k->name);
    if (k->type == 'u') gguf_writer_u32(w, name, (uint32_t)strtoul(k->value, NULL, 10));
    if (k->type == 'f') gguf_writer_f32(w, name, strtof(k->value, NULL));
    if (k->type == 'b') gguf_writer_bool(w, name, strcmp(k->value, "true") == 0);
    if (k->type == 's') gguf_writer_str(w, name, k->value);
}

static bool has_name(const struct meta *m, const char *name) {
    return m->key.len == 6 + strlen(name) && memcmp(m->key.data + 6, name, m->key.len - 6) == 0;
}

/* golden/forward/llama-gqa.gguf with one key more or another value; NULL: without change. without: a key to leave out */
static void compute_gguf(const struct key *k, const char *without, struct result *r) {
    static const struct key yarn[] = {{"rope.scaling.type", "yarn", 's', true},
                                      {"rope.scaling.factor", "4", 'f', true},
                                      {"rope.scaling.original_context_length", "256", 'u', true},
                                      {"rope.scaling.yarn_beta_fast", "16", 'f', true},
                                      {"rope.scaling.yarn_beta_slow", "2", 'f', true}};
    char path[512], out[64] = "/tmp/infer-test-XXXXXX";
    struct tensorfile *f;
    struct gguf_writer *w;
    int fd = mkstemp(out);
    assert_true(fd >= 0);
    close(fd);
    assert_ok(tensorfile_open(&f, test_path(path, sizeof path, "golden/forward/llama-gqa.gguf"), NULL));
    assert_ok(gguf_writer_open(&w, out));
    for (size_t i = 0; i < f->n_meta; i++)
        if (!(k && has_name(&f->meta[i], k->name)) && !(without && has_name(&f->meta[i], without)))
            gguf_writer_meta(w, &f->meta[i]);
    for (int i = 0; k && k->yarn && i < 5; i++)
        if (strcmp(yarn[i].name, k->name) != 0) put_key(w, &yarn[i]);
    if (k) put_key(w, k);
    gguf_copy_tensors(w, f);
    tensorfile_close(f);
    compute(out, r);
    unlink(out);
}

/* A value for every key that the loader reads, which must be noticed. */
static const struct key read_keys[] = {
    {"block_count", "1", 'u', false},
    {"embedding_length", "8", 'u', false},
    {"feed_forward_length", "8", 'u', false},
    {"context_length", "5", 'u', false},
    {"attention.head_count", "1", 'u', false},
    {"attention.head_count_kv", "1", 'u', false},
    {"attention.key_length", "2", 'u', false},
    {"attention.value_length", "2", 'u', false},
    {"attention.layer_norm_rms_epsilon", "0.5", 'f', false},
    {"attention.scale", "0.5", 'f', false},
    {"attention.sliding_window", "5", 'u', false},
    {"attention.sliding_window_pattern", "2", 'u', false},
    {"expert_count", "4", 'u', false},
    {"expert_used_count", "2", 'u', false},
    {"no_head", "true", 'b', false},
    {"text_length", "100000000", 'u', false}, /* beyond the positions */
    {"rope.dimension_count", "4", 'u', false},
    {"rope.freq_base", "500", 'f', false},
    {"rope.neox", "true", 'b', false},
    {"rope.scale_linear", "4", 'f', false},
    {"rope.scaling.type", "longrope", 's', false},
    {"rope.scaling.factor", "4", 'f', false},
    {"rope.scaling.dynamic_context_length", "9", 'u', false},
    {"rope.scaling.attn_factor", "2", 'f', false},
    {"rope.scaling.type", "linear", 's', true},
    {"rope.scaling.type", "none", 's', true},
    {"rope.scaling.factor", "2", 'f', true},
    {"rope.scaling.attn_factor", "2", 'f', true},
    {"rope.scaling.original_context_length", "4096", 'u', true},
    {"rope.scaling.yarn_beta_fast", "2.5", 'f', true},
    {"rope.scaling.yarn_beta_slow", "15", 'f', true},
    {"rope.scaling.yarn_truncate", "false", 'b', true},
    {"rope.scaling.yarn_beta_fast", "16", 'f', false},
};
enum { N_READ = sizeof read_keys / sizeof *read_keys };

static const struct {
    const char *names, *words;
    enum key_use use;
} rows[] = {
#define ROW_GGUF(names, words, use) {names, words, use},
#define ROW_CONFIG(names, words, use)
#define READ(space, names)          ROW_##space(names, "", KEY_READ)
#define OFF(space, names, neutral)  ROW_##space(names, neutral, KEY_OFF)
#define HARMLESS(space, names, why) ROW_##space(names, why, KEY_HARMLESS)
#define ROPE(names, types)
#include "models/keys.def"
};

/* Word i of a list "a|b" in buf; false behind the last. */
static bool word(const char *list, int i, char *buf, size_t size) {
    for (; i > 0; i--) {
        list = strchr(list, '|');
        if (!list) return false;
        list++;
    }
    snprintf(buf, size, "%.*s", (int)strcspn(list, "|"), list);
    return true;
}

static struct key typed(const char *name, const char *value) {
    char *end;
    (void)strtod(value, &end);
    bool truth = strcmp(value, "true") == 0 || strcmp(value, "false") == 0;
    return (struct key){name, value, truth ? 'b' : *end ? 's' : 'f', false};
}

static void off_key(const char *name, const char *words, const struct result *base) {
    static const char *const others[] = {"0", "1", "2.5", "true", "false", "some text"};
    char value[64];
    struct result r;
    int n_refused = 0;
    for (int i = 0; word(words, i, value, sizeof value); i++) {
        struct key k = typed(name, value);
        compute_gguf(&k, NULL, &r);
        if (!same(&r, base)) fail_msg("%s = %s is not neutral: %s", name, value, r.why);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct key k = typed(name, others[i]);
        if (key_names(words, others[i], strlen(others[i]))) continue;
        compute_gguf(&k, NULL, &r);
        if (r.status != INFER_E_UNSUPPORTED || !strstr(r.why, name))
            fail_msg("%s = %s: status %d: %s", name, others[i], r.status, r.why);
        n_refused++;
    }
    assert_in_range(n_refused, 4, 6);
}

static void every_key_of_gguf_counts(void **state) {
    (void)state;
    struct result base, yarn, r;
    char name[96];
    compute_gguf(NULL, NULL, &base);
    if (base.status) fail_msg("%s", base.why);
    compute_gguf(&(struct key){"rope.scaling.type", "yarn", 's', true}, NULL, &yarn);
    if (yarn.status) fail_msg("%s", yarn.why);
    for (int i = 0; i < N_READ; i++) {
        compute_gguf(&read_keys[i], NULL, &r);
        if (r.status && !refused(&r)) fail_msg("%s: status %d: %s", read_keys[i].name, r.status, r.why);
        if (same(&r, read_keys[i].yarn ? &yarn : &base)) fail_msg("%s is passed over", read_keys[i].name);
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int j = 0; word(rows[i].names, j, name, sizeof name); j++) {
            bool tried = false;
            for (int k = 0; k < N_READ; k++) tried |= strcmp(read_keys[k].name, name) == 0;
            if (rows[i].use == KEY_READ && !tried) fail_msg("%s has no value in read_keys", name);
            if (rows[i].use == KEY_OFF) off_key(name, rows[i].words, &base);
            if (rows[i].use != KEY_HARMLESS) continue;
            compute_gguf(&(struct key){name, "3", 'u', false}, NULL, &r);
            if (!same(&r, &base)) fail_msg("%s is not harmless: %s", name, r.why);
        }
    compute_gguf(&(struct key){"attention.new_scale", "3", 'u', false}, NULL, &r);
    assert_int_equal(r.status, INFER_E_UNSUPPORTED);
    assert_non_null(strstr(r.why, ".ignore_keys 'llama.attention.new_scale'"));
    compute_gguf(NULL, "attention.layer_norm_rms_epsilon", &r);
    assert_int_equal(r.status, INFER_E_INPUT);
    assert_non_null(strstr(r.why, "'llama.attention.layer_norm_rms_epsilon' is missing"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_key_of_gguf_counts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
