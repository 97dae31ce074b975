#include "files/hf/hf_names.h"

#include <stdio.h>
#include <string.h>

/* What most families call their tensors; an architecture's own names (arch.h) come first. */
static const struct hf_name whole[] = {{"embed_tokens.weight", "token_embd.weight", HF_SAME},
                                       {"norm.", "output_norm.", HF_SAME},
                                       {"lm_head.", "output.", HF_SAME},
                                       {"dense_2.", "dense_2.", HF_SAME},
                                       {"dense_3.", "dense_3.", HF_SAME},
                                       {0}};
static const struct hf_name part[] = {{"self_attn.q_proj.", "attn_q.", HF_SAME},
                                      {"self_attn.k_proj.", "attn_k.", HF_SAME},
                                      {"self_attn.v_proj.", "attn_v.", HF_SAME},
                                      {"self_attn.o_proj.", "attn_output.", HF_SAME},
                                      {"self_attn.qkv_proj.", "attn_qkv.", HF_SAME},
                                      {"self_attn.q_norm.", "attn_q_norm.", HF_SAME},
                                      {"self_attn.k_norm.", "attn_k_norm.", HF_SAME},
                                      {"self_attn.sinks", "attn_sinks.weight", HF_SAME},
                                      {"mlp.gate_proj.", "ffn_gate.", HF_SAME},
                                      {"mlp.up_proj.", "ffn_up.", HF_SAME},
                                      {"mlp.gate_up_proj.", "ffn_up.", HF_SAME},
                                      {"mlp.down_proj.", "ffn_down.", HF_SAME},
                                      {"input_layernorm.", "attn_norm.", HF_SAME},
                                      {"post_attention_layernorm.", "ffn_norm.", HF_SAME},
                                      {"embed_tokens.", "nextn.embed_tokens.", HF_SAME},
                                      {"enorm.", "nextn.enorm.", HF_SAME},
                                      {"hnorm.", "nextn.hnorm.", HF_SAME},
                                      {"eh_proj.", "nextn.eh_proj.", HF_SAME},
                                      {"shared_head.norm.", "nextn.shared_head_norm.", HF_SAME},
                                      {"shared_head.head.", "nextn.shared_head_head.", HF_SAME},
                                      {0}};
/* The same of experts, behind what the families call the block: "experts.3." stands without the number. */
static const char *const expert_block[] = {"mlp.", "mixer.", "block_sparse_moe.", "feed_forward.", "ffn."};
static const struct hf_name expert_part[] = {
    {"gate.e_score_correction_bias", "exp_probs_b.bias", HF_SAME},
    {"e_score_correction_bias", "exp_probs_b.bias", HF_SAME},
    {"moe_statics.e_score_correction_bias", "exp_probs_b.bias", HF_SAME},
    {"gate.wg.", "ffn_gate_inp.", HF_SAME},
    {"gate.", "ffn_gate_inp.", HF_SAME},
    {"router.layer.", "ffn_gate_inp.", HF_SAME},
    {"router.", "ffn_gate_inp.", HF_SAME},
    {"experts.gate_proj.", "ffn_gate.", HF_EXPERT},
    {"experts.up_proj.", "ffn_up.", HF_EXPERT},
    {"experts.down_proj.", "ffn_down.", HF_EXPERT},
    {"experts.w1.", "ffn_gate.", HF_EXPERT},
    {"experts.w3.", "ffn_up.", HF_EXPERT},
    {"experts.w2.", "ffn_down.", HF_EXPERT},
    {"experts.gate_up_proj", "ffn_gate_up_exps.weight", HF_SAME},
    {"experts.down_proj", "ffn_down_exps.weight", HF_SAME},
    {"input_linear.", "ffn_gate_up_exps.", HF_SAME},
    {"output_linear.", "ffn_down_exps.", HF_SAME},
    {"shared_expert_gate.", "ffn_gate_inp_shexp.", HF_SAME},
    {"shared_expert.gate_proj.", "ffn_gate_shexp.", HF_SAME},
    {"shared_expert.up_proj.", "ffn_up_shexp.", HF_SAME},
    {"shared_expert.down_proj.", "ffn_down_shexp.", HF_SAME},
    {"shared_experts.gate_proj.", "ffn_gate_shexp.", HF_SAME},
    {"shared_experts.up_proj.", "ffn_up_shexp.", HF_SAME},
    {"shared_experts.down_proj.", "ffn_down_shexp.", HF_SAME},
    {"shared_mlp.gate_proj.", "ffn_gate_shexp.", HF_SAME},
    {"shared_mlp.up_proj.", "ffn_up_shexp.", HF_SAME},
    {"shared_mlp.down_proj.", "ffn_down_shexp.", HF_SAME},
    {0}};

