/* The fields of a request as tables: what is read where, what is ignored with a word or without, what is refused. */
#pragma once
#include <stddef.h>
#include "serve/core/job.h"

enum field_type {
    FIELD_BOOL,    /* bool at offset */
    FIELD_INT,     /* int at offset, a whole number from least to most */
    FIELD_NUMBER,  /* float at offset, from least to most */
    FIELD_NOT,     /* the same, turned round */
    FIELD_MOST,    /* ask.params.n_predict, at least `least`; -1: no limit */
    FIELD_TEXT,    /* char[most + 1] at offset, of least to most bytes */
    FIELD_KEEP,    /* char * at offset, an allocated text of at most `most` bytes */
    FIELD_HAND,    /* hand reads it */
    FIELD_SILENT,  /* ignored */
    FIELD_WARN,    /* ignored with a warning that says why (NULL: "is not supported here and was ignored") */
    FIELD_NEUTRAL, /* refused so, but for false, "", [], {} and the numbers least and most */
    FIELD_REFUSE,  /* 400 unsupported_parameter that says why */
};
struct field {
    const char *name; /* or several, with spaces between: all that clients call it */
    enum field_type type;
    double least, most; /* equal: no bounds */
    size_t offset;      /* within struct ask, or the front end's own state */
    bool own;
    /* at: the place for messages, "response_format" */
    enum infer_status (*hand)(struct job *j, const char *at, const json_t *value);
    const char *why;
};

/* Reads the members of object by tables[..], ended by NULL, of rows that end with a name NULL; the first row of a name holds. null is as
 * if it were not there; a name in no row is ignored with a warning, or refused with --strict-fields. at: "" or the place of object
 * ("stream_options"). errors: INFER_E_INPUT after job_refuse, INFER_E_MEMORY */
enum infer_status fields_read(struct job *j, const char *at, const json_t *object,
                              const struct field *const *tables);

#define FIELDS(...)                                                                                          \
    (const struct field *const[]) { __VA_ARGS__, NULL } /* of one or several tables */

/* Samplers and their other names: temperature, top_p, top_k, min_p, .., seed, stop, logit_bias, ignore_eos: of all APIs that have them. */
extern const struct field fields_sampling[];
/* grammar, json_schema, regex, structural_tag, structured_outputs, guided_.. */
extern const struct field fields_grammar[];

/* What is not done here and changes an answer: fields_undone.c; of every API whose answers are a model's. */
extern const struct field fields_undone[];

/* One value, for `hand`: each refuses what has another type or is out of range. */
enum infer_status field_bool(struct job *j, const char *at, const json_t *v, bool *out);
enum infer_status field_int(struct job *j, const char *at, const json_t *v, double least, double most,
                            int *out);
enum infer_status field_float(struct job *j, const char *at, const json_t *v, double least, double most,
                              float *out);
/* A view into v; *out is ended by 0 and may hold zeros. */
enum infer_status field_text(struct job *j, const char *at, const json_t *v, size_t most, const char **out,
                             size_t *n);
/* A copy of it into *out, an allocated text; what was there is freed. */
enum infer_status field_keep(struct job *j, const char *at, const json_t *v, size_t most, char **out);
/* Most tokens of an answer into ask.n_predict, at least `least`; -1: no limit. */
enum infer_status field_most(struct job *j, const char *at, const json_t *v, int least);
/* An array of least to most `things`, each read with its place. */
enum infer_status field_each(struct job *j, const char *at, const json_t *v, size_t least, size_t most,
                             const char *things,
                             enum infer_status (*read)(struct job *j, const char *at, const json_t *v));
/* Token ids: ids[n], allocated. */
enum infer_status field_ids(struct job *j, const char *at, const json_t *v, int32_t **ids, int *n);
/* Up to JOB_STOPS texts, or one: stop, stop_sequences. */
enum infer_status field_stop(struct job *j, const char *at, const json_t *v);
/* [{id, scale}] into ask.adapter: adapters that are not named have 0. */
enum infer_status field_lora(struct job *j, const char *at, const json_t *v);
/* What the answer has to be, into ask.form: a text, of a JSON form the tree, too; an empty text asks for nothing. One can hold. */
enum infer_status field_form(struct job *j, const char *at, enum infer_grammar_kind kind, const json_t *v);
/* Appends a message to ask.messages. errors: INFER_E_MEMORY */
enum infer_status field_message(struct job *j, json_t *message);
/* A schema that any object fits. errors: INFER_E_MEMORY */
enum infer_status field_any_object(struct job *j, const char *at);
/* The name of a type as messages say it: "a string". */
const char *field_type_name(const json_t *v);
