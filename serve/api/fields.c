#include "serve/api/fields.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "files/json.h"
#include "serve/core/server.h"

/* ---- one value ---- */

const char *field_type_name(const json_t *v) {
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    case JSON_NULL:
        return "null";
    }
    return "?";
}

static enum infer_status wrong_type(struct job *j, const char *at, const char *wanted, const json_t *v) {
    return job_invalid(j, at, "'%s' must be %s, and is %s", at, wanted, field_type_name(v));
}

enum infer_status field_bool(struct job *j, const char *at, const json_t *v, bool *out) {
    if (!json_is_boolean(v)) return wrong_type(j, at, "a boolean", v);
    *out = json_is_true(v);
    return INFER_OK;
}

static enum infer_status in_range(struct job *j, const char *at, double x, double least, double most) {
    if (least == most || (x >= least && x <= most)) return INFER_OK;
    return job_invalid(j, at, "'%s' is %.17g, and must be within %.17g to %.17g", at, x, least, most);
}

enum infer_status field_int(struct job *j, const char *at, const json_t *v, double least, double most,
                            int *out) {
    double x = json_number_value(v);
    if (!json_is_number(v) || x != floor(x)) return wrong_type(j, at, "an integer", v);
    TRY(in_range(j, at, x, least, most));
    *out = (int)x;
    return INFER_OK;
}

enum infer_status field_float(struct job *j, const char *at, const json_t *v, double least, double most,
                              float *out) {
    if (!json_is_number(v)) return wrong_type(j, at, "a number", v);
    double x = json_number_value(v);
    TRY(in_range(j, at, x, least, most));
    *out = (float)x;
    return INFER_OK;
}

enum infer_status field_text(struct job *j, const char *at, const json_t *v, size_t most, const char **out,
                             size_t *n) {
    *out = "", *n = 0;
    if (!json_is_string(v)) return wrong_type(j, at, "a string", v);
    *out = json_string_value(v);
    *n = json_string_length(v);
    if (*n > most) return job_invalid(j, at, "'%s' has %zu bytes, and may have %zu", at, *n, most);
    return INFER_OK;
}

static enum infer_status keep(char **out, const char *text, size_t n) {
    char *p;
    TRY(mem_new(&p, n + 1, "a field of a request"));
    memcpy(p, text, n);
    mem_free(*out);
    *out = p;
    return INFER_OK;
}

enum infer_status field_keep(struct job *j, const char *at, const json_t *v, size_t most, char **out) {
    const char *text;
    size_t n;
    TRY(field_text(j, at, v, most, &text, &n));
    if (memchr(text, 0, n)) return job_invalid(j, at, "'%s' holds a zero", at);
    return keep(out, text, n);
}

enum infer_status field_most(struct job *j, const char *at, const json_t *v, int least) {
    int n = 0;
    TRY(field_int(j, at, v, -1, 1e9, &n));
    if (n >= 0 && n < least)
        return job_invalid(j, at, "'%s' is %d, and must be at least %d, or -1: no limit", at, n, least);
    j->ask.params.n_predict = n;
    return INFER_OK;
}

enum infer_status field_each(struct job *j, const char *at, const json_t *v, size_t least, size_t most,
                             const char *things,
                             enum infer_status (*read)(struct job *j, const char *at, const json_t *v)) {
    if (!json_is_array(v) || json_array_size(v) < least || json_array_size(v) > most)
        return job_invalid(j, at, "'%s' must be an array of %zu to %zu %s", at, least, most, things);
    for (size_t i = 0; i < json_array_size(v); i++) {
        char place[96];
        snprintf(place, sizeof place, "%s[%zu]", at, i);
        TRY(read(j, place, json_array_get(v, i)));
    }
    return INFER_OK;
}

