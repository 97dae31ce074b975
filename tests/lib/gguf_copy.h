/* Files made of others, for tests that change keys. */
#pragma once
#include "tests/lib/test.h"
#include "files/gguf_write.h"
#include "files/tensorfile.h"

/* Behind the keys: all tensors of f, and the end of the file. */
static inline void gguf_copy_tensors(struct gguf_writer *w, const struct tensorfile *f) {
    for (size_t i = 0; i < f->n_tensor; i++)
        gguf_writer_tensor(w, f->tensor[i].name, f->tensor[i].type, f->tensor[i].n_dim, f->tensor[i].shape);
    assert_ok(gguf_writer_begin(w));
    for (size_t i = 0; i < f->n_tensor; i++)
        assert_ok(gguf_writer_data(w, f->tensor[i].data, f->tensor[i].bytes));
    assert_ok(gguf_writer_close(w));
}
