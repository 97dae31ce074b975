/* EuroBERT: Llama's blocks whose rows see each other.
 * sources: Boizard et al. 2025 (arXiv 2503.05500); HF modeling_eurobert; llama.cpp's table */
#include "models/shared.h"

const struct arch arch_eurobert = {
    .name = "eurobert",
    .families = "EuroBERT 210M, 610M, 2.1B",
    .slot = {[SLOT_TOKEN_EMBD] = SLOT_MUST,
             [SLOT_OUTPUT_NORM] = SLOT_MUST,
             [SLOT_ATTN_OUTPUT] = SLOT_MUST,
             SLOTS_QKV,
             SLOTS_NORMS,
             SLOTS_GATED},
    .norm = NORM_RMS,
    .act = ACT_SILU,
    .rope.kind = ROPE_NEOX,
    .encoder.on = true,
    .keys = KEYS_ENCODER,
    .hf.models = (const struct arch_hf[]){{"eurobert", "EuroBertModel", NULL},
                                          {"eurobert", "EuroBertForMaskedLM", NULL},
                                          {0}},
    .hf.whole = (const struct hf_name[]){{"lm_head.", "", HF_SKIP}, {0}},
};
