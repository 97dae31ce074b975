/* Keys of general.* and tokenizer.* in GGUF files, members of tokenizer.json and tokenizer_config.json: each known one, of every type that it has not, is
 * refused by its name and never passed over. */
#include "tests/lib/test.h"
#include "files/tensorfile.h"
#include "tests/lib/folder.h"
#include "tests/lib/gguf_text.h"
#include "text/tok/tok.h"
#include <jansson.h>

static const struct tensorfile_options vocab = {.vocab_only = true};

/* Opens a vocabulary; *why: the message. */
static enum infer_status open_vocab(const char *path) {
    struct tensorfile *f;
    struct tok *t = NULL;
    TRY(tensorfile_open(&f, path, &vocab));
    const enum infer_status s = tok_open(&t, f);
    tok_close(t);
    tensorfile_close(f);
    return s;
}
static void expect_named(const char *path, const char *key, const char *value) {
    const enum infer_status s = open_vocab(path);
    if (s != INFER_E_INPUT || !strstr(err_message(), key) || strchr(err_message(), '\n'))
        fail_msg("%s as %s: status %d: %s", key, value, (int)s, s ? err_message() : "it is taken");
}

/* ---- GGUF ---- */

static const struct {
    const char *kind, *names;
} rows[] = {
#define KEY(kind, names) {#kind, names},
#include "files/key_types.def"
#undef KEY
};

/* Values as gguf_text.h writes them, and the kinds that take them. */
static const struct {
    const char *value, *kinds;
} values[] = {
    {"8 str x", "TEXT"},
    {"4 u32 1", "INT|NUMBER"},
    {"6 f32 0.5", "NUMBER"},
    {"6 f32 nan", "none"},
    {"7 u8 1", "BOOL"},
    {"9 arr 8 1 str x", "TEXTS"},
    {"9 arr 0 2 u8 1 u8 2", "BYTES"},
    {"9 arr 2 2 u16 1 u16 2", "none"},
    {"9 arr 5 2 u32 1 u32 2", "INTS"},
    {"9 arr 6 2 f32 1 f32 2", "FLOATS"},
    {"9 arr 7 1 u8 1", "none"},
    {"9 arr 9 1 u32 8 u64 1 str x", "none"},
};

static bool names(const char *list, const char *word) {
    const char *at = strstr(list, word);
    const size_t n = strlen(word);
    for (; at; at = strstr(at + 1, word))
        if ((at == list || at[-1] == '|') && (at[n] == '|' || !at[n])) return true;
    return false;
}

/* A vocabulary of two tokens with one key as given. */
static void write_vocab(const struct folder *d, const char *key, const char *value) {
    static const char *const base[][2] = {{"tokenizer.ggml.model", "8 str llama"},
                                          {"tokenizer.ggml.tokens", "9 arr 8 2 str a str b"},
                                          {"tokenizer.ggml.scores", "9 arr 6 2 f32 0 f32 0"}};
    struct gguf_text g;
    char line[700];
    int at = 0, n = 1;
    for (int i = 0; i < 3; i++) n += strcmp(key, base[i][0]) != 0;
    at = snprintf(line, sizeof line, "head 3 0 %d key %s %s", n, key, value);
    for (int i = 0; i < 3; i++)
        if (strcmp(key, base[i][0]) != 0)
            at += snprintf(line + at, sizeof line - (size_t)at, " key %s %s", base[i][0], base[i][1]);
    gguf_text(&g, line);
    folder_put(d, "m.gguf", g.data, g.n);
    free(g.data);
}

static void keys_of_gguf(void **state) {
    (void)state;
    struct folder d;
    char path[256], key[96];
    int n = 0;
    folder_make(&d);
    folder_file(&d, path, "m.gguf");
    write_vocab(&d, "general.a_note", values[0].value);
    assert_ok(open_vocab(path));
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (const char *p = rows[r].names; *p; p += strspn(p, "|")) {
            const size_t len = strcspn(p, "|");
            snprintf(key, sizeof key, "%s%.*s%s", *p == '*' ? "tokenizer.ggml.bos" : "",
                     (int)len - (*p == '*' || p[len - 1] == '*'), p + (*p == '*'),
                     p[len - 1] == '*' ? "tool_use" : "");
            p += len;
            for (size_t v = 0; v < sizeof values / sizeof *values; v++, n++) {
                if (names(values[v].kinds, rows[r].kind)) continue;
                write_vocab(&d, key, values[v].value);
                expect_named(path, key, values[v].value);
            }
        }
    assert_in_range(n, 400, 2000);
    folder_remove(&d);
}

/* Two texts with a space between them, as the format has merges. */
static void merges_without_a_space(void **state) {
    (void)state;
    static const char *const merges[] = {"ab", "a\\20", "\\20b", "\"\""};
    struct folder d;
    struct gguf_text g;
    char path[256], line[400];
    folder_make(&d);
    folder_file(&d, path, "m.gguf");
    for (int i = -1; i < 4; i++) {
        snprintf(line, sizeof line,
                 "head 3 0 4 key tokenizer.ggml.model 8 str gpt2 key tokenizer.ggml.pre 8 str default key "
                 "tokenizer.ggml.tokens 9 arr 8 3 "
                 "str a str b str ab key tokenizer.ggml.merges 9 arr 8 2 str a\\20b str %s",
                 i < 0 ? "b\\20a" : merges[i]);
        gguf_text(&g, line);
        folder_put(&d, "m.gguf", g.data, g.n);
        free(g.data);
        if (i < 0)
            assert_ok(open_vocab(path));
        else
            expect_named(path, "tokenizer.ggml.merges[1]", merges[i]);
    }
    folder_remove(&d);
}

