#include "files/hf/safetensors.h"
#include "files/json.h"

#include <string.h>

enum { HEADER_MAX = 32 << 20, NAME_MAX_BYTES = 255 };

struct reader {
    const struct mapfile *file;
    const unsigned char *data; /* data[size], after the header */
    size_t size;
    safetensors_unused *unused;
};

static enum infer_status bad(const struct reader *r, const char *name, const char *reason) {
    return err_set(INFER_E_INPUT, "%s: tensor '%.100s': %s", r->file->path, name, reason);
}

/* ---- one entry ---- */

static enum infer_status read_type(const struct reader *r, const char *name, const json_t *entry,
                                   enum quant_type *out) {
    static const struct {
        const char *dtype;
        enum quant_type type;
    } known[] = {{"F32", QUANT_F32}, {"F16", QUANT_F16}, {"BF16", QUANT_BF16}};
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    if (!dtype) return bad(r, name, "no 'dtype'");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(dtype, known[i].dtype) == 0) {
            *out = known[i].type;
            return INFER_OK;
        }
    return err_set(INFER_E_UNSUPPORTED, "%s: tensor '%.100s': type %.32s is not supported (F32, F16, BF16)",
                   r->file->path, name, dtype);
}

/* Types that are parts of quantised weights. */
static const struct raw {
    const char *dtype;
    size_t bytes;
} raws[] = {{"I8", 1},  {"U8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}, {"I16", 2},
            {"U16", 2}, {"I32", 4}, {"U32", 4},     {"I64", 8},     {"U64", 8}};
static const struct raw *find_raw(const json_t *entry) {
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    for (size_t i = 0; dtype && i < sizeof raws / sizeof *raws; i++)
        if (strcmp(raws[i].dtype, dtype) == 0) return &raws[i];
    return NULL;
}

/* shape and bytes, of elements of so many; a shape of no dimensions is one number. */
static enum infer_status read_shape(const struct reader *r, const json_t *entry, struct tensor *t,
                                    size_t element) {
    const json_t *shape = json_object_get(entry, "shape");
    size_t n = json_array_size(shape);
    if (!json_is_array(shape)) return bad(r, t->name, "no 'shape'");
    if (n > 4) return bad(r, t->name, "more than 4 dimensions");
    for (int i = 0; i < 4; i++) t->shape[i] = 1;
    t->n_dim = n ? (int)n : 1;
    t->bytes = element;
    for (size_t i = 0; i < n; i++) {
        const json_t *dim = json_array_get(shape, i);
        int64_t v = json_integer_value(dim);
        if (!json_is_integer(dim) || v < 1) return bad(r, t->name, "a dimension is no positive number");
        t->shape[4 - n + i] = v;
        if (!size_mul(t->bytes, (size_t)v, &t->bytes) || t->bytes > PTRDIFF_MAX)
            return bad(r, t->name, "the product of its dimensions is too large");
    }
    return INFER_OK;
}

/* any: the type is not known, so that its bytes are what the offsets span. */
static enum infer_status read_offsets(const struct reader *r, const json_t *entry, struct tensor *t,
                                      bool any) {
    const json_t *o = json_object_get(entry, "data_offsets"), *b = json_array_get(o, 0),
                 *e = json_array_get(o, 1);
    if (json_array_size(o) != 2 || !json_is_integer(b) || !json_is_integer(e))
        return bad(r, t->name, "'data_offsets' are not two numbers");
    int64_t begin = json_integer_value(b), end = json_integer_value(e);
    if (begin < 0 || end < begin)
        return bad(r, t->name, "'data_offsets' are negative or end before they begin");
    if ((uint64_t)end > r->size)
        return err_set(
            INFER_E_INPUT,
            "%s: tensor '%.100s': its data ends at %lld, after the file (%zu bytes of data); was the file "
            "cut?",
            r->file->path, t->name, (long long)end, r->size);
    if (any) t->bytes = (size_t)(end - begin);
    if ((uint64_t)(end - begin) != t->bytes)
        return err_set(INFER_E_INPUT, "%s: tensor '%.100s': its offsets span %lld bytes, its shape has %zu",
                       r->file->path, t->name, (long long)(end - begin), t->bytes);
    t->offset = (uint64_t)begin;
    return INFER_OK;
}

/* Whether an entry that cannot be read need not be; *empty: it has no elements. */
static bool is_unused(const struct reader *r, const char *name, const json_t *entry, bool *empty) {
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    const json_t *shape = json_object_get(entry, "shape");
    size_t n = 1;
    if (!dtype || !json_is_array(shape)) return false;
    for (size_t i = 0; i < json_array_size(shape); i++) {
        const json_t *dim = json_array_get(shape, i);
        json_int_t v = json_integer_value(dim);
        if (!json_is_integer(dim) || v < 0 || !size_mul(n, (size_t)v, &n)) return false;
    }
    *empty = n == 0;
    return r->unused && r->unused(name, dtype, n);
}

static enum infer_status read_entry(const struct reader *r, struct arena *a, const char *name,
                                    const json_t *entry, struct tensor *t) {
    size_t n = strlen(name);
    if (n == 0 || n > NAME_MAX_BYTES) return bad(r, name, "its name is empty or longer than 255 bytes");
    t->name = arena_strndup(a, name, n);
    if (!t->name) return err_set(INFER_E_MEMORY, "out of memory: names of tensors");
    if (!json_is_object(entry)) return bad(r, name, "its entry is no object");
    enum infer_status s = read_type(r, name, entry, &t->type);
    if (!s) s = read_shape(r, entry, t, quant_info(t->type)->bytes);
    bool empty = false;
    if (s && !is_unused(r, name, entry, &empty)) return s;
    const struct raw *raw = s && !empty ? find_raw(entry) : NULL;
    if (raw) TRY(read_shape(r, entry, t, raw->bytes));
    if (raw) t->raw = raw->dtype;
    if (s) t->n_dim = 0;
    if (empty) t->bytes = 0;
    return read_offsets(r, entry, t, s && !empty && !raw);
}

/* ---- layout ---- */

/* Where one without data lies at the start of another, it comes first. */
static bool lies_before(const struct tensor *a, const struct tensor *b) {
    return a->offset != b->offset ? a->offset < b->offset : a->bytes < b->bytes;
}

static void sift_down(struct tensor *t, size_t root, size_t n) {
    for (size_t child; (child = 2 * root + 1) < n; root = child) {
        if (child + 1 < n && lies_before(&t[child], &t[child + 1])) child++;
        if (!lies_before(&t[root], &t[child])) return;
        struct tensor swap = t[root];
        t[root] = t[child];
        t[child] = swap;
    }
}

/* By ascending offset; heap sort: no memory, no bad case. */
static void sort_by_offset(struct tensor *t, size_t n) {
    for (size_t i = n / 2; i-- > 0;) sift_down(t, i, n);
    for (size_t end = n; end-- > 1;) {
        struct tensor swap = t[0];
        t[0] = t[end];
        t[end] = swap;
        sift_down(t, 0, end);
    }
}

/* The data where it lies, or a copy where it lies at an address that its type cannot be read from (the format asks for no
 * alignment, though its writers have one). */
static enum infer_status place_data(const struct reader *r, struct arena *a, struct tensor *t) {
    const unsigned char *data = r->data + t->offset;
    t->data = data;
    t->offset += (uint64_t)(r->data - r->file->data);
    if (!t->n_dim && !t->raw) return INFER_OK;
    if ((uintptr_t)data % (t->raw ? 8 : quant_info(t->type)->bytes) == 0) return INFER_OK;
    void *copy = arena_alloc(a, t->bytes);
    if (!copy) return err_set(INFER_E_MEMORY, "%s: out of memory: %zu bytes", r->file->path, t->bytes);
    t->data = memcpy(copy, data, t->bytes);
    return INFER_OK;
}

static enum infer_status check_layout(const struct reader *r, struct arena *a, struct tensor *t, size_t n) {
    uint64_t end = 0;
    sort_by_offset(t, n);
    for (size_t i = 0; i < n; i++) {
        if (t[i].offset != end)
            return err_set(
                INFER_E_INPUT, "%s: tensor '%.100s': its data at %llu %s, the one before ends at %llu",
                r->file->path, t[i].name, (unsigned long long)t[i].offset,
                t[i].offset < end ? "overlaps another's" : "leaves a hole", (unsigned long long)end);
        end += t[i].bytes; /* at most r->size */
    }
    if (end != r->size)
        return err_set(INFER_E_INPUT, "%s: %llu bytes follow the data of the last tensor", r->file->path,
                       (unsigned long long)(r->size - end));
    for (size_t i = 0; i < n; i++) TRY(place_data(r, a, &t[i]));
    return INFER_OK;
}

/* ---- the file ---- */

static enum infer_status read_metadata(const struct reader *r, const json_t *metadata) {
    const char *key;
    json_t *value;
    if (!json_is_object(metadata))
        return err_set(INFER_E_INPUT, "%s: '__metadata__' is no object", r->file->path);
    json_object_foreach((json_t *)metadata, key, value) if (!json_is_string(value)) return err_set(
        INFER_E_INPUT, "%s: '__metadata__' holds a value that is no string ('%.64s')", r->file->path, key);
    return INFER_OK;
}

static enum infer_status read_entries(const struct reader *r, struct arena *a, json_t *root,
                                      struct tensor **out, size_t *n_out) {
    const char *name;
    json_t *entry;
    size_t n = 0, bytes;
    struct tensor *t = NULL;
    if (size_mul(json_object_size(root) + 1, sizeof *t, &bytes)) t = arena_alloc(a, bytes);
    if (!t) return err_set(INFER_E_MEMORY, "out of memory: %zu tensors", json_object_size(root));
    json_object_foreach(root, name, entry) {
        if (strcmp(name, "__metadata__") == 0)
            TRY(read_metadata(r, entry));
        else
            TRY(read_entry(r, a, name, entry, &t[n++]));
    }
    TRY(check_layout(r, a, t, n));
    *out = t;
    *n_out = n;
    return INFER_OK;
}

enum infer_status safetensors_read(const struct mapfile *file, struct arena *a, safetensors_unused *unused,
                                   struct tensor **out, size_t *n) {
    uint64_t header;
    if (file->size < sizeof header + 2)
        return err_set(INFER_E_INPUT, "%s: the file has %zu bytes, too few for a header", file->path,
                       file->size);
    memcpy(&header, file->data, sizeof header);
    if (header > file->size - sizeof header)
        return err_set(INFER_E_INPUT,
                       "%s: the header's length is %llu, the file has %zu bytes (not safetensors?)",
                       file->path, (unsigned long long)header, file->size);
    if (header > HEADER_MAX)
        return err_set(INFER_E_INPUT, "%s: the header has %llu bytes, more than %d", file->path,
                       (unsigned long long)header, HEADER_MAX);
    const char *text = (const char *)file->data + sizeof header;
    if (header < 2 || text[0] != '{')
        return err_set(INFER_E_INPUT, "%s: the header does not begin with '{'", file->path);
    json_t *root;
    TRY(json_read(&root, file->path, text, (size_t)header, JSON_REJECT_DUPLICATES));
    const struct reader r = {file, file->data + sizeof header + header,
                             file->size - sizeof header - (size_t)header, unused};
    enum infer_status s = read_entries(&r, a, root, out, n);
    json_decref(root);
    return s;
}
