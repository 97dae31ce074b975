/* Private to hf_config.c and hf_rope.c: config.json while it is read. */
#pragma once
#include <jansson.h>
#include "files/hf.h"
#include "files/model_keys.h"

/* What a layer is; where it is one thing alone, a feed-forward part is a layer, too. */
enum layer_kind { LAYER_ATTENTION, LAYER_STATE, LAYER_DENSE, LAYER_SPARSE };

struct config {
    const char *path;
    json_t *root;
    struct hf_config *out;
    struct hf_keys *keys;
    const struct mapfile *quant; /* hf_quant_config.json; path NULL: none */
    const struct key_ignore *ignore;
    uint32_t n_layer;
    uint8_t *windowed; /* windowed[n_layer]: the layer has a window */
    uint8_t *mixed; /* mixed[n_layer]: layer_types says another mixer than attention; NULL: it says nothing */
    bool for_gguf;  /* struct tensorfile_options */
    uint8_t *kind;  /* kind[n_layer]: enum layer_kind */
};

/* Whether the architecture's own list (arch.h: hf_keys) has the key. */
bool config_reads(const struct config *c, const char *key);
/* The value of the first of "a|b" that is there and not null, and its name; NULL: none. */
const json_t *config_any(const struct config *c, const char *names, const char **found);

/* Values of a key; absent (v NULL) or null: fallback, where -1 and NAN stand for a key that must be there.
 * errors: INFER_E_INPUT names path and key */
enum infer_status config_u32(const struct config *c, const char *key, const json_t *v, int64_t fallback,
                             uint32_t *out);
enum infer_status config_f32(const struct config *c, const char *key, const json_t *v, float fallback,
                             float *out);
enum infer_status config_bool(const struct config *c, const char *key, const json_t *v, bool fallback,
                              bool *out);
/* Whether v is a number that key may be, also where nobody reads it; lists are not looked into. */
enum infer_status config_in_range(const struct config *c, const char *key, const json_t *v);
enum infer_status config_wrong(const struct config *c, const char *key, const char *want);

/* c->kind; after the number of layers is known (hf_kinds.c). */
enum infer_status config_kinds(struct config *c);
bool config_has(const struct config *c, enum layer_kind kind);
/* Whether some layer of a model whose layers are one thing alone is a mixture of experts. */
bool config_sparse(const json_t *root);
/* feed_forward_length of every layer, *ff what the usual keys say. */
enum infer_status config_width(const struct config *c, uint32_t *ff);
/* Sizes of layers with a state. */
enum infer_status config_state(const struct config *c);
/* Factors of matrices (hf_factors.c). */
enum infer_status config_factors(const struct config *c);
/* sliding_window and which layers have it: c->windowed. */
enum infer_status config_windows(struct config *c);
/* Sizes and heads; of heads that differ by layer, too. dim: head sizes of full and of windowed layers. */
enum infer_status config_sizes(struct config *c, uint32_t dim[2]);
/* Heads of latent attention (hf_latent.c), in the place of others; their rotated numbers. */
enum infer_status config_latent(const struct config *c, uint32_t *n_rot);
/* Layers with a state: which they are, and their sizes (hf_state.c). After config_windows. */
enum infer_status config_mixers(const struct config *c);
/* Experts: sizes, which layers have them, how they are chosen. After config_windows. */
enum infer_status config_experts(const struct config *c);
/* rope_theta, rope_scaling, rope_parameters and what is in them. */
enum infer_status config_rope(const struct config *c, const uint32_t dim[2]);
