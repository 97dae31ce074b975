/* What several tables of models/ have alike. */
#pragma once
#include "arch/arch.h"

/* Biases of q, k and v; use: SLOT_MAY or SLOT_MUST. */
#define SLOTS_QKV_BIAS(use) [SLOT_ATTN_Q_BIAS] = use, [SLOT_ATTN_K_BIAS] = use, [SLOT_ATTN_V_BIAS] = use
/* Biases of all matrices of attention, and of the feed-forward part, as the keys attention_bias and mlp_bias have them. */
#define SLOTS_ATTN_BIAS SLOTS_QKV_BIAS(SLOT_MAY), [SLOT_ATTN_OUTPUT_BIAS] = SLOT_MAY
#define SLOTS_FFN_BIAS                                                                                       \
    [SLOT_FFN_GATE_BIAS] = SLOT_MAY, [SLOT_FFN_UP_BIAS] = SLOT_MAY, [SLOT_FFN_DOWN_BIAS] = SLOT_MAY
#define SLOTS_QK_NORM   [SLOT_ATTN_Q_NORM] = SLOT_MUST, [SLOT_ATTN_K_NORM] = SLOT_MUST
#define SLOTS_POST_NORM [SLOT_POST_ATTN_NORM] = SLOT_MUST, [SLOT_POST_FFN_NORM] = SLOT_MUST

/* LFM2: the norm in front of the head has two names in files. */
#define SLOTS_LFM2                                                                                           \
    [SLOT_TOKEN_EMBD] = SLOT_MUST, [SLOT_OUTPUT_NORM] = SLOT_MAY, [SLOT_OUTPUT_NORM_2] = SLOT_MAY,           \
    [SLOT_ATTN_OUTPUT] = SLOT_MUST, [SLOT_OUTPUT] = SLOT_MAY, SLOTS_QKV, SLOTS_NORMS, SLOTS_QK_NORM,         \
    SLOTS_CONV
/* The tensors of LFM2's layers. */
#define HF_NAMES_LFM2                                                                                        \
    {"operator_norm.", "attn_norm.", HF_SAME}, {"ffn_norm.", "ffn_norm.", HF_SAME},                          \
        {"self_attn.out_proj.", "attn_output.", HF_SAME},                                                    \
        {"self_attn.q_layernorm.", "attn_q_norm.", HF_SAME},                                                 \
        {"self_attn.k_layernorm.", "attn_k_norm.", HF_SAME},                                                 \
        {"conv.in_proj.", "shortconv.in_proj.", HF_SAME},                                                    \
        {"conv.conv.weight", "shortconv.conv.weight", HF_SQUEEZE},                                           \
        {"conv.conv.bias", "shortconv.conv.bias", HF_SAME},                                                  \
        {"conv.out_proj.", "shortconv.out_proj.", HF_SAME}, {"feed_forward.w1.", "ffn_gate.", HF_SAME},      \
        {"feed_forward.w3.", "ffn_up.", HF_SAME}, {"feed_forward.w2.", "ffn_down.", HF_SAME}, {              \
        "feed_forward.expert_bias", "exp_probs_b.bias", HF_SAME                                              \
    }
#define HF_KEYS_LFM2 "norm_eps|conv_L_cache|conv_bias|tie_embedding"

/* Tensors of layers with the gated delta rule. */
#define HF_NAMES_DELTA                                                                                       \
    {"linear_attn.in_proj_qkvz.", "attn_qkv.", HF_HEADS_QKVZ},                                               \
        {"linear_attn.in_proj_ba.", "ssm_ba.", HF_SAME},                                                     \
        {"linear_attn.in_proj_qkv.", "attn_qkv.", HF_VALUE_TAIL},                                            \
        {"linear_attn.in_proj_z.", "attn_gate.", HF_VALUE_ROWS},                                             \
        {"linear_attn.in_proj_b.", "ssm_beta.", HF_VALUE_ROWS},                                              \
        {"linear_attn.in_proj_a.", "ssm_alpha.", HF_VALUE_ROWS},                                             \
        {"linear_attn.conv1d.weight", "ssm_conv1d.weight", HF_VALUE_TAPS},                                   \
        {"linear_attn.dt_bias", "ssm_dt.bias", HF_VALUE_ROWS},                                               \
        {"linear_attn.A_log", "ssm_a", HF_VALUE_DECAYS}, {"linear_attn.norm.", "ssm_norm.", HF_PLAIN}, {     \
        "linear_attn.out_proj.", "ssm_out.", HF_VALUE_COLUMNS                                                \
    }

