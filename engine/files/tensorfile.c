#include "files/tensorfile.h"
#include "files/gguf.h"
#include "files/outfile.h"
#include "base/stbds.h"

#include <dirent.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- open, close, find ---- */

void tensorfile_close(struct tensorfile *f) {
    if (!f) return;
    for (int i = 0; i < f->n_part; i++) mapfile_close(&f->part[i]);
    arena_free(&f->arena);
    mem_free(f);
}

/* The first tensor with bytes in begin .. end; NULL: none, padding alone. */
static const struct tensor *first_in(const struct tensor *t, size_t n, size_t begin, size_t end) {
    const struct tensor *first = NULL;
    for (size_t i = 0; i < n; i++)
        if (t[i].bytes && t[i].offset < end && t[i].offset + t[i].bytes > begin &&
            (!first || t[i].offset < first->offset))
            first = &t[i];
    return first;
}

enum infer_status tensorfile_check_holes(const struct mapfile *m, const struct tensor *t, size_t n,
                                         const struct tensorfile_options *options) {
    for (int i = 0; i < m->n_hole && !options->vocab_only && !options->sparse_ok; i++) {
        const size_t begin = m->hole[i].begin, end = m->hole[i].end;
        const struct tensor *first = first_in(t, n, begin, end);
        if (first)
            return err_set(
                INFER_E_INPUT,
                "%s: from byte %zu on %zu bytes were never written, from tensor '%.100s' on: a download that "
                "broke off? Fetch the file again (.sparse_ok takes the zeros that stand there)",
                m->path, begin, end - begin, first->name);
    }
    return INFER_OK;
}

/* A folder's files but GGUF files, which are results. */
static enum infer_status differs_from_folder(const char *path, const char *folder) {
    char file[PATH_MAX];
    enum infer_status s = INFER_OK;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && !s && (e = readdir(d));) {
        size_t n = strlen(e->d_name);
        bool result = n > 5 && strcmp(e->d_name + n - 5, ".gguf") == 0;
        if (!result && snprintf(file, sizeof file, "%s/%s", folder, e->d_name) < PATH_MAX)
            s = outfile_differs(path, file);
    }
    if (d) closedir(d);
    return s;
}

enum infer_status tensorfile_differs(const char *path, const char *model) {
    enum { SUFFIX = 20 }; /* -00001-of-00002.gguf */
    const size_t n = strlen(model);
    char part[PATH_MAX];
    unsigned count;
    int end = 0;
    struct stat st;
    if (stat(model, &st) == 0 && S_ISDIR(st.st_mode)) return differs_from_folder(path, model);
    TRY(outfile_differs(path, model));
    if (n < SUFFIX || sscanf(model + n - SUFFIX, "-00001-of-%5u.gguf%n", &count, &end) != 1 || end != SUFFIX)
        return INFER_OK;
    for (unsigned i = 2; i <= count; i++)
        if (snprintf(part, sizeof part, "%.*s-%05u-of-%05u.gguf", (int)(n - SUFFIX), model, i, count) <
            PATH_MAX)
            TRY(outfile_differs(path, part));
    return INFER_OK;
}

const struct tensor *tensorfile_find(const struct tensorfile *f, const char *name) {
    int64_t i = strmap_get(f->tensor_index, name, strlen(name));
    return i < 0 ? NULL : &f->tensor[i];
}

const struct meta *tensorfile_meta(const struct tensorfile *f, const char *key) {
    int64_t i = strmap_get(f->meta_index, key, strlen(key));
    return i < 0 ? NULL : &f->meta[i];
}

enum infer_status tensorfile_set(struct tensorfile *f, const char *key, enum meta_type type,
                                 const void *raw) {
    const size_t n_key = strlen(key), n_raw = type == META_STRING ? strlen(raw) : 8;
    int64_t at = strmap_get(f->meta_index, key, n_key), old;
    char *name = arena_strndup(&f->arena, key, n_key), *value = arena_alloc(&f->arena, n_raw + 1);
    struct str *text = arena_alloc(&f->arena, sizeof *text);
    struct meta *all = at < 0 ? arena_alloc(&f->arena, (f->n_meta + 1) * sizeof *all) : f->meta;
    if (!name || !value || !text || !all)
        return err_set(INFER_E_MEMORY, "out of memory: a key of %s", f->path);
    memset(value, 0, n_raw + 1);
    memcpy(value, raw, type == META_STRING ? n_raw : 4);
    *text = (struct str){value, n_raw};
    if (at < 0) {
        memcpy(all, f->meta, f->n_meta * sizeof *all);
        TRY(strmap_put(f->meta_index, name, n_key, (int64_t)f->n_meta, &old));
        f->meta = all;
        at = (int64_t)f->n_meta++;
    }
    f->meta[at] = (struct meta){.key = {name, n_key},
                                .type = type,
                                .n = 1,
                                .raw = (const unsigned char *)value,
                                .strings = type == META_STRING ? text : NULL};
    return INFER_OK;
}

