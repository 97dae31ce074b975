#include "tools/file/inspect.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include "files/json.h"
#include "base/mem.h"
#include "model/model.h"
#include "files/tensorfile.h"
#include "vision/tower.h"
#include "text/tok/tok.h"
#include "tools/tool.h"

int cmd_inspect(const struct options *o);

enum {
    SHOWN_ELEMS = 6,  /* of an array, on the terminal */
    JSON_ELEMS = 256, /* longer arrays are cut in JSON */
    SHOWN_BYTES = 72  /* of a string, on the terminal */
};

static bool is_string(enum meta_type t) { return t == META_STRING; }

/* ---- text ---- */

static void print_string(FILE *out, struct str s) {
    char safe[4 * SHOWN_BYTES + 1];
    size_t n = s.len < SHOWN_BYTES ? s.len : SHOWN_BYTES;
    while (n < s.len && n > 0 && ((unsigned char)s.data[n] & 0xc0) == 0x80) n--; /* do not cut a character */
    text_escape(safe, sizeof safe, s.data, n);
    fprintf(out, "\"%s\"", safe);
    if (n < s.len) fprintf(out, "... (%zu bytes)", s.len);
}

static void print_elem(FILE *out, const struct meta *m, size_t i) {
    enum meta_type t = m->type == META_ARRAY ? m->elem : m->type;
    if (is_string(t)) {
        print_string(out, m->strings[i]);
    } else if (t == META_ARRAY) {
        fprintf(out, "%s[%" PRIu64 "]", meta_type_name(m->nested[i].elem), m->nested[i].n);
    } else if (t == META_F32 || t == META_F64) {
        fprintf(out, t == META_F32 ? "%.7g" : "%.15g", meta_elem_f64(m, i));
    } else if (t == META_BOOL) {
        fputs(meta_elem_i64(m, i) ? "true" : "false", out);
    } else {
        fprintf(out, "%" PRId64, meta_elem_i64(m, i));
    }
}

static void print_meta(FILE *out, const struct meta *m) {
    char key[128], type[48];
    text_escape(key, sizeof key, m->key.data, m->key.len);
    if (m->type == META_ARRAY)
        snprintf(type, sizeof type, "%s[%" PRIu64 "]", meta_type_name(m->elem), m->n);
    else
        snprintf(type, sizeof type, "%s", meta_type_name(m->type));
    fprintf(out, "  %-42s %-14s ", key, type);
    for (size_t i = 0; i < m->n && i < SHOWN_ELEMS; i++) {
        if (i) fputs(", ", out);
        print_elem(out, m, i);
    }
    if (m->n > SHOWN_ELEMS) fputs(", ...", out);
    fputc('\n', out);
}

/* The shape in C order without leading ones beyond n_dim: "49152 x 576". */
static void shape_text(char *buf, size_t size, const struct tensor *t) {
    size_t n = 0;
    buf[0] = 0;
    for (int i = 4 - t->n_dim; i < 4 && n < size; i++)
        n += (size_t)snprintf(buf + n, size - n, "%s%" PRId64, n ? " x " : "", t->shape[i]);
}

static uint64_t n_elements(const struct tensor *t) {
    return (uint64_t)(t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3]); /* checked by the reader */
}

struct totals {
    struct {
        size_t n;
        uint64_t bytes, elements;
    } type[QUANT_COUNT], all;
};

static struct totals total(const struct tensorfile *f) {
    struct totals s = {0};
    for (size_t i = 0; i < f->n_tensor; i++) {
        const struct tensor *t = &f->tensor[i];
        s.type[t->type].n++, s.all.n++;
        s.type[t->type].bytes += t->bytes, s.all.bytes += t->bytes;
        s.type[t->type].elements += n_elements(t), s.all.elements += n_elements(t);
    }
    return s;
}

static void print_total(FILE *out, const char *name, size_t n, uint64_t bytes, uint64_t elements) {
    fprintf(out, "  %-8s %6zu tensors %16" PRIu64 " elements %16" PRIu64 " bytes %7.3f bits each\n", name, n,
            elements, bytes, elements ? 8.0 * (double)bytes / (double)elements : 0.0);
}

/* ---- towers ---- */

static bool is_tower(const struct tensorfile *f) {
    struct str arch = {0};
    bool there;
    return !meta_str(f, "general.architecture", &arch, &there) && there && arch.len == 4 &&
           memcmp(arch.data, "clip", 4) == 0;
}

/* Whether this build knows all of it; nothing is taken. *info may be read until the tower is closed. */
static enum infer_status open_tower(struct tower **t, const char *path, struct tower_info *info) {
    TRY(tower_open(t, path, &(struct tower_options){.plan = TOWER_PLAN_HOST}));
    tower_info(*t, info);
    return INFER_OK;
}

