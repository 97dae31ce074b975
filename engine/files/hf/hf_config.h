/* Inside of the readers of config.json: its keys by hf_keys.def. */
#pragma once
#include <jansson.h>
#include "arch/arch.h"
#include "files/hf/hf.h"
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
    const json_t *rope[2]; /* rope_parameters, rope_scaling; NULL: not there */
    uint32_t n_layer;
    uint8_t *windowed; /* windowed[n_layer]: the layer has a window */
    uint8_t *mixed; /* mixed[n_layer]: layer_types says another mixer than attention; NULL: it says nothing */
    bool for_gguf;  /* struct tensorfile_options */
    const char *task;
    uint8_t *kind;            /* kind[n_layer]: enum layer_kind */
    enum infer_status status; /* the first failure of get_*; what they give behind it means nothing */
    char name[64];            /* of key_name */
};

enum hf_key {
#define KEY(id, all, told, kind, min, max, absent, gguf) K_##id,
#define ROPE(id, name, kind, min, max, absent)           K_##id,
#define RANGE(names, min, max)
#include "files/hf/hf_keys.def"
#undef KEY
#undef ROPE
#undef RANGE
    K_COUNT
};
/* What a key holds. EACH: a number, or a list of one for each layer, all alike; ROOT: above 0, and GGUF has 1 over its root; ANY: code looks
 * into it. */
enum hf_kind { INT, EACH, REAL, POSITIVE, ROOT, FLAG, ANY };

/* Whether the architecture reads one of a row's names, whether it is there or not. */
bool key_reads(const struct config *c, enum hf_key k);
/* Whether the architecture's own list (arch.h: hf.keys) has the word. */
bool config_reads(const struct config *c, const char *word);
/* Whether every architecture reads the key; whether some may. */
bool config_known(const char *key);
bool config_has_row(const char *key);
/* The value, NULL: absent or null. */
const json_t *get_json(struct config *c, enum hf_key k);
/* The name that is there, else the first that is read: for messages. */
const char *key_name(struct config *c, enum hf_key k);
/* The value as a number or truth; absent: as the row says, or otherwise (-1 and NAN: an error). c->status: INFER_E_INPUT names path and key */
uint32_t get_u32(struct config *c, enum hf_key k);
uint32_t get_u32_or(struct config *c, enum hf_key k, int64_t otherwise);
float get_f32(struct config *c, enum hf_key k);
bool get_flag(struct config *c, enum hf_key k);
bool get_flag_or(struct config *c, enum hf_key k, bool otherwise);
/* A list with an entry for each layer; NULL: absent. */
const json_t *get_layers(struct config *c, enum hf_key k, const char *want);
/* true, false, or nothing (-1). */
struct hf_told get_told(struct config *c, enum hf_key k);
/* n bytes in the arena, zeros; NULL: c->status. */
void *get_room(struct config *c, size_t n);
/* Puts the rows from .. to that are there under GGUF's names. */
enum infer_status put_keys(struct config *c, enum hf_key from, enum hf_key to);

/* The same of a value inside of another or beside, under a name that is in a row or RANGE. */
enum infer_status config_u32(const struct config *c, const char *key, const json_t *v, int64_t otherwise,
                             uint32_t *out);
enum infer_status config_f32(const struct config *c, const char *key, const json_t *v, float otherwise,
                             float *out);
enum infer_status config_bool(const struct config *c, const char *key, const json_t *v, bool otherwise,
                              bool *out);
enum infer_status config_wrong(const struct config *c, const char *key, const char *want);
/* The same for a row's name, unless something is wrong before it: sets c->status. */
enum infer_status key_wrong(struct config *c, enum hf_key k, const char *want);
/* Whether v is a number that key may be, also where nobody reads it; lists are not looked into. */
enum infer_status config_in_range(const struct config *c, const char *key, const json_t *v);
/* Every key is read, harmless or neutral. */
enum infer_status config_check_keys(const struct config *c);
/* A number that a table gives a key that is absent, as JSON. */
json_t *hf_default(const struct arch_default *d);

