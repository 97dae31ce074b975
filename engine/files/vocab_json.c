/* tokenizer.json -> metadata keys; see vocab_json.h. The parts of the file (model, added_tokens, normalizer,
 * pre_tokenizer, post_processor) are walked in that order, each fills struct reading, and the keys are written at the
 * end. What is not known is refused by name: a tokenizer that is nearly right gives wrong ids without a sign. */
#include "files/vocab_json.h"
#include "files/json.h"
#include "base/stbds.h"
#include "files/vocab_added.h"
#include "files/vocab_keys.h"
#include "files/vocab_scan.h"
#include "files/vocab_types.h"
#include "files/textfile.h"

struct reading {
    struct arena *a;
    struct tok_scan scan; /* model.vocab and model.merges */
    json_t *root, *config;
    struct tok_keys *keys;
    struct tok_vocab v;
    struct str *merge; /* merge[n_merge]: "a b" */
    size_t n_merge;
    struct str *pattern; /* pattern[TOK_PRE_MAX] */
    uint8_t mode[TOK_PRE_MAX];
    uint32_t n_pattern, n_text; /* n_text: those in front of ByteLevel */
    const char *model, *normal_form, *prefix;
    bool bytes, characters, escape, prefix_unless, ignore_merges, fuse_unknown, lowercase, strip_accents,
        collapse;
    bool bert;
    const unsigned char *charsmap;
    size_t n_charsmap;
};

/* ---- JSON ---- */
static bool flag_of(const json_t *o, const char *key, bool absent) {
    const json_t *v = json_object_get(o, key);
    return json_is_boolean(v) ? json_is_true(v) : absent;
}
static enum infer_status unsupported(const char *part, const json_t *o) {
    return err_set(INFER_E_UNSUPPORTED, "%s of type '%.64s' is not supported", part, json_text_of(o, "type"));
}
static enum infer_status no_memory(void) {
    return err_set(INFER_E_MEMORY, "out of memory: reading tokenizer.json");
}

static enum infer_status copy_text(struct reading *r, const char *s, size_t n, struct str *out) {
    char *copy = arena_alloc(r->a, n + 1);
    if (!copy) return no_memory();
    memcpy(copy, s, n);
    *out = (struct str){copy, n};
    return INFER_OK;
}

/* ---- model ---- */
/* One more than the largest id of the vocabulary and the added tokens. */
static enum infer_status count_tokens(const struct reading *r, size_t *n) {
    const struct tok_list *vocab = &r->scan.vocab;
    const json_t *v;
    int64_t most = (int64_t)vocab->n - 1;
    size_t i;
    if (vocab->form == TOK_LIST_IDS)
        for (struct tok_chunk *c = vocab->first; c; c = c->next)
            for (int k = 0; k < c->n; k++)
                if (c->entry[k].id > most) most = c->entry[k].id;
    json_array_foreach(json_object_get(r->root, "added_tokens"), i, v) {
        json_int_t id = json_integer_value(json_object_get(v, "id"));
        if (id < 0) return err_set(INFER_E_INPUT, "added_tokens[%zu]: id %lld", i, (long long)id);
        if (id > most) most = id;
    }
    /* ids may have gaps, but a file cannot ask for much more than it holds */
    if (most >= INT32_MAX / 8 || (size_t)most > 4 * vocab->n + 100000)
        return err_set(INFER_E_INPUT, "token id %lld in a vocabulary of %zu", (long long)most, vocab->n);
    *n = (size_t)most + 1;
    return INFER_OK;
}

static bool is_byte_token(struct str s) {
    return s.len == 6 && memcmp(s.data, "<0x", 3) == 0 && s.data[5] == '>';
}

static enum infer_status read_vocab(struct reading *r, const json_t *model) {
    size_t n;
    bool fallback = flag_of(model, "byte_fallback", false);
    if (r->scan.vocab.form != TOK_LIST_IDS) return err_set(INFER_E_INPUT, "model.vocab is not an object");
    TRY(count_tokens(r, &n));
    TRY(tok_vocab_make(&r->v, r->a, n, false, r->config));
    for (struct tok_chunk *c = r->scan.vocab.first; c; c = c->next) {
        for (int k = 0; k < c->n; k++) {
            const struct tok_entry *e = &c->entry[k];
            if (r->v.text[e->id].len)
                return err_set(INFER_E_INPUT, "model.vocab: id %lld is named twice", (long long)e->id);
            r->v.text[e->id] = e->text;
            r->v.type[e->id] = fallback && is_byte_token(e->text) ? TOK_TYPE_BYTE : TOK_TYPE_NORMAL;
        }
    }
    return INFER_OK;
}

