/* Tensors of folders whose elements are not as GGUF has them: one function for each operation of arch.h (enum hf_op). */
#pragma once
#include "arch/arch.h"
#include "files/hf/hf.h"

/* What an operation may ask for beside its tensor. */
struct hf_make {
    const struct hf_config *config;
    enum hf_op op;
    const struct tensor *from;
    const struct tensor *scales; /* beside "X_blocks"; NULL: none */
    struct arena *arena;
    const char *path; /* for messages */
};
/* Makes out[0], and of operations that take one tensor apart out[1], which both are *m->from before: in copies where elements change or move.
 * errors: INFER_E_INPUT (the shape does not fit), INFER_E_UNSUPPORTED (blocks), INFER_E_MEMORY */
typedef enum infer_status hf_op_fn(struct tensor out[2], const struct hf_make *m);

hf_op_fn hf_plus_one, hf_transpose, hf_qkv_heads, hf_reshape, hf_squeeze, hf_by_expert; /* hf_change.c */
hf_op_fn hf_halves, hf_columns, hf_turns, hf_blocks; /* hf_turns.c: experts, out[0]: gate, out[1]: up */
hf_op_fn hf_ids;               /* hf_entries.c: whole numbers, as I32 in the place of float32 */
hf_op_fn hf_index_qk;          /* hf_ngram.c: queries, and the key */
hf_op_fn hf_latent;            /* keys [n_head][rank][n_nope], values [n_head][n_value][rank] */
hf_op_fn hf_positions;         /* hf_encoder.c: rows of positions without those of padding */
hf_op_fn hf_qkvz, hf_by_value; /* hf_state.c: of layers with the delta rule */

/* One more vector for the matrix *t, which has room for a row of each head; n_dim 0: it begins with it. */
enum infer_status hf_stack(struct tensor *t, const struct tensor *row, int index, const struct hf_make *m);
