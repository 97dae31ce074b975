/* Types of the members of tokenizer.json and tokenizer_config.json. Whoever reads one takes its absence for a default, so that one of another
 * type would change ids without a sign. null stands for an absent one everywhere. */
#include "files/vocab_types.h"
#include "files/model_keys.h"

#include <string.h>

enum { TEXT = 1, BOOL = 2, INT = 4, REAL = 8, LIST = 16, OBJECT = 32 };

static const struct row {
    const char *names;
    unsigned types;
    const char *want;
} members[] =
    {
        {"type|content|prepend|prepend_scheme|replacement|behavior|String|Regex|precompiled_charsmap|id",
         TEXT, "a string"},
        {"unk_token|continuing_subword_prefix|end_of_word_suffix", TEXT, "a string"},
        {"special|lstrip|rstrip|single_word|normalized|add_prefix_space|use_regex|trim_offsets|invert|split",
         BOOL, "true or false"},
        {"individual_digits|byte_fallback|fuse_unk|ignore_merges|lowercase|strip_accents|clean_text", BOOL,
         "true or false"},
        {"handle_chinese_chars", BOOL, "true or false"},
        {"unk_id|type_id", INT, "an integer"},
        {"merges|normalizers|pretokenizers|processors|single|pair|ids|tokens|cls|sep", LIST, "a list"},
        {"vocab", LIST | OBJECT, "a list or an object"},
        {"pattern", TEXT | OBJECT, "a string or an object"},
        {"special_tokens", OBJECT, "an object"},
},
  parts[] =
      {
          {"model|normalizer|pre_tokenizer|post_processor", OBJECT, "an object"},
          {"added_tokens", LIST, "a list"},
},
  config_members[] =
      {
          {"chat_template", TEXT | LIST, "a string or a list"},
          {"bos_token|eos_token|unk_token|sep_token|pad_token|cls_token|mask_token", TEXT | OBJECT,
           "a string or an object"},
          {"additional_special_tokens", LIST, "a list"},
          {"added_tokens_decoder", OBJECT, "an object"},
          {"add_bos_token|add_eos_token", BOOL, "true or false"},
},
  template_members[] =
      {
          {"name|template", TEXT, "a string"},
},
  added_members[] = {
      {"content", TEXT, "a string"},
      {"id", INT, "an integer"},
      {"special|lstrip|rstrip|single_word|normalized", BOOL, "true or false"},
};
#define ROWS(table) table, sizeof table / sizeof *table

static unsigned type_of(const json_t *v) {
    static const unsigned types[] = {
        [JSON_OBJECT] = OBJECT, [JSON_ARRAY] = LIST, [JSON_STRING] = TEXT, [JSON_INTEGER] = INT,
        [JSON_REAL] = REAL,     [JSON_TRUE] = BOOL,  [JSON_FALSE] = BOOL};
    return json_typeof(v) == JSON_NULL ? 0 : types[json_typeof(v)];
}

/* in: where the member stands, for the message. */
static enum infer_status wrong(const char *in, const char *key, const json_t *v, const char *want) {
    const char *is = "";
    switch (type_of(v)) {
    case TEXT:
        is = "a string";
        break;
    case BOOL:
        is = json_is_true(v) ? "true" : "false";
        break;
    case INT:
    case REAL:
        is = "a number";
        break;
    case LIST:
        is = "a list";
        break;
    case OBJECT:
        is = "an object";
        break;
    }
    return err_set(INFER_E_INPUT, "'%.64s' of %.64s is %s, not %s", key, in, is, want);
}

/* The member is of the type that its row says; without a row it is nobody's. */
static enum infer_status check(const char *in, const char *key, const json_t *v, const struct row *rows,
                               size_t n) {
    for (size_t i = 0; i < n; i++)
        if (key_names(rows[i].names, key, strlen(key)) && !json_is_null(v) && !(type_of(v) & rows[i].types))
            return wrong(in, key, v, rows[i].want);
    return INFER_OK;
}
static enum infer_status check_all(const char *in, const json_t *o, const struct row *rows, size_t n) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)o, key, v) TRY(check(in, key, v, rows, n));
    return INFER_OK;
}

/* Every object in v; deep: the parser bounds it. The members of special_tokens are texts. */
static enum infer_status check_deep(const char *in, const json_t *v) {
    const char *key;
    json_t *member;
    size_t i;
    const bool texts = strcmp(in, "special_tokens") == 0;
    if (!texts) TRY(check_all(in, v, ROWS(members)));
    json_object_foreach((json_t *)v, key, member) TRY(check_deep(texts ? "a special token" : key, member));
    json_array_foreach(v, i, member) TRY(check_deep(in, member));
    return INFER_OK;
}

/* A list's elements are objects, or of another type that is given. */
static enum infer_status check_list(const char *in, const json_t *list, unsigned types, const char *want,
                                    const struct row *rows, size_t n) {
    size_t i;
    json_t *v;
    json_array_foreach(list, i, v) {
        if (!(type_of(v) & types)) return wrong(in, "an element", v, want);
        TRY(check_all(in, v, rows, n));
    }
    return INFER_OK;
}

enum infer_status tok_types_json(const json_t *root) {
    static const char *const deep[] = {"model", "normalizer", "pre_tokenizer", "post_processor"};
    TRY(check_all("tokenizer.json", root, ROWS(parts)));
    for (size_t i = 0; i < sizeof deep / sizeof *deep; i++)
        TRY(check_deep(deep[i], json_object_get(root, deep[i])));
    return check_list("added_tokens", json_object_get(root, "added_tokens"), OBJECT, "an object",
                      ROWS(added_members));
}

enum infer_status tok_types_config(const json_t *config) {
    static const char file[] = "tokenizer_config.json";
    const char *key;
    json_t *v;
    TRY(check_all(file, config, ROWS(config_members)));
    TRY(check_list("chat_template", json_object_get(config, "chat_template"), OBJECT, "an object",
                   ROWS(template_members)));
    TRY(check_list("additional_special_tokens", json_object_get(config, "additional_special_tokens"),
                   TEXT | OBJECT, "a string or an object", ROWS(added_members)));
    json_object_foreach((json_t *)config, key,
                        v) if (json_is_object(v) && key_names(config_members[1].names, key, strlen(key)))
        TRY(check_all(key, v, ROWS(added_members)));
    json_object_foreach(json_object_get(config, "added_tokens_decoder"), key, v) {
        if (!json_is_object(v)) return wrong("added_tokens_decoder", key, v, "an object");
        TRY(check_all("added_tokens_decoder", v, ROWS(added_members)));
    }
    return INFER_OK;
}