enum infer_status field_ids(struct job *j, const char *at, const json_t *v, int32_t **ids, int *n) {
    if (!json_is_array(v)) return job_invalid(j, at, "'%s' must be an array of token ids", at);
    mem_free(*ids);
    TRY(mem_new(ids, (json_array_size(v) + 1) * sizeof **ids, "token ids"));
    *n = 0;
    for (size_t i = 0; i < json_array_size(v); i++) {
        int id = 0;
        TRY(field_int(j, at, json_array_get(v, i), 0, j->server->info.n_vocab - 1, &id));
        (*ids)[(*n)++] = id;
    }
    return INFER_OK;
}

enum infer_status field_stop(struct job *j, const char *at, const json_t *v) {
    struct ask *a = &j->ask;
    const bool one = json_is_string(v);
    const size_t n = one ? 1 : json_array_size(v);
    if (!one && !json_is_array(v)) return wrong_type(j, at, "a string or an array of strings", v);
    if (n > JOB_STOPS) return job_invalid(j, at, "'%s' has %zu texts, at most %d", at, n, JOB_STOPS);
    for (size_t i = 0; i < n; i++) {
        const json_t *t = one ? v : json_array_get(v, i);
        if (json_is_string(t) && json_string_length(t) == 0)
            return job_invalid(j, at, "'%s' has an empty text", at);
        a->stop[a->n_stop] = NULL;
        TRY(field_keep(j, at, t, JOB_STOP_BYTES, &a->stop[a->n_stop]));
        a->n_stop++;
    }
    return INFER_OK;
}

enum { SCHEMA_BYTES = 256 << 10, GRAMMAR_BYTES = 64 << 10 };

/* text is given up. */
static enum infer_status set_form(struct job *j, const char *at, enum infer_grammar_kind kind, char *text) {
    struct ask *a = &j->ask;
    const size_t most =
        kind == INFER_GRAMMAR_SCHEMA || kind == INFER_GRAMMAR_TAGS ? SCHEMA_BYTES : GRAMMAR_BYTES;
    const int n = (int)strcspn(at, ".[");
    if (strlen(text) > most) {
        mem_free(text);
        return job_refuse(j, 400, "invalid_schema", at, "'%s' has over %zu bytes", at, most);
    }
    if (a->form && (a->form_kind != kind || strcmp(a->form, text) != 0)) {
        mem_free(text);
        return job_invalid(j, at, "'%s' and '%s' are both given, and one can hold", a->form_at, at);
    }
    mem_free(a->form);
    a->form = text;
    a->form_kind = kind;
    snprintf(a->form_at, sizeof a->form_at, "%.*s", n, at);
    return INFER_OK;
}

enum infer_status field_form(struct job *j, const char *at, enum infer_grammar_kind kind, const json_t *v) {
    const bool json = kind == INFER_GRAMMAR_SCHEMA || kind == INFER_GRAMMAR_TAGS;
    char *text = NULL;
    if (json_is_string(v)) {
        TRY(field_keep(j, at, v, SCHEMA_BYTES, &text));
        if (*text) return set_form(j, at, kind, text);
        mem_free(text);
        return INFER_OK;
    }
    if (!json) return wrong_type(j, at, "a string", v);
    if (!json_is_object(v) && (kind != INFER_GRAMMAR_SCHEMA || !json_is_boolean(v)))
        return wrong_type(j, at, "an object", v);
    TRY(json_line(&text, v, "a schema"));
    return set_form(j, at, kind, text);
}

enum infer_status field_any_object(struct job *j, const char *at) {
    json_t *any = json_pack("{s:s}", "type", "object");
    enum infer_status st = any ? field_form(j, at, INFER_GRAMMAR_SCHEMA, any)
                               : err_set(INFER_E_MEMORY, "out of memory: a schema");
    json_decref(any);
    return st;
}

enum infer_status field_message(struct job *j, json_t *message) {
    if (!j->ask.messages) j->ask.messages = json_array();
    return json_array_append_new(j->ask.messages, message)
               ? err_set(INFER_E_MEMORY, "out of memory: a message")
               : INFER_OK;
}

/* ---- a table ---- */

