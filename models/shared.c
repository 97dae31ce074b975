#include "models/shared.h"

const struct hf_name hf_layer_sandwich[] = {
    {"post_attention_layernorm.", "post_attention_norm.", HF_SAME},
    {"pre_feedforward_layernorm.", "ffn_norm.", HF_SAME},
    {"post_feedforward_layernorm.", "post_ffw_norm.", HF_SAME},
    {"layer_scalar", "layer_output_scale.weight", HF_SAME},
    {0},
};
const struct hf_name hf_layer_post_norm[] = {
    {"post_attention_layernorm.", "post_attention_norm.", HF_SAME},
    {"post_feedforward_layernorm.", "post_ffw_norm.", HF_SAME},
    {0},
};
