/* Modules of sentence-transformers, of all its versions: their classes have moved, their last names have not.
 * source: its documentation, and what 2.2 and 6.2 write */
#include "files/hf/hf_sentence.h"
#include "files/json.h"
#include "files/textfile.h"

#include <stdio.h>
#include <string.h>

/* A JSON file of the folder; *root NULL: there is none. The caller gives it back. */
static enum infer_status read_json(json_t **root, const char *folder, const char *part, const char *name,
                                   char path[1024]) {
    struct mapfile m = {0};
    bool there;
    *root = NULL;
    if (snprintf(path, 1024, "%s/%s%s%s", folder, part, *part ? "/" : "", name) >= 1024)
        return err_set(INFER_E_INPUT, "%s: the name of a folder is too long", folder);
    TRY(text_map(&m, path, TEXT_CONFIG, &there));
    enum infer_status s =
        there ? json_read_python(root, path, text_of_map(&m), m.size, JSON_REJECT_DUPLICATES) : INFER_OK;
    mapfile_close(&m);
    return s;
}

/* ---- pooling ---- */

static const struct {
    const char *mode, *key; /* of new files; of older ones */
    int pooling;            /* -1: not here */
} modes[] = {{"mean", "pooling_mode_mean_tokens", 1},
             {"cls", "pooling_mode_cls_token", 2},
             {"lasttoken", "pooling_mode_lasttoken", 3},
             {"max", "pooling_mode_max_tokens", -1},
             {"mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens", -1},
             {"weightedmean", "pooling_mode_weightedmean_tokens", -1}};

static enum infer_status take_mode(struct hf_sentence *s, size_t i, const char *path) {
    if (modes[i].pooling < 0 || s->pooling >= 0)
        return err_set(INFER_E_UNSUPPORTED, "%s: pooling by %s%s; one of mean, cls, lasttoken is known", path,
                       modes[i].mode, s->pooling >= 0 ? " beside another" : "");
    s->pooling = modes[i].pooling;
    return INFER_OK;
}

static enum infer_status read_pooling(struct hf_sentence *s, const json_t *root, const char *path) {
    const char *mode = json_string_value(json_object_get(root, "pooling_mode"));
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (mode ? strcmp(mode, modes[i].mode) == 0 : json_is_true(json_object_get(root, modes[i].key)))
            TRY(take_mode(s, i, path));
    if (s->pooling < 0)
        return err_set(INFER_E_UNSUPPORTED, "%s: no way of pooling that is known (mean, cls, lasttoken)",
                       path);
    return INFER_OK;
}

/* ---- modules ---- */

static enum infer_status read_dense(struct hf_sentence *s, const json_t *root, const char *path,
                                    const char *part, struct arena *arena) {
    const char *act = json_text_of(root, "activation_function"), *last = strrchr(act, '.');
    if (strcmp(last ? last + 1 : act, "Identity") != 0)
        return err_set(INFER_E_UNSUPPORTED, "%s: 'activation_function' is '%.80s', and Identity is known",
                       path, act);
    if (s->n_dense == SENTENCE_DENSE)
        return err_set(INFER_E_UNSUPPORTED, "%s: more than %d products behind the pooling", path,
                       SENTENCE_DENSE);
    s->dense[s->n_dense] = arena_strndup(arena, part, strlen(part));
    if (!s->dense[s->n_dense++]) return err_set(INFER_E_MEMORY, "out of memory for %s", path);
    return INFER_OK;
}

static enum infer_status read_module(struct hf_sentence *s, const char *folder, const json_t *module,
                                     struct arena *arena) {
    const char *type = json_text_of(module, "type"), *part = json_text_of(module, "path"),
               *last = strrchr(type, '.');
    char path[1024];
    json_t *root;
    type = last ? last + 1 : type;
    if (strcmp(type, "Transformer") == 0 || strcmp(type, "Normalize") == 0) return INFER_OK;
    const bool pools = strcmp(type, "Pooling") == 0;
    if (!pools && strcmp(type, "Dense") != 0)
        return err_set(INFER_E_UNSUPPORTED, "%s/modules.json: a module '%.80s'; %s", folder, type,
                       "Transformer, Pooling, Dense and Normalize are known");
    if (strchr(part, '/') || *part == '.')
        return err_set(INFER_E_INPUT, "%s/modules.json: '%.80s' is no folder's name", folder, part);
    TRY(read_json(&root, folder, part, "config.json", path));
    if (!root) return err_set(INFER_E_INPUT, "%s is missing, which modules.json names", path);
    enum infer_status st = pools ? read_pooling(s, root, path) : read_dense(s, root, path, part, arena);
    json_decref(root);
    return st;
}

static enum infer_status read_modules(struct hf_sentence *s, const char *folder, const json_t *root,
                                      const char *path, struct arena *arena) {
    size_t i;
    json_t *module;
    if (!json_is_array(root)) return err_set(INFER_E_INPUT, "%s: not a list of modules", path);
    json_array_foreach((json_t *)root, i, module) TRY(read_module(s, folder, module, arena));
    return INFER_OK;
}

/* A length that one of the files says; absurd ones are those of no limit. */
static enum infer_status read_length(struct hf_sentence *s, const char *folder, const char *name,
                                     const char *key) {
    char path[1024];
    json_t *root;
    if (s->n_text) return INFER_OK;
    TRY(read_json(&root, folder, "", name, path));
    const double n = json_real_of(json_object_get(root, key));
    if (n >= 1 && n <= 1 << 26) s->n_text = (uint32_t)n;
    json_decref(root);
    return INFER_OK;
}

enum infer_status hf_sentence_read(struct hf_sentence *s, const char *folder, struct arena *arena) {
    char path[1024];
    json_t *root;
    *s = (struct hf_sentence){.pooling = -1};
    TRY(read_length(s, folder, "sentence_bert_config.json", "max_seq_length"));
    TRY(read_length(s, folder, "tokenizer_config.json", "model_max_length"));
    TRY(read_json(&root, folder, "", "modules.json", path));
    if (!root) return INFER_OK;
    s->there = true;
    enum infer_status st = read_modules(s, folder, root, path, arena);
    json_decref(root);
    return st;
}