/* Whether name is one of a row's names. */
static bool is_named(const char *names, const char *name) {
    const size_t n = strlen(name);
    if (!n || strchr(name, ' ')) return false;
    for (const char *p = names; (p = strstr(p, name)); p += n)
        if ((p == names || p[-1] == ' ') && (!p[n] || p[n] == ' ')) return true;
    return false;
}

static const struct field *find(const struct field *const *tables, const char *name) {
    for (; *tables; tables++)
        for (const struct field *f = *tables; f->name; f++)
            if (is_named(f->name, name)) return f;
    return NULL;
}

/* A value that asks for nothing. */
static bool is_neutral(const struct field *f, const json_t *v) {
    if (json_is_number(v)) return json_number_value(v) == f->least || json_number_value(v) == f->most;
    return json_is_false(v) || (json_is_string(v) && json_string_length(v) == 0) ||
           (json_is_array(v) && json_array_size(v) == 0) || (json_is_object(v) && json_object_size(v) == 0);
}

static enum infer_status read_field(struct job *j, const struct field *f, const char *at, const json_t *v) {
    void *to = (f->own ? (char *)j->state : (char *)&j->ask) + f->offset;
    const char *text;
    bool not = false;
    size_t n;
    switch (f->type) {
    case FIELD_BOOL:
        return field_bool(j, at, v, to);
    case FIELD_NOT:
        TRY(field_bool(j, at, v, &not ));
        *(bool *)to = !not ;
        return INFER_OK;
    case FIELD_MOST:
        return field_most(j, at, v, (int)f->least);
    case FIELD_KEEP:
        return field_keep(j, at, v, (size_t)f->most, to);
    case FIELD_INT:
        return field_int(j, at, v, f->least, f->most, to);
    case FIELD_NUMBER:
        return field_float(j, at, v, f->least, f->most, to);
    case FIELD_TEXT:
        TRY(field_text(j, at, v, (size_t)f->most, &text, &n));
        if (n < (size_t)f->least || memchr(text, 0, n))
            return job_invalid(j, at, "'%s' is empty or holds a zero", at);
        memcpy(to, text, n + 1);
        return INFER_OK;
    case FIELD_HAND:
        return f->hand(j, at, v);
    case FIELD_SILENT:
        return INFER_OK;
    case FIELD_WARN:
        if (j->server->o.strict_fields) break;
        job_warn(j, at, "%s", f->why ? f->why : "is not supported here and was ignored");
        return INFER_OK;
    case FIELD_NEUTRAL:
        if (is_neutral(f, v)) return INFER_OK;
        break;
    case FIELD_REFUSE:
        break;
    }
    return job_refuse(j, 400, "unsupported_parameter", at, "'%s' %s", at,
                      f->why ? f->why : "is not supported here");
}

enum infer_status fields_read(struct job *j, const char *at, const json_t *object,
                              const struct field *const *tables) {
    static const struct field unknown = {.type = FIELD_WARN, .why = "is not known here and was ignored"};
    const char *name;
    json_t *v;
    if (!json_is_object(object)) return wrong_type(j, at, "an object", object);
    json_object_foreach((json_t *)object, name, v) {
        char place[160], shown[64];
        if (json_is_null(v)) continue;
        const struct field *f = find(tables, name);
        text_escape(shown, sizeof shown, name, strnlen(name, 60));
        snprintf(place, sizeof place, "%s%s%s", at, *at ? "." : "", shown);
        TRY(read_field(j, f ? f : &unknown, place, v));
    }
    return INFER_OK;
}

/* ---- fields that APIs share ---- */

static enum infer_status read_seed(struct job *j, const char *at, const json_t *v) {
    if (!json_is_integer(v)) return wrong_type(j, at, "an integer", v);
    json_int_t seed = json_integer_value(v);
    if (seed != -1) j->seed = j->ask.params.sample.seed = (uint64_t)seed; /* -1: any, as others have it */
    return INFER_OK;
}