static enum infer_status read_merges(struct reading *r) {
    r->merge = arena_alloc(r->a, (r->scan.merges.n + 1) * sizeof *r->merge);
    if (!r->merge) return no_memory();
    for (struct tok_chunk *c = r->scan.merges.first; c; c = c->next)
        for (int k = 0; k < c->n; k++) r->merge[r->n_merge++] = c->entry[k].text;
    return INFER_OK;
}

static enum infer_status read_bpe(struct reading *r, const json_t *model) {
    if (*json_text_of(model, "continuing_subword_prefix") || *json_text_of(model, "end_of_word_suffix"))
        return err_set(INFER_E_UNSUPPORTED, "BPE with a word prefix or suffix is not supported");
    r->model = "gpt2";
    r->ignore_merges = flag_of(model, "ignore_merges", false);
    r->fuse_unknown = flag_of(model, "fuse_unk", false);
    TRY(read_vocab(r, model));
    TRY(tok_vocab_id(&r->v, json_text_of(model, "unk_token"), &r->v.unk));
    return read_merges(r);
}

static enum infer_status read_wordpiece(struct reading *r, const json_t *model) {
    r->model = "bert";
    TRY(read_vocab(r, model));
    TRY(tok_vocab_id(&r->v, json_text_of(model, "unk_token"), &r->v.unk));
    for (int32_t i = 0; i < r->v.n; i++) { /* as GGUF has it: a start is marked, going on is not */
        struct str s = r->v.text[i];
        if (s.len > 2 && memcmp(s.data, "##", 2) == 0) {
            r->v.text[i] = (struct str){s.data + 2, s.len - 2};
        } else if (s.len && !(s.data[0] == '[' && s.data[s.len - 1] == ']')) {
            char *marked = arena_alloc(r->a, s.len + 3);
            if (!marked) return no_memory();
            memcpy(marked, TOK_SPACE, 3);
            memcpy(marked + 3, s.data, s.len);
            r->v.text[i] = (struct str){marked, s.len + 3};
        }
    }
    return INFER_OK;
}

static enum infer_status read_unigram(struct reading *r, const json_t *model) {
    bool fallback = flag_of(model, "byte_fallback", false);
    size_t n, i = 0;
    r->model = "t5";
    if (r->scan.vocab.form != TOK_LIST_SCORES) return err_set(INFER_E_INPUT, "model.vocab is not an array");
    TRY(count_tokens(r, &n));
    TRY(tok_vocab_make(&r->v, r->a, n, true, r->config));
    for (struct tok_chunk *c = r->scan.vocab.first; c; c = c->next) {
        for (int k = 0; k < c->n; k++, i++) {
            r->v.text[i] = c->entry[k].text;
            r->v.score[i] = (float)c->entry[k].score;
            r->v.type[i] = fallback && is_byte_token(r->v.text[i]) ? TOK_TYPE_BYTE : TOK_TYPE_NORMAL;
        }
    }
    const json_t *unk = json_object_get(model, "unk_id");
    if (json_is_integer(unk) && json_integer_value(unk) >= 0 && json_integer_value(unk) < r->v.n) {
        r->v.unk = (int32_t)json_integer_value(unk);
        r->v.type[r->v.unk] = TOK_TYPE_UNKNOWN;
    }
    return INFER_OK;
}

static enum infer_status read_model(struct reading *r) {
    const json_t *model = json_object_get(r->root, "model");
    const char *type = json_text_of(model, "type");
    if (!json_is_object(model)) return err_set(INFER_E_INPUT, "it has no model");
    /* files of before the key: merges make it BPE, an array of scores Unigram */
    if (strcmp(type, "BPE") == 0 || (!*type && r->scan.merges.form)) return read_bpe(r, model);
    if (strcmp(type, "Unigram") == 0 || (!*type && r->scan.vocab.form == TOK_LIST_SCORES))
        return read_unigram(r, model);
    if (strcmp(type, "WordPiece") == 0) return read_wordpiece(r, model);
    return unsupported("model", model);
}

