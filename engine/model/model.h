/* A model file bound to its architecture: checked hyper-parameters and weights, views into the map.
 *
 * Immutable after model_open; shared between engines and threads. forward.c reads it, nobody writes it. */
#pragma once
#include "arch/arch.h"
#include "files/tensorfile.h"
#include "text/tok/tok.h"

struct layer {
    int n_head, n_kv_head, head_dim_k, head_dim_v, n_ff;
    int window; /* a row sees the last window positions, itself included; 0: all */
    int store;  /* index of its KV store */
    const struct rope *rope;
    const float *attn_norm, *ffn_norm; /* [n_embd] */
    const float *q_norm, *k_norm;      /* [head_dim_k], NULL: none */
    struct weight_group qkv, out, gate_up, down;
};

struct model {
    struct tensorfile *file;
    struct tok *tok; /* NULL: the file has no vocabulary */
    const struct arch *arch;
    int n_layer, n_embd, n_vocab, n_ctx_train, n_rot;
    float eps;
    float attn_scale;         /* 0: 1 / sqrt(head_dim_k) */
    float embd_scale;         /* 1 unless the architecture scales embeddings */
    struct layer *layer;      /* layer[n_layer] */
    struct weight embd;       /* [n_vocab][n_embd] */
    const float *output_norm; /* [n_embd] */
    struct weight_group head; /* [n_vocab][n_embd]; the embedding's bytes when tied */
    bool tied;
    struct rope rope;
    const struct weight_group **group; /* group[n_group], by id */
    int n_group;
    struct kv_store *store; /* store[n_store] */
    int n_store;
    const struct state_store *state; /* state[n_state] */
    int n_state;
    int *window; /* window[n_kv_group]: of each KV group, 0: full */
    int n_kv_group;
    uint64_t n_param, token_bytes, token_flops;
    struct arena arena;
};

/* errors: INFER_E_INPUT (a key or tensor is missing, mis-shaped or out of range: message names it),
 * INFER_E_UNSUPPORTED (architecture, rope scaling or tensor that no code uses), INFER_E_MEMORY, INFER_E_IO */
enum infer_status model_open(struct model **out, const char *path, const struct tensorfile_options *options);
void model_close(struct model *m);
