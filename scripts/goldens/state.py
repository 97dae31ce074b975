"""The models whose layers keep a state of fixed size: delta rule, Mamba-2, short convolutions."""
import functools
import json

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from .dense import row, tower
from .moe import FEW, STACKED, moe

DELTA = dict(linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=8, linear_value_head_dim=12, linear_conv_kernel_dim=4,
             num_hidden_layers=4, head_dim=16)
PART = dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)
MROPE = {**PART, "mrope_section": [2, 1, 1], "mrope_interleaved": True}
TURNS = dict(linear_num_key_heads=3, linear_num_value_heads=3, linear_key_head_dim=8, linear_value_head_dim=12, linear_conv_kernel_dim=4,
             num_hidden_layers=4)
KIMI = dict(kv_lora_rank=16, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=20, num_attention_heads=4, num_key_value_heads=4, num_local_experts=6, num_experts_per_tok=2,
            moe_intermediate_size=12, n_shared_experts=2, routed_scaling_factor=1.7, linear_conv_kernel_dim=4)
EXPERTS = dict(num_experts=5, num_experts_per_tok=2, moe_intermediate_size=12, shared_expert_intermediate_size=16)
# six heads of 5 in two groups, seven states
MAMBA = dict(hidden_size=32, num_hidden_layers=2, vocab_size=67, tie_word_embeddings=False, pad_token_id=None, bos_token_id=None,
             eos_token_id=None, layer_norm_epsilon=0.01)
GRANITE = dict(mamba_n_heads=6, mamba_d_head=5, mamba_n_groups=2, mamba_d_state=7, mamba_expand=1, mamba_chunk_size=16, hidden_size=30,
               embedding_multiplier=3.0, residual_multiplier=0.4, attention_multiplier=0.4, logits_scaling=0.3, num_attention_heads=5,
               num_key_value_heads=1, shared_intermediate_size=24, intermediate_size=16, num_hidden_layers=3,
               layer_types=["linear_attention", "full_attention", "linear_attention"])
NEMOTRON = dict(mamba_num_heads=6, mamba_head_dim=5, n_groups=2, ssm_state_size=7, chunk_size=16, head_dim=12, layer_norm_epsilon=0.01,
                intermediate_size=40)
QWEN4 = dict(num_hidden_layers=3, layer_types=["linear_attention", "linear_attention", "indexed_attention"], rope_parameters=MROPE, output_gate_type="sigmoid", hc_count=3, hc_lowrank=10,
             indexer_n_heads=3, indexer_kv_heads=1, indexer_head_dim=12, indexer_budget=24, indexer_compress_ratio=4, ple_layer_ids=[2], ple_embed_dim=24, ngram_size=3, heads_per_ngram=2,
             ngram_vocab_size_base=37, make_ngram_vocab_size_divisible_by=8, split_ngram_parts=4, eos_token_id=5)
LFM = dict(norm_eps=0.01, conv_L_cache=3, tie_word_embeddings=True)

EYE = dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=2, out_hidden_size=32, patch_size=2, num_position_embeddings=4)