/* ---- added tokens ---- */
static enum infer_status read_added(struct reading *r) {
    json_t *v;
    size_t i;
    json_array_foreach(json_object_get(r->root, "added_tokens"), i, v) {
        json_int_t id = json_integer_value(json_object_get(v, "id"));
        if (!json_is_string(json_object_get(v, "content")) || id < 0 || id >= r->v.n)
            return err_set(INFER_E_INPUT, "added_tokens[%zu] has no content, or no id", i);
        TRY(tok_vocab_added(&r->v, (int32_t)id, v, false));
    }
    return INFER_OK;
}

/* ---- normalizer ---- */
static enum infer_status decode_base64(struct reading *r, const char *s) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned char *d = arena_alloc(r->a, strlen(s) / 4 * 3 + 4);
    uint32_t bits = 0;
    int k = 0;
    if (!d) return no_memory();
    r->charsmap = d;
    for (; *s && *s != '='; s++) {
        const char *at = strchr(digits, *s);
        if (!at) return err_set(INFER_E_INPUT, "normalizer.precompiled_charsmap is not base64");
        bits = bits << 6 | (uint32_t)(at - digits);
        if (++k < 4) continue;
        *d++ = (unsigned char)(bits >> 16);
        *d++ = (unsigned char)(bits >> 8);
        *d++ = (unsigned char)bits;
        k = 0;
        bits = 0;
    }
    if (k >= 2) *d++ = (unsigned char)(bits >> (6 * k - 8));
    if (k == 3) *d++ = (unsigned char)(bits >> (6 * k - 16));
    r->n_charsmap = (size_t)(d - r->charsmap);
    return INFER_OK;
}

static enum infer_status read_replace(struct reading *r, const json_t *o) {
    const json_t *pattern = json_object_get(o, "pattern");
    const char *from = json_text_of(pattern, "String"), *regex = json_text_of(pattern, "Regex"),
               *to = json_text_of(o, "content");
    if (strcmp(from, " ") == 0 && strcmp(to, TOK_SPACE) == 0) {
        r->escape = true;
    } else if (strcmp(regex, " {2,}") == 0 && (strcmp(to, " ") == 0 || strcmp(to, TOK_SPACE) == 0)) {
        r->collapse = true;
    } else {
        return err_set(INFER_E_UNSUPPORTED, "normalizer Replace '%.64s' by '%.64s' is not supported",
                       *from ? from : regex, to);
    }
    return INFER_OK;
}

static enum infer_status read_normalizer(struct reading *r, const json_t *o) {
    const char *type = json_text_of(o, "type");
    json_t *v;
    size_t i;
    if (!json_is_object(o)) return INFER_OK;
    if (strcmp(type, "Sequence") == 0) {
        json_array_foreach(json_object_get(o, "normalizers"), i, v) TRY(read_normalizer(r, v));
    } else if (strcmp(type, "NFC") == 0 || strcmp(type, "NFD") == 0 || strcmp(type, "NFKC") == 0 ||
               strcmp(type, "NFKD") == 0) {
        r->normal_form = type[2] == 'C' ? "nfc" : type[2] == 'D' ? "nfd" : type[3] == 'C' ? "nfkc" : "nfkd";
    } else if (strcmp(type, "Lowercase") == 0) {
        r->lowercase = true;
    } else if (strcmp(type, "Prepend") == 0 && strcmp(json_text_of(o, "prepend"), TOK_SPACE) == 0) {
        r->prefix = "always";
        r->escape = true;
    } else if (strcmp(type, "Replace") == 0) {
        TRY(read_replace(r, o));
    } else if (strcmp(type, "Precompiled") == 0) {
        TRY(decode_base64(r, json_text_of(o, "precompiled_charsmap")));
    } else if (strcmp(type, "Strip") == 0) {
        if (!r->n_charsmap) return unsupported("normalizer", o);
        r->collapse = true;
    } else if (strcmp(type, "BertNormalizer") == 0) {
        r->bert = true;
        r->lowercase = flag_of(o, "lowercase", true);
        r->strip_accents = flag_of(o, "strip_accents", r->lowercase);
    } else {
        return unsupported("normalizer", o);
    }
    return INFER_OK;
}

