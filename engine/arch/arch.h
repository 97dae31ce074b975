/* The words that models are written in. A file below models/ is one const struct arch: names, slots, flags; new
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
 * QKV = Q + K + V, ATTN = n_head * n_value or n_head * head_dim_v, Q_LATENT = n_head * (n_nope + n_rot), NOPE_VALUE = n_head *
 * (n_nope + n_value), HEAD_V = head_dim_v, which is the rank of a latent; EMBD_2 = 2 * n_embd, GATE_UP = 2 * n_ff, EXPERT_GATE_UP = 2 * EXPERT_FF, ROT_HALF = n_rot / 2, CTX = positions of the training,
 * STREAMS, STREAMS_2: residual streams, and their square; LAUREL: rank of what is added beside attention;
 * LAYER_INPUT = width of a layer's own input of each token, LAYER_INPUTS = those of all layers;
 * Q_GATED = 2 * Q; of layers with a state: CHANNELS and TAPS of the convolution, STATE_HEADS, STATE_HEADS_2 = 2 * STATE_HEADS, STATE_KEYS: all heads' of keys,
 * STATE_DIM (width of a head's output), INNER = STATE_HEADS * STATE_DIM, STATE_IN: all that a mixer takes of x,
 * STATE_GROUP = INNER / STATE_GROUPS; EXPERT_EMBD: width of what experts read and write; of what chooses positions INDEX_HEADS, INDEX_DIM of each, INDEX_Q of all; of encoders: TYPES of tokens, LABELS that their
 * head scores, BUCKETS of distances; of entries of runs of ENTRY_RUN positions ENTRY numbers of a position (INDEX_ENTRY: of what chooses them); of
 * an output by groups OUT_GROUP: what a group reads, OUT_LOW: what all groups give; of streams that are mixed STREAM_EMBD: all of them, STREAM_MIX: by what, in
 * STREAM_PARTS, and of streams that are read by gates STREAM_LOW: between the two matrices of these; USED: experts of a row; NGRAM: what a row reads
 * of a table by runs of tokens, NGRAM_TAPS: of the convolution behind that. */
enum dim {
    DIM_ONE,
    DIM_VOCAB,
    DIM_EMBD,
    DIM_EMBD_2,
    DIM_Q,
    DIM_K,
    DIM_V,
    DIM_QKV,
    DIM_ATTN,
    DIM_HEAD_K,
    DIM_HEAD_V,
    DIM_Q_LATENT,
    DIM_Q_RANK,
    DIM_NOPE,
    DIM_VALUE,
    DIM_NOPE_VALUE,
    DIM_HEADS,
    DIM_KV_HEADS,
    DIM_CTX,
    DIM_FF,
    DIM_GATE_UP,
    DIM_ROT_HALF,
    DIM_EXPERTS,
    DIM_EXPERT_FF,
    DIM_EXPERT_GATE_UP,
    DIM_SHARED_FF,
    DIM_LAYER_INPUT,
    DIM_LAYER_INPUTS,
    DIM_Q_GATED,
    DIM_CHANNELS,
    DIM_TAPS,
    DIM_STATE_HEADS,
    DIM_STATE_HEADS_2,
    DIM_STREAMS,
    DIM_STREAMS_2,
    DIM_LAUREL,
    DIM_STATE_KEYS,
    DIM_STATE_DIM,
    DIM_INNER,
    DIM_STATE_IN,
    DIM_STATE_GROUPS,
    DIM_STATE_GROUP,
    DIM_EXPERT_EMBD,
    DIM_INDEX_HEADS,
    DIM_INDEX_DIM,
    DIM_INDEX_Q,
    DIM_INDEX_ENTRY,
    DIM_ENTRY,
    DIM_ENTRY_RUN,
    DIM_OUT_LOW,
    DIM_OUT_GROUP,
    DIM_STREAM_MIX,
    DIM_STREAM_EMBD,
    DIM_STREAM_PARTS,
    DIM_STREAM_LOW,
    DIM_NGRAM,
    DIM_NGRAM_TAPS,
    DIM_USED,
    DIM_TYPES,
    DIM_LABELS,
    DIM_BUCKETS,
    DIM_IDS,
    DIM_TAPPED,
    DIM_COUNT
};

