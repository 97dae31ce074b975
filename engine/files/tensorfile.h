/* What a model file holds, whatever its container: metadata keys and named tensors.
 *
 * gguf.c and hf.c (folders with safetensors) fill a struct tensorfile after the whole file has been checked; model, tok
 * and the tools read it through these accessors and never see bytes of the container. Shapes are C order here
 * (last index contiguous); gguf.c is the one place that reverses GGUF's dimension order. Lifetime: strings,
 * arrays and tensors are views into the maps and the arena, valid until tensorfile_close. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include "files/model_keys.h"
#include "files/mapfile.h"
#include "base/mem.h"
#include "quant/quant.h"

/* Metadata types, with GGUF's numbers. */
enum meta_type {
    META_U8 = 0,
    META_I8,
    META_U16,
    META_I16,
    META_U32,
    META_I32,
    META_F32,
    META_BOOL,
    META_STRING,
    META_ARRAY,
    META_U64,
    META_I64,
    META_F64,
    META_TYPE_COUNT
};

struct str { /* bytes, not ended by 0 */
    const char *data;
    size_t len;
};
static inline bool str_is(struct str s, const char *text) {
    return s.len == strlen(text) && memcmp(s.data, text, s.len) == 0;
}

struct meta {
    struct str key;
    enum meta_type type;      /* META_ARRAY: elem and n below say what is in it */
    enum meta_type elem;      /* element type of an array */
    uint64_t n;               /* elements of an array, 1 otherwise */
    const unsigned char *raw; /* little endian, unaligned; an array of strings: see strings */
    struct str *strings;      /* strings[n] for a string or an array of strings */
    struct meta *nested;      /* nested[n] for an array of arrays */
};

struct tensor {
    const char *name; /* ended by 0, at most 64 bytes in GGUF */
    enum quant_type type;
    int n_dim;        /* 1 to 4 */
    int64_t shape[4]; /* C order: shape[3] is contiguous; a matrix is {1, 1, rows, columns} */
    const void *data; /* in the map */
    size_t bytes;
    uint64_t offset;         /* of data in its file */
    int part;                /* which of the split files */
    bool fine;               /* of a folder: products take its inputs as they are (struct weight) */
    const float *row_factor; /* [shape[2]]: what the rows are times; NULL: 1 */
    /* [shape[3]]: column i of data is this one of the matrix; NULL: as they are (struct weight) */
    const int32_t *columns;
    /* n_dim 0: the type in the file where it has none here, of which shape speaks; NULL: not known */
    const char *raw;
};

/* Tensors of a folder that nothing here computes with. */
struct left_out {
    size_t n, bytes;
};

struct tensorfile {
    char *path;
    const char *format; /* "gguf v3" */
    uint32_t alignment;
    struct meta *meta;
    size_t n_meta;
    struct tensor *tensor;
    size_t n_tensor;
    struct mapfile *part; /* part[n_part]: the split files in order */
    int n_part;
    size_t file_bytes; /* of all parts */
    size_t made_bytes; /* of weights that were made of several tensors at load, in memory of their own */
    struct left_out senses, drafts; /* of images and sound; of layers that draft tokens */
    /* Of a head that drafts for a model of a larger vocabulary: target_id[n_target_id], the ids there of its own; NULL: it has all. The
     * tensor d2t, which folders have as differences (i + d2t[i]). */
    const int64_t *target_id;
    size_t n_target_id;
    struct arena arena;
    void *tensor_index; /* private: name -> tensor */
    void *meta_index;   /* private: key -> meta */
};