/* ---- pre-tokenizer ---- */
static enum infer_status add_pattern(struct reading *r, const char *pattern, enum tok_split_mode mode) {
    if (r->n_pattern == TOK_PRE_MAX)
        return err_set(INFER_E_UNSUPPORTED, "more than %d pre-tokenizers", TOK_PRE_MAX);
    TRY(copy_text(r, pattern, strlen(pattern), &r->pattern[r->n_pattern]));
    r->mode[r->n_pattern++] = (uint8_t)mode;
    return INFER_OK;
}

/* The pattern that matches s itself. */
static enum infer_status quote(struct reading *r, const char *s, struct str *out) {
    char *d = arena_alloc(r->a, 2 * strlen(s) + 1);
    if (!d) return no_memory();
    *out = (struct str){d, 0};
    for (; *s; s++) {
        if ((unsigned char)*s < 0x80 && !((*s | 32) >= 'a' && (*s | 32) <= 'z') && !(*s >= '0' && *s <= '9'))
            *d++ = '\\';
        *d++ = *s;
    }
    return INFER_OK;
}

static enum infer_status read_split(struct reading *r, const json_t *o) {
    const json_t *pattern = json_object_get(o, "pattern");
    const char *behavior = json_text_of(o, "behavior"), *regex = json_text_of(pattern, "Regex"),
               *s = json_text_of(pattern, "String");
    bool invert = flag_of(o, "invert", false);
    struct str quoted = {regex, 0};
    if (!*regex) TRY(quote(r, s, &quoted));
    enum tok_split_mode mode = TOK_SPLIT_ISOLATED;
    if (strcmp(behavior, "Removed") == 0) {
        mode = invert ? TOK_SPLIT_KEEP : TOK_SPLIT_DROP;
    } else if (strcmp(behavior, "MergedWithPrevious") == 0 && !invert) {
        mode = TOK_SPLIT_PREVIOUS;
    } else if (strcmp(behavior, "MergedWithNext") == 0 && !invert) {
        mode = TOK_SPLIT_NEXT;
    } else if (strcmp(behavior, "Isolated") != 0) {
        return err_set(INFER_E_UNSUPPORTED, "pre_tokenizer Split with behavior '%.64s' is not supported",
                       behavior);
    }
    /* cutting at a space that the normalizer has already replaced cuts nothing */
    if (r->escape && strcmp(quoted.data, "\\ ") == 0) return INFER_OK;
    return add_pattern(r, quoted.data, mode);
}

static enum infer_status read_metaspace(struct reading *r, const json_t *o) {
    const char *scheme = json_text_of(o, "prepend_scheme");
    if (strcmp(json_text_of(o, "replacement"), TOK_SPACE) != 0) return unsupported("pre_tokenizer", o);
    if (!*scheme) scheme = flag_of(o, "add_prefix_space", true) ? "always" : "never";
    r->escape = true;
    r->prefix_unless = true;
    r->prefix = strcmp(scheme, "never") == 0 ? NULL : strcmp(scheme, "first") == 0 ? "first" : "always";
    if (flag_of(o, "split", true) && strcmp(r->model, "gpt2") == 0)
        return add_pattern(r, TOK_SPACE, TOK_SPLIT_NEXT);
    return INFER_OK;
}