/* Where the layers that draft have names of their own, "mtp.layers.0." and these behind "mtp.". */
static const struct hf_name draft[] = {{"fc.", "nextn.eh_proj.", HF_SAME},
                                       {"pre_fc_norm_embedding.", "nextn.enorm.", HF_SAME},
                                       {"pre_fc_norm_hidden.", "nextn.hnorm.", HF_SAME},
                                       {"norm.", "nextn.shared_head_norm.", HF_SAME},
                                       {0}};

/* What training leaves in files and nothing computes with: the constants of rope, counters, positions, masks. */
static bool is_left_over(const char *name) {
    static const char *const ends[] = {"rotary_emb.inv_freq", ".num_batches_tracked",   ".position_ids",
                                       ".attn.bias",          ".attention.masked_bias", ".attn.masked_bias",
                                       ".attention.bias"};
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t m = strlen(ends[i]);
        if (n >= m && strcmp(name + n - m, ends[i]) == 0) return true;
    }
    return false;
}
bool hf_whole_numbers(const char *name) {
    static const char told[] = ".tid2eid";
    const size_t n = strlen(name);
    return (n >= sizeof told && strcmp(name + n - (sizeof told - 1), told) == 0) ||
           strstr(name, ".ple_embedding.ngram_heads_") || strstr(name, ".ple_embedding.layer_multipliers");
}
/* The parts of a model that are for images and sound. */
static bool is_other_sense(const char *name) {
    static const char *const begins[] = {"vision_tower.",
                                         "multi_modal_projector.",
                                         "merger.",
                                         "patch_merge_mlp.",
                                         "mlp1.",
                                         "visual.",
                                         "audio_tower.",
                                         "embed_vision.",
                                         "embed_audio.",
                                         "vision_model.",
                                         "vision_embedder.",
                                         "connector.",
                                         "vpm.",
                                         "resampler.",
                                         "vision_adapter.",
                                         "vision_projection.",
                                         "vit_large_projector."};
    if (strncmp(name, "model.", 6) == 0) name += 6;
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncmp(name, begins[i], strlen(begins[i])) == 0) return true;
    return false;
}

/* The row of a table that name is of, and in *rest what is behind its left side. */
static const struct hf_name *find(const struct hf_name *table, const char *name, const char **rest) {
    for (const struct hf_name *row = table; row && row->hf; row++) {
        size_t n = strlen(row->hf);
        bool open = row->hf[n - 1] == '.';
        if (open ? strncmp(name, row->hf, n) != 0 : strcmp(name, row->hf) != 0) continue;
        *rest = name + n;
        return row;
    }
    return NULL;
}

/* Behind what stands in front of the model's own names. */
static const char *without_prefix(const char *name) {
    static const char *const prefix[] = {"model.language_model.",
                                         "model.text_model.",
                                         "language_model.model.",
                                         "language_model.",
                                         "llm.model.",
                                         "llm.",
                                         "transformer.",
                                         "gpt_neox.",
                                         "backbone.",
                                         "bert.",
                                         "nomic_bert.",
                                         "roberta.",
                                         "model."};
    for (size_t i = 0; i < sizeof prefix / sizeof *prefix; i++)
        if (strncmp(name, prefix[i], strlen(prefix[i])) == 0) return name + strlen(prefix[i]);
    return name;
}

/* The number of the layer, and in *rest what is behind it; -1: outside of the layers. */
static int layer_of(const char *name, const char **rest) {
    static const char middle[] = "midlayer."; /* of heads that draft */
    int layer, used = 0;
    if (strncmp(name, middle, sizeof middle - 1) == 0) {
        *rest = name + sizeof middle - 1;
        return 0;
    }
    if (sscanf(name, "layers.%5d.%n", &layer, &used) != 1 || !used)
        if (sscanf(name, "h.%5d.%n", &layer, &used) != 1 || !used)
            if (sscanf(name, "encoder.layer.%5d.%n", &layer, &used) != 1 || !used)
                if (sscanf(name, "encoder.layers.%5d.%n", &layer, &used) != 1 || !used)
                    if (sscanf(name, "encoder.block.%5d.%n", &layer, &used) != 1) used = 0;
    if (!used || layer < 0) return -1;
    *rest = name + used;
    return layer;
}

