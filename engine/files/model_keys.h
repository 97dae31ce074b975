/* What to do with a key of a model file: models/keys.def as a table. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "base/status.h"

enum key_space { KEYS_GGUF, KEYS_CONFIG, KEYS_ROPE };
enum key_use { KEY_READ, KEY_OFF, KEY_HARMLESS };

struct key_row {
    enum key_space space;
    const char *names; /* "a|b" */
    enum key_use use;
    const char *words; /* KEY_OFF: the neutral values; KEY_HARMLESS: why; KEYS_ROPE: the rope types */
};
/* The row of a key; NULL: not known. */
const struct key_row *key_find(enum key_space space, const char *name);

/* A value as neutral words are compared with it: a number, or text. */
struct key_value {
    bool is_number;
    double number;
    const char *text; /* text[len] unless is_number */
    size_t len;
};
/* Whether the value is one of the words of a list "0|1|none". */
bool key_is_one_of(const char *words, const struct key_value *v);
bool key_names(const char *words, const char *text, size_t len);

/* Names that the user knows to be harmless; each is said once when it is met. */
struct key_ignore {
    const char *const *name; /* name[n] */
    int n;
};
/* For a key without a row: INFER_OK with a warning when it is to be ignored.
 * errors: INFER_E_UNSUPPORTED (message names path, key and the way on) */
enum infer_status key_unknown(const struct key_ignore *ignore, const char *path, const char *key);
