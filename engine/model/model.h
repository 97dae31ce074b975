/* A model file bound to its architecture: checked hyper-parameters and weights, views into the map.
 *
 * Immutable after model_open; shared between engines and threads. forward.c reads it, nobody writes it. */
#pragma once
#include "arch/arch.h"
#include "files/tensorfile.h"
#include "text/tok/tok.h"

/* Weights of a norm; w NULL: there is none. */
struct norm_weights {
    const float *w, *bias; /* [n]; bias NULL: 0 */
    int n;
    float eps; /* 0: the model's */
};

/* Of a layer with a state: the convolution, and heads, n_head / n_group of which share what has n_state numbers (delta: keys and queries;
 * Mamba: B and C); head_dim: of a head's input and output. */
struct state_sizes {
    int channels, taps, n_group, n_head, n_state, head_dim;
};

/* What reads residual streams: mean_s of sigmoid(up silu(down n / streams))_s n_s, n their norms; and adds to stream s what comes of it, times
 * 2 sigmoid(inject n / streams)_s. inject.n 0: nothing is added. */
struct stream_gates {
    struct norm_weights norm;
    struct weight_group down, up, inject;
};

/* Its parts and the norms around them; a part that a layer has not is all 0. */
struct layer {
    /* In front of attention (2: of attention alone, where ffn_norm or attn_norm is of the feed-forward part) and of the
     * feed-forward part, and of what both add. */
    struct norm_weights attn_norm, attn_norm_2, ffn_norm, post_attn_norm, post_ffn_norm;
    /* Of the residual stream itself, behind what each adds. again: behind the sum of what attention was given and the stream behind it. */
    struct norm_weights attn_sum_norm, attn_again_norm, ffn_sum_norm;
    struct {
        int n_head, n_kv_head, head_dim_k, head_dim_v;
        int window;   /* a row sees the last window positions, itself included; 0: all */
        int store;    /* index of its KV store; -1: none */
        bool borrows; /* which an earlier layer fills: no keys and values of its own */
        bool qk_row;  /* q_norm and k_norm are over the whole row */
        const struct rope *rope, *rope_long;  /* rope_long: of contexts beyond n_ctx_short */
        const float *sinks;                   /* [n_head], NULL: none */
        struct norm_weights q_norm, k_norm;   /* n: head_dim_k for all heads alike, or the whole row */
        struct weight_group qkv, out, q_gate; /* q_gate: of the queries' heads; n 0: none */
        bool partial; /* the result is one rank's part of a sum: here, in dense and in moe */
    } attn;
    /* Latent attention, n_value 0: none. A head's query has n_nope numbers and n_rot rotated ones, from a latent of q_rank numbers (0:
     * from x), its value n_value. The one key head is a latent of attn.head_dim_v numbers and n_rot rotated ones; its value, the
     * latent. */
    struct {
        int n_nope, n_value, q_rank;
        struct norm_weights q_a_norm, kv_a_norm;
        struct weight_group qkv_a, q_b, k_b, v_b; /* k_b, v_b: a matrix for each head */
    } mla;
    /* Attention looks at the positions of a choice, which n_head heads choose by a key of head_dim numbers for each position; n_head
     * 0: the choice of the last layer before that has some. q: of the queries' latent; kw: the key, and a weight for each head, of x. */
    struct {
        int n_head, head_dim, store;
        struct choice by;
        struct norm_weights q_norm, k_norm;
        struct weight_group q, kw;
        int state; /* of the keys before, where a run has the mean of its keys, by mean[head_dim][by.block] and first_rope */
        const float *mean;
        const struct rope *first_rope;
    } index;
    /* Beside the window, entries of runs of `every` positions (every 0: none): of x by weights of channels; twice: over two runs, and
     * then index heads choose some. out_a: of groups of heads. */
    struct {
        int every, store, state, index_state;
        bool twice;
        const struct rope *rope; /* of entries: by the first position of a run */
        const float *bias, *index_bias;
        struct norm_weights norm, index_norm;
        struct weight_group in, index_in, out_a; /* in: of the key and of entries */
    } entry;
    /* By what streams are read, written and mixed around attention, and around the feed-forward part. */
    struct {
        struct weight_group mix;
        const float *scale, *base;
    } hyper[2];
    struct stream_gates gates[2]; /* the same of streams that are read by gates */
    /* The layer adds to the streams, in front of all else, what runs of tokens read of a table: a value times a gate of a key's for each
     * stream, and a convolution of that. taps [n_stream * n_embd][n_tap], n_tap with those of 0 between. */
    struct {
        bool on;
        int state, conv_store, n_tap;
        struct weight_group in; /* keys of all streams, value */
        struct norm_weights key_norm, query_norm, conv_norm;
        const float *taps;
    } ngram;
    struct {
        enum mixer kind;
        /* Layers with a state: stores of the convolution and of the heads. in: what is convolved; gates: the gate, beta,
         * alpha. decay: below 0, times the step */
        struct state_sizes sizes;
        int conv_store, store;
        const float *conv_w, *conv_bias;     /* [channels][taps], [channels]; NULL: 0 */
        const float *dt_bias, *decay, *skip; /* [n_head] */
        struct norm_weights norm;
        struct weight_group in, gates, out;
        struct weight_group decay_up,
            gate_up; /* of what gates makes first: decays of each row, and the gate */
        bool partial;
        /* Of a rank that has a part of a group's heads: their norm is over the heads of all ranks, whose columns begin at
         * gathered[n + 1], in groups of norm_dim. NULL: over its own */
        const int *gathered;
        int norm_dim;
    } mixer;
    struct act_numbers act, act_all; /* of experts; of the part that all rows share, and of a dense one */
    struct {
        int n_ff; /* 0: none */
        struct weight_group gate_up, down;
        bool partial;
    } dense;
    /* Experts; n_expert 0: none, and what follows is not there. Stacks gate and up, and down; the part that all rows share. */
    struct {
        int n_expert, n_used, n_ff, n_ff_shared;
        int first, n_own; /* of a rank that has whole experts: which; n_own 0: all */
        int n_latent;     /* experts read latent_down x and their sum goes through latent_up; 0: none */
        struct router route;
        bool is_told;        /* ids have their experts: */
        const int32_t *told; /* [n_vocab][n_used] */
        /* With the other feed-forward part beside the experts: of what the router and the experts read, and of what both
         * parts add. */
        struct norm_weights router_norm, experts_norm, post_dense_norm, post_experts_norm;
        struct weight_group router, experts, experts_down, shared, shared_down, shared_gate, latent_down,
            latent_up;
        const float *bias; /* [n_embd], added to what they add up to; NULL: none */
        bool partial;
    } moe;
    /* Of the layer's own input e: x += norm(out(act(gate x) * e)). */
    struct {
        struct weight_group gate, out;
        struct norm_weights norm;
    } input;
    /* Of several residual streams: what each layer predicts of all and corrects by what it computes of the first; scale: of the first, n_embd
     * numbers. Beside attention h + norm(laurel_r laurel_l h). */
    struct {
        struct weight_group router, predict, correct, laurel_l, laurel_r;
        struct norm_weights norm, scale, laurel_norm;
    } stream;
    /* Of the gates in front of their activation what is above their mean by so many standard deviations is left; 0: all as it is. below
     * [n_ff]: minus that; mean: a row of 1 / n_ff */
    float sparse;
    const float *below;
    struct weight_group mean;
    float scale; /* of the layer's result; 1: none */
};

