#include "tools/file/imatrix.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- entries ---- */

static struct imatrix_entry *find(const struct imatrix *m, const char *name) {
    for (int i = 0; i < m->n_entry; i++)
        if (strcmp(m->entry[i].name, name) == 0) return &m->entry[i];
    return NULL;
}

enum infer_status imatrix_add(struct imatrix *m, const char *name, int n_matrix, int k,
                              struct imatrix_entry **out) {
    struct imatrix_entry *e = find(m, name);
    *out = e;
    if (e && e->n_matrix == n_matrix && e->k == k) return INFER_OK;
    if (e)
        return err_set(INFER_E_INPUT, "%s has %d x %d columns here and %d x %d there", name, n_matrix, k,
                       e->n_matrix, e->k);
    if (m->n_entry == m->room) {
        int room = m->room ? 2 * m->room : 256;
        struct imatrix_entry *more = arena_alloc(&m->arena, (size_t)room * sizeof *more);
        if (!more) return err_set(INFER_E_MEMORY, "out of memory for importance matrices");
        if (m->n_entry) memcpy(more, m->entry, (size_t)m->n_entry * sizeof *more);
        m->entry = more, m->room = room;
    }
    e = &m->entry[m->n_entry];
    *e = (struct imatrix_entry){.n_matrix = n_matrix, .k = k};
    snprintf(e->name, sizeof e->name, "%s", name);
    e->sum2 = arena_alloc(&m->arena, (size_t)n_matrix * (size_t)k * sizeof *e->sum2);
    e->count = arena_alloc(&m->arena, (size_t)n_matrix * sizeof *e->count);
    if (!e->sum2 || !e->count) return err_set(INFER_E_MEMORY, "out of memory for importance matrices");
    m->n_entry++;
    *out = e;
    return INFER_OK;
}

const struct imatrix_entry *imatrix_find(const struct imatrix *m, const char *name) {
    static const char *const twin[][2] = {{"ffn_gate_exps.", "ffn_gate_up_exps."},
                                          {"ffn_up_exps.", "ffn_gate_up_exps."},
                                          {"ffn_gate_up_exps.", "ffn_up_exps."},
                                          {"ffn_gate.", "ffn_up."},
                                          {"attn_q.", "attn_qkv."},
                                          {"attn_k.", "attn_qkv."},
                                          {"attn_v.", "attn_qkv."},
                                          {"attn_qkv.", "attn_q."}};
    const struct imatrix_entry *e = find(m, name);
    for (size_t i = 0; !e && i < sizeof twin / sizeof *twin; i++) {
        char other[96];
        const char *at = strstr(name, twin[i][0]);
        if (!at) continue;
        snprintf(other, sizeof other, "%.*s%s%s", (int)(at - name), name, twin[i][1],
                 at + strlen(twin[i][0]));
        e = find(m, other);
    }
    return e;
}

bool imatrix_fits(const struct imatrix_entry *e, int64_t n_matrix, int64_t cols) {
    return (int64_t)e->n_matrix * e->k == n_matrix * cols || (e->n_matrix == 1 && e->k == cols);
}

void imatrix_importance(const struct imatrix_entry *e, int64_t matrix, int64_t cols, int64_t col, int64_t n,
                        float *importance) {
    const int64_t at = e->n_matrix == 1 && e->k == cols ? col : matrix * cols + col;
    const double count = e->count[at / e->k];
    for (int64_t i = 0; i < n; i++) importance[i] = count > 0 ? (float)(e->sum2[at + i] / count) : 1.0f;
}

/* ---- the GGUF form ---- */

/* F32 numbers that are not below 0. */
static enum infer_status take_floats(const struct tensorfile *f, const struct tensor *t, double *out,
                                     size_t n) {
    const float *x = t->data;
    if (t->type != QUANT_F32 || t->bytes != n * sizeof *x)
        return err_set(INFER_E_INPUT, "%s: tensor %s is not %zu numbers of F32", f->path, t->name, n);
    for (size_t i = 0; i < n; i++) {
        if (!(x[i] >= 0 && isfinite(x[i])))
            return err_set(INFER_E_INPUT, "%s: tensor %s holds %g", f->path, t->name, (double)x[i]);
        out[i] = (double)x[i];
    }
    return INFER_OK;
}

