/* Opening a tokenizer from the metadata of a GGUF file: every size and id is checked here.
 * source: the GGUF specification, section "Tokenizer". */
#include "text/tok/tok_impl.h"

#include <stdlib.h>
#include <sys/random.h>

/* ---- arrays of the file ---- */
static enum infer_status read_tokens(struct tok *t, const struct meta *m) {
    if (m->type != META_ARRAY || m->elem != META_STRING)
        return err_set(INFER_E_INPUT, "tokenizer.ggml.tokens is not an array of strings");
    if (m->n == 0 || m->n > INT32_MAX / 4)
        return err_set(INFER_E_INPUT, "tokenizer.ggml.tokens has %llu entries", (unsigned long long)m->n);
    t->n = (int32_t)m->n;
    t->text = m->strings;
    return INFER_OK;
}

static enum infer_status array_of(const struct tensorfile *f, const char *key, int32_t n,
                                  const struct meta **out) {
    *out = tensorfile_meta(f, key);
    if (!*out) return INFER_OK;
    if ((*out)->type != META_ARRAY || (*out)->elem >= META_BOOL)
        if ((*out)->elem != META_U64 && (*out)->elem != META_I64 && (*out)->elem != META_F64)
            return err_set(INFER_E_INPUT, "%s is not an array of numbers", key);
    if ((*out)->n != (uint64_t)n)
        return err_set(INFER_E_INPUT, "%s has %llu entries, tokenizer.ggml.tokens has %d", key,
                       (unsigned long long)(*out)->n, n);
    return INFER_OK;
}

/* GGUF's token types: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte */
static uint8_t attr_of(int64_t type) {
    static const uint8_t attr[] = {TOK_ATTR_NORMAL, TOK_ATTR_NORMAL, TOK_ATTR_UNKNOWN, TOK_ATTR_CONTROL,
                                   TOK_ATTR_USER,   TOK_ATTR_UNUSED, TOK_ATTR_BYTE};
    return type >= 0 && type < (int64_t)sizeof attr ? attr[type] : TOK_ATTR_NORMAL;
}

/* ---- special ids ---- */
/* *id keeps its default when the key is absent; UINT32_MAX in a file means none. */
static enum infer_status special_id(const struct tok *t, const struct tensorfile *f, const char *key,
                                    int32_t *id) {
    const struct meta *m = tensorfile_meta(f, key);
    if (m) {
        bool present;
        uint32_t v = UINT32_MAX;
        if (m->type == META_I32 && meta_elem_i64(m, 0) == -1) {
            *id = -1;
            return INFER_OK;
        }
        TRY(meta_u32(f, key, &v, &present));
        *id = v == UINT32_MAX ? -1 : v > INT32_MAX ? INT32_MAX : (int32_t)v;
    }
    if (*id >= t->n) {
        if (m) return err_set(INFER_E_INPUT, "%s is %d, the vocabulary has %d tokens", key, *id, t->n);
        *id = -1; /* a default that this vocabulary does not reach */
    }
    return INFER_OK;
}

static const char *const stop_names[] = {
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<end_of_turn>",
    "<turn|>",
    "<|end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|end_of_turn|>",
    "<|eot|>",
    "<|eom|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<|return|>",
    "<|call|>",
    "<end_of_utterance>",
    "</s>",
    "<|END_OF_TURN_TOKEN|>",
    "[|endofturn|]",
    "<｜end▁of▁sentence｜>",
    "<eos>",
    "<|role_end|>",
    "[e~[",
};

static void mark_stops(struct tok *t, const int32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= 0) t->flag[ids[i]] |= TOK_F_STOP;
    for (size_t i = 0; i < sizeof stop_names / sizeof *stop_names; i++) {
        int32_t id = tok_map_find(t, stop_names[i], strlen(stop_names[i]));
        if (id >= 0 && (t->attr[id] == TOK_ATTR_CONTROL || t->attr[id] == TOK_ATTR_USER))
            t->flag[id] |= TOK_F_STOP;
    }
    /* Harmony (gpt-oss): <|end|> only ends a message, the turn ends with <|return|> or <|call|> */
    int32_t end = tok_map_find(t, "<|end|>", 7), ret = tok_map_find(t, "<|return|>", 10);
    if (end >= 0 && ret >= 0 && tok_map_find(t, "<|call|>", 8) >= 0) t->flag[end] &= (uint8_t)~TOK_F_STOP;
}

