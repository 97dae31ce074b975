/* Vocabulary files that are not GGUF (tokenizer.json, tokenizer.model) as the metadata keys that tok_open reads: a
 * list of keys in an arena. */
#pragma once
#include <jansson.h>
#include "files/tensorfile.h"

enum { TOK_KEYS_MAX = 40 };

struct tok_keys {
    struct arena *a;
    struct meta meta[TOK_KEYS_MAX]; /* meta[n] */
    size_t n;
};

/* Each adds one key; key is a literal, values are copied. errors: INFER_E_MEMORY. */
enum infer_status tok_keys_raw(struct tok_keys *k, const char *key, enum meta_type type, enum meta_type elem,
                               size_t n, size_t bytes, const void *value);
enum infer_status tok_keys_bool(struct tok_keys *k, const char *key, bool v);
enum infer_status tok_keys_id(struct tok_keys *k, const char *key, int32_t id); /* nothing when negative */
/* s[n] is taken as it is: it has to live as long as the arena. */
enum infer_status tok_keys_strings(struct tok_keys *k, const char *key, struct str *s, size_t n);
enum infer_status tok_keys_text(struct tok_keys *k, const char *key,
                                const char *text); /* nothing when NULL */

/* The keys as an array in the arena. */
enum infer_status tok_keys_finish(struct tok_keys *k, struct meta **out, size_t *n_out);

/* SentencePiece's tokenizer.model, whose bytes are data[n]; config: tokenizer_config.json or NULL. errors: INFER_E_INPUT
 * (names the byte), INFER_E_UNSUPPORTED, INFER_E_MEMORY. source: sentencepiece_model.proto. */
enum infer_status tok_proto_keys(struct tok_keys *k, const unsigned char *data, size_t n,
                                 const json_t *config);