/* "tower of pictures: idefics3, 64 to 1088 rows of 576 numbers a picture" */
static void print_tower(FILE *out, const char *path) {
    struct tower *t;
    struct tower_info i;
    char safe[1024];
    if (open_tower(&t, path, &i)) {
        text_escape(safe, sizeof safe, err_message(), strlen(err_message()));
        fprintf(out, "tower of pictures that is not computed here: %s\n", safe);
        return;
    }
    fprintf(out, "tower of pictures: %s, %d to %d rows of %d numbers a picture", i.projector, i.min_tokens,
            i.max_tokens, i.n_embd);
    if (i.n_deepstack) fprintf(out, ", and %d times as many for later layers", i.n_deepstack);
    fprintf(out, "; %.0f MB of weights, %.0f MB for the largest picture\n", (double)i.weight_bytes / 1e6,
            (double)i.memory_bytes / 1e6);
    tower_close(t);
}

static void print_text(FILE *out, const struct tensorfile *f) {
    char shape[96], path[1024];
    text_escape(path, sizeof path, f->path, strlen(f->path));
    fprintf(out, "%s: %s, %zu bytes, %d part%s, alignment %u\n", path, f->format, f->file_bytes, f->n_part,
            f->n_part == 1 ? "" : "s", f->alignment);
    if (is_tower(f)) print_tower(out, f->path);
    fprintf(out, "\n%zu keys\n", f->n_meta);
    for (size_t i = 0; i < f->n_meta; i++) print_meta(out, &f->meta[i]);
    fprintf(out, "\n%zu tensors\n", f->n_tensor);
    for (size_t i = 0; i < f->n_tensor; i++) {
        const struct tensor *t = &f->tensor[i];
        char name[4 * 64 + 1];
        text_escape(name, sizeof name, t->name, strlen(t->name));
        shape_text(shape, sizeof shape, t);
        fprintf(out, "  %-42s %-8s %-24s %14zu bytes\n", name, quant_info(t->type)->name, shape, t->bytes);
    }
    if (!f->n_tensor) return;
    struct totals s = total(f);
    fputs("\ntotals\n", out);
    for (int q = 0; q < QUANT_COUNT; q++)
        if (s.type[q].n)
            print_total(out, quant_info(q)->name, s.type[q].n, s.type[q].bytes, s.type[q].elements);
    print_total(out, "all", s.all.n, s.all.bytes, s.all.elements);
}

/* ---- JSON: a NULL anywhere means out of memory, and so does what print_json finds ---- */

/* Bytes that are no UTF-8 are escaped as \xHH. */
static json_t *json_text(const char *s, size_t n) {
    json_t *j = json_stringn(s, n);
    if (j) return j;
    size_t size = 4 * n + 1;
    char *safe = n <= (SIZE_MAX - 1) / 4 ? mem_alloc(size) : NULL;
    if (!safe) return NULL;
    text_escape(safe, size, s, n);
    j = json_string(safe);
    mem_free(safe);
    return j;
}

static json_t *json_elem(const struct meta *m, size_t i);

static json_t *json_array_of(const struct meta *m) {
    size_t n = m->n < JSON_ELEMS ? (size_t)m->n : JSON_ELEMS;
    json_t *a = json_array();
    for (size_t i = 0; i < n; i++)
        if (json_array_append_new(a, json_elem(m, i)) != 0) {
            json_decref(a);
            return NULL;
        }
    if (n == m->n) return a;
    return json_pack("{s:s, s:I, s:o}", "array_of", meta_type_name(m->elem), "n", (json_int_t)m->n, "first",
                     a);
}

static json_t *json_elem(const struct meta *m, size_t i) {
    enum meta_type t = m->type == META_ARRAY ? m->elem : m->type;
    if (is_string(t)) return json_text(m->strings[i].data, m->strings[i].len);
    if (t == META_ARRAY) return json_array_of(&m->nested[i]);
    if (t == META_BOOL) return json_boolean(meta_elem_i64(m, i));
    if (t != META_F32 && t != META_F64) return json_integer(meta_elem_i64(m, i));
    double v = meta_elem_f64(m, i);
    return isfinite(v) ? json_real(v) : json_null();
}

static int add_meta(json_t *object, const struct meta *m) {
    json_t *value = m->type == META_ARRAY ? json_array_of(m) : json_elem(m, 0);
    json_t *key = json_text(m->key.data, m->key.len);
    int bad = !key || !value || json_object_set(object, json_string_value(key), value);
    json_decref(key);
    json_decref(value);
    return bad;
}

static int add_tensor(json_t *array, const struct tensor *t) {
    json_t *shape = json_array(), *name = json_text(t->name, strlen(t->name));
    for (int i = 4 - t->n_dim; i < 4; i++) json_array_append_new(shape, json_integer(t->shape[i]));
    return json_array_append_new(array, json_pack("{s:o, s:s, s:o, s:I, s:I, s:i}", "name", name, "type",
                                                  quant_info(t->type)->name, "shape", shape, "bytes",
                                                  (json_int_t)t->bytes, "offset", (json_int_t)t->offset,
                                                  "part", t->part));
}

