/* Keys of config.json, one by one: hf_keys.def as a table, what is there, and what GGUF calls it. */
#include "files/hf/hf_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define NEED NAN
#define U32  UINT32_MAX
static const struct key_row_hf {
    const char *all, *told, *gguf;
    enum hf_kind kind;
    double min, max, absent;
    bool inside; /* ROPE: not beside rope_parameters and rope_scaling */
} rows[] = {
#define KEY(id, all, told, kind, min, max, absent, gguf) {all, told, gguf, kind, min, max, absent, false},
#define ROPE(id, name, kind, min, max, absent)           {name, "", "", kind, min, max, absent, true},
#define RANGE(names, min, max)
#include "files/hf/hf_keys.def"
#undef KEY
#undef ROPE
#undef RANGE
};
static const struct {
    const char *names;
    double min, max;
} ranges[] = {
#define KEY(id, all, told, kind, min, max, absent, gguf)
#define ROPE(id, name, kind, min, max, absent)
#define RANGE(names, min, max) {names, min, max},
#include "files/hf/hf_keys.def"
#undef KEY
#undef ROPE
#undef RANGE
};

static bool is_real(const struct key_row_hf *r) {
    return r->kind == REAL || r->kind == POSITIVE || r->kind == ROOT;
}
static bool is_in(const char *words, const char *key) { return key_names(words, key, strlen(key)); }
static const struct key_row_hf *row_of(const char *key) {
    for (int i = 0; i < K_COUNT; i++)
        if (is_in(rows[i].all, key) || is_in(rows[i].told, key)) return &rows[i];
    return NULL;
}

/* ---- values ---- */

enum infer_status config_wrong(const struct config *c, const char *key, const char *want) {
    return err_set(INFER_E_INPUT, "%s: '%s' is not %s", c->path, key, want);
}
enum infer_status key_wrong(struct config *c, enum hf_key k, const char *want) {
    const char *name = key_name(c, k);
    if (!c->status) c->status = config_wrong(c, name, want);
    return c->status;
}

enum infer_status config_u32(const struct config *c, const char *key, const json_t *v, int64_t otherwise,
                             uint32_t *out) {
    const struct key_row_hf *r = row_of(key);
    const bool known = r && (r->kind == INT || r->kind == EACH);
    const double min = known ? r->min : 0, max = known ? r->max : U32, x = (double)json_integer_value(v);
    *out = 0;
    if (!v || json_is_null(v)) {
        if (otherwise < 0) return err_set(INFER_E_INPUT, "%s: '%s' is missing", c->path, key);
        *out = (uint32_t)otherwise;
        return INFER_OK;
    }
    if (!json_is_integer(v) || !(x >= min && x <= max))
        return err_set(INFER_E_INPUT, "%s: '%s' is not an integer from %.0f to %.0f", c->path, key, min, max);
    *out = (uint32_t)json_integer_value(v);
    return INFER_OK;
}

/* A number in the range that its row says. */
static enum infer_status in_range(const struct config *c, const struct key_row_hf *r, const char *key,
                                  const json_t *v) {
    double min = r ? r->min : -3e38, max = r ? r->max : 3e38;
    const double x = json_number_value(v);
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (is_in(ranges[i].names, key)) min = ranges[i].min, max = ranges[i].max;
    if (!json_is_number(v) || !isfinite(x)) return config_wrong(c, key, "a number");
    if (x >= min && x <= max) return INFER_OK;
    return err_set(INFER_E_INPUT, "%s: '%s' is %g, must be %g to %g", c->path, key, x, min, max);
}

enum infer_status config_f32(const struct config *c, const char *key, const json_t *v, float otherwise,
                             float *out) {
    const struct key_row_hf *r = row_of(key);
    *out = otherwise;
    if (!v || json_is_null(v))
        return isnan(otherwise) ? err_set(INFER_E_INPUT, "%s: '%s' is missing", c->path, key) : INFER_OK;
    TRY(in_range(c, r && is_real(r) ? r : NULL, key, v));
    *out = (float)json_number_value(v);
    return r && (r->kind == POSITIVE || r->kind == ROOT) && !(*out > 0) ? config_wrong(c, key, "above 0")
                                                                        : INFER_OK;
}

enum infer_status config_in_range(const struct config *c, const char *key, const json_t *v) {
    const struct key_row_hf *r = row_of(key);
    bool real = r && is_real(r);
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) real |= is_in(ranges[i].names, key);
    return real && !json_is_array(v) && !json_is_null(v) ? in_range(c, r, key, v) : INFER_OK;
}

enum infer_status config_bool(const struct config *c, const char *key, const json_t *v, bool otherwise,
                              bool *out) {
    *out = v && json_is_true(v);
    if (!v || json_is_null(v)) *out = otherwise;
    return !v || json_is_null(v) || json_is_boolean(v) ? INFER_OK : config_wrong(c, key, "true or false");
}