/* One of the products that make a vector of the pooled rows, or scores: y = norm(act(W x + bias)), the norm with the model's epsilon. */
struct head_part {
    struct weight w;
    enum act_kind act; /* ACT_SCALE: none */
    struct norm_weights norm;
};
enum { HEAD_PARTS = 4 };

/* What a rank has of a state: of each of n_row rows of `whole` numbers the sections, one behind the other. n_row 0: all of it. */
enum { STATE_SECTIONS = 3 };
/* Which group of the whole model a rank's group of weights is a share of: member i has the columns of that one's product from col[i] on, by
 * its inputs from k on; of stacks the matrices from stack on. */
struct group_share {
    int of, col[WEIGHT_GROUP_MAX], k, stack;
};
struct state_share {
    int n_row, whole, n_section;
    struct {
        int first, n;
    } section[STATE_SECTIONS];
};

/* What a head that drafts for another model reads of it, one behind the other: the residual stream in front of layers at[n], n_layer: behind
 * the last. source: Li et al. 2025 (arXiv 2503.01840) */
enum { MODEL_TAPS = 8 };
struct taps {
    int n, n_embd, at[MODEL_TAPS];
};

struct model {
    struct tensorfile *file;
    struct tok *tok; /* NULL: the file has no vocabulary */
    const struct arch *arch;
    bool borrows; /* file and tok are another model's */
    int n_layer, n_embd, n_vocab, n_ctx_train;
    int n_draft; /* layers of the file behind these, which draft tokens: a model of their own (model_open_draft) */
    int first;      /* number in the file of layer 0 */
    int n_loop;     /* the file's layers are there so often, one after the other; 1: once */
    bool loop_bare; /* x is not normalised in between */
    int n_deepstack; /* numbers of a picture's row behind those in place of an embedding, n_embd each: added behind layers 0 .. */
    enum both_ways both; /* layers whose rows of a picture see each other */
    int n_ctx_most;      /* longer ones are computed in no one way (dynamic scaling of rope); 0: none are */
    int n_ctx_short;     /* contexts of more positions rotate by rope_long; 0: none do */
    enum norm_kind norm;
    float eps;
    float latent_eps;                  /* of norms of latents */
    float attn_scale;                  /* 0: 1 / sqrt(head_dim_k) */
    float embd_scale;                  /* of embeddings */
    float attn_softcap, logit_softcap; /* 0: none */
    float qkv_limit;                   /* q, k and v are between -limit and limit; 0: as they are */
    enum act_kind act;
    float value_scale;    /* of values */
    float residual_scale; /* of what attention and the feed-forward part add */
    float logit_scale;
    float temp_beta; /* struct op_attend */
    int temp_len;
    bool tiled;          /* struct op_delta, and */
    float delta_beta;    /* beta */
    bool qk_unit;        /* rotated q and k are normalised without weights */
    bool parallel;       /* attention and feed-forward part read the same x */
    struct layer *layer; /* layer[n_layer] */
    struct weight embd;  /* [n_vocab][n_embd] */
    /* Of one that drafts, in front of its layer: x = draft_proj [norm(embedding of a token) ; norm(h)], h: what output_norm made of the
     * token before, in the model that it drafts for or in this one. draft_proj.n 0: it does not. */
    struct weight_group draft_proj;
    struct norm_weights draft_embd_norm, draft_hidden_norm;
    /* A head that drafts for another model, target: x = fuse(what it taps of it), or this one's own x of the token before; its layer's attention
     * reads [norm(embedding of a token) ; norm(x)] and is added to x, or fused_norm: to norm(x). target NULL: another model. */
    const struct model *target;
    struct taps taps;
    struct weight_group fuse;
    bool fused_norm;
    int n_ids;                /* ids that its rows may have; 0: n_vocab */
    const int32_t *target_id; /* [n_vocab]: what they are in the target's vocabulary; NULL: the same */
    /* [n_type][n_ctx_train][n_embd], added to embeddings; NULL: none. A row of type i at position p has row i * n_ctx_train + p */
    const float *position;
    int n_type; /* types of tokens, 1: all are alike */
    const float
        *type_embd; /* [n_embd], added to embeddings where there is no table of positions; NULL: none */
    struct norm_weights embd_norm; /* of what the embeddings add up to; w NULL: none */
    bool encoder;                  /* arch.encoder */
    bool no_head;                  /* the head is not in the file, nor is it the embedding */
    enum pooling pooling;          /* POOL_NONE: the file says nothing */
    int n_text;                    /* most tokens of a text as the file has it; 0: n_ctx_train */
    const float *attn_bias;        /* struct op_attend: bias, the same in all layers; NULL: none */
    int n_attn_bias;
    int n_bucket;    /* of distances, which attn_bias is made of; 0: none */
    int n_label;     /* scores that the head gives; 0: it gives a vector */
    int n_head_part; /* of head_part; 0: the pooled rows are the vector */
    struct head_part head_part[HEAD_PARTS];
    /* Inputs of the layers' own, n_layer_input numbers of each: rows of a table [n_vocab][n_layer][n_layer_input] and
     * norm(proj x), x the embedding. n_layer_input 0: none. */
    int n_layer_input;
    struct weight_group input_table, input_proj;
    struct norm_weights input_proj_norm; /* of each layer's numbers apart; n: n_layer_input */
    /* Residual streams (0: one): the embedding, and products of it as large as it is; at the end the mean of the first and of products of the
     * others. mean: a row of 1 / n_embd. source: Baykal et al. 2023 (arXiv 2301.13310) */
    /* Streams that are mixed: n_round of op_balance, 0: they are predicted, as below; in the end one of all, by head. source: Xie et al. 2025
     * (arXiv 2512.24880) */
    struct {
        int n_round, n_group, rank; /* n_group, rank: of an output by groups */
        float eps;
        struct weight_group head;
        const float *scale, *base;
    } hyper;
    /* Streams that are read by gates, stream_low numbers between their matrices; 0: they are not. What runs of tokens read: ngram_table, parts
     * of which are a stack; ngram_sum: a row of 1 / sqrt(n_embd). ngram_layer -1: none. source: HF modeling_qwen4_exp */
    int stream_low, ngram_layer, ngram_taps, n_ngram; /* n_ngram: numbers of a row of the table */
    struct stream_gates head_gates;
    struct ngram ngram;
    struct weight_group ngram_table, ngram_sum;
    int n_stream, laurel_rank;
    struct weight_group stream_in[3], stream_out[3], mean;
    bool rope_given; /* model_give_rope set keys */
    bool whole;      /* one device has all layers: what they read is not the residual stream alone */
    struct norm_weights output_norm;
    struct weight_group head; /* [n_vocab][n_embd]; the embedding's bytes when tied */
    bool tied;
    struct rope index_rope;            /* of what chooses positions */
    struct rope rope[4];               /* of full layers, of windowed ones; the same for long contexts */
    const struct weight_group **group; /* group[n_group], by id */
    int n_group;
    struct kv_store *store; /* store[n_store] */
    int n_store;
    struct state_store *state; /* state[n_state] */
    int n_state;
    int *window; /* window[n_kv_group]: of each KV group, 0: full */
    int n_kv_group;
    uint64_t n_param, n_param_token; /* of all matrices; of those that a token reads */
    /* of weights that a token reads; that all tokens together do */
    uint64_t token_bytes, prompt_bytes, token_flops;
    /* One rank of n; n 0: the whole model. vocab[n + 1]: tokens from which on each rank has the head's rows. key_head[n_store]: the first
     * one of this rank. state[n_state]: which numbers. Layers whose mixer, and whose feed-forward part, every rank computes whole. */
    struct {
        int rank, n, n_attn_whole, n_ff_whole;
        int *vocab, *key_head;
        struct state_share *state;
        struct group_share *group; /* group[n_group] */
    } share;
    struct arena arena;
};

