/* Tokenizers out of tokenizer.json and tokenizer.model: what they say, what they cannot say, failing allocations. */
#include "files/json.h"
#include "base/mem.h"
#include "tests/lib/tok_ids.h"
#include "files/vocab_scan.h"
#include "infer.h"
#include "tests/lib/tok_vocab.h"
#include <jansson.h>

/* ---- tokenizer.json ---- */
static enum infer_status open_json(struct tensorfile **f, struct tok **t, const char *json) {
    char path[] = "/tmp/infer-json-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, json, strlen(json)), (ssize_t)strlen(json));
    close(fd);
    struct tensorfile_options o = {.vocab_only = true};
    *t = NULL;
    enum infer_status s = tensorfile_open(f, path, &o);
    unlink(path);
    if (s == INFER_OK) s = tok_open(t, *f);
    return s;
}

#define JSON_VOCAB "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"\\u0120\":3,\"\\u0120a\":4,\"1\":5,\"11\":6}"
#define JSON_BPE                                                                                             \
    "\"model\":{\"type\":\"BPE\"," JSON_VOCAB ",\"merges\":[\"a b\",[\"\\u0120\",\"a\"],\"1 1\"]}"

static void json_bytes(void **state) {
    (void)state;
    struct tensorfile *f;
    struct tok *t;
    assert_ok(open_json(
        &f, &t,
        "{\"added_tokens\":[{\"id\":7,\"content\":\"<s>\",\"special\":true},"
        "{\"id\":9,\"content\":\"<t>\",\"special\":false,\"rstrip\":true,\"lstrip\":true}],"
        "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Lowercase\"}]},"
        "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
        "{\"type\":\"Digits\",\"individual_digits\":true},"
        "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"use_regex\":true}]},"
        "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}},"
        "{\"Sequence\":{\"id\":\"A\"}}]}," JSON_BPE "}"));
    assert_int_equal(tok_size(t), 10);
    assert_int_equal(tok_bos(t), 7);
    check_ids(t, "ab", NULL, TOK_ADD, IDS(7, 3, 2));     /* a space in front; "ab" joins first */
    check_ids(t, " AB 11", NULL, 0, IDS(3, 2, 3, 5, 5)); /* digits apart: no "11" */
    check_ids(t, "a \xe2\x80\x83<t> \n ab", NULL, 0, IDS(4, 9, 3, 2));
    check_ids(t, "<s>b", NULL, TOK_SPECIAL, IDS(7, 3, 1));
    tok_close(t);
    tensorfile_close(f);
    /* what stands behind ByteLevel reads the byte alphabet: U+0120 is a space there */
    assert_ok(open_json(
        &f, &t,
        "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
        "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true},"
        "{\"type\":\"Split\",\"pattern\":{\"String\":\"\\u0120\"},\"behavior\":\"Isolated\"}]}," JSON_BPE
        "}"));
    check_ids(t, "a ab", NULL, 0, IDS(0, 3, 2));
    tok_close(t);
    tensorfile_close(f);
    assert_int_equal(open_json(&f, &t,
                               "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
                               "{\"type\":\"ByteLevel\"},{\"type\":\"ByteLevel\"}]}," JSON_BPE "}"),
                     INFER_E_UNSUPPORTED);
    /* cuts of every mode */
    static const struct {
        const char *how;
        int32_t want[8]; /* of "ab1b11a" */
    } modes[] = {
        {"\"behavior\":\"Isolated\"", {2, 5, 1, 5, 5, 0, -1}},
        {"\"behavior\":\"Removed\"", {2, 1, 0, -1}},
        {"\"behavior\":\"Removed\",\"invert\":true", {5, 5, 5, -1}},
        {"\"behavior\":\"MergedWithPrevious\"", {2, 5, 1, 5, 5, 0, -1}},
        {"\"behavior\":\"MergedWithNext\"", {2, 5, 1, 5, 5, 0, -1}},
    };
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        char json[2048];
        snprintf(
            json, sizeof json,
            "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":"
            "{\"Regex\":\"\\\\p{N}\"},%s},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
            "\"use_regex\":false}]}," JSON_BPE "}",
            modes[i].how);
        assert_ok(open_json(&f, &t, json));
        check_ids(t, "ab1b11a", NULL, 0, modes[i].want);
        tok_close(t);
        tensorfile_close(f);
    }
}