static inline void put_u32(const struct config *c, const char *name, uint32_t v) {
    hf_put_u32(c->keys, c->out->arch, name, v);
}
static inline void put_f32(const struct config *c, const char *name, float v) {
    hf_put_f32(c->keys, c->out->arch, name, v);
}
static inline void put_bool(const struct config *c, const char *name, bool v) {
    hf_put_bool(c->keys, c->out->arch, name, v);
}
/* One for each layer. */
static inline void put_bools(const struct config *c, const char *name, const uint8_t *v) {
    hf_put_bools(c->keys, c->out->arch, name, v, c->n_layer);
}
static inline void put_u32s(const struct config *c, const char *name, const uint32_t *v) {
    hf_put_u32s(c->keys, c->out->arch, name, v, c->n_layer);
}

/* hf_eagle.c: whether it is a head that drafts for another model; its keys are put and taken out, so that a Llama's are left. */
enum infer_status config_head(struct config *c, bool *head);
/* c->kind; after the number of layers is known (hf_kinds.c). */
enum infer_status config_kinds(struct config *c);
bool config_has(const struct config *c, enum layer_kind kind);
/* The keys of Granite 4 that Bamba leaves out. source: configuration_bamba of transformers */
void config_bamba(json_t *root);
/* Step 3.5's published keys as transformers 5 has them. source: configuration_step3p7 of transformers */
void config_step(json_t *root);
void config_kimi(json_t *root); /* hf_state.c */
/* source: configuration_gemma3n of transformers */
void config_gemma3n(json_t *root);
void config_minimax(json_t *root); /* hf_index.c */
/* hf_entries.c. source: configuration_deepseek_v4 of transformers */
void config_deepseek4(json_t *root);
/* Entries of runs of positions, streams that are mixed, experts of ids. */
enum infer_status config_entries(struct config *c);
enum infer_status config_streams(struct config *c);
/* hf_ngram.c: as Qwen3.5's. source: configuration_qwen4_exp of transformers */
void config_qwen4(json_t *root);
enum infer_status config_gates(struct config *c);
/* source: configuration_laguna of transformers */
void config_laguna(json_t *root);
/* Limits of gates and of what they are times, of every layer. */
enum infer_status config_limits(struct config *c);
/* Whether some layer of a model whose layers are one thing alone is a mixture of experts. */
bool config_sparse(const json_t *root);
/* position_embedding_type is 'rotary'. */
bool config_rotary(const json_t *root);
/* feed_forward_length of every layer, ff what the usual keys say. */
enum infer_status config_width(struct config *c, uint32_t ff);
/* Sizes of layers with a state. */
enum infer_status config_state(struct config *c);
/* Factors of matrices (hf_factors.c). */
enum infer_status config_factors(struct config *c);
/* sliding_window and which layers have it: c->windowed. */
enum infer_status config_windows(struct config *c);
/* Sizes and heads; of heads that differ by layer, too. dim: head sizes of full and of windowed layers. */
enum infer_status config_sizes(struct config *c, uint32_t dim[2]);
/* Heads of latent attention (hf_latent.c), in the place of others; their rotated numbers. */
enum infer_status config_latent(struct config *c, uint32_t *n_rot);
/* What chooses its positions (hf_index.c); runs of positions. */
enum infer_status config_index(struct config *c);
enum infer_status config_index_runs(struct config *c);
/* Encoders, ctx rows of positions (hf_encoder.c). */
enum infer_status config_encoder(struct config *c, uint32_t ctx);
/* Layers with a state: which they are, and their sizes (hf_state.c). After config_windows. */
enum infer_status config_mixers(struct config *c);
/* Experts: sizes, which layers have them, how they are chosen. After config_windows. */
enum infer_status config_experts(struct config *c);
/* rope_theta, rope_scaling, rope_parameters and what is in them. */
enum infer_status config_rope(struct config *c, const uint32_t dim[2]);
