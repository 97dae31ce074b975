/* Weights of folders that a method has quantised (quantization_config): GPTQ, AWQ, AutoRound, compressed-tensors, FP8, bitsandbytes, modelopt.
 *
 * What one matrix is in several tensors becomes one, in blocks of a type that holds its values exactly: Q4_0 or Q8_0 where the zero
 * points allow it, Z4, I8_128, F8_128, NF4, FP4, NVFP4, MXFP4, BF16, and F32 where none does. The copies are made at load, by all threads.
 * sources: the formats' own libraries (auto-gptq, autoawq, compressed-tensors, bitsandbytes, modelopt); docs/quantised-folders.md. */
#pragma once
#include <jansson.h>
#include "files/model_keys.h"
#include "files/tensorfile.h"

enum hf_method {
    HF_METHOD_NONE,
    HF_GPTQ,
    HF_AWQ,
    HF_FP8,
    HF_COMPRESSED,
    HF_BITSANDBYTES,
    HF_MODELOPT,
};
/* Which scales matrices of bytes have; any: modules differ, or nothing says it. */
enum hf_scales { HF_SCALES_ANY, HF_SCALES_ONE, HF_SCALES_ROWS, HF_SCALES_BLOCKS };
struct hf_packing {
    enum hf_method method;
    const char *name; /* as in the file */
    int64_t group;    /* columns that share a scale, -1: all of a row; 0: not said */
    int bits;         /* of codes in 32-bit words */
    bool by_module;   /* bits and groups are others for some modules: their tensors say which */
    int zero_plus;    /* what GPTQ's stored zero points lack */
    enum hf_scales scales;
    char type;    /* i or f: what every module has as codes; 0: not said */
    bool offset;  /* every module has zero points */
    bool index;   /* every module says the group of each column */
    bool divided; /* NVFP4: the factor of a matrix divides */
};
/* config: quantization_config, path the file it is in. Every key of it is used, harmless or refused by name.
 * errors: INFER_E_INPUT, INFER_E_UNSUPPORTED (an unknown method or variant) name path and key */
enum infer_status hf_packing_read(struct hf_packing *out, const json_t *config, const char *path,
                                  const struct key_ignore *ignore);
/* The refusal of a config.json whose key 'quantization' is MLX's. */
enum infer_status hf_packing_mlx(const json_t *config, const char *path);

/* The tensors of one file of a folder. */
struct hf_list {
    struct tensor *tensor;
    size_t n;
};
/* Makes the matrices of list[n_list] whole, made_bytes in all: an entry takes the name X.weight and its type, its side tensors have no data any more
 * (n_dim 0). file[n_list]: for messages. may_sort: columns whose groups are in no order may stand by group (struct tensor: columns). errors: INFER_E_INPUT (a side tensor is missing, misshapen or contradicts: names
 * file and tensor), INFER_E_UNSUPPORTED, INFER_E_MEMORY */
enum infer_status hf_unpack(const struct hf_packing *p, struct hf_list *list, int n_list,
                            const struct mapfile *file, bool may_sort, struct arena *arena,
                            size_t *made_bytes);
