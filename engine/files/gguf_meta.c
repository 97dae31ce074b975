/* GGUF: the bounded cursor, and the keys. */
#include "files/gguf_impl.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- cursor ---- */

enum infer_status gguf_fail(const struct gguf_cursor *c, enum infer_status code, const char *format, ...) {
    enum { SHOWN = 160 }; /* the end of a long path, so that the reason fits */
    char reason[240], where[128] = "";
    va_list ap;
    va_start(ap, format);
    vsnprintf(reason, sizeof reason, format, ap);
    va_end(ap);
    if (c->entry && c->name.len) {
        char name[80];
        text_escape(name, sizeof name, c->name.data, c->name.len);
        snprintf(where, sizeof where, "%s %llu '%s': ", c->entry, (unsigned long long)c->index, name);
    } else if (c->entry) {
        snprintf(where, sizeof where, "%s %llu: ", c->entry, (unsigned long long)c->index);
    }
    size_t n = strlen(c->path);
    return err_set(code, "%s%s: byte %zu: %s%s", n > SHOWN ? "..." : "",
                   c->path + (n > SHOWN ? n - SHOWN : 0), c->pos, where, reason);
}

static enum infer_status need(const struct gguf_cursor *c, size_t n, const char *what) {
    size_t left = c->size - c->pos;
    if (n <= left) return INFER_OK;
    return gguf_fail(c, INFER_E_INPUT, "the file ends inside %s (%zu bytes needed, %zu left)", what, n, left);
}

enum infer_status gguf_u32(struct gguf_cursor *c, uint32_t *out, const char *what) {
    TRY(need(c, sizeof *out, what));
    memcpy(out, c->data + c->pos, sizeof *out);
    c->pos += sizeof *out;
    return INFER_OK;
}

enum infer_status gguf_u64(struct gguf_cursor *c, uint64_t *out, const char *what) {
    TRY(need(c, sizeof *out, what));
    memcpy(out, c->data + c->pos, sizeof *out);
    c->pos += sizeof *out;
    return INFER_OK;
}

enum infer_status gguf_string(struct gguf_cursor *c, struct str *out, const char *what) {
    uint64_t len;
    TRY(gguf_u64(c, &len, what));
    if (len > c->size - c->pos)
        return gguf_fail(c, INFER_E_INPUT, "%s has a length of %llu bytes, %zu are left in the file", what,
                         (unsigned long long)len, c->size - c->pos);
    *out = (struct str){(const char *)c->data + c->pos, (size_t)len};
    c->pos += (size_t)len;
    return INFER_OK;
}

enum infer_status gguf_count(const struct gguf_cursor *c, uint64_t count, size_t min_bytes,
                             const char *what) {
    size_t most = (c->size - c->pos) / min_bytes;
    if (count <= most) return INFER_OK;
    return gguf_fail(c, INFER_E_INPUT, "%llu %s cannot fit in the %zu bytes left (at most %zu)",
                     (unsigned long long)count, what, c->size - c->pos, most);
}

enum infer_status gguf_alloc(struct arena *a, void *out_pointer, uint64_t n, size_t size) {
    size_t bytes;
    void *p = size_mul((size_t)n, size, &bytes) ? arena_alloc(a, bytes) : NULL;
    if (!p)
        return err_set(INFER_E_MEMORY, "out of memory: %llu entries of %zu bytes for a model file",
                       (unsigned long long)n, size);
    memcpy(out_pointer, &p, sizeof p);
    return INFER_OK;
}

/* ---- values ---- */

uint32_t gguf_value_bytes(enum meta_type type) {
    static const unsigned char bytes[META_TYPE_COUNT] = {
        [META_U8] = 1,  [META_I8] = 1,  [META_U16] = 2, [META_I16] = 2,  [META_U32] = 4, [META_I32] = 4,
        [META_F32] = 4, [META_U64] = 8, [META_I64] = 8, [META_BOOL] = 1, [META_F64] = 8,
    };
    return (unsigned)type < META_TYPE_COUNT ? bytes[type] : 0;
}

static enum infer_status read_type(struct gguf_cursor *c, enum meta_type *out, const char *what) {
    uint32_t type;
    TRY(gguf_u32(c, &type, what));
    if (type >= META_TYPE_COUNT) {
        c->pos -= sizeof type;
        return gguf_fail(c, INFER_E_INPUT, "%s is %u, which is none of the types 0 to %d", what, type,
                         META_TYPE_COUNT - 1);
    }
    *out = (enum meta_type)type;
    return INFER_OK;
}