static void json_characters(void **state) {
    (void)state;
    struct tensorfile *f;
    struct tok *t;
    assert_ok(open_json(
        &f, &t,
        "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":"
        "\"\\u2581\"},"
        "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\\u2581\"}]},"
        "\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"fuse_unk\":true,\"byte_fallback\":true,"
        "\"vocab\":{\"<unk>\":0,\"<0x0A>\":1,\"\\u2581\":2,\"a\":3,\"\\u2581a\":4,\"b\":5},"
        "\"merges\":[\"\\u2581 a\"]}}"));
    check_ids(t, "a a", NULL, 0, IDS(4, 4));
    check_ids(t, "b\na", NULL, 0, IDS(2, 5, 1, 3));
    check_ids(t, "xyb\xc3\xa4", NULL, 0, IDS(2, 0, 5, 0)); /* unknown characters fuse */
    struct str s = tok_piece(t, 1, false, false);
    assert_int_equal(s.len, 1);
    assert_int_equal(s.data[0], '\n');
    tok_close(t);
    tensorfile_close(f);
}

static void json_allocations_may_fail(void **state) {
    (void)state;
    char path[1024];
    struct tensorfile_options o = {.vocab_only = true};
    static const char *const names[] = {"bytes", "chars", "unigram", "bert", "proto"};
    json_use_mem();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char rel[64];
        snprintf(rel, sizeof rel, "fuzz/corpus/tokjson/%s", names[i]);
        test_path(path, sizeof path, rel);
        enum infer_status s = INFER_E_MEMORY;
        uint64_t k = 1;
        for (; s == INFER_E_MEMORY && k < 10000; k++) {
            struct tensorfile *f = NULL;
            struct tok *t = NULL;
            mem_fail_at(k);
            s = tensorfile_open(&f, path, &o);
            if (s == INFER_OK) s = tok_open(&t, f);
            mem_fail_at(0);
            tok_close(t);
            tensorfile_close(f);
        }
        if (s != INFER_OK) fail_msg("%s, allocation %d: %s", names[i], (int)k, err_message());
        assert_true(k > 3);
    }
    json_set_alloc_funcs(malloc, free);
}

/* ---- what a vocabulary lacks ---- */
static int n_warned;
static void count_warning(void *user, enum log_level level, const char *line) {
    (void)user;
    n_warned += level == LOG_WARN && strstr(line, "no token for byte 0x0b") != NULL;
}

/* A vocabulary without a token for some byte, as Falcon's: the byte is left out, which is said once. An unknown token is not
 * put in its place, whatever the file names as such. */
static void missing_bytes_are_left_out(void **state) {
    (void)state;
    struct vocab_file v;
    struct tensorfile *f;
    struct tok *t;
    for (int unknown = 0; unknown < 2; unknown++) {
        vf_begin(&v);
        vf_key_str(&v, "tokenizer.ggml.model", "gpt2");
        vf_key_str(&v, "tokenizer.ggml.pre", "gpt-2");
        if (unknown) vf_key_u32(&v, "tokenizer.ggml.unknown_token_id", 2);
        vf_key_array(&v, "tokenizer.ggml.tokens", META_STRING, 3);
        vf_str(&v, "a");
        vf_str(&v, "\xc5\xbf"); /* U+017F is behind the end of the byte alphabet: it stands for itself */
        vf_str(&v, "b");
        assert_ok(vf_open(&v, &f));
        assert_ok(tok_open(&t, f));
        assert_int_equal(tok_piece(t, 1, false, false).len, 2);
        log_set(count_warning, NULL);
        check_ids(t,
                  "a\x0b"
                  "b\x0b",
                  NULL, 0, IDS(0, 2));
        check_ids(t, "\x0b", NULL, 0, (const int32_t[]){-1});
        check_ids(t, "\xff\xc5", NULL, 0, (const int32_t[]){-1}); /* no UTF-8 */
        log_set(NULL, NULL);
        tok_close(t);
        tensorfile_close(f);
    }
    assert_int_equal(n_warned, 1);
}