/* The marks of Phi-3 take the white space behind them (rstrip in its tokenizer.json). */
static void phi3_strip(struct tok *t) {
    static const char *const keep[] = {"<unk>", "<s>", "<|endoftext|>"};
    for (int32_t id = 0; id < t->n; id++)
        if (t->attr[id] == TOK_ATTR_CONTROL || t->attr[id] == TOK_ATTR_USER ||
            t->attr[id] == TOK_ATTR_UNKNOWN)
            t->flag[id] |= TOK_F_RSTRIP;
    for (size_t i = 0; i < 3; i++) {
        int32_t id = tok_map_find(t, keep[i], strlen(keep[i]));
        if (id >= 0) t->flag[id] &= (uint8_t)~TOK_F_RSTRIP;
    }
}

/* ---- pieces: what a token stands for ---- */
/* Whether that is its text: in the byte alphabet ASCII is, elsewhere all but the mark of a space. */
static bool is_literal(const struct tok *t, int32_t id, bool spm) {
    struct str s = t->text[id];
    size_t i = 0;
    uint64_t v, high = 0;
    if (t->attr[id] == TOK_ATTR_BYTE && s.len == 6) return false;
    if (t->attr[id] == TOK_ATTR_CONTROL || (!spm && t->attr[id] != TOK_ATTR_NORMAL)) return true;
    for (; i + 8 <= s.len; i += 8) {
        memcpy(&v, s.data + i, 8);
        high |= v;
    }
    for (; i < s.len; i++) high |= (uint64_t)(unsigned char)s.data[i];
    return !(high & 0x8080808080808080u);
}

size_t tok_piece_make(struct tok *t, int32_t id, char *d) {
    struct str s = t->text[id];
    bool spm = t->family != TOK_BPE || t->escape_space;
    size_t o = 0;
    if (is_literal(t, id, spm)) {
        t->piece[id] = s;
        return 0;
    }
    if (t->attr[id] == TOK_ATTR_BYTE && s.len == 6) {
        char hex[3] = {s.data[3], s.data[4], 0};
        d[o++] = (char)strtol(hex, NULL, 16);
    } else if (!spm) {
        o = tok_bpe_unmap(t, d, s.data, s.len);
    } else {
        for (size_t i = 0; i < s.len; i++) {
            bool space = i + 3 <= s.len && memcmp(s.data + i, TOK_SPACE, 3) == 0;
            d[o++] = space ? ' ' : s.data[i];
            i += space ? 2 : 0;
        }
    }
    t->piece[id] = (struct str){d, o};
    return o;
}

/* Room for all of them. */
static enum infer_status piece_room(struct tok *t, char **room) {
    size_t total = 0;
    for (int32_t id = 0; id < t->n; id++)
        if (!size_add(total, t->text[id].len, &total))
            return err_set(INFER_E_INPUT, "the vocabulary is too large");
    *room = arena_alloc(&t->arena, total + 1);
    if (!*room) return err_set(INFER_E_MEMORY, "out of memory: %zu bytes for the vocabulary", total);
    return INFER_OK;
}

/* ---- families ---- */
static bool is(struct str s, const char *name) {
    return s.len == strlen(name) && memcmp(s.data, name, s.len) == 0;
}
static int shown(struct str s) { return (int)(s.len < 64 ? s.len : 64); }

static enum infer_status choose_bpe(struct tok *t, struct str pre) {
    const struct tok_pre_row *row = tok_pre_find(pre.data, pre.len);
    if (!row)
        return err_set(INFER_E_UNSUPPORTED, "pre-tokenizer %.*s of tokenizer model gpt2 is not supported",
                       shown(pre), pre.data);
    t->family = TOK_BPE;
    t->ignore_merges = row->ignore_merges;
    t->add_bos = t->add_bos || row->add_bos;
    t->add_eos = row->add_eos;
    t->group3 = row->group3;
    t->form = row->nfc ? TOK_NFC : TOK_AS_IS;
    t->escape_space = t->characters = row->escape_space;
    t->drops_unknown =
        !t->characters; /* files name an unknown token that their tokenizer does not use for bytes */
    t->pre.n_mapped = row->n_mapped;
    return tok_pre_compile(&t->pre, row->pattern);
}

