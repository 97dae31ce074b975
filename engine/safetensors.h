/* One file of safetensors: u64 length of a JSON header, the header, the tensors' data.
 *
 *     {"name": {"dtype": "F16", "shape": [rows, columns], "data_offsets": [begin, end]}, ..., "__metadata__": {}}
 *
 * Checked whole: the header begins with '{', no name twice, sizes by checked products, the data without overlap
 * or hole and ending with the file. The header is at most 32 MiB (the format allows 100 MB; a header of half a
 * million tensors takes less). source: the safetensors format description (github.com/huggingface/safetensors). */
#pragma once
#include "tensorfile.h"

/* tensor[*n] in the arena: names and shapes as in the file, in the order of their data; part is 0.
 * errors: INFER_E_INPUT, INFER_E_UNSUPPORTED (an element type that quant.def does not have), INFER_E_MEMORY. */
enum infer_status safetensors_read(const struct mapfile *file, struct arena *a, struct tensor **out,
                                   size_t *n);