static enum infer_status read_biases(struct job *j, const char *at, const json_t *v) {
    struct ask *a = &j->ask;
    const char *name;
    json_t *x;
    if (!json_is_object(v)) return wrong_type(j, at, "an object {\"id\": number}", v);
    if (json_object_size(v) > JOB_BIASES)
        return job_invalid(j, at, "'%s' has %zu tokens, at most %d", at, json_object_size(v), JOB_BIASES);
    mem_free(a->bias);
    a->bias = NULL, a->params.sample.n_bias = 0;
    json_object_foreach((json_t *)v, name, x) {
        char *end;
        long id = strtol(name, &end, 10);
        float bias = 0;
        if (end == name || *end || id < 0 || id >= j->server->info.n_vocab)
            return job_invalid(j, at, "'%s' names token '%.20s', and ids are 0 to %d", at, name,
                               j->server->info.n_vocab - 1);
        TRY(field_float(j, at, x, -100, 100, &bias));
        TRY(ask_bias(a, (int32_t)id, bias <= -100 ? -INFINITY : bias));
    }
    return INFER_OK;
}

static enum infer_status read_salt(struct job *j, const char *at, const json_t *v) {
    const char *text;
    size_t n;
    TRY(field_text(j, at, v, 128, &text, &n));
    for (size_t i = 0; i < n; i++) j->salt = (j->salt ^ (unsigned char)text[i]) * 1099511628211ull;
    return INFER_OK;
}

static enum infer_status read_stop_ids(struct job *j, const char *at, const json_t *v) {
    struct ask *a = &j->ask;
    if (!json_is_array(v) || json_array_size(v) > JOB_STOP_IDS)
        return job_invalid(j, at, "'%s' must be an array of at most %d token ids", at, JOB_STOP_IDS);
    a->params.n_end_id = 0;
    for (size_t i = 0; i < json_array_size(v); i++) {
        int id = 0;
        TRY(field_int(j, at, json_array_get(v, i), 0, j->server->info.n_vocab - 1, &id));
        a->stop_id[a->params.n_end_id++] = id;
    }
    return INFER_OK;
}

/* As vLLM has it, the least is the most urgent; here it is one of three classes. */
static enum infer_status read_priority(struct job *j, const char *at, const json_t *v) {
    int n = 0;
    TRY(field_int(j, at, v, -1e9, 1e9, &n));
    j->class = n < 0 ? CLASS_PRIORITY : n > 0 ? CLASS_FLEX : CLASS_DEFAULT;
    return INFER_OK;
}

static enum infer_status read_tier(struct job *j, const char *at, const json_t *v) {
    static const struct {
        const char *name;
        int class;
    } tiers[] = {{"auto", CLASS_DEFAULT}, {"default", CLASS_DEFAULT},   {"scale", CLASS_DEFAULT},
                 {"flex", CLASS_FLEX},    {"priority", CLASS_PRIORITY}, {"fast", CLASS_PRIORITY}};
    const char *word = json_string_value(v);
    for (size_t i = 0; word && i < sizeof tiers / sizeof *tiers; i++)
        if (strcmp(tiers[i].name, word) == 0) {
            if (tiers[i].class) j->class = tiers[i].class;
            return INFER_OK;
        }
    return job_invalid(j, at, "'%s' is none of auto, default, flex, priority, fast, scale", at);
}

static enum infer_status read_samplers(struct job *j, const char *at, const json_t *v) {
    char names[256] = "";
    size_t n = 0;
    if (json_is_string(v)) {
        snprintf(names, sizeof names, "%s", json_string_value(v));
    } else if (json_is_array(v)) {
        for (size_t i = 0; i < json_array_size(v) && n < sizeof names; i++) {
            const char *name = json_string_value(json_array_get(v, i));
            if (!name) return wrong_type(j, at, "an array of names", v);
            if (strcmp(name, "infill") == 0) continue; /* of llama.cpp's editors: not here, and no matter */
            const char *own = strcmp(name, "temperature") == 0                               ? "temp"
                              : strcmp(name, "typ_p") == 0 || strcmp(name, "typical_p") == 0 ? "typical"
                                                                                             : name;
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n ? ";" : "", own);
        }
    } else {
        return wrong_type(j, at, "a string or an array of names", v);
    }
    if (infer_sample_set_order(&j->ask.params.sample, names))
        return job_invalid(j, at, "'%s': %s", at, err_message());
    return INFER_OK;
}

