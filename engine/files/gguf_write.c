#include "files/gguf_write.h"
#include "files/gguf.h"
#include "files/outfile.h"
#include <string.h>

struct buffer {
    unsigned char *data;
    size_t used, size;
};

struct gguf_writer {
    char *path;
    struct outfile *file;
    enum infer_status status;  /* the first failure of a call that returns nothing */
    struct buffer keys, infos; /* as they stand in the file */
    uint64_t n_key, n_tensor;
    uint64_t *bytes; /* bytes[n_tensor]: of each tensor */
    uint64_t data_bytes, head_bytes;
    bool begun;
    uint64_t current, done; /* tensor that takes data, and how much of it came */
};

/* ---- bytes in memory ---- */

static void put(struct gguf_writer *w, struct buffer *b, const void *data, size_t n) {
    if (w->status) return;
    size_t need;
    if (!size_add(b->used, n, &need)) need = SIZE_MAX;
    if (need > b->size) {
        size_t size = need > SIZE_MAX / 2 ? need : need < 4096 ? 4096 : need * 2;
        unsigned char *grown = mem_realloc(b->data, size);
        if (!grown) {
            w->status = err_set(INFER_E_MEMORY, "%s: no memory for %zu bytes of metadata", w->path, size);
            return;
        }
        b->data = grown, b->size = size;
    }
    if (n) memcpy(b->data + b->used, data, n);
    b->used = need;
}
static void put_u32(struct gguf_writer *w, struct buffer *b, uint32_t v) { put(w, b, &v, 4); }
static void put_u64(struct gguf_writer *w, struct buffer *b, uint64_t v) { put(w, b, &v, 8); }
static void put_str(struct gguf_writer *w, struct buffer *b, const char *s, size_t n) {
    put_u64(w, b, n);
    put(w, b, s, n);
}

static size_t value_bytes(enum meta_type type) {
    size_t n = gguf_value_bytes(type);
    if (!n) infer_bug("metadata type %d has no fixed size", (int)type);
    return n;
}

/* ---- keys ---- */

static void begin_key(struct gguf_writer *w, const char *key, size_t n, enum meta_type type) {
    if (w->begun) infer_bug("%s: key after the data began", key);
    put_str(w, &w->keys, key, n);
    put_u32(w, &w->keys, (uint32_t)type);
    w->n_key++;
}

void gguf_writer_value(struct gguf_writer *w, const char *key, enum meta_type type, const void *raw) {
    begin_key(w, key, strlen(key), type);
    put(w, &w->keys, raw, value_bytes(type));
}

void gguf_writer_u32(struct gguf_writer *w, const char *key, uint32_t value) {
    gguf_writer_value(w, key, META_U32, &value);
}

void gguf_writer_f32(struct gguf_writer *w, const char *key, float value) {
    gguf_writer_value(w, key, META_F32, &value);
}

void gguf_writer_bool(struct gguf_writer *w, const char *key, bool value) {
    gguf_writer_value(w, key, META_BOOL, &(uint8_t){value});
}

void gguf_writer_str(struct gguf_writer *w, const char *key, const char *value) {
    begin_key(w, key, strlen(key), META_STRING);
    put_str(w, &w->keys, value, strlen(value));
}

/* What follows the key's type for each kind of value. */
static void put_array(struct gguf_writer *w, enum meta_type elem, const void *raw, uint64_t n) {
    put_u32(w, &w->keys, (uint32_t)elem);
    put_u64(w, &w->keys, n);
    put(w, &w->keys, raw, (size_t)n * value_bytes(elem));
}
static void put_strings(struct gguf_writer *w, const struct str *strings, uint64_t n) {
    put_u32(w, &w->keys, META_STRING);
    put_u64(w, &w->keys, n);
    for (uint64_t i = 0; i < n; i++) put_str(w, &w->keys, strings[i].data, strings[i].len);
}
static void put_meta_array(struct gguf_writer *w, const struct meta *m) {
    if (m->elem == META_STRING) {
        put_strings(w, m->strings, m->n);
    } else if (m->elem == META_ARRAY) {
        put_u32(w, &w->keys, META_ARRAY);
        put_u64(w, &w->keys, m->n);
        for (uint64_t i = 0; i < m->n; i++) put_meta_array(w, &m->nested[i]);
    } else {
        put_array(w, m->elem, m->raw, m->n);
    }
}

void gguf_writer_array(struct gguf_writer *w, const char *key, enum meta_type elem, const void *raw,
                       uint64_t n) {
    begin_key(w, key, strlen(key), META_ARRAY);
    put_array(w, elem, raw, n);
}

void gguf_writer_strings(struct gguf_writer *w, const char *key, const struct str *strings, uint64_t n) {
    begin_key(w, key, strlen(key), META_ARRAY);
    put_strings(w, strings, n);
}

void gguf_writer_meta(struct gguf_writer *w, const struct meta *m) {
    static const char alignment[] = "general.alignment";
    if (m->key.len == sizeof alignment - 1 && memcmp(m->key.data, alignment, m->key.len) == 0) return;
    begin_key(w, m->key.data, m->key.len, m->type);
    if (m->type == META_STRING)
        put_str(w, &w->keys, m->strings[0].data, m->strings[0].len);
    else if (m->type == META_ARRAY)
        put_meta_array(w, m);
    else
        put(w, &w->keys, m->raw, value_bytes(m->type));
}

/* ---- tensors ---- */