static enum infer_status read_pre_tokenizer(struct reading *r, const json_t *o) {
    const char *type = json_text_of(o, "type");
    json_t *v;
    size_t i;
    if (!json_is_object(o)) return INFER_OK;
    if (strcmp(type, "Sequence") == 0) {
        json_array_foreach(json_object_get(o, "pretokenizers"), i, v) TRY(read_pre_tokenizer(r, v));
        return INFER_OK;
    }
    if (strcmp(type, "ByteLevel") == 0) {
        if (r->bytes) return err_set(INFER_E_UNSUPPORTED, "pre_tokenizer ByteLevel behind ByteLevel");
        r->bytes = true;
        if (flag_of(o, "add_prefix_space", true)) {
            r->prefix = "always";
            r->prefix_unless = true;
        }
        if (flag_of(o, "use_regex", true)) TRY(add_pattern(r, TOK_PATTERN_GPT2, TOK_SPLIT_ISOLATED));
        r->n_text = r->n_pattern;
        return INFER_OK;
    }
    if (strcmp(type, "Split") == 0) return read_split(r, o);
    if (strcmp(type, "Metaspace") == 0) return read_metaspace(r, o);
    if (strcmp(type, "Digits") == 0)
        return add_pattern(r, flag_of(o, "individual_digits", false) ? "\\p{N}" : "\\p{N}+",
                           TOK_SPLIT_ISOLATED);
    if (strcmp(type, "Punctuation") == 0) {
        bool run = strcmp(json_text_of(o, "behavior"), "Contiguous") == 0;
        if (!run && strcmp(json_text_of(o, "behavior"), "Isolated") != 0)
            return unsupported("pre_tokenizer", o);
        return add_pattern(r, run ? "[\\p{P}$+<=>^`|~]+" : "[\\p{P}$+<=>^`|~]", TOK_SPLIT_ISOLATED);
    }
    if (strcmp(type, "WhitespaceSplit") == 0) {
        if (strcmp(r->model, "t5") != 0) return add_pattern(r, "\\S+", TOK_SPLIT_KEEP);
        r->collapse = true; /* in front of Metaspace: each word has one space in front */
        return INFER_OK;
    }
    if (strcmp(type, "Whitespace") == 0)
        return add_pattern(r, "[\\p{L}\\p{M}\\p{N}\\p{Pc}]+|[^\\p{L}\\p{M}\\p{N}\\p{Pc}\\s]+",
                           TOK_SPLIT_KEEP);
    if (strcmp(type, "BertPreTokenizer") == 0 && strcmp(r->model, "bert") == 0) return INFER_OK;
    return unsupported("pre_tokenizer", o);
}

/* ---- writing ---- */
static enum infer_status write_rules(struct reading *r) {
    TRY(tok_keys_bool(r->keys, "tokenizer.ggml.add_space_prefix", r->prefix != NULL));
    TRY(tok_keys_bool(r->keys, "tokenizer.ggml.remove_extra_whitespaces", r->collapse));
    if (r->n_charsmap)
        TRY(tok_keys_raw(r->keys, "tokenizer.ggml.precompiled_charsmap", META_ARRAY, META_U8, r->n_charsmap,
                         r->n_charsmap, r->charsmap));
    TRY(tok_keys_bool(r->keys, "tokenizer.ggml.normalizer.lowercase", r->lowercase));
    TRY(tok_keys_bool(r->keys, "tokenizer.ggml.normalizer.strip_accents", r->strip_accents));
    TRY(tok_keys_strings(r->keys, "tokenizer.infer.patterns", r->pattern, r->n_pattern));
    if (r->bytes && r->n_pattern > r->n_text)
        TRY(tok_keys_id(r->keys, "tokenizer.infer.patterns_mapped", (int32_t)(r->n_pattern - r->n_text)));
    TRY(tok_keys_raw(r->keys, "tokenizer.infer.modes", META_ARRAY, META_U8, r->n_pattern, r->n_pattern,
                     r->mode));
    TRY(tok_keys_bool(r->keys, "tokenizer.infer.characters", r->characters));
    TRY(tok_keys_bool(r->keys, "tokenizer.infer.escape_space", r->escape));
    TRY(tok_keys_bool(r->keys, "tokenizer.infer.ignore_merges", r->ignore_merges));
    TRY(tok_keys_bool(r->keys, "tokenizer.infer.fuse_unknown", r->fuse_unknown));
    TRY(tok_keys_bool(r->keys, "tokenizer.infer.lowercase", r->lowercase && !r->bert));
    TRY(tok_keys_bool(r->keys, "tokenizer.infer.prefix_unless", r->prefix_unless));
    TRY(tok_keys_text(r->keys, "tokenizer.infer.prefix", r->prefix));
    return tok_keys_text(r->keys, "tokenizer.infer.normal_form", r->normal_form);
}