/* vector.c: numbers of a text's vector, or its scores; and these, of its pooled rows[n_embd]: out[model_vector_width].
 * errors: INFER_E_MEMORY */
int model_vector_width(const struct model *m);
enum infer_status model_vector(const struct model *m, const double *pooled, float *out);

/* It guesses tokens by what another model made of those before. */
static inline bool model_drafts(const struct model *m) { return m->draft_proj.n || m->target; }
/* Numbers that a row of it has beside the token's embedding: x of itself, and behind it what it taps. */
static inline int model_given(const struct model *m) { return m->n_embd + m->taps.n * m->taps.n_embd; }
/* Ids that rows may have. */
static inline int model_ids(const struct model *m) { return m->n_ids ? m->n_ids : m->n_vocab; }

/* Numbers of a row that experts read and write, the same in all layers that have some. */
static inline int model_expert_width(const struct model *m) {
    for (int i = 0; i < m->n_layer; i++)
        if (m->layer[i].moe.n_latent) return m->layer[i].moe.n_latent;
    return m->n_embd;
}

/* errors: INFER_E_INPUT (a key or tensor is missing, mis-shaped or out of range: message names it),
 * INFER_E_UNSUPPORTED (architecture, rope scaling or tensor that no code uses), INFER_E_MEMORY, INFER_E_IO */
enum infer_status model_open(struct model **out, const char *path, const struct tensorfile_options *options);
/* The first of the layers behind the last one that draft tokens, as a model of one layer: views into the file and the tokenizer of `of`,
 * which outlives it. source: DeepSeek-AI 2024 (arXiv 2412.19437), section 2.2. errors: as model_open, INFER_E_UNSUPPORTED (it has none) */
enum infer_status model_open_draft(struct model **out, const struct model *of);
/* As model_open; a head that drafts is bound to its target, which outlives it. errors: INFER_E_INPUT (a head of another model) */
enum infer_status model_open_beside(struct model **out, const char *path,
                                    const struct tensorfile_options *options, const struct model *target);
void model_close(struct model *m);