/* ---- JSON ---- */

static const char tokenizer[] = "{'added_tokens': [{'id': 7, 'content': '<s>', 'single_word': false, "
                                "'lstrip': false, 'rstrip': false, 'normalized': false, "
                                "'special': true}], 'normalizer': {'type': 'Sequence', 'normalizers': "
                                "[{'type': 'Lowercase'}, {'type': 'Replace', 'pattern': "
                                "{'String': ' '}, 'content': '\xe2\x96\x81'}]}, 'pre_tokenizer': {'type': "
                                "'Sequence', 'pretokenizers': [{'type': 'Split', 'pattern': "
                                "{'Regex': 'a'}, 'behavior': 'Isolated', 'invert': false}, {'type': "
                                "'Digits', 'individual_digits': true}, {'type': 'ByteLevel', "
                                "'add_prefix_space': false, 'trim_offsets': true, 'use_regex': false}]}, "
                                "'post_processor': {'type': 'Sequence', 'processors': [{'type': "
                                "'TemplateProcessing', 'single': [{'SpecialToken': {'id': '<s>', 'type_id': "
                                "0}}, {'Sequence': {'id': 'A', 'type_id': 0}}], 'pair': "
                                "[{'Sequence': {'id': 'A', 'type_id': 0}}, {'Sequence': {'id': 'B', "
                                "'type_id': 1}}], 'special_tokens': {'<s>': {'id': '<s>', 'ids': [7], "
                                "'tokens': ['<s>']}}}]}, 'model': {'type': 'BPE', 'unk_token': null, "
                                "'continuing_subword_prefix': '', 'end_of_word_suffix': '', "
                                "'fuse_unk': false, 'byte_fallback': false, 'ignore_merges': false, 'vocab': "
                                "{'a': 0, 'b': 1, 'ab': 2, '1': 3, '2': 4, '\xc4\xa0': 5, "
                                "'c': 6}, 'merges': ['a b']}}";
static const char config[] = "{'add_bos_token': true, 'add_eos_token': false, 'bos_token': '<s>', "
                             "'eos_token': {'content': '<s>', 'lstrip': false, 'special': true}, "
                             "'unk_token': '<s>', 'pad_token': '<s>', 'additional_special_tokens': ['<s>'], "
                             "'chat_template': [{'name': 'default', 'template': 'x'}], "
                             "'added_tokens_decoder': {'7': {'content': '<s>', 'lstrip': false, "
                             "'normalized': false, 'rstrip': false, 'single_word': false, "
                             "'special': true}}}";

static json_t *json_of(const char *text) {
    char *copy = strdup(text);
    for (char *c = copy; *c; c++)
        if (*c == '\'') *c = '"';
    json_t *root = json_loads(copy, 0, NULL);
    assert_non_null(root);
    free(copy);
    return root;
}

struct walk {
    struct folder d;
    const char *file; /* of which root is */
    json_t *root;
    int n;
};
static void save(struct walk *w) {
    char path[256];
    assert_int_equal(json_dump_file(w->root, folder_file(&w->d, path, w->file), 0), 0);
}

/* Every member in turn as a number with a part, and as a truth or where it is one a text; texts: its members are no keys. */
static void change_members(struct walk *w, json_t *o, bool texts) {
    json_t *keys = json_object(), *v;
    const char *key;
    char path[256];
    size_t i;
    json_array_foreach(o, i, v) change_members(w, v, false);
    if (json_is_object(o)) json_object_update(keys, o);
    folder_file(&w->d, path, "tokenizer.json");
    json_object_foreach(keys, key, v) {
        const bool leaf = strcmp(key, "SpecialToken") == 0 || strcmp(key, "Sequence") == 0;
        for (int k = 0; k < 2 && !texts && !leaf; k++, w->n++) {
            json_object_set_new(o, key,
                                k == 0               ? json_real(1.5)
                                : json_is_boolean(v) ? json_string("x")
                                                     : json_true());
            save(w);
            expect_named(path, key, k == 0 ? "1.5" : "another type");
        }
        json_object_set(o, key, v);
        if (strcmp(key, "vocab") != 0) change_members(w, v, strcmp(key, "special_tokens") == 0);
    }
    json_decref(keys);
}

static void members_of_json(void **state) {
    (void)state;
    static const char *const files[] = {"tokenizer.json", "tokenizer_config.json"}, *const texts[] = {
                                                                                        tokenizer, config};
    for (int i = 0; i < 2; i++) {
        struct walk w = {.file = files[i]};
        char path[256];
        folder_make(&w.d);
        for (int k = 0; k < 2; k++) {
            w.file = files[k];
            w.root = json_of(texts[k]);
            save(&w);
            json_decref(w.root);
        }
        w.file = files[i];
        w.root = json_of(texts[i]);
        assert_ok(open_vocab(folder_file(&w.d, path, "tokenizer.json")));
        change_members(&w, w.root, false);
        assert_in_range(w.n, 30, 400);
        json_decref(w.root);
        folder_remove(&w.d);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(keys_of_gguf),
                                       cmocka_unit_test(merges_without_a_space),
                                       cmocka_unit_test(members_of_json)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