/* What mixes positions in a layer. */
enum mixer {
    MIX_ATTENTION,
    MIX_DELTA,
    MIX_CONV, /* a short convolution between two gates */
    MIX_SSM,
    MIX_BOTH, /* attention and MIX_SSM of the same input, added */
    MIX_NONE  /* a feed-forward part alone */
};
/* Which layers have the mixer that is not attention: none; all but each full_attention_interval-th, or as attention.recurrent_layers says;
 * those without keys (attention.head_count_kv 0); all. */
enum mixer_where { MIXER_NOWHERE, MIXER_INTERVAL, MIXER_NO_KEYS, MIXER_ALL };

enum slot_stack { SLOT_ONE, SLOT_EACH_EXPERT, SLOT_EACH_HEAD };
struct slot_info {
    const char *name; /* with %d: once per layer */
    enum dim rows, cols;
    enum slot_stack stack; /* how many matrices */
};
extern const struct slot_info slot_info[SLOT_COUNT];

/* Whether a file of an architecture has a weight; one that it does not have is an error. */
enum slot_use { SLOT_ABSENT, SLOT_MAY, SLOT_MUST };
/* Slots as initialisers of slot[]: what every decoder has; q, k and v apart; the norms in front; a gated feed-forward part. */
#define SLOTS_CORE                                                                                           \
    [SLOT_TOKEN_EMBD] = SLOT_MUST, [SLOT_OUTPUT_NORM] = SLOT_MUST, [SLOT_ATTN_OUTPUT] = SLOT_MUST
#define SLOTS_QKV   [SLOT_ATTN_Q] = SLOT_MUST, [SLOT_ATTN_K] = SLOT_MUST, [SLOT_ATTN_V] = SLOT_MUST
#define SLOTS_NORMS [SLOT_ATTN_NORM] = SLOT_MUST, [SLOT_FFN_NORM] = SLOT_MUST
#define SLOTS_GATED [SLOT_FFN_GATE] = SLOT_MUST, [SLOT_FFN_UP] = SLOT_MUST, [SLOT_FFN_DOWN] = SLOT_MUST
/* Latent attention: queries whole or by a latent of their own; keys and values of the latent apart, or of each head together. */
#define SLOTS_LATENT                                                                                         \
    [SLOT_ATTN_Q_LATENT] = SLOT_MUST, [SLOT_ATTN_Q_A] = SLOT_MUST, [SLOT_ATTN_Q_A_NORM] = SLOT_MUST,         \
    [SLOT_ATTN_Q_B] = SLOT_MUST, [SLOT_ATTN_KV_A] = SLOT_MUST, [SLOT_ATTN_KV_A_NORM] = SLOT_MUST,            \
    [SLOT_ATTN_K_B] = SLOT_MUST, [SLOT_ATTN_V_B] = SLOT_MUST, [SLOT_ATTN_KV_B] = SLOT_MAY
/* What chooses the positions that latent attention looks at. */
#define SLOTS_INDEX                                                                                          \
    [SLOT_INDEX_Q] = SLOT_MUST, [SLOT_INDEX_K] = SLOT_MUST, [SLOT_INDEX_K_NORM] = SLOT_MUST,                 \
    [SLOT_INDEX_K_NORM_BIAS] = SLOT_MUST, [SLOT_INDEX_WEIGHTS] = SLOT_MUST
/* The same of x, q and k apart, without weights of heads. */
#define SLOTS_INDEX_PROJ                                                                                     \
    [SLOT_INDEX_Q_PROJ] = SLOT_MUST, [SLOT_INDEX_K_PROJ] = SLOT_MUST, [SLOT_INDEX_Q_NORM] = SLOT_MUST,       \
    [SLOT_INDEX_K_NORM] = SLOT_MUST
#define KEYS_INDEX "attention.indexer.head_count|attention.indexer.key_length|attention.indexer.top_k"
#define KEYS_INDEX_RUNS                                                                                      \
    KEYS_INDEX "|attention.indexer.block_size|attention.indexer.local_blocks|attention.indexer.layers"