/* What stands beside a byte that is left out joins, as in tokenizers. */
static void neighbours_of_a_missing_byte_join(void **state) {
    (void)state;
    struct vocab_file v;
    struct tensorfile *f;
    struct tok *t;
    char s[303];
    vf_begin(&v);
    vf_key_str(&v, "tokenizer.ggml.model", "gpt2");
    vf_key_str(&v, "tokenizer.ggml.pre", "gpt-2");
    vf_key_array(&v, "tokenizer.ggml.tokens", META_STRING, 2);
    vf_str(&v, "!");
    vf_str(&v, "!!");
    vf_key_array(&v, "tokenizer.ggml.merges", META_STRING, 1);
    vf_str(&v, "! !");
    assert_ok(vf_open(&v, &f));
    assert_ok(tok_open(&t, f));
    check_ids(t, "!*!", NULL, 0, IDS(1));
    check_ids(t, "*!**!!*", NULL, 0, IDS(1, 0));
    memset(s, '*', 302); /* a long piece takes another way */
    s[0] = s[301] = '!';
    s[302] = 0;
    check_ids(t, s, NULL, 0, IDS(1));
    tok_close(t);
    tensorfile_close(f);
}

/* Special tokens of Phi-3 take the white space behind them, as the flags of its tokenizer.json say, which a GGUF file does not hold. */
static void phi3_takes_space(void **state) {
    (void)state;
    static const char *const tokens[] = {"<unk>",   "<s>", "</s>", "\xe2\x96\x81", "a", "\xe2\x96\x81\x61",
                                         "<|user|>"};
    for (int phi = 0; phi < 2; phi++) {
        struct vocab_file v;
        struct tensorfile *f;
        struct tok *t;
        vf_begin(&v);
        vf_key_str(&v, "general.architecture", phi ? "phi3" : "llama");
        vf_key_str(&v, "tokenizer.ggml.model", "llama");
        vf_key_array(&v, "tokenizer.ggml.tokens", META_STRING, 7);
        for (int i = 0; i < 7; i++) vf_str(&v, tokens[i]);
        vf_key_array(&v, "tokenizer.ggml.scores", META_F32, 7);
        for (int i = 0; i < 7; i++) vf_u32(&v, 0);
        vf_key_array(&v, "tokenizer.ggml.token_type", META_I32, 7);
        for (int i = 0; i < 7; i++) vf_u32(&v, i == 0 ? 2 : i < 3 || i == 6 ? 3 : 1);
        assert_ok(vf_open(&v, &f));
        assert_ok(tok_open(&t, f));
        check_ids(t, "<|user|> a", NULL, TOK_SPECIAL, phi ? IDS(6, 5) : IDS(6, 3, 5));
        check_ids(t, "<s> a", NULL, TOK_SPECIAL, IDS(1, 3, 5)); /* one that does not */
        tok_close(t);
        tensorfile_close(f);
    }
}

/* Merges that are gone: refused where text can become a token of several symbols. */
static void lost_merges_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *model, *pre, *token;
        int type, empty; /* empty: an array of merges without any */
        bool refused;
    } cases[] = {
        {"gpt2", "gpt-2", "bc", 1, 0, true},        {"gpt2", "gpt-2", "bc", 1, 1, true},
        {"gpt2", "llama-bpe", "bc", 1, 0, true}, /* ignore_merges */
        {"gemma4", "gemma4", "bc", 1, 0, true},     {"llama", "default", "bc", 1, 0, true},
        {"gpt2", "gpt-2", "\xc4\xa0", 1, 0, false}, {"gpt2", "gpt-2", "<s>", 3, 0, false},
        {"gpt2", "gpt-2", "<s>", 4, 0, false},      {"llama", "default", "\xe2\x96\x81", 1, 0, false},
        {"bert", "default", "bc", 1, 0, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct vocab_file v;
        struct tensorfile *f;
        struct tok *t;
        vf_begin(&v);
        vf_key_str(&v, "tokenizer.ggml.model", cases[i].model);
        vf_key_str(&v, "tokenizer.ggml.pre", cases[i].pre);
        vf_key_array(&v, "tokenizer.ggml.tokens", META_STRING, 2);
        vf_str(&v, "b");
        vf_str(&v, cases[i].token);
        vf_key_array(&v, "tokenizer.ggml.token_type", META_I32, 2);
        vf_u32(&v, 1);
        vf_u32(&v, (uint32_t)cases[i].type);
        if (cases[i].empty) vf_key_array(&v, "tokenizer.ggml.merges", META_STRING, 0);
        if (cases[i].refused) {
            assert_ok(vf_open(&v, &f));
            assert_int_equal(tok_open(&t, f), INFER_E_INPUT);
            tensorfile_close(f);
            const char *says = (cases[i].model[0] == 'l' ? "without tokenizer.ggml.scores"
                                                         : "a BPE vocabulary of 2 tokens without merges");
            if (!strstr(err_message(), says)) fail_msg("'%s' is not in: %s", says, err_message());
            continue;
        }
        assert_ok(vf_open(&v, &f));
        assert_ok(tok_open(&t, f));
        tok_close(t);
        tensorfile_close(f);
    }
}

