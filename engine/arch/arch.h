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
    SLOT_NONE,
#define SLOT(id, name, rows, cols) SLOT_##id,
#include "arch/slots.def"
#undef SLOT
    SLOT_COUNT
};

/* Symbolic sizes: Q = n_head * head_dim_k, K = n_kv_head * head_dim_k, V = n_kv_head * head_dim_v,
 * QKV = Q + K + V, ATTN = n_head * head_dim_v, GATE_UP = 2 * n_ff, ROT_HALF = n_rot / 2. */
enum dim {
    DIM_ONE,
    DIM_VOCAB,
    DIM_EMBD,
    DIM_Q,
    DIM_K,
    DIM_V,
    DIM_QKV,
    DIM_ATTN,
    DIM_HEAD_K,
    DIM_FF,
    DIM_GATE_UP,
    DIM_ROT_HALF
};

struct slot_info {
    const char *name; /* with %d: once per layer */
    enum dim rows, cols;
};
extern const struct slot_info slot_info[SLOT_COUNT];

/* Whether a file of an architecture has a weight; one that it does not have is an error. */
enum slot_use { SLOT_ABSENT, SLOT_MAY, SLOT_MUST };
/* The slots of a dense decoder block with gated feed-forward, as initialisers of slot[]. */
#define SLOTS_DENSE                                                                                          \
    [SLOT_TOKEN_EMBD] = SLOT_MUST, [SLOT_OUTPUT_NORM] = SLOT_MUST, [SLOT_ATTN_NORM] = SLOT_MUST,             \
    [SLOT_ATTN_Q] = SLOT_MUST, [SLOT_ATTN_K] = SLOT_MUST, [SLOT_ATTN_V] = SLOT_MUST,                         \
    [SLOT_ATTN_OUTPUT] = SLOT_MUST, [SLOT_FFN_NORM] = SLOT_MUST, [SLOT_FFN_GATE] = SLOT_MUST,                \
    [SLOT_FFN_UP] = SLOT_MUST, [SLOT_FFN_DOWN] = SLOT_MUST

/* A model of Hugging Face that is of this architecture: model_type, and the class under architectures. */
struct arch_hf {
    const char *model_type, *class;
};

struct arch {
    const char *name;               /* general.architecture, and the prefix of its keys */
    const char *families;           /* for people: which models use it */
    unsigned char slot[SLOT_COUNT]; /* enum slot_use */
    enum norm_kind norm;
    enum act_kind act;
    enum rope_kind rope;
    const struct arch_hf *hf; /* ended by a row of NULL */
    bool window_by_layer; /* Hugging Face: a window only with use_sliding_window, and only in some layers */
};