/* Entries of runs of positions, by a key that is the value, too, some of them chosen; streams that are mixed; experts that ids are told. */
#define SLOTS_ENTRIES                                                                                        \
    [SLOT_TOKEN_EMBD] = SLOT_MUST, [SLOT_OUTPUT_NORM] = SLOT_MUST, [SLOT_OUTPUT] = SLOT_MAY,                 \
    [SLOT_ATTN_Q_A] = SLOT_MUST, [SLOT_ATTN_Q_A_NORM] = SLOT_MUST, [SLOT_ATTN_Q_B] = SLOT_MUST,              \
    [SLOT_ATTN_KV] = SLOT_MUST, [SLOT_ATTN_KV_A_NORM] = SLOT_MUST, [SLOT_ATTN_SINKS] = SLOT_MUST,            \
    [SLOT_ATTN_OUTPUT_A] = SLOT_MUST, [SLOT_ATTN_OUTPUT_B] = SLOT_MUST, [SLOT_ENTRY_KV] = SLOT_MUST,         \
    [SLOT_ENTRY_GATE] = SLOT_MUST, [SLOT_ENTRY_BIAS] = SLOT_MUST, [SLOT_ENTRY_NORM] = SLOT_MUST,             \
    [SLOT_INDEX_Q] = SLOT_MUST, [SLOT_INDEX_ENTRY_KV] = SLOT_MUST, [SLOT_INDEX_ENTRY_GATE] = SLOT_MUST,      \
    [SLOT_INDEX_ENTRY_BIAS] = SLOT_MUST, [SLOT_INDEX_ENTRY_NORM] = SLOT_MUST,                                \
    [SLOT_INDEX_WEIGHTS] = SLOT_MUST, [SLOT_HC_ATTN] = SLOT_MUST, [SLOT_HC_ATTN_BASE] = SLOT_MUST,           \
    [SLOT_HC_ATTN_SCALE] = SLOT_MUST, [SLOT_HC_FFN] = SLOT_MUST, [SLOT_HC_FFN_BASE] = SLOT_MUST,             \
    [SLOT_HC_FFN_SCALE] = SLOT_MUST, [SLOT_HC_HEAD] = SLOT_MUST, [SLOT_HC_HEAD_BASE] = SLOT_MUST,            \
    [SLOT_HC_HEAD_SCALE] = SLOT_MUST, [SLOT_FFN_TOLD] = SLOT_MUST
#define KEYS_ENTRIES                                                                                         \
    KEYS_INDEX "|attention.q_lora_rank|attention.compress_ratios|attention.compress_rope_freq_base|"         \
               "attention.output_group_count|attention.output_lora_rank|hyper_connection.count|"             \
               "hyper_connection.sinkhorn_iterations|hyper_connection.epsilon|hash_layer_count|"             \
               "swiglu_limit|swiglu_clamp_exp|swiglu_clamp_shexp"
/* Streams that are read by gates; of each run of positions the mean of its keys; a table that runs of tokens read, in one layer. */
#define SLOTS_GATES                                                                                          \
    [SLOT_GATES_ATTN_NORM] = SLOT_MUST, [SLOT_GATES_ATTN_DOWN] = SLOT_MUST,                                  \
    [SLOT_GATES_ATTN_UP] = SLOT_MUST, [SLOT_GATES_ATTN_INJECT] = SLOT_MUST,                                  \
    [SLOT_GATES_FFN_NORM] = SLOT_MUST, [SLOT_GATES_FFN_DOWN] = SLOT_MUST, [SLOT_GATES_FFN_UP] = SLOT_MUST,   \
    [SLOT_GATES_FFN_INJECT] = SLOT_MUST, [SLOT_GATES_HEAD_NORM] = SLOT_MUST,                                 \
    [SLOT_GATES_HEAD_DOWN] = SLOT_MUST, [SLOT_GATES_HEAD_UP] = SLOT_MUST, SLOTS_INDEX_PROJ,                  \
    [SLOT_NGRAM_KEY] = SLOT_MUST, [SLOT_NGRAM_VALUE] = SLOT_MUST, [SLOT_NGRAM_KEY_NORM] = SLOT_MUST,         \
    [SLOT_NGRAM_QUERY_NORM] = SLOT_MUST, [SLOT_NGRAM_CONV_NORM] = SLOT_MUST, [SLOT_NGRAM_CONV] = SLOT_MUST
