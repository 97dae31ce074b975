/* Private to gguf*.c: a bounded cursor over one part of a GGUF file, and the steps of reading. */
#pragma once
#include "files/gguf.h"
#include "base/stbds.h"

struct gguf_cursor {
    const unsigned char *data; /* data[size] */
    size_t size, pos;
    const char *path;
    /* where we are, for messages: "key 3 'general.name'" */
    const char *entry;
    uint64_t index;
    struct str name;
};

struct gguf_part {
    struct gguf_cursor c;
    uint32_t version;
    uint64_t n_tensor, n_key;
    /* path, meta, n_meta, meta_index alone: for the typed reads of a part's own keys */
    struct tensorfile keys;
    uint32_t alignment;
};

/* "FILE: byte POS: ENTRY: message"; returns code. */
enum infer_status gguf_fail(const struct gguf_cursor *c, enum infer_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Bounded reads; what names the value in messages. */
enum infer_status gguf_u32(struct gguf_cursor *c, uint32_t *out, const char *what);
enum infer_status gguf_u64(struct gguf_cursor *c, uint64_t *out, const char *what);
enum infer_status gguf_string(struct gguf_cursor *c, struct str *out, const char *what);
/* count items of at least min_bytes each must fit in what is left. */
enum infer_status gguf_count(const struct gguf_cursor *c, uint64_t count, size_t min_bytes, const char *what);
/* arena_alloc of n items of size bytes, with a message. */
enum infer_status gguf_alloc(struct arena *a, void *out_pointer, uint64_t n, size_t size);

/* All n_key keys of the part, into p->keys. */
enum infer_status gguf_read_keys(struct gguf_part *p, struct arena *a);
/* The part's tensor entries into f->tensor[first ...] and f->tensor_index, and the layout of its data. */
enum infer_status gguf_read_tensors(struct tensorfile *f, struct gguf_part *p, int part, size_t first,
                                    const struct tensorfile_options *options);
