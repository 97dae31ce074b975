#include "files/model_keys.h"

#include <stdlib.h>
#include <string.h>

static const struct key_row rows[] = {
#define READ(space, names)          {KEYS_##space, names, KEY_READ, ""},
#define OFF(space, names, neutral)  {KEYS_##space, names, KEY_OFF, neutral},
#define HARMLESS(space, names, why) {KEYS_##space, names, KEY_HARMLESS, why},
#define ROPE(names, types)          {KEYS_ROPE, names, KEY_READ, types},
#include "models/keys.def"
#undef READ
#undef OFF
#undef HARMLESS
#undef ROPE
};

/* The next word of a list "a|b"; NULL behind the last. */
static const char *next_word(const char **list, size_t *len) {
    const char *word = *list;
    if (!word || !*word) return NULL;
    *len = strcspn(word, "|");
    *list = word[*len] ? word + *len + 1 : NULL;
    return word;
}

bool key_names(const char *words, const char *text, size_t len) {
    size_t n;
    for (const char *w; (w = next_word(&words, &n));)
        if (n == len && memcmp(w, text, n) == 0) return true;
    return false;
}

bool key_is_one_of(const char *words, const struct key_value *v) {
    size_t n;
    if (!v->is_number) return key_names(words, v->text, v->len);
    for (const char *w; (w = next_word(&words, &n));) {
        char *end;
        double number = strtod(w, &end);
        if (end == w + n && number == v->number) return true;
    }
    return false;
}

const struct key_row *key_find(enum key_space space, const char *name) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].space == space && key_names(rows[i].names, name, strlen(name))) return &rows[i];
    return NULL;
}

enum infer_status key_unknown(const struct key_ignore *ignore, const char *path, const char *key) {
    for (int i = 0; i < ignore->n; i++)
        if (strcmp(ignore->name[i], key) == 0) {
            log_line(LOG_WARN,
                     "%s: key '%s' is ignored as asked: if it changes what the model computes, every answer "
                     "is wrong",
                     path, key);
            return INFER_OK;
        }
    return err_set(INFER_E_UNSUPPORTED,
                   "%s: key '%.100s' is not known here and may change what the model computes; who knows "
                   "that it does not gives .ignore_keys '%.100s'",
                   path, key, key);
}