/* What a tokenizer.json says of its own accord, see vocab_json.h. */
static enum infer_status read_rules(struct tok *t, const struct tensorfile *f) {
    static const char *const forms[] = {"", "nfc", "nfd", "nfkc", "nfkd"};
    struct str s;
    bool present;
    TRY(meta_bool(f, "tokenizer.infer.ignore_merges", &t->ignore_merges, &present));
    TRY(meta_bool(f, "tokenizer.infer.characters", &t->characters, &present));
    TRY(meta_bool(f, "tokenizer.infer.escape_space", &t->escape_space, &present));
    TRY(meta_bool(f, "tokenizer.infer.fuse_unknown", &t->fuse_unknown, &present));
    TRY(meta_bool(f, "tokenizer.infer.lowercase", &t->lowercase, &present));
    TRY(meta_bool(f, "tokenizer.infer.prefix_unless", &t->prefix_unless, &present));
    TRY(meta_str(f, "tokenizer.infer.prefix", &s, &present));
    t->prefix_first = present && is(s, "first");
    TRY(meta_str(f, "tokenizer.infer.normal_form", &s, &present));
    for (int i = 1; present && i < 5; i++)
        if (is(s, forms[i])) t->form = (enum tok_form)i;
    if (present && t->form == TOK_AS_IS)
        return err_set(INFER_E_INPUT, "tokenizer.infer.normal_form is '%.*s'", shown(s), s.data);
    return INFER_OK;
}

static enum infer_status read_flag(struct tok *t, const struct tensorfile *f, const char *key,
                                   enum tok_flag flag) {
    const struct meta *m = tensorfile_meta(f, key);
    if (!m) return INFER_OK;
    if (m->type != META_ARRAY || m->elem != META_I32)
        return err_set(INFER_E_INPUT, "%s is not an array of ids", key);
    for (size_t i = 0; i < m->n; i++) {
        int64_t id = meta_elem_i64(m, i);
        if (id < 0 || id >= t->n) return err_set(INFER_E_INPUT, "%s holds id %lld", key, (long long)id);
        t->flag[id] |= (uint8_t)flag;
    }
    return INFER_OK;
}

/* The family with its defaults, which the file's own keys come after. */
static enum infer_status choose_family(struct tok *t, const struct tensorfile *f, struct str model,
                                       struct str pre) {
    const struct meta *patterns = tensorfile_meta(f, "tokenizer.infer.patterns");
    if (is(model, "gpt2") && patterns) {
        uint32_t n_mapped = 0;
        bool present;
        t->family = TOK_BPE;
        TRY(meta_u32(f, "tokenizer.infer.patterns_mapped", &n_mapped, &present));
        return tok_pre_compile_keys(&t->pre, patterns, tensorfile_meta(f, "tokenizer.infer.modes"), n_mapped);
    }
    if (is(model, "gpt2")) return choose_bpe(t, pre);
    if (is(model, "gemma4")) {
        t->add_bos = true; /* Gemma always starts with BOS */
        return choose_bpe(t, (struct str){"gemma4", 6});
    }
    if (is(model, "llama")) {
        t->family = TOK_SPM;
        t->space_prefix = t->add_bos = true;
        t->bos = 1;
        t->eos = 2;
        t->unk = 0;
    } else if (is(model, "t5")) {
        t->family = TOK_UNIGRAM;
        t->add_eos = true;
        t->eos = 1;
        t->unk = 2;
    } else if (is(model, "bert")) {
        t->family = TOK_WORDPIECE;
        t->space_prefix = t->add_bos = t->add_eos = t->lowercase = t->strip_accents = true;
        t->unk = 100;
        t->bos = 101;
        t->eos = 102;
    } else {
        return err_set(INFER_E_UNSUPPORTED, "tokenizer model %.*s (pre-tokenizer %.*s) is not supported",
                       shown(model), model.data, shown(pre), pre.data);
    }
    return INFER_OK;
}

/* The pre-tokenizer's name; a file of before the key had one kind an architecture. */
static struct str pre_of(const struct tensorfile *f, struct str model) {
    struct str pre, arch;
    bool present;
    if (meta_str(f, "tokenizer.ggml.pre", &pre, &present) == INFER_OK && present) return pre;
    if (!is(model, "gpt2") || tensorfile_meta(f, "tokenizer.infer.patterns"))
        return (struct str){"default", 7};
    if (meta_str(f, "general.architecture", &arch, &present) == INFER_OK && present) {
        if (is(arch, "gptneox")) return (struct str){"gpt-neox", 8};
        if (is(arch, "gpt2")) return (struct str){"gpt-2", 5};
    }
    log_line(LOG_WARN,
             "the file names no pre-tokenizer (tokenizer.ggml.pre): using default, which may cut text "
             "unlike the model's own");
    return (struct str){"default", 7};
}