void gguf_writer_tensor(struct gguf_writer *w, const char *name, enum quant_type type, int n_dim,
                        const int64_t *shape) {
    const struct quant_info *q = quant_info(type);
    if (w->begun) infer_bug("%s: tensor after the data began", name);
    if (n_dim < 1 || n_dim > 4 || shape[3] % q->elems != 0)
        infer_bug("%s: rows of %lld elements in %s, %d dimensions", name, (long long)shape[3], q->name,
                  n_dim);
    const bool nf4 = type == QUANT_NF4;
    if (q->gguf < 0 && !nf4 && !w->status)
        w->status = err_set(INFER_E_UNSUPPORTED, "%s: %s: GGUF files have no element type %s", w->path, name,
                            q->name);
    size_t bytes =
        nf4 ? quant_nf4_packed_bytes((size_t)(shape[2] * shape[3])) : quant_row_bytes(q, (size_t)shape[3]);
    for (int i = 0; i < (nf4 ? 2 : 3); i++)
        if (!size_mul(bytes, (size_t)shape[i], &bytes)) infer_bug("%s: size does not fit", name);

    put_str(w, &w->infos, name, strlen(name));
    put_u32(w, &w->infos, (uint32_t)n_dim);
    for (int i = 0; i < n_dim; i++) put_u64(w, &w->infos, (uint64_t)shape[3 - i]); /* contiguous first */
    const bool ids = type == QUANT_F32 && strstr(name, GGUF_IDS);                  /* struct tensor: raw */
    put_u32(w, &w->infos, nf4 ? QUANT_NF4_GGUF : ids ? GGUF_I32 : (uint32_t)q->gguf);
    put_u64(w, &w->infos, w->data_bytes);

    if (w->status) return;
    uint64_t *grown = mem_realloc(w->bytes, (w->n_tensor + 1) * sizeof *grown);
    if (!grown) {
        w->status = err_set(INFER_E_MEMORY, "%s: no memory for the list of tensors", w->path);
        return;
    }
    w->bytes = grown;
    w->bytes[w->n_tensor++] = bytes;
    w->data_bytes += (bytes + GGUF_WRITE_ALIGNMENT - 1) / GGUF_WRITE_ALIGNMENT * GGUF_WRITE_ALIGNMENT;
}

/* ---- the file ---- */

static enum infer_status write_padding(struct gguf_writer *w, uint64_t written) {
    static const unsigned char zero[GGUF_WRITE_ALIGNMENT];
    return outfile_write(w->file, zero, (size_t)(-written % GGUF_WRITE_ALIGNMENT));
}

static void free_writer(struct gguf_writer *w) {
    outfile_abort(w->file);
    mem_free(w->keys.data);
    mem_free(w->infos.data);
    mem_free(w->bytes);
    mem_free(w->path);
    mem_free(w);
}

enum infer_status gguf_writer_open(struct gguf_writer **out, const char *path) {
    struct gguf_writer *w;
    *out = NULL;
    TRY(mem_new(&w, sizeof *w, "GGUF writer"));
    w->path = mem_strdup(path);
    enum infer_status s = w->path ? outfile_open(&w->file, path, OUTFILE_DEFAULT)
                                  : err_set(INFER_E_MEMORY, "no memory for the name of %s", path);
    if (s) {
        free_writer(w);
        return s;
    }
    gguf_writer_u32(w, "general.alignment", GGUF_WRITE_ALIGNMENT);
    *out = w;
    return INFER_OK;
}

enum infer_status gguf_writer_begin(struct gguf_writer *w) {
    struct buffer head = {0};
    put(w, &head, "GGUF", 4);
    put_u32(w, &head, GGUF_VERSION);
    put_u64(w, &head, w->n_tensor);
    put_u64(w, &head, w->n_key);
    enum infer_status s = w->status;
    w->begun = true;
    const uint64_t used = head.used + w->keys.used + w->infos.used;
    w->head_bytes = used + -used % GGUF_WRITE_ALIGNMENT;
    if (!s) s = outfile_reserve(w->file, gguf_writer_bytes(w));
    if (!s) s = outfile_write(w->file, head.data, head.used);
    if (!s) s = outfile_write(w->file, w->keys.data, w->keys.used);
    if (!s) s = outfile_write(w->file, w->infos.data, w->infos.used);
    if (!s) s = write_padding(w, used);
    mem_free(head.data);
    return s;
}

uint64_t gguf_writer_bytes(const struct gguf_writer *w) { return w->head_bytes + w->data_bytes; }

enum infer_status gguf_writer_data(struct gguf_writer *w, const void *data, size_t n) {
    if (n == 0) return INFER_OK;
    if (!w->begun || w->current >= w->n_tensor || n > w->bytes[w->current] - w->done)
        infer_bug("%s: %zu bytes too many for tensor %llu", w->path, n, (unsigned long long)w->current);
    TRY(outfile_write(w->file, data, n));
    w->done += n;
    if (w->done == w->bytes[w->current]) {
        TRY(write_padding(w, w->done));
        w->current++, w->done = 0;
    }
    return INFER_OK;
}

enum infer_status gguf_writer_close(struct gguf_writer *w) {
    enum infer_status s = w->status;
    if (!s && (!w->begun || w->current < w->n_tensor)) infer_bug("%s: closed before all data came", w->path);
    if (!s) {
        s = outfile_close(w->file);
        w->file = NULL;
    }
    free_writer(w);
    return s;
}

void gguf_writer_abort(struct gguf_writer *w) {
    if (w) free_writer(w);
}
