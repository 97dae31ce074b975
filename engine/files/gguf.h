/* GGUF v2 and v3, little endian: the layout's numbers, and the reader that fills a struct tensorfile.
 *
 *     "GGUF" | u32 version | u64 n_tensor | u64 n_key
 *     n_key    x  string key | u32 type | value
 *     n_tensor x  string name | u32 n_dim | u64 dim[n_dim] (contiguous first) | u32 type | u64 offset
 *     padding to the alignment | tensor data, each tensor at a multiple of the alignment
 *
 * A string is u64 length, then bytes. An array is u32 element type, u64 count, then elements.
 * source: the GGUF specification (github.com/ggml-org/ggml, docs/gguf). */
#pragma once
#include "files/tensorfile.h"

#define GGUF_IDS ".ffn_gate_tid2eid."
enum {
    GGUF_VERSION = 3,
    GGUF_ALIGNMENT = 32, /* unless general.alignment says otherwise */
    GGUF_ALIGNMENT_MIN = 8,
    GGUF_ALIGNMENT_MAX = 1 << 20,
    GGUF_HEADER = 24,     /* bytes before the keys */
    GGUF_KEY_MIN = 14,    /* least bytes of a key: length, one letter, type, one byte */
    GGUF_TENSOR_MIN = 25, /* least bytes of a tensor's entry: length, one letter, n_dim, type, offset */
    GGUF_MAX_KEY = 65535,
    GGUF_I32 = 26, /* whole numbers: the experts of ids, tensors whose names have GGUF_IDS */
    GGUF_MAX_NAME = 64,
    GGUF_MAX_DIM = 4,
    GGUF_MAX_NESTING = 4 /* arrays in arrays */
};

/* Bytes of one value of a type; 0 for strings and arrays. */
uint32_t gguf_value_bytes(enum meta_type type);

/* Reads and checks the parts of a model into f: f->path and f->part[0] are set, all else is filled here; the
 * further parts of a split file are opened. Memory goes to f->arena, so an error needs no clean-up here.
 * errors: as tensorfile_open. */
enum infer_status gguf_read(struct tensorfile *f, const struct tensorfile_options *options);