static void make_control(struct tok *t, int32_t id) {
    if (id < 0) return;
    t->attr[id] = TOK_ATTR_CONTROL;
    t->piece[id] = t->text[id];
}

/* More ids that end an answer. One outside the vocabulary is never generated: files name ids of the vocabulary they come from. */
static enum infer_status read_stops(struct tok *t, const struct tensorfile *f) {
    static const char key[] = "tokenizer.infer.stops";
    const struct meta *m;
    bool present;
    TRY(meta_array(f, key, META_KIND_INT, META_ANY_LENGTH, &m, &present));
    for (size_t i = 0; m && i < m->n; i++) {
        int64_t id = meta_elem_i64(m, i);
        if (id >= 0 && id < t->n)
            t->flag[id] |= TOK_F_STOP;
        else
            log_line(LOG_WARN, "an answer is to end with token %lld, the vocabulary has %d", (long long)id,
                     t->n);
    }
    return INFER_OK;
}

/* What is added on one side: the list of the key, else the token of that side; one NULL: nothing is. */
static enum infer_status read_around(struct tok *t, const struct tensorfile *f, const char *key, int32_t *one,
                                     struct tok_ids *out) {
    const struct meta *m;
    bool present;
    TRY(meta_array(f, key, META_KIND_INT, META_ANY_LENGTH, &m, &present));
    if (!one) return INFER_OK;
    *out = (struct tok_ids){one, 1};
    if (!m) return INFER_OK;
    *out = (struct tok_ids){arena_alloc(&t->arena, m->n * sizeof *out->id + 1), m->n};
    if (!out->id) return err_set(INFER_E_MEMORY, "out of memory: %s", key);
    for (size_t i = 0; i < m->n; i++) {
        int64_t id = meta_elem_i64(m, i);
        if (id < 0 || id >= t->n) return err_set(INFER_E_INPUT, "%s holds id %lld", key, (long long)id);
        out->id[i] = (int32_t)id;
    }
    return INFER_OK;
}

static enum infer_status read_special(struct tok *t, const struct tensorfile *f, bool typed) {
    int32_t more[2] = {-1, -1};
    bool present, wordpiece = t->family == TOK_WORDPIECE;
    TRY(special_id(t, f, wordpiece ? "tokenizer.ggml.cls_token_id" : "tokenizer.ggml.bos_token_id", &t->bos));
    TRY(special_id(t, f, wordpiece ? "tokenizer.ggml.seperator_token_id" : "tokenizer.ggml.eos_token_id",
                   &t->eos));
    TRY(special_id(t, f, "tokenizer.ggml.unknown_token_id", &t->unk));
    TRY(special_id(t, f, "tokenizer.ggml.eot_token_id", &more[0]));
    TRY(special_id(t, f, "tokenizer.ggml.eom_token_id", &more[1]));
    TRY(meta_bool(f, "tokenizer.ggml.add_bos_token", &t->add_bos, &present));
    TRY(meta_bool(f, wordpiece ? "tokenizer.ggml.add_sep_token" : "tokenizer.ggml.add_eos_token", &t->add_eos,
                  &present));
    TRY(meta_bool(f, "tokenizer.ggml.remove_extra_whitespaces", &t->collapse_space, &present));
    TRY(meta_bool(f, "tokenizer.ggml.normalizer.lowercase", &t->lowercase, &present));
    if (present) t->strip_accents = t->lowercase;
    TRY(meta_bool(f, "tokenizer.ggml.normalizer.strip_accents", &t->strip_accents, &present));
    if (t->family != TOK_WORDPIECE &&
        (t->family != TOK_BPE || tensorfile_meta(f, "tokenizer.infer.patterns")))
        TRY(meta_bool(f, "tokenizer.ggml.add_space_prefix", &t->space_prefix, &present));
    t->add_bos = t->add_bos && t->bos >= 0;
    t->add_eos = t->add_eos && t->eos >= 0;
    int32_t stops[] = {t->eos, more[0], more[1]};
    for (int i = 0; !typed && i < 3; i++) make_control(t, stops[i]);
    if (!typed) make_control(t, t->bos);
    mark_stops(t, stops, 3);
    TRY(read_around(t, f, "tokenizer.infer.front", t->add_bos ? &t->bos : NULL, &t->around[TOK_FRONT]));
    TRY(read_around(t, f, "tokenizer.infer.behind", t->add_eos ? &t->eos : NULL, &t->around[TOK_BEHIND]));
    return read_stops(t, f);
}