/* The tensors of a Mamba-2 mixer behind what a family calls it. */
#define HF_NAMES_MAMBA(at)                                                                                   \
    {at "in_proj.", "ssm_in.", HF_SAME}, {at "conv1d.weight", "ssm_conv1d.weight", HF_SQUEEZE},              \
        {at "conv1d.bias", "ssm_conv1d.bias", HF_SAME}, {at "dt_bias", "ssm_dt.bias", HF_SAME},              \
        {at "A_log", "ssm_a", HF_NEG_EXP}, {at "D", "ssm_d", HF_COLUMN},                                     \
        {at "norm.weight", "ssm_norm.weight", HF_GROUPS}, {                                                  \
        at "out_proj.", "ssm_out.", HF_SAME                                                                  \
    }
#define HF_KEYS_MAMBA                                                                                        \
    "mamba_d_conv|mamba_d_state|mamba_n_groups|mamba_n_heads|mamba_d_head|mamba_expand|mamba_conv_bias|"     \
    "mamba_proj_bias|time_step_limit"
#define HF_KEYS_NEMOTRON_H                                                                                   \
    HF_KEYS_EXPERTS                                                                                          \
    "|layer_norm_epsilon|ssm_state_size|mamba_num_heads|mamba_head_dim|n_groups|conv_kernel|expand|"         \
    "time_step_limit|use_bias|use_conv_bias|mlp_hidden_act|hybrid_override_pattern|layers_block_type|"       \
    "n_routed_experts|n_shared_experts|moe_intermediate_size|moe_shared_expert_intermediate_size|"           \
    "moe_latent_size|norm_topk_prob|n_group|topk_group|routed_scaling_factor"

/* Attention by a latent and a mixture of experts with a shared part, as DeepSeek has them. */
#define SLOTS_LATENT_EXPERTS                                                                                 \
    SLOTS_CORE, SLOTS_NORMS, SLOTS_LATENT, SLOTS_GATED, SLOTS_EXPERTS,                                       \
        SLOTS_SHARED, [SLOT_FFN_CHOICE_BIAS] = SLOT_MAY, [SLOT_OUTPUT] = SLOT_MAY
#define KEYS_LATENT_EXPERTS                                                                                  \
    KEYS_EXPERTS "|" KEYS_LATENT "|attention.temperature_scale|attention.temperature_length|"                \
                 "expert_shared_count|expert_group_count|expert_group_used_count"
#define HF_KEYS_LATENT_EXPERTS                                                                               \
    HF_KEYS_EXPERTS                                                                                          \
    "|" HF_KEYS_LATENT                                                                                       \
    "|n_routed_experts|n_shared_experts|moe_intermediate_size|norm_topk_prob|n_group|topk_group|"            \
    "routed_scaling_factor|first_k_dense_replace"

/* Layers with the gated delta rule, and attention whose queries have gates. */
#define SLOTS_DELTA_HYBRID                                                                                   \
    SLOTS_CORE, SLOTS_DELTA, SLOTS_GATED,                                                                    \
        SLOTS_QK_NORM, [SLOT_ATTN_QKV] = SLOT_MAY, [SLOT_ATTN_Q_GATED] = SLOT_MUST,                          \
                       [SLOT_ATTN_K] = SLOT_MUST, [SLOT_ATTN_V] = SLOT_MUST, [SLOT_ATTN_NORM] = SLOT_MUST,   \
                       [SLOT_FFN_NORM_AFTER] = SLOT_MUST, [SLOT_OUTPUT] = SLOT_MAY

