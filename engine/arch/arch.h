/* The words that models are written in. A file in models/ is one const struct arch: names, slots, flags; new
 * mathematics is a new engine/model/blk_*.c that forward.c calls, never a copied loop.
 *
 * Glossary: n_layer, n_embd (width of the residual stream), n_head, n_kv_head, head_dim_k and head_dim_v, n_ff
 * (width of the feed-forward part), n_vocab, n_rot (rotated dims of a head), T (rows of a step), pos. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "seam/backend.h"

enum slot {
#define SLOT(id, name, rows, cols) SLOT_##id,
#include "arch/slots.def"
#undef SLOT
    SLOT_COUNT
};

/* Symbolic sizes: Q = n_head * head_dim_k, K = n_kv_head * head_dim_k, V = n_kv_head * head_dim_v,
 * ATTN = n_head * head_dim_v, ROT_HALF = n_rot / 2. */
enum dim { DIM_ONE, DIM_VOCAB, DIM_EMBD, DIM_Q, DIM_K, DIM_V, DIM_ATTN, DIM_HEAD_K, DIM_FF, DIM_ROT_HALF };

struct slot_info {
    const char *name; /* with %d: once per layer */
    enum dim rows, cols;
};
extern const struct slot_info slot_info[SLOT_COUNT];

#define SLOT_BIT(id) (UINT64_C(1) << SLOT_##id)
/* The slots of a dense decoder block with gated feed-forward. */
#define SLOTS_DENSE                                                                                          \
    (SLOT_BIT(TOKEN_EMBD) | SLOT_BIT(OUTPUT_NORM) | SLOT_BIT(ATTN_NORM) | SLOT_BIT(ATTN_Q) |                 \
     SLOT_BIT(ATTN_K) | SLOT_BIT(ATTN_V) | SLOT_BIT(ATTN_OUTPUT) | SLOT_BIT(FFN_NORM) | SLOT_BIT(FFN_GATE) | \
     SLOT_BIT(FFN_UP) | SLOT_BIT(FFN_DOWN))

/* A model of Hugging Face that is of this architecture: model_type, and the class under architectures. */
struct arch_hf {
    const char *model_type, *class;
};

struct arch {
    const char *name;     /* general.architecture, and the prefix of its keys */
    const char *families; /* for people: which models use it */
    uint64_t required;    /* slots that must be there */
    uint64_t optional;    /* slots that may be; any other tensor in a file is an error */
    enum norm_kind norm;
    enum act_kind act;
    enum rope_kind rope;
    const struct arch_hf *hf; /* ended by a row of NULL */
    bool window_by_layer; /* Hugging Face: a window only with use_sliding_window, and only in some layers */
};
