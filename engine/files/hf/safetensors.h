/* One file of safetensors: u64 length of a JSON header, the header, the tensors' data.
 *
 *     {"name": {"dtype": "F16", "shape": [rows, columns], "data_offsets": [begin, end]}, ..., "__metadata__": {}}
 *
 * Checked whole: the header begins with '{', no name twice, sizes by checked products, the data without overlap
 * or hole and ending with the file. The header is at most 32 MiB (the format allows 100 MB; a header of half a
 * million tensors takes less). source: the safetensors format description (github.com/huggingface/safetensors). */
#pragma once
#include "files/tensorfile.h"

/* Whether nothing that computes reads a tensor of that name, type and number of elements, so that a type or shape that cannot
 * be read does not matter. */
typedef bool safetensors_unused(const char *name, const char *dtype, size_t n);

/* tensor[*n] in the arena: names and shapes as in the file, in the order of their data; part is 0. One that
 * cannot be read, and of which unused (may be NULL) says yes, is there with n_dim 0 and without data.
 * errors: INFER_E_INPUT, INFER_E_UNSUPPORTED (an element type that quant.def does not have), INFER_E_MEMORY. */
enum infer_status safetensors_read(const struct mapfile *file, struct arena *a, safetensors_unused *unused,
                                   struct tensor **out, size_t *n);
