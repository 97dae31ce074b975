/* Experts of folders whose gate and up lie in turns, or whose numbers are blocks of MXFP4 apart from their scales: copies as GGUF has them. */
#pragma once
#include "files/tensorfile.h"

struct hf_expert_sizes {
    int64_t n_expert, n_ff, n_embd;
};
/* out[2]: gate and up of from, in its data's form: blocks (n_dim 0, with their scales), [n_expert][n_embd][2 n_ff] floats, or biases
 * [n_expert][2 n_ff]. Names and part stay from's. errors: INFER_E_INPUT (another size), INFER_E_MEMORY */
enum infer_status hf_turns(struct tensor out[2], const struct tensor *from, const struct tensor *scales,
                           const struct hf_expert_sizes *s, struct arena *arena, const char *path);
/* The same of floats [n_expert][n_embd][2 n_ff] whose columns are gate's, then up's. */
enum infer_status hf_columns(struct tensor out[2], const struct tensor *from, const struct hf_expert_sizes *s,
                             struct arena *arena, const char *path);
/* The same of one matrix that has gate's rows, then up's: in its own memory. */
enum infer_status hf_halves(struct tensor out[2], const struct tensor *from, const char *path);
/* The same of one matrix for each expert, [n_expert][n_embd][n_ff], in blocks. */
enum infer_status hf_blocks(struct tensor *out, const struct tensor *from, const struct tensor *scales,
                            const struct hf_expert_sizes *s, struct arena *arena, const char *path);