/* How positions are turned, in place of what the file says; 0 and NULL: as it says. */
struct rope_given {
    const char *scaling; /* none, linear, yarn */
    float scale, freq_base, beta_fast, beta_slow, attn_factor;
    int orig_ctx;
};
struct tensorfile_options {
    bool no_mmap;
    bool vocab_only; /* tensors may be absent */
    bool sparse_ok;  /* holes of the files are zeros that are meant */
    bool tower;      /* of a folder: what it has for images, as a file of its own (architecture clip) */
    /* Of a folder with adapters for tasks: the one that is added to its matrices; NULL: none. */
    const char *task;
    bool for_gguf; /* heads and columns of folders in the order in which GGUF has them */
    struct key_ignore ignore;
    struct rope_given rope; /* model_open */
};

/* Opens and checks a model file (the magic decides the container). A split file is named by its first part.
 * errors: INFER_E_IO (cannot be opened), INFER_E_INPUT (broken: message names file, place and reason),
 * INFER_E_UNSUPPORTED (a type or version that this build does not know), INFER_E_MEMORY. */
enum infer_status tensorfile_open(struct tensorfile **out, const char *path,
                                  const struct tensorfile_options *options);
void tensorfile_close(struct tensorfile *f);
/* INFER_E_INPUT when writing to path would replace one of the files that a model of this name is read from: the file, the
 * other parts of a split one, what lies in a folder. */
enum infer_status tensorfile_differs(const char *path, const char *model);

/* For readers: no data of t[n], whose places are those in the file m, lies in a hole of it.
 * errors: INFER_E_INPUT names the file, the place and the first tensor in it */
enum infer_status tensorfile_check_holes(const struct mapfile *m, const struct tensor *t, size_t n,
                                         const struct tensorfile_options *options);

/* NULL when absent. */
const struct tensor *tensorfile_find(const struct tensorfile *f, const char *name);
const struct meta *tensorfile_meta(const struct tensorfile *f, const char *key);
/* Sets a key, as if the file had it so: raw, a number of `type`, or a text (META_STRING). errors: INFER_E_MEMORY */
enum infer_status tensorfile_set(struct tensorfile *f, const char *key, enum meta_type type, const void *raw);

/* Every key of general.* and tokenizer.* that is known (key_types.def) is of its type, whoever reads it: one that was passed over for its
 * type would leave a default in its place. errors: INFER_E_INPUT names key and type */
enum infer_status tensorfile_check_types(const struct tensorfile *f);
/* Typed reads. present: set to whether the key exists (may be NULL: then an absent key is INFER_E_INPUT).
 * Any integer type converts when the value fits, else INFER_E_INPUT naming the key, the type and the value.
 */
enum infer_status meta_u32(const struct tensorfile *f, const char *key, uint32_t *out, bool *present);
enum infer_status meta_f32(const struct tensorfile *f, const char *key, float *out, bool *present);
enum infer_status meta_bool(const struct tensorfile *f, const char *key, bool *out, bool *present);
enum infer_status meta_str(const struct tensorfile *f, const char *key, struct str *out, bool *present);
/* A scalar or an array of n integers (a scalar fills all n): per-layer hyper-parameters. */
enum infer_status meta_u32_array(const struct tensorfile *f, const char *key, uint32_t *out, size_t n,
                                 bool *present);
enum infer_status meta_f32_array(const struct tensorfile *f, const char *key, float *out, size_t n,
                                 bool *present); /* the same of numbers */
/* An array whose elements are of one kind; n: the length it must have, or META_ANY_LENGTH. An integer array
 * may have any integer type, a float array f32 or f64. errors: INFER_E_INPUT naming key, type and length. */
enum meta_kind { META_KIND_INT, META_KIND_FLOAT, META_KIND_STRING };
#define META_ANY_LENGTH SIZE_MAX
enum infer_status meta_array(const struct tensorfile *f, const char *key, enum meta_kind kind, size_t n,
                             const struct meta **out, bool *present);
/* Name of a type for messages: "u32". */
const char *meta_type_name(enum meta_type type);
/* Element i of a numeric array as double or integer, whatever its width. */
double meta_elem_f64(const struct meta *m, size_t i);
int64_t meta_elem_i64(const struct meta *m, size_t i); /* clamped to the range of int64_t */