/* The only tokens that may come; how many there are is bounded by the vocabulary. */
static enum infer_status read_allowed(struct job *j, const char *at, const json_t *v) {
    struct ask *a = &j->ask;
    const int n_vocab = j->server->info.n_vocab;
    if (!json_is_array(v) || json_array_size(v) > (size_t)n_vocab)
        return job_invalid(j, at, "'%s' must be an array of at most %d token ids", at, n_vocab);
    if (json_array_size(v) == 0) return INFER_OK;
    if (!a->allowed) TRY(mem_new(&a->allowed, (size_t)n_vocab * sizeof *a->allowed, "tokens that may come"));
    for (size_t i = 0; i < json_array_size(v); i++) {
        int id = 0;
        TRY(field_int(j, at, json_array_get(v, i), 0, n_vocab - 1, &id));
        a->allowed[id] = true;
    }
    return INFER_OK;
}

static enum infer_status read_bad_words(struct job *j, const char *at, const json_t *v) {
    struct ask *a = &j->ask;
    if (!json_is_array(v) || json_array_size(v) > INFER_AVOID_TEXTS)
        return job_invalid(j, at, "'%s' must be an array of at most %d texts", at, INFER_AVOID_TEXTS);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *t = json_array_get(v, i);
        if (json_is_string(t) && json_string_length(t) == 0)
            return job_invalid(j, at, "'%s' has an empty text", at);
        a->bad[a->n_bad] = NULL;
        TRY(field_keep(j, at, t, INFER_AVOID_BYTES, &a->bad[a->n_bad]));
        a->n_bad++;
    }
    return INFER_OK;
}

/* top_k: -1 is "all", as others have it */
static enum infer_status read_top_k(struct job *j, const char *at, const json_t *v) {
    int k = 0;
    TRY(field_int(j, at, v, -1, 1e9, &k));
    j->ask.params.sample.top_k = k < 0 ? 0 : k;
    return INFER_OK;
}

/* -1 is off, as llama.cpp has it */
static enum infer_status read_sigma(struct job *j, const char *at, const json_t *v) {
    float x = 0;
    TRY(field_float(j, at, v, -1, 1e6, &x));
    j->ask.params.sample.top_n_sigma = x < 0 ? 0 : x;
    return INFER_OK;
}

static enum infer_status read_last(struct job *j, const char *at, const json_t *v) {
    int n = 0;
    TRY(field_int(j, at, v, -1, 1e9, &n));
    n = n < 0 || n > INFER_SAMPLE_MAX_LAST ? INFER_SAMPLE_MAX_LAST : n;
    *(strcmp(at, "repeat_last_n") == 0 ? &j->ask.params.sample.repeat_last : &j->ask.params.sample.dry_last) =
        n;
    return INFER_OK;
}