/* The row of experts that name is of; the number of a single one in *expert, -1: none. */
static const struct hf_name *find_expert(const char *name, const char **rest, int *expert) {
    char key[320];
    const char *block = NULL;
    int used = 0;
    *expert = -1;
    for (size_t i = 0; i < sizeof expert_block / sizeof *expert_block && !block; i++)
        if (strncmp(name, expert_block[i], strlen(expert_block[i])) == 0)
            block = name + strlen(expert_block[i]);
    if (!block) return NULL;
    if (sscanf(block, "experts.%5d.%n", expert, &used) != 1 || !used || *expert < 0) {
        const struct hf_name *row = find(expert_part, block, rest);
        return row && row->op == HF_EXPERT ? NULL : row;
    }
    snprintf(key, sizeof key, "experts.%s", block + used);
    const struct hf_name *row = find(expert_part, key, rest);
    if (!row || row->op != HF_EXPERT) return NULL;
    *rest = block + used + (*rest - key - strlen("experts."));
    return row;
}

void hf_target(struct hf_target *out, const struct arch *a, const char *name, int n_layer) {
    const bool drafts = strncmp(name, "mtp.", 4) == 0,
               ernie = strncmp(name, "model.mtp_", 10) == 0 ||
                       strncmp(name, "model.mtp.", 10) ==
                           0; /* and MiMo: its layers that draft, which are not read */
    const char *key = drafts ? name + 4 : without_prefix(name), *rest = "";
    static const char shard[] = "shard_";
    int layer = layer_of(key, &key), used = 0, expert = -1;
    const struct hf_name *row = NULL;
    if (drafts && layer < 0) row = find(draft, key, &rest);
    if (drafts) layer = n_layer + (layer < 0 ? 0 : layer);
    *out = (struct hf_target){.layer = layer};
    snprintf(out->name, sizeof out->name, "%s", name);
    if (!row) row = find(!a ? NULL : layer < 0 ? a->hf.whole : a->hf.layer, key, &rest);
    const bool unread = drafts && !(a && a->slot[SLOT_DRAFT_PROJ]);
    out->other = is_other_sense(name);
    out->drafts = unread || ernie;
    if (out->other || out->drafts || (!row && is_left_over(name))) {
        out->name[0] = 0;
        return;
    }
    if (!row) row = find(layer < 0 ? whole : part, key, &rest);
    if (!row && layer >= 0) row = find_expert(key, &rest, &expert);
    if (!row) return;
    out->known = true;
    out->op = row->op;
    if (row->op == HF_SAME && a && a->hf.plus_one && strstr(row->gguf, "norm.")) out->op = HF_PLUS_ONE;
    if (row->op == HF_STACK) {
        out->known = sscanf(rest, "%5d.%n", &out->index, &used) == 1 && used && out->index >= 0;
        rest += used;
    }
    if (row->op == HF_SKIP || (row->op == HF_KEY && layer < 0))
        out->name[0] = 0;
    else if (row->op == HF_TABLE)
        snprintf(out->name, sizeof out->name, "%s%s", row->gguf,
                 strncmp(rest, shard, sizeof shard - 1) == 0 ? rest + sizeof shard - 1 : rest);
    else if (row->op == HF_KEY || row->op == HF_HASH)
        snprintf(out->name, sizeof out->name, "%s", row->gguf), out->index = layer;
    else if (expert >= 0)
        snprintf(out->name, sizeof out->name, "blk.%d.%s%d.%s", layer, row->gguf, expert, rest);
    else if (layer >= 0)
        snprintf(out->name, sizeof out->name, "%sblk.%d.%s%s",
                 a && a->encoder.prefix ? a->encoder.prefix : "", layer, row->gguf, rest);
    else
        snprintf(out->name, sizeof out->name, "%s%s", row->gguf, rest);
}