#define KEYS_GATES                                                                                           \
    KEYS_INDEX                                                                                               \
    "|attention.compress_ratios|hyper_connection.count|hyper_connection.low_rank|ple.layers|ple.ngram_size|" \
    "ple.heads_per_ngram|ple.conv_kernel|ple.layer_multipliers|ple.head_offsets|ple.head_vocab_sizes|"       \
    "ple.eos_token_id|ple.image_token_id|embedding_length_per_layer_input"
#define HF_KEYS_INDEX "index_n_heads|index_head_dim|index_topk|indexer_rope_interleave"
/* Experts with gates; use: SLOT_MUST. Gate and up may be one tensor. */
#define SLOTS_EXPERTS                                                                                        \
    [SLOT_FFN_ROUTER] = SLOT_MUST, [SLOT_FFN_GATE_UP_EXPS] = SLOT_MAY, [SLOT_FFN_GATE_EXPS] = SLOT_MUST,     \
    [SLOT_FFN_UP_EXPS] = SLOT_MUST, [SLOT_FFN_DOWN_EXPS] = SLOT_MUST
#define SLOTS_SHARED                                                                                         \
    [SLOT_FFN_GATE_SHEXP] = SLOT_MUST, [SLOT_FFN_UP_SHEXP] = SLOT_MUST, [SLOT_FFN_DOWN_SHEXP] = SLOT_MUST
/* Layers behind the last one that draft tokens, as the key nextn_predict_layers counts them. */
#define SLOTS_DRAFT                                                                                          \
    [SLOT_DRAFT_EMBD] = SLOT_MAY, [SLOT_DRAFT_EMBD_NORM] = SLOT_MUST, [SLOT_DRAFT_HIDDEN_NORM] = SLOT_MUST,  \
    [SLOT_DRAFT_PROJ] = SLOT_MUST, [SLOT_DRAFT_NORM] = SLOT_MUST, [SLOT_DRAFT_HEAD] = SLOT_MAY
/* A head that drafts for another model: what fuses what it reads, two norms in front of its layer, whose q, k and v read twice the width. */
#define SLOTS_HEAD                                                                                           \
    [SLOT_HEAD_EMBD] = SLOT_MAY, [SLOT_HEAD_FUSE] = SLOT_MUST, [SLOT_HEAD_EMBD_NORM] = SLOT_MUST,            \
    [SLOT_HEAD_HIDDEN_NORM] = SLOT_MUST, [SLOT_HEAD_Q] = SLOT_MUST, [SLOT_HEAD_K] = SLOT_MUST,               \
    [SLOT_HEAD_V] = SLOT_MUST
/* Keys that all of them have (struct arch: keys). */
#define KEYS_EXPERTS                                                                                         \
    "expert_feed_forward_length|expert_gating_func|expert_weights_norm|"                                     \
    "expert_weights_scale|expert_layers|leading_dense_block_count"
/* Inputs of the layers' own. */
#define SLOTS_LAYER_INPUTS                                                                                   \
    [SLOT_INPUT_TABLE] = SLOT_MUST, [SLOT_INPUT_PROJ] = SLOT_MUST, [SLOT_INPUT_PROJ_NORM] = SLOT_MUST,       \
    [SLOT_INPUT_GATE] = SLOT_MUST, [SLOT_INPUT_OUT] = SLOT_MUST, [SLOT_INPUT_NORM] = SLOT_MUST