/* Encoders: embeddings and a norm behind them, and what may stand behind the pooling. Norms of the residual stream behind each part. */
#define SLOTS_ENCODER                                                                                        \
    [SLOT_TOKEN_EMBD] = SLOT_MUST, [SLOT_TOKEN_TYPES] = SLOT_MAY, [SLOT_EMBD_NORM] = SLOT_MUST,              \
    [SLOT_EMBD_NORM_BIAS] = SLOT_MAY, [SLOT_ATTN_OUTPUT] = SLOT_MUST, [SLOT_CLS] = SLOT_MAY,                 \
    [SLOT_CLS_BIAS] = SLOT_MAY, [SLOT_CLS_NORM] = SLOT_MAY, [SLOT_CLS_OUT] = SLOT_MAY,                       \
    [SLOT_CLS_OUT_BIAS] = SLOT_MAY
#define SLOTS_SUM_NORM                                                                                       \
    [SLOT_ATTN_OUT_NORM] = SLOT_MUST, [SLOT_ATTN_OUT_NORM_BIAS] = SLOT_MUST,                                 \
    [SLOT_LAYER_OUT_NORM] = SLOT_MUST, [SLOT_LAYER_OUT_NORM_BIAS] = SLOT_MUST
#define KEYS_ENCODER "attention.causal|pooling_type|text_length"
#define HF_NAMES_EMBEDDINGS                                                                                  \
    {"embeddings.word_embeddings.weight", "token_embd.weight", HF_SAME},                                     \
        {"embeddings.token_type_embeddings.weight", "token_types.weight", HF_SAME}, {                        \
        "embeddings.LayerNorm.", "token_embd_norm.", HF_SAME                                                 \
    }
#define HF_NAMES_BERT                                                                                        \
    {"attention.self.query.", "attn_q.", HF_SAME}, {"attention.self.key.", "attn_k.", HF_SAME},              \
        {"attention.self.value.", "attn_v.", HF_SAME}, {"attention.output.dense.", "attn_output.", HF_SAME}, \
        {"attention.output.LayerNorm.", "attn_output_norm.", HF_SAME},                                       \
        {"intermediate.dense.", "ffn_up.", HF_SAME}, {"output.dense.", "ffn_down.", HF_SAME}, {              \
        "output.LayerNorm.", "layer_output_norm.", HF_SAME                                                   \
    }
#define HF_KEYS_NOMIC                                                                                        \
    "n_embd|n_layer|n_head|n_positions|n_inner|layer_norm_epsilon|layer_norm_eps|rotary_emb_base|"           \
    "type_vocab_size|summary_activation|summary_first_dropout|summary_proj_to_labels|summary_type|"          \
    "summary_use_proj"
/* Layers of RoBERTa as Jina's code for flash attention calls them. */
#define HF_NAMES_MIXER                                                                                       \
    {"mixer.Wqkv.", "attn_qkv.", HF_SAME}, {"mixer.out_proj.", "attn_output.", HF_SAME},                     \
        {"norm1.", "attn_output_norm.", HF_SAME}, {"norm2.", "layer_output_norm.", HF_SAME},                 \
        {"mlp.fc1.", "ffn_up.", HF_SAME}, {                                                                  \
        "mlp.fc2.", "ffn_down.", HF_SAME                                                                     \
    }
/* Of RoBERTa the first matrix of a head that scores, and the last; of BERT the last. */
#define HF_NAMES_CLASSIFIER                                                                                  \
    {"classifier.dense.", "cls.", HF_SAME}, {"classifier.out_proj.", "cls.output.", HF_SAME},                \
        {"classifier.weight", "cls.output.weight", HF_SAME}, {                                               \
        "classifier.bias", "cls.output.bias", HF_SAME                                                        \
    }

extern const struct hf_name hf_layer_delta[];                      /* layers with the gated delta rule */
extern const struct hf_name hf_layer_sandwich[];                   /* four norms, as Gemma calls them */
extern const struct hf_name hf_layer_latent[];                     /* latent attention */
extern const struct hf_name hf_layer_index[];                      /* with what chooses its positions */
extern const struct hf_name hf_layer_mixer[], hf_whole_backbone[]; /* Mamba-2 and Nemotron-H */
extern const struct hf_name hf_layer_lfm2[], hf_whole_lfm2[];
extern const struct hf_name
    hf_layer_post_norm[]; /* norms behind attention and feed-forward part alone, as OLMo 2 calls them */
