/* Keys of a vocabulary that is not GGUF; see vocab_keys.h. */
#include "files/vocab_keys.h"

#include <string.h>

static enum infer_status no_memory(void) {
    return err_set(INFER_E_MEMORY, "out of memory: reading a vocabulary");
}

enum infer_status tok_keys_raw(struct tok_keys *k, const char *key, enum meta_type type, enum meta_type elem,
                               size_t n, size_t bytes, const void *value) {
    if (k->n == TOK_KEYS_MAX) infer_bug("more than %d keys of a tokenizer", TOK_KEYS_MAX);
    unsigned char *raw = arena_alloc(k->a, bytes ? bytes : 1);
    if (!raw) return no_memory();
    if (bytes) memcpy(raw, value, bytes);
    k->meta[k->n++] =
        (struct meta){.key = {key, strlen(key)}, .type = type, .elem = elem, .n = n, .raw = raw};
    return INFER_OK;
}

enum infer_status tok_keys_bool(struct tok_keys *k, const char *key, bool v) {
    unsigned char byte = v;
    return tok_keys_raw(k, key, META_BOOL, META_BOOL, 1, 1, &byte);
}

enum infer_status tok_keys_id(struct tok_keys *k, const char *key, int32_t id) {
    return id < 0 ? INFER_OK : tok_keys_raw(k, key, META_U32, META_U32, 1, 4, &id);
}

enum infer_status tok_keys_strings(struct tok_keys *k, const char *key, struct str *s, size_t n) {
    TRY(tok_keys_raw(k, key, META_ARRAY, META_STRING, n, 0, NULL));
    k->meta[k->n - 1].strings = s;
    return INFER_OK;
}

enum infer_status tok_keys_text(struct tok_keys *k, const char *key, const char *text) {
    if (!text) return INFER_OK;
    struct str *s = arena_alloc(k->a, sizeof *s);
    char *copy = arena_strndup(k->a, text, strlen(text));
    if (!s || !copy) return no_memory();
    *s = (struct str){copy, strlen(text)};
    TRY(tok_keys_raw(k, key, META_STRING, META_STRING, 1, 0, NULL));
    k->meta[k->n - 1].strings = s;
    return INFER_OK;
}

enum infer_status tok_keys_finish(struct tok_keys *k, struct meta **out, size_t *n_out) {
    *out = arena_alloc(k->a, (k->n + 1) * sizeof **out);
    if (!*out) return no_memory();
    memcpy(*out, k->meta, k->n * sizeof **out);
    *n_out = k->n;
    return INFER_OK;
}
