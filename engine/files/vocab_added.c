/* See vocab_added.h. sources: the tokenizers library's file format; transformers' tokenizer_config.json. */
#include "files/vocab_added.h"
#include "base/stbds.h"
#include "files/vocab_keys.h"
#include "files/json.h"

#include <stdio.h>
#include <stdlib.h>

static enum infer_status no_memory(void) {
    return err_set(INFER_E_MEMORY, "out of memory: reading a vocabulary");
}

/* ---- tokens ---- */

enum infer_status tok_vocab_make(struct tok_vocab *v, struct arena *a, size_t n, bool scores,
                                 const json_t *config) {
    size_t room = n + json_object_size(json_object_get(config, "added_tokens_decoder"));
    if (n == 0 || room > INT32_MAX / 4) return err_set(INFER_E_INPUT, "model.vocab has %zu entries", n);
    *v = (struct tok_vocab){.a = a, .n = (int32_t)n, .room = (int32_t)room, .bos = -1, .eos = -1, .unk = -1};
    v->text = arena_alloc(a, room * sizeof *v->text);
    v->type = arena_alloc(a, room * sizeof *v->type);
    v->flag = arena_alloc(a, room);
    if (scores) v->score = arena_alloc(a, room * sizeof *v->score);
    if (!v->text || !v->type || !v->flag || (scores && !v->score)) return no_memory();
    for (size_t i = 0; i < room; i++) {
        v->text[i] = (struct str){"", 0};
        v->type[i] = TOK_TYPE_UNUSED;
    }
    return INFER_OK;
}

/* The id of s[n], -1. A few are looked for in the list, more in a map. */
static enum infer_status find(struct tok_vocab *v, const char *s, size_t n, int32_t *id) {
    enum { FEW = 32 };
    int64_t old;
    *id = -1;
    if (!n) return INFER_OK;
    if (!v->index && ++v->n_sought <= FEW) {
        for (int32_t i = 0; i < v->n && *id < 0; i++)
            if (v->text[i].len == n && memcmp(v->text[i].data, s, n) == 0) *id = i;
        return INFER_OK;
    }
    if (!v->index) {
        TRY(strmap_new(&v->index, v->a));
        for (int32_t i = 0; i < v->n; i++)
            if (v->text[i].len) TRY(strmap_put(v->index, v->text[i].data, v->text[i].len, i, &old));
    }
    *id = (int32_t)strmap_get(v->index, s, n);
    return INFER_OK;
}

enum infer_status tok_vocab_id(struct tok_vocab *v, const char *text, int32_t *id) {
    return find(v, text, strlen(text), id);
}

enum infer_status tok_vocab_added(struct tok_vocab *v, int32_t id, const json_t *o, bool special) {
    static const struct {
        const char *key;
        enum tok_flag flag;
    } flags[] = {{"lstrip", TOK_F_LSTRIP}, {"rstrip", TOK_F_RSTRIP}, {"single_word", TOK_F_WORD}};
    const json_t *content = json_object_get(o, "content");
    size_t n = json_string_length(content);
    char *copy = arena_strndup(v->a, json_string_value(content), n);
    if (!copy) return no_memory();
    v->text[id] = (struct str){copy, n};
    v->type[id] = special || json_is_true(json_object_get(o, "special")) ? TOK_TYPE_CONTROL : TOK_TYPE_USER;
    v->flag[id] = 0;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (json_is_true(json_object_get(o, flags[i].key))) v->flag[id] |= (uint8_t)flags[i].flag;
    return INFER_OK;
}

/* ---- what is put in front and behind ---- */

enum infer_status tok_vocab_around(struct tok_vocab *v, enum tok_side side, int32_t id) {
    struct tok_ids *ids = &v->around[side];
    int32_t *grown = arena_alloc(v->a, (ids->n + 1) * sizeof *grown);
    if (!grown) return no_memory();
    if (ids->n) memcpy(grown + (side == TOK_FRONT), ids->id, ids->n * sizeof *grown);
    grown[side == TOK_FRONT ? 0 : ids->n] = id;
    *ids = (struct tok_ids){grown, ids->n + 1};
    return INFER_OK;
}