json_t *hf_default(const struct arch_default *d) {
    const struct key_row_hf *r = row_of(d->key);
    if (r && r->kind == FLAG) return json_boolean(d->value != 0);
    return d->value == floor(d->value) ? json_integer((json_int_t)d->value) : json_real(d->value);
}

/* ---- rows ---- */

bool config_reads(const struct config *c, const char *word) {
    const struct arch *a = c->out->table;
    return a && a->hf.keys && is_in(a->hf.keys, word);
}

/* Walks the names of a row that are read, those of the architecture first: the next in c->name, behind *at. */
static bool next_name(struct config *c, const struct key_row_hf *r, const char **at, bool *own) {
    if (!*at) *at = r->told, *own = true;
    for (;;) {
        const size_t n = strcspn(*at, "|");
        if (!n && !*own) return false;
        if (!n) {
            *at = r->all, *own = false;
            continue;
        }
        snprintf(c->name, sizeof c->name, "%.*s", (int)n, *at);
        *at += n + ((*at)[n] == '|');
        if (!*own || config_reads(c, c->name)) return true;
    }
}

bool key_reads(const struct config *c, enum hf_key k) {
    struct config copy = *c;
    const char *at = NULL;
    bool own;
    return next_name(&copy, &rows[k], &at, &own);
}

/* The number that a list has for every layer; *v otherwise as it is. */
static enum infer_status same_everywhere(const struct config *c, const char *key, const json_t **v) {
    const json_t *first = json_array_get(*v, 0), *one;
    size_t i;
    if (!json_is_array(*v)) return INFER_OK;
    if (json_array_size(*v) != c->n_layer) return config_wrong(c, key, "a number, or one for each layer");
    json_array_foreach(*v, i, one) if (!json_equal(one, first)) return err_set(
        INFER_E_UNSUPPORTED, "%s: '%s' differs among layers, which is not supported", c->path, key);
    *v = first;
    return INFER_OK;
}