static enum infer_status take_tensor(struct imatrix *m, const struct tensorfile *f, const struct tensor *t) {
    const char *end = strstr(t->name, ".in_sum2");
    char name[96];
    struct imatrix_entry *e;
    if (!end || end[8]) return INFER_OK;
    snprintf(name, sizeof name, "%.*s.counts", (int)(end - t->name), t->name);
    const struct tensor *count = tensorfile_find(f, name);
    if (!count) return err_set(INFER_E_INPUT, "%s: tensor %s is missing", f->path, name);
    name[end - t->name] = 0;
    const int64_t rows = (int64_t)(t->bytes / sizeof(float)) / t->shape[3];
    if (t->shape[3] > 1 << 24 || rows > 1 << 20)
        return err_set(INFER_E_INPUT, "%s: tensor %s is too large for an importance matrix", f->path,
                       t->name);
    TRY(imatrix_add(m, name, (int)rows, (int)t->shape[3], &e));
    TRY(take_floats(f, t, e->sum2, (size_t)rows * (size_t)t->shape[3]));
    return take_floats(f, count, e->count, (size_t)rows);
}

static enum infer_status take_gguf(struct imatrix *m, const struct tensorfile *f) {
    struct str type = {"", 0};
    const struct meta *sets;
    bool there;
    TRY(meta_str(f, "general.type", &type, &there));
    if (!there || type.len != 7 || memcmp(type.data, "imatrix", 7) != 0)
        return err_set(INFER_E_INPUT, "%s is no importance matrix: its general.type is '%.*s', not 'imatrix'",
                       f->path, (int)(type.len < 40 ? type.len : 40), type.data);
    TRY(meta_u32(f, "imatrix.chunk_count", &m->n_chunk, &there));
    TRY(meta_u32(f, "imatrix.chunk_size", &m->chunk_size, &there));
    TRY(meta_array(f, "imatrix.datasets", META_KIND_STRING, META_ANY_LENGTH, &sets, &there));
    if (there && sets->n)
        snprintf(m->dataset, sizeof m->dataset, "%.*s", (int)(sets->strings[0].len & 255),
                 sets->strings[0].data);
    for (size_t i = 0; i < f->n_tensor; i++) TRY(take_tensor(m, f, &f->tensor[i]));
    if (m->n_entry == 0) return err_set(INFER_E_INPUT, "%s holds no importance matrix", f->path);
    return INFER_OK;
}

/* ---- the older form: i32 n; n times (i32 length, name, i32 calls, i32 values, f32[values]); perhaps i32 chunks, i32 length, text.
 * A value is the mean square times the calls; experts stand one after the other, so that their number is not known here. ---- */

struct bytes {
    const char *path;
    const unsigned char *at, *end;
};

static enum infer_status take(struct bytes *b, size_t n, const void **out) {
    if (n > (size_t)(b->end - b->at))
        return err_set(INFER_E_INPUT, "%s: importance matrix: the file is cut", b->path);
    *out = b->at;
    b->at += n;
    return INFER_OK;
}
static enum infer_status take_i32(struct bytes *b, const char *what, int32_t most, int32_t *out) {
    const void *p = NULL;
    TRY(take(b, 4, &p));
    memcpy(out, p, 4);
    if (*out < 0 || *out > most)
        return err_set(INFER_E_INPUT, "%s: importance matrix: %s is %d", b->path, what, (int)*out);
    return INFER_OK;
}

static enum infer_status take_old_entry(struct imatrix *m, struct bytes *b) {
    int32_t len, calls, n;
    const void *name = NULL, *values = NULL;
    char text[80];
    struct imatrix_entry *e;
    TRY(take_i32(b, "the length of a name", sizeof text - 1, &len));
    TRY(take(b, (size_t)len, &name));
    snprintf(text, sizeof text, "%.*s", len, (const char *)name);
    TRY(take_i32(b, "the number of calls", INT32_MAX, &calls));
    TRY(take_i32(b, "the number of values", 1 << 28, &n));
    TRY(take(b, (size_t)n * 4, &values));
    if (n == 0) return INFER_OK;
    TRY(imatrix_add(m, text, 1, n, &e));
    for (int32_t i = 0; i < n; i++) {
        float x;
        memcpy(&x, (const char *)values + (size_t)i * 4, 4);
        if (!(x >= 0 && isfinite(x)))
            return err_set(INFER_E_INPUT, "%s: importance matrix: %s holds %g", b->path, text, (double)x);
        e->sum2[i] = (double)x;
    }
    e->count[0] = calls > 0 ? calls : 1;
    return INFER_OK;
}