/* ---- values ---- */

const char *meta_type_name(enum meta_type type) {
    static const char *const names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "string", "array", "u64", "i64", "f64"};
    return (unsigned)type < META_TYPE_COUNT ? names[type] : "unknown";
}

static bool is_int(enum meta_type t) { return t <= META_I32 || t == META_U64 || t == META_I64; }
static bool is_float(enum meta_type t) { return t == META_F32 || t == META_F64; }

static enum meta_type elem_type(const struct meta *m) { return m->type == META_ARRAY ? m->elem : m->type; }

/* Start of element i; a type that holds no numbers, or an i past the end, is a bug of the caller. */
static const unsigned char *elem_at(const struct meta *m, size_t i) {
    uint32_t size = gguf_value_bytes(elem_type(m));
    if (i >= m->n || !size)
        infer_bug("element %zu of %llu of type %s read as a number", i, (unsigned long long)m->n,
                  meta_type_name(elem_type(m)));
    return m->raw + i * size;
}

#define LOAD(type, p)                                                                                        \
    ({                                                                                                       \
        type load_v_;                                                                                        \
        memcpy(&load_v_, p, sizeof load_v_);                                                                 \
        load_v_;                                                                                             \
    })

int64_t meta_elem_i64(const struct meta *m, size_t i) {
    const unsigned char *p = elem_at(m, i);
    switch (elem_type(m)) {
    case META_U8:
    case META_BOOL:
        return *p;
    case META_I8:
        return LOAD(int8_t, p);
    case META_U16:
        return LOAD(uint16_t, p);
    case META_I16:
        return LOAD(int16_t, p);
    case META_U32:
        return LOAD(uint32_t, p);
    case META_I32:
        return LOAD(int32_t, p);
    case META_I64:
        return LOAD(int64_t, p);
    case META_U64: {
        uint64_t v = LOAD(uint64_t, p);
        return v > INT64_MAX ? INT64_MAX : (int64_t)v;
    }
    default: {
        double v = meta_elem_f64(m, i);
        if (isnan(v)) return 0;
        return v >= 0x1p63 ? INT64_MAX : v < -0x1p63 ? INT64_MIN : (int64_t)v;
    }
    }
}

double meta_elem_f64(const struct meta *m, size_t i) {
    const unsigned char *p = elem_at(m, i);
    switch (elem_type(m)) {
    case META_F32:
        return LOAD(float, p);
    case META_F64:
        return LOAD(double, p);
    case META_U64:
        return (double)LOAD(uint64_t, p);
    default:
        return (double)meta_elem_i64(m, i);
    }
}

/* ---- typed reads ---- */

/* The key; NULL and INFER_OK when it is absent and the caller asked to know. */
static enum infer_status get(const struct tensorfile *f, const char *key, bool *present,
                             const struct meta **out) {
    *out = tensorfile_meta(f, key);
    if (present) *present = *out != NULL;
    if (!*out && !present) return err_set(INFER_E_INPUT, "%s: key '%s' is missing", f->path, key);
    return INFER_OK;
}

static enum infer_status wrong_type(const struct tensorfile *f, const struct meta *m, const char *want) {
    if (m->type == META_ARRAY)
        return err_set(INFER_E_INPUT, "%s: key '%.*s' is an array of %llu %s, not %s", f->path,
                       (int)m->key.len, m->key.data, (unsigned long long)m->n, meta_type_name(m->elem), want);
    return err_set(INFER_E_INPUT, "%s: key '%.*s' is of type %s, not %s", f->path, (int)m->key.len,
                   m->key.data, meta_type_name(m->type), want);
}

