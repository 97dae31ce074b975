/* Towers of folders by model_type: names of tensors, and what a configuration leaves out. sources: HF configuration_*, modeling_*,
 * image_processing_* of each. */
#include "files/hf/hf_tower_kind.h"
#include "files/model_keys.h"

#include <string.h>

static const struct tower_name gemma4uv[] = {
    {"vision_embedder.patch_ln1.", "v.patch_norm.1.", TOWER_PIXELS},
    {"vision_embedder.patch_dense.weight", "v.patch_embd.weight", TOWER_PIXELS},
    {"vision_embedder.patch_dense.bias", "v.patch_embd.bias", TOWER_SAME},
    {"vision_embedder.patch_ln2.", "v.patch_norm.2.", TOWER_SAME},
    {"vision_embedder.pos_embedding", "v.position_embd.weight", TOWER_TWO_TABLES},
    {"vision_embedder.pos_norm.", "v.patch_norm.3.", TOWER_SAME},
    {"vision_embedder.multimodal_embedder.embedding_projection.", "mm.input_projection.", TOWER_SAME},
    {"embed_vision.patch_ln1.", "v.patch_norm.1.", TOWER_PIXELS},
    {"embed_vision.patch_dense.weight", "v.patch_embd.weight", TOWER_PIXELS},
    {"embed_vision.patch_dense.bias", "v.patch_embd.bias", TOWER_SAME},
    {"embed_vision.patch_ln2.", "v.patch_norm.2.", TOWER_SAME},
    {"embed_vision.pos_embedding", "v.position_embd.weight", TOWER_TWO_TABLES},
    {"embed_vision.pos_norm.", "v.patch_norm.3.", TOWER_SAME},
    {"embed_vision.multimodal_embedder.embedding_projection.", "mm.input_projection.", TOWER_SAME},
    {"embed_vision.embedding_projection.", "mm.input_projection.", TOWER_SAME},
    {0}};
static const struct tower_name gemma4v[] = {
    {"vision_tower.patch_embedder.input_proj.", "v.patch_embd.", TOWER_PIXELS},
    {"vision_tower.patch_embedder.position_embedding_table", "v.position_embd.weight", TOWER_SAME},
    {"vision_tower.std_bias", "v.std_bias", TOWER_SAME},
    {"vision_tower.std_scale", "v.std_scale", TOWER_SAME},
    {"embed_vision.embedding_projection.", "mm.input_projection.", TOWER_SAME},
    {0}};
static const struct tower_name gemma4v_layer[] = {
    {"input_layernorm.", "ln1.", TOWER_SAME},
    {"post_attention_layernorm.", "attn_post_norm.", TOWER_SAME},
    {"pre_feedforward_layernorm.", "ln2.", TOWER_SAME},
    {"post_feedforward_layernorm.", "ffn_post_norm.", TOWER_SAME},
    {0}};
static const struct tower_name qwen3vl[] = {
    {"visual.patch_embed.proj.weight", "v.patch_embd.weight", TOWER_FRAMES},
    {"visual.patch_embed.proj.bias", "v.patch_embd.bias", TOWER_SAME},
    {"visual.pos_embed.", "v.position_embd.", TOWER_SAME},
    {"visual.merger.norm.", "v.post_ln.", TOWER_SAME},
    {"visual.merger.linear_fc1.", "mm.0.", TOWER_SAME},
    {"visual.merger.linear_fc2.", "mm.2.", TOWER_SAME},
    {0}};
static const struct tower_name pixtral[] = {
    {"vision_tower.patch_conv.", "v.patch_embd.", TOWER_SAME},
    {"vision_tower.ln_pre.", "v.pre_ln.", TOWER_SAME},
    {"multi_modal_projector.norm.", "mm.input_norm.", TOWER_SAME},
    {"multi_modal_projector.patch_merger.merging_layer.", "mm.patch_merger.", TOWER_SAME},
    {"multi_modal_projector.linear_1.", "mm.1.", TOWER_SAME},
    {"multi_modal_projector.linear_2.", "mm.2.", TOWER_SAME},
    {0}};
static const struct tower_name gemma3[] = {
    {"vision_tower.vision_model.embeddings.patch_embedding.", "v.patch_embd.", TOWER_SAME},
    {"vision_tower.vision_model.embeddings.position_embedding.", "v.position_embd.", TOWER_SAME},
    {"vision_tower.vision_model.post_layernorm.", "v.post_ln.", TOWER_SAME},
    {"vision_tower.vision_model.head.", "", TOWER_SKIP},
    {"vision_tower.embeddings.patch_embedding.", "v.patch_embd.", TOWER_SAME},
    {"vision_tower.embeddings.position_embedding.", "v.position_embd.", TOWER_SAME},
    {"vision_tower.post_layernorm.", "v.post_ln.", TOWER_SAME},
    {"vision_tower.head.", "", TOWER_SKIP},
    {"multi_modal_projector.mm_input_projection_weight", "mm.input_projection.weight", TOWER_SAME},
    {"multi_modal_projector.mm_soft_emb_norm.", "mm.soft_emb_norm.", TOWER_PLUS_ONE},
    {0}};

static const struct tower_name idefics3[] = {
    {"vision_model.embeddings.patch_embedding.", "v.patch_embd.", TOWER_SAME},
    {"vision_model.embeddings.position_embedding.", "v.position_embd.", TOWER_SAME},
    {"vision_model.post_layernorm.", "v.post_ln.", TOWER_SAME},
    {"connector.modality_projection.proj.", "mm.model.fc.", TOWER_SAME},
    {0}};

#define HALVES .mean = {0.5f, 0.5f, 0.5f}, .std = {0.5f, 0.5f, 0.5f}
#define CLIP_COLORS                                                                                          \
    .mean = {0.48145466f, 0.4578275f, 0.40821073f}, .std = {0.26862954f, 0.26130258f, 0.27577711f}
static const struct tower_kind kinds[] = {
    {.models = "gemma4_unified",
     .projector = "gemma4uv",
     .eps = 1e-6f,
     .std = {1, 1, 1},
     .merge = 3,
     .whole = gemma4uv},
    {.models = "gemma4",
     .projector = "gemma4v",
     .act = "gelu_pytorch_tanh",
     .eps = 1e-6f,
     .std = {1, 1, 1},
     .merge = 3,
     .whole = gemma4v,
     .layer = gemma4v_layer},
    {.models = "qwen3_vl|qwen3_vl_moe|qwen3_5|qwen3_5_moe",
     .projector = "qwen3vl_merger",
     .act = "gelu_pytorch_tanh",
     .eps = 1e-6f,
     HALVES,
     .merge = 2,
     .whole = qwen3vl},
    {.models = "mistral3",
     .projector = "pixtral",
     .act = "silu",
     .eps = 1e-5f,
     CLIP_COLORS,
     .merge = 2,
     .neighbours = true,
     .whole = pixtral},
    {.models = "idefics3|smolvlm",
     .projector = "idefics3",
     .act = "gelu_pytorch_tanh",
     .eps = 1e-6f,
     HALVES,
     .merge = 2,
     .n_ff = 3072,
     .n_layer = 12,
     .whole = idefics3},
    {.models = "gemma3",
     .projector = "gemma3",
     .act = "gelu_pytorch_tanh",
     .eps = 1e-6f,
     HALVES,
     .whole = gemma3},
};

const struct tower_kind *tower_kind_find(const char *model_type) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (key_names(kinds[i].models, model_type, strlen(model_type))) return &kinds[i];
    return NULL;
}