/* Two vocabularies are the same up to tokens at the end that nobody uses (type 5). Tokens are letters; a capital one is unused. */
static void vocabularies_are_compared(void **state) {
    (void)state;
    static const struct {
        const char *a, *b, *message; /* NULL: the same */
    } cases[] = {
        {"abc", "abc", NULL},
        {"abc", "abcXY", NULL},
        {"abcZ", "abcXY", NULL},
        {"abcd", "abXd", "token 2 is 'c' in "},
        {"abc", "abd", "token 2 is 'c' in "},
        {"abc", "ab", "3 tokens in "},
        {"aXc", "aYc", "token 1 is 'X' in "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct infer_model_options o = {.vocab_only = true};
        struct infer_model *m[2];
        for (int k = 0; k < 2; k++) {
            const char *tokens = k ? cases[i].b : cases[i].a;
            struct vocab_file v;
            char path[] = "/tmp/infer-vocab-XXXXXX";
            vf_begin(&v);
            vf_key_str(&v, "tokenizer.ggml.model", "gpt2");
            vf_key_str(&v, "tokenizer.ggml.pre", "gpt-2");
            vf_key_array(&v, "tokenizer.ggml.tokens", META_STRING, strlen(tokens));
            for (const char *c = tokens; *c; c++) vf_str(&v, (char[]){*c, 0});
            vf_key_array(&v, "tokenizer.ggml.token_type", META_I32, strlen(tokens));
            for (const char *c = tokens; *c; c++) vf_u32(&v, *c < 'a' ? 5 : 1);
            vf_write(&v, path);
            assert_ok(infer_model_open(&m[k], path, &o));
            unlink(path);
        }
        enum infer_status s = infer_vocab_same(m[0], m[1]);
        assert_int_equal(s, cases[i].message ? INFER_E_INPUT : INFER_OK);
        if (s && !strstr(infer_error(), cases[i].message))
            fail_msg("'%s' is not in: %s", cases[i].message, infer_error());
        infer_model_close(m[0]);
        infer_model_close(m[1]);
    }
}

/* WordPiece: a character that is not assigned makes its word unknown, a private one is dropped, as BertNormalizer does. */
static void unassigned_characters_are_unknown(void **state) {
    (void)state;
    struct vocab_file v;
    struct tensorfile *f;
    struct tok *t;
    vf_begin(&v);
    vf_key_str(&v, "tokenizer.ggml.model", "bert");
    vf_key_u32(&v, "tokenizer.ggml.unknown_token_id", 0);
    vf_key_array(&v, "tokenizer.ggml.tokens", META_STRING, 2);
    vf_str(&v, "[UNK]");
    vf_str(&v, "\xe2\x96\x81"
               "a");
    assert_ok(vf_open(&v, &f));
    assert_ok(tok_open(&t, f));
    check_ids(t, "a \xcd\xb8 a\xee\x80\x80", NULL, 0, IDS(1, 0, 1));
    check_ids(t, "a\xcd\xb8", NULL, 0, IDS(0));
    tok_close(t);
    tensorfile_close(f);
}

/* ---- tokenizer.model ---- */
static void proto_file(void **state) {
    (void)state;
    char path[1024], cut_path[] = "/tmp/infer-proto-XXXXXX";
    unsigned char data[512];
    struct tensorfile_options o = {.vocab_only = true};
    struct tensorfile *f;
    struct tok *t;
    /* <unk> <s> </s> <0x0A> space a space-a l, BPE by scores 0 .. -4 */
    test_path(path, sizeof path, "fuzz/corpus/tokjson/proto");
    assert_ok(tensorfile_open(&f, path, &o));
    assert_ok(tok_open(&t, f));
    check_ids(t, "a", NULL, TOK_ADD, IDS(1, 6));
    check_ids(t, "l\na", NULL, 0, IDS(4, 7, 3, 5));
    check_ids(t, "x", NULL, 0, IDS(4, 0));
    tok_close(t);
    tensorfile_close(f);
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    size_t n = fread(data, 1, sizeof data, in);
    fclose(in);
    for (size_t cut = 1; cut < n; cut++) { /* refused with a message, or whole up to there */
        int fd = mkstemp(cut_path);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, data, cut), (ssize_t)cut);
        close(fd);
        enum infer_status s = tensorfile_open(&f, cut_path, &o);
        unlink(cut_path);
        strcpy(cut_path + strlen(cut_path) - 6, "XXXXXX");
        assert_true(s == INFER_OK || s == INFER_E_INPUT);
        if (s != INFER_OK) continue;
        s = tok_open(&t, f);
        assert_true(s == INFER_OK || s == INFER_E_INPUT);
        if (s == INFER_OK) tok_close(t);
        tensorfile_close(f);
    }
}

