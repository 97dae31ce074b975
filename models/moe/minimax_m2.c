/* MiniMax-M2: q and k normalised over whole rows, a part of each head rotated, experts in all layers with sigmoid scores and a bias of
 * the choice. source: HF modeling_minimax_m2. */
#include "models/shared.h"

const struct arch arch_minimax_m2 = {
    .name = "minimax-m2",
    .families = "MiniMax-M2, M2.1, M2.5",
    .slot = {SLOTS_CORE, SLOTS_QKV, SLOTS_NORMS,
             SLOTS_EXPERTS, [SLOT_ATTN_Q_NORM_ROW] = SLOT_MUST, [SLOT_ATTN_K_NORM_ROW] = SLOT_MUST,
             [SLOT_FFN_CHOICE_BIAS] = SLOT_MUST, [SLOT_OUTPUT] = SLOT_MAY},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_NEOX,
    .moe = {.act = ROUTE_SIGMOID, .norm = ROUTE_NORM_ADD},
    .keys = KEYS_EXPERTS,
    .hf.models = (const struct arch_hf[]){{"minimax_m2", "MiniMaxM2ForCausalLM", NULL}, {0}},
    .hf.keys = HF_KEYS_EXPERTS "|num_local_experts|rotary_dim",
};
