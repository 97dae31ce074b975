/* Any bytes as a GGUF file: tensorfile_open ends with a status and a message, and what it accepts can be read. */
#include "tests/lib/fuzz_file.h"
#include "files/tensorfile.h"

#include <stdio.h>
#include <string.h>

static volatile uint64_t sink; /* keeps the reads */

static void touch_meta(const struct meta *m) {
    if (m->type == META_STRING || (m->type == META_ARRAY && m->elem == META_STRING)) {
        for (uint64_t i = 0; i < m->n; i++)
            for (size_t k = 0; k < m->strings[i].len; k++) sink += (unsigned char)m->strings[i].data[k];
    } else if (m->type == META_ARRAY && m->elem == META_ARRAY) {
        for (uint64_t i = 0; i < m->n; i++) touch_meta(&m->nested[i]);
    } else {
        for (uint64_t i = 0; i < m->n; i++) {
            sink += (uint64_t)meta_elem_i64(m, i);
            sink += meta_elem_f64(m, i) > 0;
        }
    }
}

static void touch_typed(const struct tensorfile *f, const char *key) {
    uint32_t u[3];
    float x;
    bool b, present;
    struct str s;
    const struct meta *m;
    meta_u32(f, key, u, &present);
    meta_f32(f, key, &x, &present);
    meta_bool(f, key, &b, &present);
    meta_str(f, key, &s, &present);
    meta_u32_array(f, key, u, 3, &present);
    meta_array(f, key, META_KIND_INT, META_ANY_LENGTH, &m, &present);
    meta_array(f, key, META_KIND_STRING, 2, &m, &present);
}

static void touch(const struct tensorfile *f) {
    for (size_t i = 0; i < f->n_meta; i++) {
        const struct meta *m = &f->meta[i];
        char key[256];
        touch_meta(m);
        if (m->key.len >= sizeof key) continue;
        memcpy(key, m->key.data, m->key.len);
        key[m->key.len] = 0;
        if (tensorfile_meta(f, key) != m) __builtin_trap();
        touch_typed(f, key);
    }
    for (size_t i = 0; i < f->n_tensor; i++) {
        const struct tensor *t = &f->tensor[i];
        if (tensorfile_find(f, t->name) != t) __builtin_trap();
        const unsigned char *p = t->data;
        for (size_t k = 0; k < t->bytes; k++) sink += p[k];
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *path = fuzz_file(data, size);
    if (!path) return 0;
    struct tensorfile *f;
    /* read into exact memory, so that AddressSanitizer sees a read past the end */
    const struct tensorfile_options options = {.no_mmap = true, .vocab_only = true};
    if (tensorfile_open(&f, path, &options) == INFER_OK) {
        touch(f);
        tensorfile_close(f);
    } else if (!*err_message()) {
        __builtin_trap();
    }
    return 0;
}