/* The ids of special token name go around the text, in their order. */
static enum infer_status put_special(struct tok_vocab *v, enum tok_side side, const json_t *specials,
                                     const char *name) {
    const json_t *ids = json_object_get(json_object_get(specials, name), "ids");
    size_t n = json_array_size(ids);
    if (!n) {
        int32_t id;
        TRY(tok_vocab_id(v, name, &id));
        if (id < 0) return err_set(INFER_E_INPUT, "post_processor adds '%.64s', which is no token", name);
        return tok_vocab_around(v, side, id);
    }
    for (size_t i = 0; i < n; i++) {
        json_int_t id = json_integer_value(json_array_get(ids, side == TOK_FRONT ? n - 1 - i : i));
        if (id < 0 || id >= v->n || !v->text[id].len)
            return err_set(INFER_E_INPUT, "post_processor: '%.64s' is id %lld, which is no token", name,
                           (long long)id);
        TRY(tok_vocab_around(v, side, (int32_t)id));
    }
    return INFER_OK;
}

/* {"single": [{"SpecialToken": {"id": name}}, .., {"Sequence": {"id": "A"}}, ..], "special_tokens": {name: {"ids": [..]}}} */
static enum infer_status read_template(struct tok_vocab *v, const json_t *o) {
    const json_t *single = json_object_get(o, "single"), *specials = json_object_get(o, "special_tokens");
    size_t n = json_array_size(single), text = n;
    for (size_t i = 0; i < n; i++) {
        const json_t *sequence = json_object_get(json_array_get(single, i), "Sequence");
        if (!sequence) continue;
        if (text < n || strcmp(json_text_of(sequence, "id"), "A") != 0)
            return err_set(INFER_E_UNSUPPORTED,
                           "post_processor: a template with the text twice is not supported");
        text = i;
    }
    if (text == n) return err_set(INFER_E_INPUT, "post_processor: a template without the text");
    for (size_t i = text; i-- > 0;)
        TRY(put_special(v, TOK_FRONT, specials,
                        json_text_of(json_object_get(json_array_get(single, i), "SpecialToken"), "id")));
    for (size_t i = text + 1; i < n; i++)
        TRY(put_special(v, TOK_BEHIND, specials,
                        json_text_of(json_object_get(json_array_get(single, i), "SpecialToken"), "id")));
    return INFER_OK;
}

enum infer_status tok_vocab_processor(struct tok_vocab *v, const json_t *o) {
    const char *type = json_text_of(o, "type");
    const json_t *processors = json_object_get(o, "processors");
    if (!json_is_object(o) || strcmp(type, "ByteLevel") == 0) return INFER_OK;
    if (strcmp(type, "TemplateProcessing") == 0) return read_template(v, o);
    if (strcmp(type, "Sequence") == 0) {
        for (size_t i = 0; i < json_array_size(processors); i++)
            TRY(tok_vocab_processor(v, json_array_get(processors, i)));
        return INFER_OK;
    }
    if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0) { /* [text, id] each */
        const char *cls = json_string_value(json_array_get(json_object_get(o, "cls"), 0)),
                   *sep = json_string_value(json_array_get(json_object_get(o, "sep"), 0));
        TRY(put_special(v, TOK_FRONT, NULL, cls ? cls : ""));
        return put_special(v, TOK_BEHIND, NULL, sep ? sep : "");
    }
    return err_set(INFER_E_UNSUPPORTED, "post_processor of type '%.64s' is not supported", type);
}

/* ---- tokenizer_config.json ---- */

static const char *const special_keys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                           "pad_token", "cls_token", "mask_token"};
enum { N_SPECIAL = sizeof special_keys / sizeof *special_keys };

/* Special token i of the config, named by its text or as {"content": text, ..}; NULL: none. */
static const json_t *special_text(const json_t *config, size_t i) {
    const json_t *v =
        i < N_SPECIAL ? json_object_get(config, special_keys[i])
                      : json_array_get(json_object_get(config, "additional_special_tokens"), i - N_SPECIAL);
    if (json_is_object(v)) v = json_object_get(v, "content");
    return json_string_length(v) ? v : NULL;
}