/* What stands in an escape, on either side of 16 bytes and at the end of the file: as jansson reads it. */
static void json_lists(void **state) {
    (void)state;
    static const char *const names[] = {"a",
                                        "",
                                        "b\\\"c",
                                        "\\\\\\/\\b\\f\\n\\r\\t",
                                        "\\u00e9\\uD83d\\uDe00\\u2581x\\u007f",
                                        "\xc3\xa9\xe2\x96\x81",
                                        "0123456789abcdef",
                                        "0123456789abcde\\n",
                                        "0123456789abcdef\\u0120",
                                        "0123456789abcdef0123456789\xf0\x9f\x98\x80"};
    enum { N = sizeof names / sizeof *names };
    for (int spaces = 0; spaces < 40; spaces++) {
        char json[8192], object[4096] = "", pairs[4096] = "", *o = object, *p = pairs;
        for (int i = 0; i < N; i++) {
            o += sprintf(o, "%s%*s\n\"%s\":%*s%d", i ? "," : "", spaces, "", names[i], spaces, "", i);
            p += sprintf(p, "%s[\"%s\",%*s\"x\"]\r\t", i ? "," : "", names[i], spaces, "");
        }
        int n = sprintf(
            json, "{\"a\":[{\"}\":\"]\"},-1e5,true],\"model\":{\"x\":{},\"vocab\":{%s},\"merges\":[%s]}%*s}",
            object, pairs, spaces, "");
        char *exact = malloc((size_t)n); /* a read behind its end shows */
        assert_non_null(exact);
        memcpy(exact, json, (size_t)n);
        struct arena a = {0};
        struct tok_scan scan;
        json_t *rest, *whole = json_loadb(json, (size_t)n, 0, NULL), *model = json_object_get(whole, "model");
        assert_ok(tok_scan(&scan, &a, exact, (size_t)n));
        assert_ok(tok_scan_rest(&rest, &scan, exact, (size_t)n));
        assert_int_equal(scan.vocab.n, N);
        assert_int_equal(scan.merges.n, N);
        for (int i = 0; i < N; i++) {
            struct str name = scan.vocab.first->entry[i].text, pair = scan.merges.first->entry[i].text;
            const json_t *id = json_object_getn(json_object_get(model, "vocab"), name.data, name.len);
            const json_t *left =
                json_array_get(json_array_get(json_object_get(model, "merges"), (size_t)i), 0);
            assert_int_equal(scan.vocab.first->entry[i].id, i);
            assert_true(json_is_integer(id) && json_integer_value(id) == i);
            assert_int_equal(pair.len, json_string_length(left) + 2);
            assert_memory_equal(pair.data, json_string_value(left), pair.len - 2);
            assert_memory_equal(pair.data + pair.len - 2, " x", 2);
        }
        assert_true(json_is_null(json_object_get(json_object_get(rest, "model"), "vocab")));
        assert_true(json_equal(json_object_get(rest, "a"), json_object_get(whole, "a")));
        json_decref(whole);
        json_decref(rest);
        arena_free(&a);
        free(exact);
    }
}