static enum infer_status read_charsmap(struct tok *t, const struct tensorfile *f) {
    const struct meta *m = tensorfile_meta(f, "tokenizer.ggml.precompiled_charsmap");
    if (!m || t->family == TOK_BPE || t->family == TOK_WORDPIECE) return INFER_OK;
    if (m->type != META_ARRAY || (m->elem != META_U8 && m->elem != META_I8))
        return err_set(INFER_E_INPUT, "tokenizer.ggml.precompiled_charsmap is not an array of bytes");
    return tok_charsmap_init(t, m->raw, (size_t)m->n);
}

static enum infer_status init_family(struct tok *t, const struct meta *scores, const struct meta *merges) {
    switch (t->family) {
    case TOK_BPE:
        return tok_bpe_init(t, merges);
    case TOK_SPM:
        return tok_spm_init(t, scores);
    case TOK_UNIGRAM:
        return tok_unigram_init(t, scores);
    case TOK_WORDPIECE:
        return INFER_OK;
    }
    infer_bug("tokenizer family %d", (int)t->family);
}

static enum infer_status build(struct tok *t, const struct tensorfile *f, const struct meta *tokens) {
    struct str model;
    const struct meta *types, *scores;
    char *room;
    TRY(read_tokens(t, tokens));
    TRY(meta_str(f, "tokenizer.ggml.model", &model, NULL));
    struct str pre = pre_of(f, model);
    tok_bpe_alphabet(&t->alphabet);
    TRY(choose_family(t, f, model, pre));
    TRY(read_rules(t, f));
    TRY(array_of(f, "tokenizer.ggml.token_type", t->n, &types));
    TRY(array_of(f, "tokenizer.ggml.scores", t->n, &scores));
    const struct meta *merges = tensorfile_meta(f, "tokenizer.ggml.merges");
    if (merges && (merges->type != META_ARRAY || merges->elem != META_STRING))
        return err_set(INFER_E_INPUT, "tokenizer.ggml.merges is not an array of strings");

    size_t n = (size_t)t->n;
    t->model_name = arena_strndup(&t->arena, model.data, model.len);
    t->pre_name = arena_strndup(&t->arena, pre.data, pre.len);
    t->piece = arena_alloc(&t->arena, n * sizeof *t->piece);
    t->attr = arena_alloc(&t->arena, n);
    t->flag = arena_alloc(&t->arena, n);
    t->order = arena_alloc(&t->arena, n * sizeof *t->order);
    if (!t->model_name || !t->pre_name || !t->piece || !t->attr || !t->flag || !t->order)
        return err_set(INFER_E_MEMORY, "out of memory: a vocabulary of %d tokens", t->n);
    for (int32_t id = 0; types && id < t->n; id++) t->attr[id] = attr_of(meta_elem_i64(types, (size_t)id));
    TRY(piece_room(t, &room));
    TRY(tok_map_init(t, room));
    TRY(read_special(t, f, types != NULL));
    TRY(read_charsmap(t, f));
    TRY(init_family(t, scores, merges));
    struct str arch = {"", 0};
    bool present;
    TRY(meta_str(f, "general.architecture", &arch, &present));
    if (t->family == TOK_SPM && is(arch, "phi3")) phi3_strip(t);
    TRY(read_flag(t, f, "tokenizer.infer.lstrip", TOK_F_LSTRIP));
    TRY(read_flag(t, f, "tokenizer.infer.rstrip", TOK_F_RSTRIP));
    TRY(read_flag(t, f, "tokenizer.infer.single_word", TOK_F_WORD));
    return tok_trie_init(t);
}

enum infer_status tok_open(struct tok **out, const struct tensorfile *f) {
    *out = NULL;
    const struct meta *tokens = tensorfile_meta(f, "tokenizer.ggml.tokens");
    TRY(tensorfile_check_types(f));
    if (!tokens) return INFER_OK;
    struct tok *t;
    TRY(mem_new(&t, sizeof *t, "the tokenizer"));
    t->bos = t->eos = t->unk = -1;
    memset(t->byte_id, 0xff, sizeof t->byte_id);
    /* hashes differ from run to run, so a file cannot be made to collide; ids do not depend on them */
    if (getrandom(&t->seed, sizeof t->seed, GRND_NONBLOCK) != sizeof t->seed) t->seed = (uintptr_t)t;
    enum infer_status st = build(t, f, tokens);
    if (st != INFER_OK) {
        tok_close(t);
        return err_prefix(st, "%s", f->path ? f->path : "model file");
    }
    *out = t;
    return INFER_OK;
}