/* Several residual streams, and what is of low rank beside attention (Gemma 3n). */
#define SLOTS_STREAMS                                                                                        \
    [SLOT_ALTUP_CORRECT] = SLOT_MUST, [SLOT_ALTUP_SCALE] = SLOT_MUST, [SLOT_ALTUP_PREDICT] = SLOT_MUST,      \
    [SLOT_ALTUP_ROUTER] = SLOT_MUST, [SLOT_ALTUP_NORM] = SLOT_MUST, [SLOT_LAUREL_L] = SLOT_MUST,             \
    [SLOT_LAUREL_R] = SLOT_MUST, [SLOT_LAUREL_NORM] = SLOT_MUST
#define HF_KEYS_EXPERTS "num_experts_per_tok"
#define KEYS_LATENT                                                                                          \
    "attention.kv_lora_rank|attention.q_lora_rank|attention.key_length_mla|attention.value_length_mla|"      \
    "attention.latent_norm_rms_epsilon|rope.scaling.yarn_log_multiplier"
#define HF_KEYS_LATENT "kv_lora_rank|q_lora_rank|qk_nope_head_dim|qk_rope_head_dim|v_head_dim|rope_interleave"
/* The gated delta rule; q, k and v in front of a gate, as one tensor, or as one each. */
#define SLOTS_DELTA [SLOT_STATE_QKV] = SLOT_MUST, [SLOT_STATE_CONV] = SLOT_MUST, SLOTS_DELTA_REST
#define SLOTS_DELTA_APART                                                                                    \
    [SLOT_STATE_Q] = SLOT_MUST, [SLOT_STATE_K] = SLOT_MUST, [SLOT_STATE_V] = SLOT_MUST,                      \
    [SLOT_STATE_CONV_Q] = SLOT_MUST, [SLOT_STATE_CONV_K] = SLOT_MUST, [SLOT_STATE_CONV_V] = SLOT_MUST,       \
    SLOTS_DELTA_REST
/* The same with a decay of each row, by matrices of low rank. */
#define SLOTS_DELTA_ROWS                                                                                     \
    [SLOT_STATE_Q] = SLOT_MUST, [SLOT_STATE_K] = SLOT_MUST, [SLOT_STATE_V] = SLOT_MUST,                      \
    [SLOT_STATE_CONV_Q] = SLOT_MUST, [SLOT_STATE_CONV_K] = SLOT_MUST, [SLOT_STATE_CONV_V] = SLOT_MUST,       \
    [SLOT_STATE_F_A] = SLOT_MUST, [SLOT_STATE_F_B] = SLOT_MUST, [SLOT_STATE_G_A] = SLOT_MUST,                \
    [SLOT_STATE_G_B] = SLOT_MUST, [SLOT_STATE_BETA] = SLOT_MUST, [SLOT_STATE_DT_ROWS] = SLOT_MUST,           \
    [SLOT_SSM_A] = SLOT_MUST, [SLOT_STATE_NORM] = SLOT_MUST, [SLOT_STATE_ATTN_OUT] = SLOT_MUST
#define KEYS_DELTA_ROWS "ssm.conv_kernel|kda.head_dim"
#define SLOTS_DELTA_REST                                                                                     \
    [SLOT_STATE_GATE] = SLOT_MUST, [SLOT_STATE_DT_BIAS] = SLOT_MUST, [SLOT_STATE_DECAY] = SLOT_MUST,         \
    [SLOT_STATE_NORM] = SLOT_MUST, [SLOT_STATE_OUT] = SLOT_MUST
#define KEYS_DELTA                                                                                           \
    "ssm.conv_kernel|ssm.state_size|ssm.group_count|ssm.time_step_rank|ssm.inner_size|ssm.grouped_heads|"    \
    "full_attention_interval|attention.recurrent_layers"
#define HF_KEYS_DELTA                                                                                        \
    "linear_conv_kernel_dim|linear_key_head_dim|linear_value_head_dim|linear_num_key_heads|"                 \
    "linear_num_value_heads|full_attention_interval"