static void json_refused(void **state) {
    (void)state;
    static const struct {
        const char *json, *what;
    } bad[] = {
        {"{", "line 1"},
        {"{}", "model"},
        {"{\"model\":{\"type\":\"WordLevel\",\"vocab\":{}}}", "WordLevel"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}", "vocab"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":2000000000},\"merges\":[]}}", "2000000000"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", "'a'"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", "twice"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[3]}}", "merges[0]"},
        {"{\"normalizer\":{\"type\":\"Rot13\"}," JSON_BPE "}", "Rot13"},
        {"{\"pre_tokenizer\":{\"type\":\"Scissors\"}," JSON_BPE "}", "Scissors"},
        {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},\"behavior\":\"Isolated\"}"
         "," JSON_BPE "}",
         "pattern"},
        {"{\"added_tokens\":[{\"id\":-4,\"content\":\"x\"}]," JSON_BPE "}", "added_tokens[0]"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",\"b\"]]}}", "vocab[0]"},
        {"{\"model\":{\"vocab\":{\"a\":0},\n\"vocab\":{\"a\":0}}}", "twice"},
        {"{\"model\":{\"vocab\":{\"a\":0,\n\"a\x01\":1}}}", "line 2: model.vocab[1]"},
        {"{\"model\":{\"vocab\":{\"a\xff\":0}}}", "vocab[0]"},
        {"{\"model\":{\"vocab\":{\"\\ud800x\":0}}}", "vocab[0]"},
        {"{\"model\":{\"vocab\":{\"\\udc00\":0}}}", "vocab[0]"},
        {"{\"model\":{\"vocab\":{\"\\u12g4\":0}}}", "vocab[0]"},
        {"{\"model\":{\"vocab\":{\"\\u1", "vocab[0]"},
        {"{\"model\":{\"vocab\":{\"\\ud83d\\ude", "vocab[0]"},
        {"{\"model\":{\"vocab\":{\"\\x\":0}}}", "vocab[0]"},
        {"{\"model\":{\"vocab\":{\"a\" 0}}}", "vocab[0]"},
        {"{\"model\":{\"vocab\":{\"a\":0 \"b\":1}}}", "neither a comma nor the end"},
        {"{\"model\":{\"vocab\":{\"a\":0,}}}", "vocab[1]"},
        {"{\"model\":{\"vocab\":{\"a\":01}}}", "'a'"},
        {"{\"model\":{\"vocab\":{\"a\":1.5}}}", "'a'"},
        {"{\"model\":{\"vocab\":{\"a\":", "'a'"},
        {"{\"model\":{\"vocab\":{\"a", "vocab[0]"},
        {"{\"model\":{\"vocab\":{\"a\\", "vocab[0]"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a b\",[\"a\"]]}}", "merges[1]"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[[\"a \",\"b\"]]}}", "merges[0] holds a space"},
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[[\"a\",\"\\u0020\"]]}}", "merges[0] holds a space"},
        {"{\n\"model\":{\"vocab\":{\n\"a\":0\n},\n\"merges\":[\n]\n}\n\"x\":}", "line 8"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct tensorfile *f = NULL;
        struct tok *t;
        enum infer_status s = open_json(&f, &t, bad[i].json);
        if (s != INFER_E_INPUT && s != INFER_E_UNSUPPORTED) fail_msg("status %d for %s", (int)s, bad[i].json);
        if (!strstr(err_message(), bad[i].what)) fail_msg("'%s' is not in: %s", bad[i].what, err_message());
        tok_close(t);
        tensorfile_close(f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_bytes),
        cmocka_unit_test(json_characters),
        cmocka_unit_test(json_lists),
        cmocka_unit_test(json_refused),
        cmocka_unit_test(missing_bytes_are_left_out),
        cmocka_unit_test(neighbours_of_a_missing_byte_join),
        cmocka_unit_test(phi3_takes_space),
        cmocka_unit_test(lost_merges_are_refused),
        cmocka_unit_test(unassigned_characters_are_unknown),
        cmocka_unit_test(vocabularies_are_compared),
        cmocka_unit_test(proto_file),
        cmocka_unit_test(json_allocations_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