static json_t *json_file(const struct tensorfile *f) {
    json_t *keys = json_object(), *tensors = json_array(), *types = json_object();
    struct totals s = total(f);
    int bad = 0;
    for (size_t i = 0; i < f->n_meta && !bad; i++) bad = add_meta(keys, &f->meta[i]);
    for (size_t i = 0; i < f->n_tensor && !bad; i++) bad = add_tensor(tensors, &f->tensor[i]);
    for (int q = 0; q < QUANT_COUNT && !bad; q++)
        if (s.type[q].n)
            bad = json_object_set_new(types, quant_info(q)->name,
                                      json_pack("{s:I, s:I, s:I}", "tensors", (json_int_t)s.type[q].n,
                                                "elements", (json_int_t)s.type[q].elements, "bytes",
                                                (json_int_t)s.type[q].bytes));
    json_t *path = json_text(f->path, strlen(f->path));
    json_t *j = json_pack("{s:o, s:s, s:I, s:i, s:I, s:o, s:o, s:o}", "file", path, "format", f->format,
                          "bytes", (json_int_t)f->file_bytes, "parts", f->n_part, "alignment",
                          (json_int_t)f->alignment, "metadata", keys, "tensors", tensors, "types", types);
    if (!bad) return j;
    json_decref(j);
    return NULL;
}

/* failed: mem_failed() before j was made */
static enum infer_status print_json(FILE *out, json_t *j, uint64_t failed) {
    char *text;
    TRY(json_write(&text, j, failed, JSON_INDENT(2), "JSON of a model file"));
    enum infer_status st = INFER_OK;
    if (fprintf(out, "%s\n", text) < 0) st = err_set(INFER_E_WRITE, "stdout: %s", strerror(errno));
    mem_free(text);
    return st;
}

/* ---- print, check ---- */

enum infer_status inspect_print(FILE *out, const char *path, bool json) {
    static const struct tensorfile_options options = {.vocab_only = true};
    struct tensorfile *f;
    enum infer_status s = INFER_OK;
    TRY(tensorfile_open(&f, path, &options));
    uint64_t failed = mem_failed();
    if (json)
        s = print_json(out, json_file(f), failed);
    else
        print_text(out, f);
    tensorfile_close(f);
    return s;
}

/* Every element of t is a finite number. */
static enum infer_status check_finite(const struct tensorfile *f, const struct tensor *t) {
    enum { CHUNK = 4096 }; /* a multiple of every block */
    const struct quant_info *q = quant_info(t->type);
    const unsigned char *p = t->data;
    float x[CHUNK];
    uint64_t n = n_elements(t);
    for (uint64_t i = 0; i < n; i += CHUNK) {
        size_t m = n - i < CHUNK ? (size_t)(n - i) : CHUNK;
        q->decode(x, p, m);
        p += quant_row_bytes(q, m);
        float sum = 0; /* x * 0 is 0, or NaN for a value that is not finite */
        for (size_t k = 0; k < m; k++) sum += x[k] * 0.0f;
        if (sum == 0) continue;
        for (size_t k = 0; k < m; k++)
            if (!isfinite(x[k]))
                return err_set(INFER_E_INPUT,
                               "%s: tensor '%s': element %" PRIu64 " is %g, not a finite number", f->path,
                               t->name, i + k, (double)x[k]);
    }
    return INFER_OK;
}

static enum infer_status check_file(const struct tensorfile *f, const char *path, bool sparse_ok) {
    if (!f->n_tensor) {
        struct tok *tok;
        TRY(tok_open(&tok, f));
        tok_close(tok);
        return INFER_OK;
    }
    if (is_tower(f)) {
        struct tower *t;
        struct tower_info i;
        TRY(open_tower(&t, path, &i));
        tower_close(t);
    } else {
        struct model *m;
        TRY(model_open(&m, path, &(struct tensorfile_options){.sparse_ok = sparse_ok}));
        model_close(m);
    }
    for (size_t i = 0; i < f->n_tensor; i++) TRY(check_finite(f, &f->tensor[i]));
    return INFER_OK;
}

enum infer_status inspect_check(FILE *out, const char *path, bool json, bool sparse_ok) {
    static const struct tensorfile_options options = {.vocab_only = true};
    struct tensorfile *f;
    TRY(tensorfile_open(&f, path, &options));
    enum infer_status s = check_file(f, path, sparse_ok);
    uint64_t failed = mem_failed();
    if (!s && json)
        s = print_json(out,
                       json_pack("{s:o, s:b, s:s, s:I, s:I, s:I}", "file", json_text(path, strlen(path)),
                                 "ok", 1, "format", f->format, "keys", (json_int_t)f->n_meta, "tensors",
                                 (json_int_t)f->n_tensor, "bytes", (json_int_t)f->file_bytes),
                       failed);
    else if (!s) {
        char safe[1024];
        text_escape(safe, sizeof safe, path, strlen(path));
        fprintf(out, "%s: no fault found (%s, %zu keys, %zu tensors, %zu bytes)\n", safe, f->format,
                f->n_meta, f->n_tensor, f->file_bytes);
    }
    tensorfile_close(f);
    return s;
}

int cmd_inspect(const struct options *o) {
    const char *path = o->arg[0];
    enum infer_status s =
        o->check ? inspect_check(stdout, path, o->json, o->sparse_ok) : inspect_print(stdout, path, o->json);
    if (!s) s = tool_flush();
    return s ? tool_fail(o, s) : EXIT_DONE;
}