/* Mamba-2; its norm is apart, as some have none. A short convolution. */
#define SLOTS_SSM                                                                                            \
    [SLOT_SSM_IN] = SLOT_MUST, [SLOT_STATE_CONV] = SLOT_MUST, [SLOT_STATE_CONV_BIAS] = SLOT_MAY,             \
    [SLOT_STATE_DT_BIAS] = SLOT_MUST, [SLOT_SSM_A] = SLOT_MUST, [SLOT_SSM_D] = SLOT_MUST,                    \
    [SLOT_STATE_OUT] = SLOT_MUST, [SLOT_SSM_IN_BIAS] = SLOT_MAY, [SLOT_STATE_OUT_BIAS] = SLOT_MAY
#define SLOTS_CONV                                                                                           \
    [SLOT_CONV_IN] = SLOT_MUST, [SLOT_CONV_TAPS] = SLOT_MUST, [SLOT_CONV_OUT] = SLOT_MUST,                   \
    [SLOT_CONV_IN_BIAS] = SLOT_MAY, [SLOT_CONV_TAPS_BIAS] = SLOT_MAY, [SLOT_CONV_OUT_BIAS] = SLOT_MAY
#define KEYS_SSM "ssm.conv_kernel|ssm.state_size|ssm.group_count|ssm.time_step_rank|ssm.inner_size"
/* A dense decoder block. */
#define SLOTS_DENSE SLOTS_CORE, SLOTS_QKV, SLOTS_NORMS, SLOTS_GATED
/* One with LayerNorm and without a gate, but for q, k and v. */
#define SLOTS_PLAIN                                                                                          \
    [SLOT_TOKEN_EMBD] = SLOT_MUST, [SLOT_OUTPUT_NORM] = SLOT_MUST, [SLOT_OUTPUT_NORM_BIAS] = SLOT_MUST,      \
    [SLOT_ATTN_NORM] = SLOT_MUST, [SLOT_ATTN_NORM_BIAS] = SLOT_MUST, [SLOT_ATTN_OUTPUT] = SLOT_MUST,         \
    [SLOT_FFN_UP] = SLOT_MUST, [SLOT_FFN_DOWN] = SLOT_MUST

/* A model of Hugging Face that is of this architecture: model_type, and the class under architectures. A model of text and images
 * has its text part's keys in text_config; inner: its model_type there, which the row stands for. */
struct arch_hf {
    const char *model_type, *class, *inner;
};

/* Names of Hugging Face that differ from the common ones (engine/files/hf/hf_names.c). Both sides are whole, or end with a dot in front
 * of "weight" or "bias"; within layers: what is behind "layers.3." and behind "blk.3.". */
enum hf_op {
    HF_SAME,
    HF_PLUS_ONE,  /* the file has w - 1 */
    HF_TRANSPOSE, /* the file has [k][n] */
    HF_QKV_HEADS, /* each kv head's queries, key and value together; GGUF: all queries, all keys, all values */
    HF_STACK,     /* a vector for each head, "0.weight", "1.weight" ..: rows of one matrix */
    HF_TURNS, /* of gate and up in turns: rows of blocks of MXFP4, columns of floats [expert][k][n], a bias; stands for gate's name */
    HF_HALVES,  /* gate, then up; stands for gate's name */
    HF_UP_GATE, /* up, then gate; stands for up's name */
    HF_COLUMNS, /* of gate, then of up, of floats [expert][k][2 n]; stands for gate's name */
    HF_BLOCKS,  /* "X_blocks" beside "X_scales": MXFP4 */
    HF_LATENT, /* a latent's keys [n_nope], then its values [n_value] of each head; GGUF has them apart; stands for the keys' name */
    HF_PLAIN,  /* as it is, also where norms have w - 1 */
    HF_HEADS_QKVZ, /* of each key head the rows of its query, its key, its value heads and their gates; stands for attn_qkv's name */
    /* Value heads in GGUF's order, where it is another: */
    HF_VALUE_ROWS,    /* rows of a matrix */
    HF_VALUE_TAIL,    /* its rows behind those of queries and keys */
    HF_VALUE_COLUMNS, /* its columns */
    HF_VALUE_DECAYS,  /* a vector, as -exp of it */
    HF_VALUE_TAPS,    /* of a convolution [channels][1][taps] the channels behind those of queries and keys */
    HF_EXPERT,        /* one expert's: "experts.3.", "ffn_gate.3." */
    HF_EXPERT_ROWS,   /* [experts n][k], a matrix of each expert's rows; GGUF: [experts][n][k] */
    HF_EXPERT_TURNED, /* [experts k][n]; GGUF: [experts][n][k] */
    HF_KEY,      /* one number of the layer, which GGUF has in a key of that name, a list of all layers' */
    HF_INDEX_QK, /* queries of the heads that choose positions, then their key; stands for the queries' name */
    HF_TABLE,    /* "3.weight": a part of the table that runs of tokens read; outside of the layers */
    HF_HASH,     /* whole numbers that become keys (hf_ngram.c) */
    HF_SQUEEZE,  /* [n][1][k]; GGUF: [n][k] */
    HF_NEG_EXP,  /* -exp of it, a column */
    HF_COLUMN,   /* [n]; GGUF: [n][1] */
    HF_GROUPS,   /* [n]; GGUF: [groups][n / groups] */
    HF_IDS,      /* whole numbers, not weights */
    HF_POSITIONS, /* rows of positions, without those in front that stand for padding */
    HF_SKIP       /* nothing is computed with it */
};
struct hf_name {
    const char *hf, *gguf;
    enum hf_op op;
};

