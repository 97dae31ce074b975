"""The models whose layers keep a state of fixed size: delta rule, Mamba-2, short convolutions."""
from .dense import row
from .moe import STACKED, moe

DELTA = dict(linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=8, linear_value_head_dim=12, linear_conv_kernel_dim=4,
             num_hidden_layers=4, head_dim=16)
PART = dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)
MROPE = {**PART, "mrope_section": [2, 1, 1], "mrope_interleaved": True}
EXPERTS = dict(num_experts=5, num_experts_per_tok=2, moe_intermediate_size=12, shared_expert_intermediate_size=16)
LFM = dict(norm_eps=0.01, conv_L_cache=3, tie_word_embeddings=True)

STATE = {
    "qwen3_next": moe("Qwen3Next", "delta rule in three of four layers, six value heads on two key heads, gated attention, half of a head "
                      "rotated, experts with a shared one behind a gate; the second layer's feed-forward is dense", zero_centred=True,
                      rope_parameters=PART, mlp_only_layers=[1], norm_topk_prob=True, **DELTA, **EXPERTS),
    "qwen3_5": row("Qwen3_5", "delta rule in three of four layers, its four products apart, dense", config="Qwen3_5TextConfig",
                   zero_centred=True, rope_parameters=MROPE, **DELTA),
    "qwen3_5_moe": moe("Qwen3_5Moe", "the same with experts, always renormalised, heads of 16", config="Qwen3_5MoeTextConfig", zero_centred=True,
                       rope_parameters=MROPE, **{**DELTA, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16}, **EXPERTS),
    "lfm2": row("Lfm2", "short convolutions in two of three layers, tied", num_hidden_layers=3, layer_types=["conv", "full_attention", "conv"],
                block_auto_adjust_ff_dim=False, **LFM),
    "lfm2-bias": row("Lfm2", "with biases, the width of the feed-forward by its rule", num_hidden_layers=3, conv_bias=True,
                     layer_types=["conv", "conv", "full_attention"], block_auto_adjust_ff_dim=True, block_ffn_dim_multiplier=1.3,
                     block_multiple_of=16, **LFM),
    "lfm2_moe": moe("Lfm2Moe", "first layer dense, a bias for the choice, a factor", num_hidden_layers=4, num_dense_layers=1, num_experts=6,
                    num_experts_per_tok=2, moe_intermediate_size=16, routed_scaling_factor=1.7,
                    layer_types=["conv", "full_attention", "conv", "conv"], **LFM),
}

for _row in STATE.values():
    _row["states"] = True