static enum infer_status take_old(struct imatrix *m, const struct mapfile *f) {
    struct bytes b = {f->path, f->data, f->data + f->size};
    int32_t n, chunks = 0, len;
    const void *text = NULL;
    TRY(take_i32(&b, "the number of matrices", 1 << 20, &n));
    if (n == 0) return err_set(INFER_E_INPUT, "%s holds no importance matrix", f->path);
    for (int32_t i = 0; i < n; i++) TRY(take_old_entry(m, &b));
    if (b.at == b.end) return INFER_OK;
    TRY(take_i32(&b, "the number of chunks", INT32_MAX, &chunks));
    m->n_chunk = (uint32_t)chunks;
    if (b.at == b.end) return INFER_OK;
    TRY(take_i32(&b, "the length of a name", 1 << 16, &len));
    TRY(take(&b, (size_t)len, &text));
    snprintf(m->dataset, sizeof m->dataset, "%.*s", len < 255 ? len : 255, (const char *)text);
    return INFER_OK;
}

enum infer_status imatrix_read(struct imatrix *m, const char *path) {
    struct mapfile map;
    struct tensorfile *f;
    *m = (struct imatrix){0};
    TRY(mapfile_open(&map, path, false));
    const bool gguf = map.size >= 4 && memcmp(map.data, "GGUF", 4) == 0;
    enum infer_status s = gguf ? INFER_OK : take_old(m, &map);
    mapfile_close(&map);
    if (!gguf) return s;
    TRY(tensorfile_open(&f, path, &(struct tensorfile_options){0}));
    s = take_gguf(m, f);
    tensorfile_close(f);
    return s;
}

/* ---- writing ---- */

static enum infer_status put_floats(struct gguf_writer *w, const double *x, size_t n) {
    float some[1024];
    for (size_t at = 0, k; at < n; at += k) {
        k = n - at < 1024 ? n - at : 1024;
        for (size_t i = 0; i < k; i++) some[i] = (float)x[at + i];
        TRY(gguf_writer_data(w, some, k * sizeof *some));
    }
    return INFER_OK;
}

enum infer_status imatrix_write(const struct imatrix *m, struct gguf_writer *w) {
    const struct str dataset = {m->dataset, strlen(m->dataset)};
    char name[96];
    gguf_writer_str(w, "general.type", "imatrix");
    gguf_writer_strings(w, "imatrix.datasets", &dataset, 1);
    gguf_writer_u32(w, "imatrix.chunk_count", m->n_chunk);
    gguf_writer_u32(w, "imatrix.chunk_size", m->chunk_size);
    for (int i = 0; i < m->n_entry; i++) {
        const struct imatrix_entry *e = &m->entry[i];
        snprintf(name, sizeof name, "%s.in_sum2", e->name);
        gguf_writer_tensor(w, name, QUANT_F32, 2, (int64_t[4]){1, 1, e->n_matrix, e->k});
        snprintf(name, sizeof name, "%s.counts", e->name);
        gguf_writer_tensor(w, name, QUANT_F32, 2, (int64_t[4]){1, 1, e->n_matrix, 1});
    }
    TRY(gguf_writer_begin(w));
    for (int i = 0; i < m->n_entry; i++) {
        const struct imatrix_entry *e = &m->entry[i];
        TRY(put_floats(w, e->sum2, (size_t)e->n_matrix * (size_t)e->k));
        TRY(put_floats(w, e->count, (size_t)e->n_matrix));
    }
    return INFER_OK;
}

void imatrix_free(struct imatrix *m) {
    arena_free(&m->arena);
    *m = (struct imatrix){0};
}