/* n values without strings or arrays: a view of the file. */
static enum infer_status read_plain(struct gguf_cursor *c, enum meta_type type, uint64_t n,
                                    const unsigned char **raw) {
    uint32_t size = gguf_value_bytes(type);
    TRY(gguf_count(c, n, size, "values"));
    *raw = c->data + c->pos;
    if (type == META_BOOL)
        for (uint64_t i = 0; i < n; i++)
            if ((*raw)[i] > 1) {
                c->pos += (size_t)i;
                return gguf_fail(c, INFER_E_INPUT, "a bool has the value %u, not 0 or 1", (*raw)[i]);
            }
    c->pos += (size_t)n * size;
    return INFER_OK;
}

static enum infer_status read_strings(struct gguf_cursor *c, struct arena *a, uint64_t n, struct str **out) {
    TRY(gguf_count(c, n, sizeof(uint64_t), "strings"));
    TRY(gguf_alloc(a, out, n, sizeof **out));
    for (uint64_t i = 0; i < n; i++) TRY(gguf_string(c, &(*out)[i], "a string"));
    return INFER_OK;
}

/* depth: how many arrays we are in, this one included. */
static enum infer_status read_array(struct gguf_cursor *c, struct arena *a, struct meta *m, int depth) {
    enum { ARRAY_MIN = 12 }; /* element type and count */
    if (depth > GGUF_MAX_NESTING)
        return gguf_fail(c, INFER_E_INPUT, "arrays are nested more than %d deep", GGUF_MAX_NESTING);
    m->type = META_ARRAY;
    TRY(read_type(c, &m->elem, "the element type of an array"));
    TRY(gguf_u64(c, &m->n, "the length of an array"));
    if (m->elem == META_STRING) return read_strings(c, a, m->n, &m->strings);
    if (m->elem != META_ARRAY) return read_plain(c, m->elem, m->n, &m->raw);
    TRY(gguf_count(c, m->n, ARRAY_MIN, "arrays"));
    TRY(gguf_alloc(a, &m->nested, m->n, sizeof *m->nested));
    for (uint64_t i = 0; i < m->n; i++) TRY(read_array(c, a, &m->nested[i], depth + 1));
    return INFER_OK;
}

static enum infer_status read_value(struct gguf_cursor *c, struct arena *a, struct meta *m) {
    TRY(read_type(c, &m->type, "the type of a value"));
    m->elem = m->type;
    m->n = 1;
    if (m->type == META_ARRAY) return read_array(c, a, m, 1);
    if (m->type == META_STRING) return read_strings(c, a, 1, &m->strings);
    return read_plain(c, m->type, 1, &m->raw);
}

/* ---- keys ---- */

static enum infer_status read_key(struct gguf_cursor *c, struct str *key) {
    TRY(gguf_string(c, key, "the name of a key"));
    if (key->len == 0) return gguf_fail(c, INFER_E_INPUT, "the name of the key is empty");
    if (key->len > GGUF_MAX_KEY)
        return gguf_fail(c, INFER_E_INPUT, "the name of the key has %zu bytes, more than %d", key->len,
                         GGUF_MAX_KEY);
    c->name = *key;
    if (memchr(key->data, 0, key->len))
        return gguf_fail(c, INFER_E_INPUT, "the name of the key holds a zero byte");
    return INFER_OK;
}

enum infer_status gguf_read_keys(struct gguf_part *p, struct arena *a) {
    struct gguf_cursor *c = &p->c;
    struct tensorfile *k = &p->keys;
    struct strmap *index;
    TRY(gguf_count(c, p->n_key, GGUF_KEY_MIN, "keys"));
    TRY(strmap_new(&index, a));
    TRY(gguf_alloc(a, &k->meta, p->n_key, sizeof *k->meta));
    k->path = (char *)c->path;
    k->n_meta = (size_t)p->n_key;
    k->meta_index = index;
    c->entry = "key";
    for (uint64_t i = 0; i < p->n_key; i++) {
        struct meta *m = &k->meta[i];
        int64_t old;
        c->index = i;
        c->name = (struct str){0};
        TRY(read_key(c, &m->key));
        TRY(strmap_put(index, m->key.data, m->key.len, (int64_t)i, &old));
        if (old >= 0) return gguf_fail(c, INFER_E_INPUT, "key %lld has the same name", (long long)old);
        TRY(read_value(c, a, m));
    }
    c->entry = NULL;
    return INFER_OK;
}
