/* Which type each key outside of the architecture's namespace has. Those of the architecture are asked for by type where they are read (engine/model). */
#include "files/tensorfile.h"

#include <math.h>
#include <string.h>

enum kind { TEXT, TEXTS, BOOL, INT, NUMBER, INTS, BYTES, FLOATS };
static const char *const wants[] = {[TEXT] = "a string",
                                    [TEXTS] = "an array of strings",
                                    [BOOL] = "a bool",
                                    [INT] = "an integer",
                                    [NUMBER] = "a number",
                                    [INTS] = "an array of integers of 32 or 64 bits",
                                    [BYTES] = "an array of bytes",
                                    [FLOATS] = "an array of floats"};

/* A name that ends with '*' is the beginning of others, one that begins with it the end. */
static const struct {
    const char *names;
    enum kind kind;
} rows[] = {
#define KEY(kind, names) {names, kind},
#include "files/key_types.def"
#undef KEY
};

static bool fits_name(const char *name, size_t n, struct str key) {
    if (name[0] == '*') return key.len >= n - 1 && memcmp(key.data + key.len - (n - 1), name + 1, n - 1) == 0;
    if (name[n - 1] == '*') return key.len >= n - 1 && memcmp(key.data, name, n - 1) == 0;
    return key.len == n && memcmp(key.data, name, n) == 0;
}
static bool is_one_of(const char *names, struct str key) {
    for (const char *p = names; *p; p += strspn(p, "|")) {
        const size_t n = strcspn(p, "|");
        if (fits_name(p, n, key)) return true;
        p += n;
    }
    return false;
}

static bool is_int(enum meta_type t) { return t <= META_I32 || t == META_U64 || t == META_I64; }
static bool is_float(enum meta_type t) { return t == META_F32 || t == META_F64; }

static bool fits(const struct meta *m, enum kind kind) {
    const enum meta_type e = m->elem;
    if ((m->type == META_ARRAY) != (kind == TEXTS || kind == INTS || kind == BYTES || kind == FLOATS))
        return false;
    switch (kind) {
    case TEXT:
        return m->type == META_STRING;
    case BOOL:
        return m->type == META_BOOL;
    case INT:
        return is_int(m->type);
    case NUMBER:
        return is_int(m->type) || (is_float(m->type) && isfinite(meta_elem_f64(m, 0)));
    case TEXTS:
        return e == META_STRING;
    case INTS:
        return e == META_I32 || e == META_U32 || e == META_I64 || e == META_U64;
    case BYTES:
        return e == META_U8 || e == META_I8;
    case FLOATS:
        return is_float(e);
    }
    infer_bug("kind %d of a key", (int)kind);
}

enum infer_status tensorfile_check_types(const struct tensorfile *f) {
    for (size_t i = 0; i < f->n_meta; i++) {
        const struct meta *m = &f->meta[i];
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            if (!is_one_of(rows[r].names, m->key)) continue;
            if (!fits(m, rows[r].kind))
                return err_set(INFER_E_INPUT, "%s: key '%.*s' is %s%s, not %s", f->path, (int)m->key.len,
                               m->key.data, m->type == META_ARRAY ? "an array of " : "of type ",
                               meta_type_name(m->type == META_ARRAY ? m->elem : m->type),
                               wants[rows[r].kind]);
            break;
        }
    }
    return INFER_OK;
}