static size_t n_special(const json_t *config) {
    return N_SPECIAL + json_array_size(json_object_get(config, "additional_special_tokens"));
}

/* One entry of added_tokens_decoder, {"id": token}; special: texts of special tokens. */
static enum infer_status read_entry(struct tok_vocab *v, const struct strmap *special, const char *key,
                                    const json_t *o) {
    const json_t *content = json_object_get(o, "content");
    const char *s = json_string_value(content);
    size_t n = json_string_length(content);
    int wanted = 0, used = 0;
    if (sscanf(key, "%9d%n", &wanted, &used) != 1 || key[used] || wanted < 0 || !n)
        return err_set(
            INFER_E_INPUT,
            "tokenizer_config.json: added_tokens_decoder: '%.32s' is no id, or its token has no content",
            key);
    int32_t id = wanted;
    if (id >= v->n || v->text[id].len != n || memcmp(v->text[id].data, s, n) != 0) TRY(find(v, s, n, &id));
    bool more = id < 0;
    if (more) {
        id = v->n;
        if (wanted != id)
            return err_set(INFER_E_UNSUPPORTED,
                           "tokenizer_config.json: added_tokens_decoder: '%.64s' has id %d, but the next one "
                           "of the vocabulary is %d",
                           s, wanted, id);
        v->n++; /* tok_vocab_make has counted it */
    }
    TRY(tok_vocab_added(v, id, o, strmap_get(special, s, n) >= 0));
    int64_t old;
    return more && v->index ? strmap_put(v->index, v->text[id].data, n, id, &old) : INFER_OK;
}

static int by_id(const void *a, const void *b) {
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    size_t n = strlen(x), m = strlen(y);
    return n != m ? (n > m) - (n < m) : strcmp(x, y);
}

/* The entries by rising id, which the order of a JSON object does not promise. */
static enum infer_status read_decoder(struct tok_vocab *v, const json_t *config,
                                      const struct strmap *special) {
    json_t *decoder = json_object_get(config, "added_tokens_decoder"), *o;
    size_t n = json_object_size(decoder), k = 0;
    const char *key, **keys = arena_alloc(v->a, (n + 1) * sizeof *keys);
    if (!keys) return no_memory();
    json_object_foreach(decoder, key, o) keys[k++] = key;
    qsort(keys, n, sizeof *keys, by_id);
    for (size_t i = 0; i < n; i++) TRY(read_entry(v, special, keys[i], json_object_get(decoder, keys[i])));
    return INFER_OK;
}

/* A token of the vocabulary that the config names as special is one. A name that is no token adds none, unlike in
 * transformers: it would lie behind the embedding's rows (a pad_token that training alone uses). */
static enum infer_status mark_special(struct tok_vocab *v, const json_t *config) {
    for (size_t i = 0; i < n_special(config); i++) {
        const json_t *s = special_text(config, i);
        int32_t id = -1;
        if (s) TRY(find(v, json_string_value(s), json_string_length(s), &id));
        if (id < 0) continue;
        if (v->type[id] == TOK_TYPE_NORMAL) v->type[id] = TOK_TYPE_CONTROL;
        if (i < 2) *(i ? &v->eos : &v->bos) = id; /* the model itself has the token of unknown text */
    }
    return INFER_OK;
}

/* add_bos_token, add_eos_token: what they say wins over the post_processor, as in llama.cpp and in LlamaTokenizerFast up to
 * transformers 4; transformers 5 does not read them beside a tokenizer.json. */
static enum infer_status read_adds(struct tok_vocab *v, const json_t *config) {
    static const char *const keys[] = {"add_bos_token", "add_eos_token"};
    for (int side = 0; side < 2; side++) {
        const json_t *add = json_object_get(config, keys[side]);
        int32_t id = side == TOK_FRONT ? v->bos : v->eos;
        if (json_is_false(add)) v->around[side].n = 0;
        if (!json_is_true(add) || v->around[side].n) continue;
        if (id < 0)
            return err_set(INFER_E_INPUT, "tokenizer_config.json: %s is true, but %s is no token", keys[side],
                           special_keys[side]);
        TRY(tok_vocab_around(v, (enum tok_side)side, id));
    }
    return INFER_OK;
}