/* Element i as an unsigned 32-bit number. */
static enum infer_status elem_u32(const struct tensorfile *f, const struct meta *m, size_t i, uint32_t *out) {
    if (elem_type(m) == META_U64 && meta_elem_i64(m, i) == INT64_MAX)
        return err_set(INFER_E_INPUT, "%s: key '%.*s' is %llu, more than %u", f->path, (int)m->key.len,
                       m->key.data, (unsigned long long)LOAD(uint64_t, elem_at(m, i)), UINT32_MAX);
    int64_t v = meta_elem_i64(m, i);
    if (v < 0 || v > UINT32_MAX)
        return err_set(INFER_E_INPUT, "%s: key '%.*s' (%s) is %lld, not in the range 0 to %u", f->path,
                       (int)m->key.len, m->key.data, meta_type_name(elem_type(m)), (long long)v, UINT32_MAX);
    *out = (uint32_t)v;
    return INFER_OK;
}

enum infer_status meta_u32(const struct tensorfile *f, const char *key, uint32_t *out, bool *present) {
    const struct meta *m;
    TRY(get(f, key, present, &m));
    if (!m) return INFER_OK;
    if (!is_int(m->type)) return wrong_type(f, m, "an integer");
    return elem_u32(f, m, 0, out);
}

enum infer_status meta_f32(const struct tensorfile *f, const char *key, float *out, bool *present) {
    const struct meta *m;
    TRY(get(f, key, present, &m));
    if (!m) return INFER_OK;
    if (!is_float(m->type) && !is_int(m->type)) return wrong_type(f, m, "a number");
    double v = meta_elem_f64(m, 0);
    if (isfinite(v) && fabs(v) > 3.4028234663852886e38)
        return err_set(INFER_E_INPUT, "%s: key '%s' is %g, too large for a float", f->path, key, v);
    *out = (float)v;
    return INFER_OK;
}

enum infer_status meta_bool(const struct tensorfile *f, const char *key, bool *out, bool *present) {
    const struct meta *m;
    TRY(get(f, key, present, &m));
    if (!m) return INFER_OK;
    if (m->type != META_BOOL) return wrong_type(f, m, "a bool");
    *out = *m->raw != 0;
    return INFER_OK;
}

enum infer_status meta_str(const struct tensorfile *f, const char *key, struct str *out, bool *present) {
    const struct meta *m;
    TRY(get(f, key, present, &m));
    if (!m) return INFER_OK;
    if (m->type != META_STRING) return wrong_type(f, m, "a string");
    *out = m->strings[0];
    return INFER_OK;
}

enum infer_status meta_u32_array(const struct tensorfile *f, const char *key, uint32_t *out, size_t n,
                                 bool *present) {
    const struct meta *m;
    TRY(get(f, key, present, &m));
    if (!m) return INFER_OK;
    if (!is_int(elem_type(m)) && !(m->type == META_ARRAY && m->elem == META_BOOL))
        return wrong_type(f, m, "an integer or an array of integers");
    if (m->type == META_ARRAY && m->n != n)
        return err_set(INFER_E_INPUT, "%s: key '%s' has %llu values, not %zu", f->path, key,
                       (unsigned long long)m->n, n);
    for (size_t i = 0; i < n; i++) TRY(elem_u32(f, m, m->type == META_ARRAY ? i : 0, &out[i]));
    return INFER_OK;
}

enum infer_status meta_f32_array(const struct tensorfile *f, const char *key, float *out, size_t n,
                                 bool *present) {
    const struct meta *m;
    TRY(get(f, key, present, &m));
    if (!m) return INFER_OK;
    if (!is_float(elem_type(m))) return wrong_type(f, m, "a float or an array of floats");
    if (m->type == META_ARRAY && m->n != n)
        return err_set(INFER_E_INPUT, "%s: key '%s' has %llu values, not %zu", f->path, key,
                       (unsigned long long)m->n, n);
    for (size_t i = 0; i < n; i++) out[i] = (float)meta_elem_f64(m, m->type == META_ARRAY ? i : 0);
    return INFER_OK;
}

enum infer_status meta_array(const struct tensorfile *f, const char *key, enum meta_kind kind, size_t n,
                             const struct meta **out, bool *present) {
    static const char *const want[] = {"an array of integers", "an array of floats", "an array of strings"};
    TRY(get(f, key, present, out));
    const struct meta *m = *out;
    if (!m) return INFER_OK;
    bool fits = kind == META_KIND_INT     ? is_int(m->elem)
                : kind == META_KIND_FLOAT ? is_float(m->elem)
                                          : m->elem == META_STRING;
    if (m->type != META_ARRAY || !fits) return wrong_type(f, m, want[kind]);
    if (n != META_ANY_LENGTH && m->n != n)
        return err_set(INFER_E_INPUT, "%s: key '%s' has %llu values, not %zu", f->path, key,
                       (unsigned long long)m->n, n);
    return INFER_OK;
}