/* A number that files of a family leave out. */
struct arch_default {
    const char *key; /* of GGUF: behind "ARCH." */
    double value;
};

/* Layers whose q and k are rotated. */
enum rope_where {
    ROPE_ALL,
    ROPE_WINDOWED,       /* those with a window; all, where none has one */
    ROPE_WINDOWED_DENSE, /* those, and those without experts */
    ROPE_TOLD,           /* all, if the key rope.scaling.finetuned is true */
    ROPE_PERIOD_4        /* all but each fourth; or as the key rope.layers says */
};

/* How the rows of a text become one vector, by the numbers of GGUF's pooling_type; RANK: the first row, scored by the head. */
enum pooling { POOL_NONE, POOL_MEAN, POOL_FIRST, POOL_LAST, POOL_RANK, POOL_COUNT };

enum both_ways { BOTH_NOWHERE, BOTH_ALL, BOTH_WINDOWED };

/* Tables end with a row of NULL. */
struct arch {
    const char *name;               /* general.architecture, and the prefix of its keys */
    const char *families;           /* for people: which models use it */
    const char *tried;              /* for people: what was run in its real size; NULL: tiny models alone */
    unsigned char slot[SLOT_COUNT]; /* enum slot_use */
    enum norm_kind norm;
    bool norm_key_rms;     /* files call the epsilon of these LayerNorms that of RMS norms */
    bool norm_either;      /* files with an epsilon of RMS norms alone have those */
    bool drafts;           /* a head for another model, whose layers it reads (struct model: target) */
    bool norm_bare;        /* norms in front of both parts and of the head have no weights, nor biases */
    float norm_behind_eps; /* of the norms behind both parts; 0: that of all */
    enum act_kind act;
    struct {
        enum rope_kind kind;
        enum rope_where where;
        /* Layers with a window rotate by rope.freq_base_swa, without scaling and divisors. */
        bool scaled_full;
        /* Where the file has sections of positions (time, lines, columns): pairs take them in turns, else one after the other. */
        bool axes_in_turns;
        /* What rope.dimension_count says is rotated with a window, and half of it without; rope_freqs has that many divisors, too. */
        bool half_full;
    } rope;
    struct {
        bool parallel; /* the feed-forward part reads the same x; use_parallel_residual may say otherwise */
        bool latent;   /* one latent is key and value of all heads */
        /* one key that is the value, too, and entries of runs of positions beside a window; several streams that are mixed */
        bool entries;
        /* positions are chosen by keys that rotate so; ROPE_NONE: all are looked at */
        enum rope_kind index_rope;
        /* runs of positions are chosen, by means of their keys; streams are read by gates; runs of tokens read a table */
        bool index_means;
        bool index_runs;   /* runs of positions are chosen, by keys that rotate as those of attention */
        bool q_gated;      /* behind each head's query stands its gate: a sigmoid, times the head's output */
        bool v_norm;       /* V is normalised without weights; where it has no matrix it is K as it comes */
        bool qk_norm_late; /* q and k are normalised behind rotation */
        bool qk_unit; /* rotated q and k are normalised without weights, unless attention.qk_norm says no */
        /* Of layers whose windows have a period: the first one of each has none, not the last. */
        bool full_first;
        bool chunked; /* windows begin at multiples of their length */
        /* Queries grow with the position in layers that do not rotate, counted from 1 in steps of
         * attention.temperature_length; else in all, from 0 in steps of the original context. */
        bool temp_unrotated;
        bool gate_softplus;  /* the gates of what heads give are ln(1 + exp(x)), not sigmoids */
        enum both_ways both; /* layers whose rows of a picture see each other */
    } attn;
    struct { /* text becomes vectors: rows see each other, nothing is kept of them, and no token is chosen */
        bool on;
        const char *prefix; /* of the names of layers and of the last norm in GGUF; NULL: none */
        enum act_kind head; /* behind the first matrix of a head that scores (cls) */
        bool alibi;         /* in place of positions scores fall with the distance of two tokens */
    } encoder;
    struct { /* layers of another kind than attention */
        enum mixer kind;
        enum mixer_where where;
        bool alone; /* a layer is a mixer or a feed-forward part (those whose feed_forward_length is not 0) */
        bool tiled; /* delta rule: value head h has key head h % n_key, unless ssm.grouped_heads says no */
        bool sides; /* norms stand in front of the parts of layers with a state, behind those of others */
        float norm_eps;    /* of its norm; 0: that of all */
        bool gate_sigmoid; /* of the delta rule's gate, where others have x sigmoid(x) */
        bool by_row; /* delta rule: rows of a state decay by themselves; decays and gates are of low rank */
    } mixer;
    /* What the keys of a mixture of experts leave out: the scores, and by what the weights of the chosen are divided
     * (unless the key expert_weights_norm says false). */
    struct {
        enum route_act act;
        enum route_norm norm;
        float eps;
        bool group_top2;      /* with sigmoids always */
        bool beside;          /* layers with experts have the other feed-forward part, too */
        bool mean;            /* of the experts' sum and the shared part, not their sum */
        bool weight_on_input; /* of the expert, whose output is added as it is */
    } moe;
    struct {
        bool embd_norm;     /* embeddings are normalised, without weights */
        bool embd_sqrt;     /* embeddings are times sqrt(n_embd) */
        bool logit_divides; /* logits are divided by logit_scale, else times it */
    } scale;
    /* "a|b": keys that are read for this architecture beside those for all (models/keys.def). */
    const char *keys;
    const struct arch_default *defaults;
    struct { /* of Hugging Face's folders */
        const struct arch_hf *models;
        const char *keys; /* as keys, of config.json */
        const struct arch_default *defaults;
        const struct hf_name *layer, *whole;
        /* "a|b": model types whose experts' scores are sigmoids, where others of the table have softmax */
        const char *sigmoid;
        const char
            *full_first; /* "a|b": model types that have a window in all but the first of each four layers */
        const char *rotary; /* the architecture of folders where position_embedding_type is 'rotary' */
        const char *sparse; /* the architecture of folders where some layers are experts alone */
        float rotated;      /* the part of a head that is rotated where no key says it; 0: all */
        bool plus_one;      /* norms have w - 1 */
        bool halves;        /* rows of q and k are in halves where GGUF has neighbours */
        bool tied;          /* the head is the embedding unless tie_word_embeddings says no */
        bool gelu_is_tanh;  /* 'gelu' means the tanh form, as old folders have it */
        /* periods of windows begin behind the first dense layers, which have none */
        bool windows_behind_dense;
        bool window_by_layer;  /* a window only with use_sliding_window, and only in some layers */
        const char *both_ways; /* the architecture of folders where use_bidirectional_attention is true */
    } hf;
};
/* The value of a key that a file leaves out; otherwise fallback. */
double arch_default(const struct arch *a, const char *key, double fallback);
