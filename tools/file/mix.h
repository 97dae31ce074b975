/* Which element type a tensor takes when a whole model is written in one: single types and llama.cpp's mixes.
 *
 * source: llama.cpp's quantiser (src/llama-quant.cpp), its rules for llama-like models without an importance
 * matrix; the types for rows that are no multiple of the block are those of this project's description of
 * `quantize`. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "quant/quant.h"

struct mix;

/* What the rules want to know of the model. */
struct mix_model {
    int n_layer, n_gqa, n_expert; /* n_gqa: query heads per key head; n_expert: 0 for dense models */
    bool tied;                    /* no output.weight: the embedding is the head, too */
    int n_value, i_value; /* tensors of values in all layers, in those below; n_value 0: one in every layer */
    bool importance;      /* an importance matrix is given */
    bool extra_v;         /* 80 layers with grouped queries: attn_v in Q3_K or Q4_K becomes Q5_K */
};

/* A name of the table: an element type, or a mix (q4_k_m). pure: an element type's name means this type in every
 * matrix; otherwise what llama.cpp's quantiser makes of the name (q4_k is q4_k_m, and the head of q4_0 is Q6_K).
 * NULL when unknown. */
const struct mix *mix_find(const char *name, bool pure);
/* Whether matrices keep the types that they have. */
bool mix_keeps(const struct mix *m);
/* All names, separated by spaces, for messages. */
const char *mix_names(char *buf, size_t n);
/* general.file_type of GGUF for this mix. */
uint32_t mix_file_type(const struct mix *m);

/* Whether a tensor is one of values, alone or with others. */
bool mix_is_value(const char *name);
/* Is this tensor a matrix whose type may change? Norms, biases, routers and what has one dimension stay F32. */
bool mix_is_matrix(const char *name, int n_dim);
/* The type for such a matrix with rows of cols elements. *wanted: the same before rows that are no multiple of the
 * block were minded. */
enum quant_type mix_type(const struct mix *m, const struct mix_model *model, const char *name, int64_t cols,
                         enum quant_type *wanted);

/* Counts of matrices that took another type: [wanted][taken]. As a line for people, "" when there are none. */
const char *mix_fallback_line(char *buf, size_t n, const int (*count)[QUANT_COUNT], int n_matrix);
