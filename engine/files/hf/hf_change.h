/* Tensors of Hugging Face whose elements are not as GGUF has them: changed copies. */
#pragma once
#include "files/hf/hf_names.h"
#include "files/tensorfile.h"

/* Heads of the model, for HF_QKV_HEADS and HF_STACK; groups of Mamba's heads, for HF_GROUPS. */
struct hf_heads {
    int n_head, n_kv_head, head_dim, n_group;
};
/* Changes *t as op says, its data in the arena. HF_SAME: nothing. path: for messages.
 * errors: INFER_E_INPUT (the shape does not fit), INFER_E_MEMORY */
enum infer_status hf_change(struct tensor *t, enum hf_op op, const struct hf_heads *heads,
                            struct arena *arena, const char *path);
/* One more vector for the matrix *t, which has room for n_head rows; n_dim 0: it begins with it.
 * errors: INFER_E_INPUT (another length or type than the first, or too many), INFER_E_MEMORY */
enum infer_status hf_stack(struct tensor *t, const struct tensor *row, int index,
                           const struct hf_heads *heads, struct arena *arena, const char *path);