static bool is_same(const json_t *a, const json_t *b) {
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

/* The value of c->name, NULL: absent or null. What is of rotation may stand in three places. */
static const json_t *value_of(struct config *c, enum hf_key k) {
    const bool rope = k >= K_ROPE_THETA && k < K_ROPE_TYPES;
    const json_t *place[] = {rope ? c->rope[0] : NULL, rope ? c->rope[1] : NULL,
                             rows[k].inside ? NULL : c->root},
                 *found = NULL;
    for (int i = 0; i < 3; i++) {
        const json_t *v = json_object_get(place[i], c->name);
        if (!v || json_is_null(v)) continue;
        if (found && !is_same(found, v))
            c->status = err_set(INFER_E_INPUT,
                                "%s: '%s' has two values, in and beside 'rope_parameters' or 'rope_scaling'",
                                c->path, c->name);
        found = v;
    }
    return found;
}

/* The value and its name: the first of the architecture's names that is there, with which its others agree, else the first of all's. */
static const json_t *find(struct config *c, enum hf_key k, char name[64]) {
    const char *at = NULL;
    const json_t *found = NULL;
    bool own;
    for (*name = 0; !c->status && next_name(c, &rows[k], &at, &own) && (own || !found);) {
        const json_t *v = value_of(c, k);
        if (!found && !*name) strcpy(name, c->name);
        if (!v) continue;
        if (rows[k].kind == EACH && !c->status) c->status = same_everywhere(c, c->name, &v);
        if (found && !c->status && !json_equal(found, v))
            c->status = err_set(INFER_E_INPUT, "%s: '%s' and '%s' differ", c->path, name, c->name);
        if (found) continue;
        strcpy(name, c->name);
        found = v;
    }
    return c->status ? NULL : found;
}

const json_t *get_json(struct config *c, enum hf_key k) {
    char name[64];
    return find(c, k, name);
}
const char *key_name(struct config *c, enum hf_key k) {
    char name[64];
    find(c, k, name);
    return strcpy(c->name, name);
}

/* What a file that leaves the key out has: by the architecture, by the row. */
static double absent(const struct config *c, enum hf_key k) {
    return arch_default(c->out->table, rows[k].gguf, rows[k].absent);
}

uint32_t get_u32_or(struct config *c, enum hf_key k, int64_t otherwise) {
    char name[64];
    uint32_t out = 0;
    const json_t *v = find(c, k, name);
    if (!c->status) c->status = config_u32(c, name, v, otherwise, &out);
    return out;
}
uint32_t get_u32(struct config *c, enum hf_key k) {
    const double usual = absent(c, k);
    return get_u32_or(c, k, isnan(usual) ? -1 : (int64_t)usual);
}
float get_f32(struct config *c, enum hf_key k) {
    char name[64];
    float out = 0;
    const json_t *v = find(c, k, name);
    if (!c->status) c->status = config_f32(c, name, v, (float)absent(c, k), &out);
    return out;
}
bool get_flag_or(struct config *c, enum hf_key k, bool otherwise) {
    char name[64];
    bool out = false;
    const json_t *v = find(c, k, name);
    if (!c->status) c->status = config_bool(c, name, v, otherwise, &out);
    return out;
}
bool get_flag(struct config *c, enum hf_key k) { return get_flag_or(c, k, absent(c, k) != 0); }

struct hf_told get_told(struct config *c, enum hf_key k) {
    char name[64];
    const bool there = find(c, k, name);
    struct hf_told told = {.says = there ? get_flag(c, k) : -1};
    memcpy(told.key, name, sizeof told.key);
    return told;
}

const json_t *get_layers(struct config *c, enum hf_key k, const char *want) {
    const json_t *v = get_json(c, k);
    if (v && (!json_is_array(v) || json_array_size(v) != c->n_layer)) key_wrong(c, k, want);
    return c->status ? NULL : v;
}

void *get_room(struct config *c, size_t n) {
    void *p = arena_alloc(c->keys->arena, n + 1);
    if (!p && !c->status) c->status = err_set(INFER_E_MEMORY, "out of memory: keys of a model");
    return p;
}

/* null says that there is none, also where a file without the key has one. */
static void put_null(struct config *c, enum hf_key k) {
    const char *at = NULL;
    bool own;
    while (is_real(&rows[k]) && next_name(c, &rows[k], &at, &own))
        if (json_is_null(json_object_get(c->root, c->name)) &&
            arch_default(c->out->table, rows[k].gguf, 0) != 0)
            put_f32(c, rows[k].gguf, 0);
}

enum infer_status put_keys(struct config *c, enum hf_key from, enum hf_key to) {
    for (enum hf_key k = from; k <= to && !c->status; k++) {
        const char *gguf = rows[k].gguf;
        if (!get_json(c, k))
            put_null(c, k);
        else if (rows[k].kind == FLAG)
            put_bool(c, gguf, get_flag(c, k));
        else if (is_real(&rows[k])) {
            const float x = get_f32(c, k);
            put_f32(c, gguf, rows[k].kind == ROOT ? 1 / sqrtf(x) : x);
        } else
            put_u32(c, gguf, get_u32(c, k));
    }
    return c->status;
}

/* ---- every key is known ---- */

/* Whether a value is one of a row's neutral ones; null always is. */
static bool is_neutral(const struct key_row *row, const json_t *v) {
    size_t i;
    json_t *one;
    bool all = json_array_size(v) > 0;
    json_array_foreach(v, i, one) all = all && is_neutral(row, one);
    if (all) return true;
    struct key_value value = {.is_number = json_is_number(v), .number = json_number_value(v), .text = "?"};
    if (json_is_null(v)) return true;
    if (json_is_boolean(v)) value.text = json_is_true(v) ? "true" : "false";
    if (json_is_string(v)) value.text = json_string_value(v);
    if (json_is_array(v) || json_is_object(v))
        value.text = json_array_size(v) + json_object_size(v) ? "?" : "empty";
    value.len = strlen(value.text);
    return key_is_one_of(row->words, &value);
}

/* The folder's own code for what transformers has since learned: its class is the architecture's. */
static bool is_own_code(const struct config *c, const json_t *map) {
    const char *of = c->out->table->encoder.on ? "AutoModel" : "AutoModelForCausalLM",
               *code = json_string_value(json_object_get(map, of)), *class = code ? strrchr(code, '.') : NULL;
    for (const struct arch_hf *hf = c->out->table->hf.models; class && hf->model_type; hf++)
        if (strcmp(hf->class, class + 1) == 0) return true;
    return json_object_size(map) == 1 && json_object_get(map, "AutoConfig");
}

bool config_has_row(const char *key) { return row_of(key) != NULL; }
bool config_known(const char *key) {
    for (int i = 0; i < K_COUNT; i++)
        if (!rows[i].inside && is_in(rows[i].all, key)) return true;
    return false;
}

enum infer_status config_check_keys(const struct config *c) {
    const char *key;
    json_t *v;
    json_object_foreach(c->root, key, v) {
        const struct key_row *row = key_find(KEYS_CONFIG, key);
        TRY(config_in_range(c, key, v));
        if (config_reads(c, key) || (strcmp(key, "auto_map") == 0 && is_own_code(c, v))) continue;
        if (!row && !config_known(key) && !json_is_null(v)) TRY(key_unknown(c->ignore, c->path, key));
        if (!row || row->use != KEY_OFF || is_neutral(row, v)) continue;
        char text[40];
        size_t n = json_dumpb(v, text, sizeof text, JSON_COMPACT | JSON_ENCODE_ANY);
        return err_set(INFER_E_UNSUPPORTED, "%s: '%s' is %.*s%s, which is not supported (%s is)", c->path,
                       key, (int)(n < sizeof text ? n : sizeof text), text, n > sizeof text ? ".." : "",
                       row->words);
    }
    return INFER_OK;
}