static enum infer_status read_all(struct reading *r) {
    r->pattern = arena_alloc(r->a, TOK_PRE_MAX * sizeof *r->pattern);
    if (!r->pattern) return no_memory();
    TRY(read_model(r));
    TRY(read_added(r));
    TRY(read_normalizer(r, json_object_get(r->root, "normalizer")));
    TRY(read_pre_tokenizer(r, json_object_get(r->root, "pre_tokenizer")));
    TRY(tok_vocab_processor(&r->v, json_object_get(r->root, "post_processor")));
    TRY(tok_vocab_config(&r->v, r->config));
    r->characters = strcmp(r->model, "gpt2") == 0 && !r->bytes;
    if (r->bert != (strcmp(r->model, "bert") == 0))
        return err_set(INFER_E_UNSUPPORTED, "WordPiece goes with BertNormalizer, and with nothing else");
    if (strcmp(r->model, "t5") == 0 && (r->normal_form || r->n_pattern || !r->escape))
        return err_set(INFER_E_UNSUPPORTED,
                       "Unigram goes with Precompiled and Metaspace, and with nothing else");
    if (r->characters && !r->escape && !r->n_pattern && r->lowercase)
        return err_set(INFER_E_UNSUPPORTED, "BPE of lower-cased characters without cuts is not supported");
    TRY(tok_vocab_keys(&r->v, r->keys, r->model, r->config));
    if (r->merge) TRY(tok_keys_strings(r->keys, "tokenizer.ggml.merges", r->merge, r->n_merge));
    return write_rules(r);
}

static enum infer_status tok_json_keys(struct tok_keys *keys, const char *json, size_t n, json_t *config) {
    struct reading r = {.a = keys->a, .keys = keys, .config = config};
    TRY(tok_scan(&r.scan, r.a, json, n));
    TRY(tok_scan_rest(&r.root, &r.scan, json, n));
    enum infer_status st = tok_types_json(r.root);
    if (!st) st = read_all(&r);
    json_decref(r.root);
    return st;
}

static enum infer_status read_keys(struct tok_keys *keys, const char *data, size_t n, const char *config,
                                   size_t n_config) {
    json_t *root = NULL;
    if (config) TRY(json_read(&root, "tokenizer_config.json", config, n_config, JSON_ALLOW_NUL));
    enum infer_status st = tok_types_config(root);
    if (!st)
        st = n && data[0] == '{' ? tok_json_keys(keys, data, n, root)
                                 : tok_proto_keys(keys, (const unsigned char *)data, n, root);
    json_decref(root);
    return st;
}

enum infer_status tok_vocab_meta(struct meta **out, size_t *n_out, struct arena *a, const char *data,
                                 size_t n, const char *config, size_t n_config) {
    struct tok_keys *keys; /* too large for the stack of a thread */
    *n_out = 0;
    TRY(mem_new(&keys, sizeof *keys, "reading a vocabulary"));
    keys->a = a;
    enum infer_status st = read_keys(keys, data, n, config, n_config);
    if (st == INFER_OK) st = tok_keys_finish(keys, out, n_out);
    mem_free(keys);
    return st;
}

/* ---- as a file of its own ---- */
enum infer_status tok_vocab_read(struct tensorfile *f) {
    static const char name[] = "tokenizer_config.json";
    struct mapfile config = {0}, *part = &f->part[0];
    const char *slash = strrchr(part->path, '/');
    size_t n = slash ? (size_t)(slash - part->path) + 1 : 0;
    char *path = arena_alloc(&f->arena, n + sizeof name);
    if (!path) return no_memory();
    memcpy(path, part->path, n);
    memcpy(path + n, name, sizeof name);
    bool there;
    TRY(text_map(&config, path, TEXT_CONFIG, &there));
    enum infer_status st = tok_vocab_meta(&f->meta, &f->n_meta, &f->arena, (const char *)part->data,
                                          part->size, text_of_map(&config), config.size);
    mapfile_close(&config);
    if (st != INFER_OK) return err_prefix(st, "%s", part->path);
    struct strmap *keys, *tensors;
    int64_t old;
    TRY(strmap_new(&keys, &f->arena));
    TRY(strmap_new(&tensors, &f->arena));
    for (size_t i = 0; i < f->n_meta; i++)
        TRY(strmap_put(keys, f->meta[i].key.data, f->meta[i].key.len, (int64_t)i, &old));
    f->meta_index = keys;
    f->tensor_index = tensors;
    f->format = part->data[0] == '{' ? "tokenizer.json" : "tokenizer.model";
    f->file_bytes = part->size;
    return INFER_OK;
}
