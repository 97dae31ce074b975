/* Folders of Hugging Face: config.json, generation_config.json, *.safetensors with or without an index, tokenizer.json.
 *
 * They are read into the keys and tensor names of GGUF, so that nothing behind struct tensorfile knows the
 * difference. One thing GGUF cannot say: its llama has the rows of q and k permuted so that neighbours rotate
 * together, Hugging Face's has not; then the key "llama.rope.neox" is true. So is "deepseek2.rope.neox" where config.json says "rope_interleave": false.
 * "glm4.rope.neox" is false where there are sections of positions: GGUF has those rows in halves then.
 * sources: config.json as transformers documents it; the GGUF specification. */
#pragma once
#include "files/hf/hf_packed.h"
#include "files/tensorfile.h"

/* Reads the folder f->path into f (f->part is NULL). errors: as tensorfile_open. */
enum infer_status hf_read(struct tensorfile *f, const struct tensorfile_options *options);

/* ---- private to hf*.c ---- */

/* Keys that grow in an arena; status is the first failure. */
struct hf_keys {
    struct arena *arena;
    struct meta *meta; /* meta[n] */
    size_t n, room;
    enum infer_status status;
};
void hf_put_u32(struct hf_keys *k, const char *arch, const char *name,
                uint32_t value); /* arch NULL: name alone */
void hf_put_i32(struct hf_keys *k, const char *arch, const char *name, int32_t value);
void hf_put_f32(struct hf_keys *k, const char *arch, const char *name, float value);
void hf_put_bool(struct hf_keys *k, const char *arch, const char *name, bool value);
void hf_put_bools(struct hf_keys *k, const char *arch, const char *name, const uint8_t *value, size_t n);
void hf_put_u32s(struct hf_keys *k, const char *arch, const char *name, const uint32_t *value, size_t n);
void hf_put_i64s(struct hf_keys *k, const char *arch, const char *name, const int64_t *value, size_t n);
void hf_put_i32s(struct hf_keys *k, const char *arch, const char *name, const int32_t *value, size_t n);
void hf_put_f32s(struct hf_keys *k, const char *arch, const char *name, const float *value, size_t n);
void hf_put_str(struct hf_keys *k, const char *arch, const char *name, const char *value, size_t len);
void hf_put(struct hf_keys *k, const struct meta *m);

/* What config.json says of a tensor that may be there: true, false, or nothing (-1); under which key. */
struct hf_told {
    signed char says;
    char key[64];
};

/* What config.json says beyond keys. */
struct hf_config {
    char arch[64];            /* GGUF's name of the architecture, else model_type */
    const struct arch *table; /* NULL: an architecture that does not run */
    bool tied;
    bool body; /* the class is one without a head */
    struct hf_told bias, out_bias, ffn_bias, ffn_out_bias, qk_norm, in_bias,
        conv_bias, /* of layers with a state */
        choice_bias, /* of experts */ ssm_norm, head_bias;
    uint32_t n_vocab, n_layer;
    uint32_t n_draft;                       /* layers behind the last, which draft tokens */
    int n_head, n_kv_head, head_dim, n_rot; /* of full layers */
    const float *factor;                    /* hf_factors.c; NULL: none */
    int state_part[5];                      /* rows of the parts of a mixer's input: z, x, B, C, the step */
    int n_state_group;                      /* of Mamba's norms */
    int latent[3];                          /* n_nope, n_value and rank of latent attention */
    int delta[4];     /* key heads, value heads, width of a key and of a value; 0: none */
    bool tiled;       /* value heads are to be in turns */
    int n_task, task; /* adapters of tasks beside the matrices; the one that is added to them, -1: none */
    float task_alpha;
    int64_t n_embd, n_expert, n_ff_expert;
    float q_norm; /* weights of q's norm, where those of k's are 1; 0: tensors say them */
    /* [n_rot / 2] in the arena, what frequencies are divided by: of all contexts; of those within the original length, and
     * beyond it. NULL: none. */
    float *rope_divisor, *rope_short, *rope_long;
    int n_divisor;   /* of rope_divisor */
    uint32_t n_ctx;  /* of encoders */
    uint32_t n_pad;  /* rows of positions in front, that stand for padding */
    uint32_t n_type; /* of tokens, of encoders */
    bool mean;       /* which scores the mean of the rows, not the first */
    bool scores;     /* an encoder's head is one that scores */
    int index_dim;   /* width of the key that positions are chosen by; 0: none */
    const int64_t *mult, *rows,
        *first; /* [n_mult], [n_rows], [n_rows]: what runs of tokens are hashed with (struct ngram) */
    size_t n_mult, n_rows;
    struct hf_packing packing; /* of weights that a method has quantised */
};
/* json[n]: config.json. Every key of it is used, known to be harmless (models/keys.def) or refused; of a vocabulary alone
 * only what is used is looked at. quant: hf_quant_config.json, where modelopt's older folders say how weights are quantised; path
 * NULL: there is none. errors: INFER_E_INPUT and INFER_E_UNSUPPORTED name path and key. */
enum infer_status hf_config(struct hf_config *out, struct hf_keys *keys, const char *path, const char *json,
                            size_t n, const struct mapfile *quant, const struct tensorfile_options *options);
/* hf_eagle.c: d2t of a head that drafts, into f->target_id. errors: INFER_E_INPUT, INFER_E_UNSUPPORTED (another type), INFER_E_MEMORY */
enum infer_status hf_target_ids(struct tensorfile *f, const struct tensor *t);
/* hf_ngram.c: numbers that runs of tokens are hashed with are those that config.json comes to. errors: INFER_E_INPUT */
enum infer_status hf_hash_check(const struct hf_config *c, const struct tensor *t, const char *name,
                                const char *path);
/* What it says of the tensors of f is so; second_head: the lm_head.weight of a tied model, NULL: none.
 * errors: INFER_E_INPUT */
enum infer_status hf_config_check(const struct hf_config *c, const struct tensorfile *f,
                                  const struct tensor *second_head);
/* The ids of eos_token_id in both files as tokenizer.infer.stops (the first also as GGUF's eos_token_id where keys have none),
 * and the recommended sampling of generation_config.json as general.sampling.*, as llama.cpp names it. A file whose path is
 * NULL is absent. errors: INFER_E_INPUT names path and key, INFER_E_MEMORY. */
enum infer_status hf_generation(struct hf_keys *keys, const struct mapfile *generation,
                                const struct mapfile *config);