#define INFER_SAMPLE(type, field, def, lo, hi, name, least, most, ...)                                       \
    {name, FIELD_##type, least, most, offsetof(struct ask, params.sample.field), false, NULL, NULL},
static enum infer_status read_drafts(struct job *j, const char *at, const json_t *v) {
    TRY(field_int(j, at, v, 0, 1024, &j->ask.params.n_draft));
    j->ask.no_drafts = j->ask.params.n_draft == 0;
    return INFER_OK;
}

const struct field fields_sampling[] = {
    {"top_k", FIELD_HAND, .hand = read_top_k},
    {"top_n_sigma", FIELD_HAND, .hand = read_sigma},
    {"repeat_last_n", FIELD_HAND, .hand = read_last},
    {"dry_penalty_last_n", FIELD_HAND, .hand = read_last},
#include "infer_sample.def"
    {"samplers", FIELD_HAND, .hand = read_samplers},
    {"seed", FIELD_HAND, .hand = read_seed},
    {"logit_bias", FIELD_HAND, .hand = read_biases},
    {"stop", FIELD_HAND, .hand = field_stop},
    {"cache_salt", FIELD_HAND, .hand = read_salt},
    {"lora", FIELD_HAND, .hand = field_lora},
    {"stop_token_ids", FIELD_HAND, .hand = read_stop_ids},
    {"allowed_token_ids", FIELD_HAND, .hand = read_allowed},
    {"bad_words", FIELD_HAND, .hand = read_bad_words},
    {"min_tokens", FIELD_INT, 0, 1e9, .offset = offsetof(struct ask, params.min_tokens)},
    {"priority", FIELD_HAND, .hand = read_priority},
    {"service_tier", FIELD_HAND, .hand = read_tier},
    {"loop_stop", FIELD_BOOL, .offset = offsetof(struct ask, params.loop_stop)},
    {"speculative.n_max", FIELD_HAND, .hand = read_drafts},
    {"speculative.n_min speculative.p_min speculative.type",
     .type = FIELD_SILENT}, /* guesses change no answer */
    {"ignore_eos", FIELD_BOOL, .offset = offsetof(struct ask, ignore_eos)},
    {"skip_special_tokens", FIELD_NOT, .offset = offsetof(struct ask, params.special)},
    {"return_token_ids", FIELD_BOOL, .offset = offsetof(struct ask, return_ids)},
    {.name = NULL},
};

static enum infer_status read_schema(struct job *j, const char *at, const json_t *v) {
    return field_form(j, at, INFER_GRAMMAR_SCHEMA, v);
}
static enum infer_status read_grammar(struct job *j, const char *at, const json_t *v) {
    return field_form(j, at, INFER_GRAMMAR_TEXT, v);
}
static enum infer_status read_regex(struct job *j, const char *at, const json_t *v) {
    return field_form(j, at, INFER_GRAMMAR_REGEX, v);
}
static enum infer_status read_tags(struct job *j, const char *at, const json_t *v) {
    return field_form(j, at, INFER_GRAMMAR_TAGS, v);
}

static enum infer_status read_choice(struct job *j, const char *at, const json_t *v) {
    if (!json_is_array(v) || !json_array_size(v)) return wrong_type(j, at, "an array of strings", v);
    struct buf b = {0};
    buf_text(&b, "root ::= ");
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *t = json_array_get(v, i);
        if (i) buf_text(&b, " | ");
        if (json_is_string(t)) buf_json(&b, json_string_value(t), json_string_length(t));
    }
    buf_text(&b, "\n");
    if (b.failed || b.n > GRAMMAR_BYTES) {
        buf_free(&b);
        return job_invalid(j, at, "'%s' has over %d bytes", at, GRAMMAR_BYTES);
    }
    return set_form(j, at, INFER_GRAMMAR_TEXT, b.p);
}

static enum infer_status read_any(struct job *j, const char *at, const json_t *v) {
    bool on = false;
    TRY(field_bool(j, at, v, &on));
    return on ? field_any_object(j, at) : INFER_OK;
}

static const struct field structured[] = {
    {"json", FIELD_HAND, .hand = read_schema},
    {"json_object", FIELD_HAND, .hand = read_any},
    {"choice", FIELD_HAND, .hand = read_choice},
    {"grammar", FIELD_HAND, .hand = read_grammar},
    {"regex", FIELD_HAND, .hand = read_regex},
    {"structural_tag", FIELD_HAND, .hand = read_tags},
    {.name = NULL},
};
static enum infer_status read_structured(struct job *j, const char *at, const json_t *v) {
    return fields_read(j, at, v, FIELDS(structured));
}

const struct field fields_grammar[] = {
    {"grammar guided_grammar ebnf", FIELD_HAND, .hand = read_grammar},
    {"json_schema guided_json", FIELD_HAND, .hand = read_schema},
    {"guided_choice", FIELD_HAND, .hand = read_choice},
    {"guided_regex regex", FIELD_HAND, .hand = read_regex},
    {"structural_tag", FIELD_HAND, .hand = read_tags},
    {"structured_outputs", FIELD_HAND, .hand = read_structured},
    {.name = NULL},
};
