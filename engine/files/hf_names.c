#include "files/hf_names.h"

#include <stdio.h>
#include <string.h>

/* What most families call their tensors; an architecture's own names (arch.h) come first. */
static const struct hf_name whole[] = {{"embed_tokens.weight", "token_embd.weight", HF_SAME},
                                       {"norm.", "output_norm.", HF_SAME},
                                       {"lm_head.", "output.", HF_SAME},
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
/* The parts of a model that are for images and sound. */
static bool is_other_sense(const char *name) {
    static const char *const begins[] = {"vision_tower.", "multi_modal_projector.", "visual.",
                                         "audio_tower.",  "embed_vision.",          "embed_audio."};
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
                                         "language_model.model.",
                                         "language_model.",
                                         "transformer.",
                                         "gpt_neox.",
                                         "model."};
    for (size_t i = 0; i < sizeof prefix / sizeof *prefix; i++)
        if (strncmp(name, prefix[i], strlen(prefix[i])) == 0) return name + strlen(prefix[i]);
    return name;
}

/* The number of the layer, and in *rest what is behind it; -1: outside of the layers. */
static int layer_of(const char *name, const char **rest) {
    int layer, used = 0;
    if (sscanf(name, "layers.%5d.%n", &layer, &used) != 1 || !used)
        if (sscanf(name, "h.%5d.%n", &layer, &used) != 1) used = 0;
    if (!used || layer < 0) return -1;
    *rest = name + used;
    return layer;
}

void hf_target(struct hf_target *out, const struct arch *a, const char *name) {
    const char *key = without_prefix(name), *rest = "";
    int layer = layer_of(key, &key), used = 0;
    *out = (struct hf_target){0};
    snprintf(out->name, sizeof out->name, "%s", name);
    const struct hf_name *row = find(!a ? NULL : layer < 0 ? a->hf_whole : a->hf_layer, key, &rest);
    if (is_other_sense(name) || (!row && is_left_over(name))) {
        out->name[0] = 0;
        return;
    }
    if (!row) row = find(layer < 0 ? whole : part, key, &rest);
    if (!row) return;
    out->known = true;
    out->op = row->op;
    if (row->op == HF_SAME && a && a->hf_plus_one && strstr(row->gguf, "norm.")) out->op = HF_PLUS_ONE;
    if (row->op == HF_STACK) {
        out->known = sscanf(rest, "%5d.%n", &out->index, &used) == 1 && used && out->index >= 0;
        rest += used;
    }
    if (row->op == HF_SKIP)
        out->name[0] = 0;
    else if (layer >= 0)
        snprintf(out->name, sizeof out->name, "blk.%d.%s%s", layer, row->gguf, rest);
    else
        snprintf(out->name, sizeof out->name, "%s%s", row->gguf, rest);
}