enum infer_status tok_vocab_config(struct tok_vocab *v, const json_t *config) {
    struct strmap *special;
    int64_t old;
    if (!config) return INFER_OK;
    if (!json_is_object(config)) return err_set(INFER_E_INPUT, "tokenizer_config.json: it is no JSON object");
    TRY(strmap_new(&special, v->a));
    for (size_t i = 0; i < n_special(config); i++) {
        const json_t *s = special_text(config, i);
        if (s) TRY(strmap_put(special, json_string_value(s), json_string_length(s), 0, &old));
    }
    TRY(read_decoder(v, config, special));
    TRY(mark_special(v, config));
    return read_adds(v, config);
}

/* ---- keys ---- */

/* The ids with a flag, as a list. */
static enum infer_status put_flagged(const struct tok_vocab *v, struct tok_keys *k, const char *key,
                                     enum tok_flag flag) {
    size_t n = 0;
    int32_t *id = arena_alloc(v->a, ((size_t)v->n + 1) * sizeof *id);
    if (!id) return no_memory();
    for (int32_t i = 0; i < v->n; i++)
        if (v->flag[i] & flag) id[n++] = i;
    return tok_keys_raw(k, key, META_ARRAY, META_I32, n, n * sizeof *id, id);
}

/* chat_template: a text, or a list of {"name": .., "template": ..} of which "default" is taken. */
static const char *template_of(const json_t *config) {
    const json_t *t = json_object_get(config, "chat_template");
    for (size_t i = 0; i < json_array_size(t); i++)
        if (strcmp(json_text_of(json_array_get(t, i), "name"), "default") == 0)
            return json_string_value(json_object_get(json_array_get(t, i), "template"));
    return json_string_value(t);
}

enum infer_status tok_vocab_keys(struct tok_vocab *v, struct tok_keys *k, const char *model,
                                 const json_t *config) {
    static const char *const more[] = {"tokenizer.infer.front", "tokenizer.infer.behind"};
    size_t n = (size_t)v->n;
    bool bert = strcmp(model, "bert") == 0;
    TRY(tok_keys_text(k, "tokenizer.ggml.model", model));
    TRY(tok_keys_strings(k, "tokenizer.ggml.tokens", v->text, n));
    TRY(tok_keys_raw(k, "tokenizer.ggml.token_type", META_ARRAY, META_I32, n, n * sizeof *v->type, v->type));
    if (v->score)
        TRY(tok_keys_raw(k, "tokenizer.ggml.scores", META_ARRAY, META_F32, n, n * sizeof *v->score,
                         v->score));
    /* what is added is known better than what is named */
    const struct tok_ids *front = &v->around[TOK_FRONT], *behind = &v->around[TOK_BEHIND];
    int32_t bos = front->n ? front->id[0] : v->bos, eos = behind->n ? behind->id[behind->n - 1] : v->eos;
    TRY(tok_keys_id(k, "tokenizer.ggml.unknown_token_id", v->unk));
    TRY(tok_keys_id(k, bert ? "tokenizer.ggml.cls_token_id" : "tokenizer.ggml.bos_token_id", bos));
    TRY(tok_keys_id(k, bert ? "tokenizer.ggml.seperator_token_id" : "tokenizer.ggml.eos_token_id", eos));
    TRY(tok_keys_bool(k, "tokenizer.ggml.add_bos_token", front->n > 0));
    TRY(tok_keys_bool(k, bert ? "tokenizer.ggml.add_sep_token" : "tokenizer.ggml.add_eos_token",
                      behind->n > 0));
    for (int side = 0; side < 2; side++)
        if (v->around[side].n > 1)
            TRY(tok_keys_raw(k, more[side], META_ARRAY, META_I32, v->around[side].n,
                             v->around[side].n * sizeof(int32_t), v->around[side].id));
    TRY(put_flagged(v, k, "tokenizer.infer.lstrip", TOK_F_LSTRIP));
    TRY(put_flagged(v, k, "tokenizer.infer.rstrip", TOK_F_RSTRIP));
    TRY(put_flagged(v, k, "tokenizer.infer.single_word", TOK_F_WORD));
    return tok_keys_text(k, "tokenizer.chat_template", template_of(config));
}