def as_published(path):
    """The keys of a text part that published folders have and transformers drops."""
    config = json.loads((path / "config.json").read_text())
    config["text_config"].update(full_attention_interval=2, attn_output_gate=True, mamba_ssm_dtype="float32", mtp_num_hidden_layers=1,
                                 mtp_use_dedicated_embeddings=False)
    (path / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def as_qwen4(path):
    """The keys of published folders."""
    config = json.loads((path / "config.json").read_text())
    text = config["text_config"]
    for k in ("seed", "norm_topk_prob", "number_of_conv_states"):
        del text[k]
    text.update(full_attention_interval=2, mamba_ssm_dtype="float32", mtp_num_hidden_layers=1, mtp_use_dedicated_embeddings=False,
                layer_types=["full_attention" if k == "indexed_attention" else k for k in text["layer_types"]],
                mtp=dict(hybrid=True, layer_types=["full_attention"], num_hidden_layers=1, rope_theta=10000))
    (path / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


FP8 = dict(quant_method="fp8", activation_scheme="dynamic", weight_per_tensor=False, act_per_tensor=False, weight_block_size=[128, 128],
           modules_to_not_convert=["lm_head", "model.language_model.embed_tokens"], modules_to_convert=["ple.ple_embedding.ngram_embedding"])


def to_fp8(w):
    """Codes e4m3, and a scale of three bits, so that BF16 holds what both come to."""
    s = 1.25 * 2.0 ** torch.ceil(torch.log2(w.float().abs().max() / (1.25 * 448)))
    return (w.float() / s).to(torch.float8_e4m3fn), s


def round_qwen4(model):
    """Experts, each by itself, and the table are what FP8 holds: all matrices are smaller than a block."""
    def rounded(w):
        code, s = to_fp8(w)
        w.copy_(code.float() * s)
    for name, p in model.named_parameters():
        if name.endswith("ngram_embedding.weight"):
            rounded(p)
        if name.endswith("experts.gate_up_proj"):
            [rounded(half) for w in p for half in w.chunk(2)]
        if name.endswith("experts.down_proj"):
            [rounded(w) for w in p]


def drafting_qwen4(tensors, text):
    """The layer that drafts as published folders have it beside the others, with one that attends as its pattern; random."""
    n, hc = text["hidden_size"], text["hc_count"]
    last = max(int(k.split(".")[3]) for k in tensors if k.startswith("model.language_model.layers."))
    front = f"model.language_model.layers.{last}."
    out = {"mtp.layers.0." + k[len(front):]: torch.randn(w.shape).bfloat16() for k, w in tensors.items() if k.startswith(front)}
    out.update({"mtp." + k.split("language_model.")[1]: torch.randn(w.shape).bfloat16() for k, w in tensors.items() if ".hyper_connection_mixer." in k})
    out.update({f"mtp.fc_{k}.weight": torch.randn(n, n).bfloat16() for k in ("embedding", "hidden")})
    return {**out, "mtp.pre_fc_norm_embedding.weight": torch.randn(n).bfloat16(), "mtp.pre_fc_norm_hidden.weight": torch.randn(n * hc).bfloat16()}


def as_qwen4_fp8(path):
    """The published folder in FP8: experts with a scale for a block, the table with one for all parts, the layer that drafts. source: vLLM's pull request 53896"""
    as_qwen4(path)
    config = json.loads((path / "config.json").read_text())
    config["quantization_config"] = FP8
    (path / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    with safe_open(path / "model.safetensors", "pt") as f:
        tensors = {k: f.get_tensor(k) for k in f.keys()}
    tensors.update(drafting_qwen4(tensors, config["text_config"]))
    out, parts = {}, [k for k in tensors if ".ngram_embedding.shard_" in k]
    codes, scale = to_fp8(torch.cat([tensors[k] for k in parts]))
    out.update(zip(parts, (c.contiguous() for c in codes.chunk(len(parts)))))
    out[parts[0].split("shard_")[0] + "weight_scale"] = scale.bfloat16().reshape(1)
    for k, w in tensors.items():
        if ".mlp.experts." in k:
            code, s = to_fp8(w)
            assert k.startswith("mtp.") or (code.float() * s == w.float()).all(), k
            out[k], out[k + "_scale_inv"] = code, s.bfloat16().reshape(1, 1)
    save_file({**tensors, **out}, path / "model.safetensors", {"format": "pt"})


def as_olmo(path, names=True):
    """The taps of q, k and v as published: transformers cuts all into three alike. names: of layers with attention, as published."""
    c = json.loads((path / "config.json").read_text())
    with safe_open(path / "model.safetensors", "pt") as f:
        tensors = {k: f.get_tensor(k) for k in f.keys()}
    keys, values = c["linear_num_key_heads"] * c["linear_key_head_dim"], c["linear_num_value_heads"] * c["linear_value_head_dim"]
    for k in [k for k in tensors if k.endswith("q_conv1d.weight")]:
        parts = [k.replace("q_conv1d", f"{x}_conv1d") for x in "qkv"]
        tensors.update(zip(parts, (t.contiguous() for t in torch.cat([tensors[p] for p in parts]).split([keys, keys, values]))))
    for i, kind in enumerate(c["layer_types"]):
        if names and kind == "full_attention":
            tensors[f"model.layers.{i}.post_attention_layernorm.weight"] = tensors.pop(f"model.layers.{i}.feedforward_layer_norm.weight")
    save_file(tensors, path / "model.safetensors", {"format": "pt"})


def as_kimi_linear(path):
    """The keys of published folders, and what these call a dense part."""
    with safe_open(path / "model.safetensors", "pt") as f:
        tensors = {k: f.get_tensor(k) for k in f.keys()}
    dense = [k for k in tensors if k.split("block_sparse_moe.")[-1].startswith(("gate_proj", "up_proj", "down_proj"))]
    tensors.update({k.replace("block_sparse_moe", "mlp"): tensors.pop(k) for k in dense})
    save_file(tensors, path / "model.safetensors", {"format": "pt"})
    c = json.loads((path / "config.json").read_text())
    types = c.pop("layer_types")
    own = {"head_dim": c.pop("linear_head_dim"), "num_heads": c.pop("linear_num_heads"), "short_conv_kernel_size": c.pop("linear_conv_kernel_dim"),
           "full_attn_layers": [i + 1 for i, k in enumerate(types) if k == "full_attention"], "kda_layers": [i + 1 for i, k in enumerate(types) if k != "full_attention"]}
    renamed = {"max_position_embeddings": "model_max_length", "norm_topk_prob": "moe_renormalize", "n_group": "num_expert_group", "num_local_experts": "num_experts",
               "num_experts_per_tok": "num_experts_per_token", "n_shared_experts": "num_shared_experts"}
    c = {renamed.get(k, k): v for k, v in c.items() if k not in ("mlp_layer_types", "qk_head_dim")}
    c.update(linear_attn_config=own, first_k_dense_replace=1, head_dim=8, mla_use_nope=True, moe_layer_freq=1, moe_router_activation_func="sigmoid", use_grouped_topk=True,
             num_nextn_predict_layers=0, rope_scaling=None, rope_theta=10000.0)
    (path / "config.json").write_text(json.dumps(c, indent=2, sort_keys=True) + "\n")


def seeing(stem, about, **text):
    return tower(stem, about, {**FEW, **DELTA, "model_type": f"{stem.lower().replace('moe', '_moe')}_text", "num_hidden_layers": 2, "rope_parameters": MROPE,
                               "layer_types": ["linear_attention", "full_attention"], **text},
                 zero_centred=True, draft="mtp", after=as_published, vision_config=EYE)


STATE = {
    "qwen3_next": moe("Qwen3Next", "delta rule in three of four layers, six value heads on two key heads, gated attention, half of a head "
                      "rotated, experts with a shared one behind a gate; the second layer's feed-forward is dense", zero_centred=True,
                      rope_parameters=PART, mlp_only_layers=[1], norm_topk_prob=True, **DELTA, **EXPERTS),
    "olmo_hybrid": row("OlmoHybrid", "delta rule with steps up to 2 in three of four layers, with norms in front; norms behind where it attends; no rotation",
                       rope_parameters=dict(rope_type="default", rope_theta=None), after=as_olmo, **TURNS),
    "olmo_hybrid-rope": row("OlmoHybrid", "rotation, steps up to 1, biases", attention_bias=True, linear_allow_neg_eigval=False, after=functools.partial(as_olmo, names=False),
                            rope_parameters=dict(rope_type="default", rope_theta=10000.0), **{**TURNS, "num_hidden_layers": 2,
                            "layer_types": ["full_attention", "linear_attention"]}),
    "kimi_linear": moe("KimiLinear", "delta rule whose states' rows decay by themselves in three of four layers, latent attention without rotation, first layer dense, one of two groups of experts; as "
                       "published", seed=2, after=as_kimi_linear, num_hidden_layers=4, linear_head_dim=10, linear_num_heads=4, layer_types=["linear_attention", "linear_attention", "full_attention", "linear_attention"],
                       q_lora_rank=None, n_group=2, topk_group=1, **KIMI),
    "kimi_linear-low": moe("KimiLinear", "queries of low rank, every layer sparse, attention first", num_hidden_layers=2, linear_head_dim=6, linear_num_heads=4, q_lora_rank=24,
                           layer_types=["full_attention", "linear_attention"], mlp_layer_types=["sparse", "sparse"], n_group=1, topk_group=1, **KIMI),
    "qwen3_5": row("Qwen3_5", "delta rule in three of four layers, its four products apart, dense", config="Qwen3_5TextConfig",
                   zero_centred=True, rope_parameters=MROPE, **DELTA),
    "qwen3_5_moe": moe("Qwen3_5Moe", "the same with experts, always renormalised, heads of 16", config="Qwen3_5MoeTextConfig", zero_centred=True,
                       rope_parameters=MROPE, **{**DELTA, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16}, **EXPERTS),
    "qwen3_5-image": seeing("Qwen3_5", "beside a tower for images, with a layer that drafts"),
    "qwen3_5_moe-image": {**seeing("Qwen3_5Moe", "beside a tower for images, with a layer that drafts, stacks of experts, as published", linear_key_head_dim=16,
                                   linear_value_head_dim=16, linear_num_value_heads=4, **EXPERTS), "gap": 0.02, "save": STACKED},
    "qwen4_exp": moe("Qwen4Exp", "delta rule with sigmoid gates in two of three layers, attention to 6 of the runs of 4 positions and what is behind them, three streams that are read by gates, "
                     "rows of a table in four parts by two and three tokens, an end of a text among them", gap=0.003, marks=(24, 28, 101), config="Qwen4ExpTextConfig", zero_centred=True, **{
                         **DELTA, **QWEN4}, **EXPERTS),
    "qwen4_exp-image": {**tower("Qwen4Exp", "as published, beside a tower for images: stacks of experts, 3 of the runs of 5 positions, two streams, runs of up to four tokens in the first layer", {
        **FEW, **DELTA, **QWEN4, **EXPERTS, "model_type": "qwen4_exp_text", "num_hidden_layers": 2, "layer_types": ["linear_attention", "indexed_attention"], "hc_count": 2, "hc_lowrank": 6,
        "indexer_n_heads": 2, "indexer_budget": 15, "indexer_compress_ratio": 5, "ple_layer_ids": [1], "ple_conv_kernel_size": 3, "ple_embed_dim": 15, "ngram_size": 4, "heads_per_ngram": 1,
        "split_ngram_parts": 1, "eos_token_id": [7, 3]}, (15, 19), zero_centred=True, after=as_qwen4, vision_config=EYE), "gap": 0.003, "save": STACKED},
    "qwen4_exp-fp8": {**tower("Qwen4Exp", "qwen4_exp in FP8 with a layer that drafts, as it is published: experts with scales of blocks, a table in four parts with one", {
        **FEW, **DELTA, **QWEN4, **EXPERTS, "model_type": "qwen4_exp_text", "num_hidden_layers": 2, "layer_types": ["linear_attention", "indexed_attention"], "ple_layer_ids": [1]},
        (24, 28, 101), zero_centred=True, prepare=round_qwen4, after=as_qwen4_fp8, vision_config=EYE), "gap": 0.003, "unread": True},
    "mamba2": row("Mamba2", "Mamba-2 in every layer, six heads in two groups", base=MAMBA, num_heads=6, head_dim=10, expand=2, hidden_size=30,
                  n_groups=2, state_size=7, chunk_size=16),
    "mamba2-bias": row("Mamba2", "biases of both products, none of the convolution, tied", base=MAMBA, num_heads=4, head_dim=16, n_groups=1,
                       state_size=8, chunk_size=16, use_bias=True, use_conv_bias=False, tie_word_embeddings=True),
    "granitemoehybrid": moe("GraniteMoeHybrid", "Mamba-2 in two of three layers, no rotation, experts beside a shared one, granite's factors",
                            num_local_experts=5, num_experts_per_tok=2, position_embedding_type="nope", **GRANITE),
    "granitemoehybrid-dense": row("GraniteMoeHybrid", "with rotation, the shared part alone", num_local_experts=0, num_experts_per_tok=0,
                                  position_embedding_type="rope", **GRANITE),
    "bamba": row("Bamba", "Mamba-2 in two of three layers, a dense feed-forward part, half of a head rotated", mamba_n_heads=6, mamba_d_head=6, mamba_n_groups=2, mamba_d_state=7, mamba_expand=1,
                 mamba_chunk_size=16, hidden_size=36, num_attention_heads=3, num_key_value_heads=1, num_hidden_layers=3, attn_layer_indices=[1]),
    "nemotron_h": row("NemotronH", "one mixer a layer: Mamba-2, squared ReLU, attention without rotation", layers_block_type=[
        "linear_attention", "mlp", "linear_attention", "full_attention", "mlp"], **NEMOTRON),
    "nemotron_h-moe": moe("NemotronH", "experts of squared ReLU in a narrower space, groups, a bias for the choice", layers_block_type=[
        "linear_attention", "moe", "full_attention", "moe"], n_routed_experts=6, num_experts_per_tok=2, n_group=2, topk_group=1,
                          moe_intermediate_size=16, moe_shared_expert_intermediate_size=20, moe_latent_size=12, routed_scaling_factor=1.7, **NEMOTRON),
    "falcon_h1": row("FalconH1", "Mamba-2 and attention beside each other in every layer, seven factors", mamba_d_ssm=30, mamba_n_heads=6,
                     mamba_n_groups=2, mamba_d_state=7, mamba_chunk_size=16, mamba_expand=1, mamba_rms_norm=False, lm_head_multiplier=0.7,
                     embedding_multiplier=2.5, mlp_multipliers=[0.8, 0.6], key_multiplier=0.5, attention_out_multiplier=0.9,
                     attention_in_multiplier=1.3, ssm_multipliers=[0.7, 1.2, 0.6, 1.1, 0.8], ssm_in_multiplier=1.4, ssm_out_multiplier=0.75),
    "falcon_h1-norm": row("FalconH1", "a norm behind the gate of Mamba-2", mamba_d_ssm=30, mamba_n_heads=6, mamba_n_groups=2, mamba_d_state=7,
                          mamba_chunk_size=16, mamba_expand=1, mamba_rms_norm=True, mamba_norm_before_gate=False, embedding_multiplier=2.5),
    "lfm2": row("Lfm2", "short convolutions in two of three layers, tied", num_hidden_layers=3, layer_types=["conv", "full_attention", "conv"],
                block_auto_adjust_ff_dim=False, **LFM),
    "lfm2-bias": row("Lfm2", "with biases, the width of the feed-forward by its rule", num_hidden_layers=3, conv_bias=True,
                     layer_types=["conv", "conv", "full_attention"], block_auto_adjust_ff_dim=True, block_ffn_dim_multiplier=1.3,
                     block_multiple_of=16, **LFM),
    "lfm3": row("Lfm3", "short convolutions of seven taps, attention with a gate for each head, a window of 16 in one of two layers with a base of its own, half of the frequencies in the other; norms on both sides", (16,), states=True, num_hidden_layers=4,
                hidden_size=24, head_dim=12, layer_types=["conv", "sliding_attention", "conv", "full_attention"], sliding_window=16, conv_L_cache=7, norm_eps=0.01, tie_word_embeddings=True, rope_parameters=dict(
                    sliding_attention=dict(rope_type="default", rope_theta=500.0), full_attention=dict(rope_type="proportional", rope_theta=100000.0, partial_rotary_factor=0.5))),
    "lfm2_moe": moe("Lfm2Moe", "first layer dense, a bias for the choice, a factor", num_hidden_layers=4, num_dense_layers=1, num_experts=6,
                    num_experts_per_tok=2, moe_intermediate_size=16, routed_scaling_factor=1.7,
                    layer_types=["conv", "full_attention", "conv", "conv"], **LFM),
}

for _row in STATE.values():
    _row["states"] = True  # and a prompt that crosses 128
