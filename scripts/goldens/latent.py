"""The models with latent attention: keys and values are products of one short vector a position."""
import json
import re

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from .dense import YARN
from .moe import STACKED, moe

MLA = dict(kv_lora_rank=16, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=20, num_attention_heads=4, num_key_value_heads=4)
SCALES = {**YARN, "mscale": 1.0, "mscale_all_dim": 0.7}
DEEP = dict(num_hidden_layers=3, n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2, moe_intermediate_size=12,
            first_k_dense_replace=1, n_shared_experts=2, routed_scaling_factor=1.7)
INDEX = dict(index_n_heads=3, index_head_dim=12, index_topk=12, **MLA)

V4 = dict(num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=1, head_dim=32, q_lora_rank=24, partial_rotary_factor=0.25, o_groups=2, o_lora_rank=12,
          layer_types=["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention", "compressed_sparse_attention"],
          compress_rates={"compressed_sparse_attention": 4, "heavily_compressed_attention": 16}, sliding_window=20, index_n_heads=3, index_head_dim=16, index_topk=6,
          mlp_layer_types=["hash_moe", "moe", "moe", "moe"], n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=16, n_shared_experts=1,
          routed_scaling_factor=1.7, swiglu_limit=1.5, hc_mult=4, hc_sinkhorn_iters=20, rope_theta=10000.0, compress_rope_theta=100.0, num_nextn_predict_layers=0,
          rope_parameters={k: v for k, v in YARN.items() if k != "rope_theta"})


def as_v4(path):
    """Names and keys as in the published folders of DeepSeek V4."""
    with safe_open(path / "model.safetensors", "pt") as f:
        tensors = {k: f.get_tensor(k) for k in f.keys()}
    out = {}
    for k, x in tensors.items():
        k = k.removeprefix("model.").replace("embed_tokens", "embed").replace("hc_head.hc_", "hc_head_").replace("attn.norm.", "attn.kv_norm.")
        out[k] = x
    save_file(out, path / "model.safetensors", {"format": "pt"})
    c = json.loads((path / "config.json").read_text())
    ratio = {"sliding_attention": 0, "compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
    types, rope, rates = c.pop("layer_types"), c.pop("rope_parameters")["compress"], c.pop("compress_rates")
    assert rates == {k: v for k, v in ratio.items() if v}
    for k in ("partial_rotary_factor", "mlp_bias", "output_router_logits", "router_aux_loss_coef", "router_jitter_noise", "dtype"):
        c.pop(k, None)
    c.update(compress_ratios=[ratio[t] for t in types] + [0], num_hash_layers=c.pop("mlp_layer_types").count("hash_moe"), torch_dtype="bfloat16", expert_dtype="bf16",
             topk_method="noaux_tc", num_nextn_predict_layers=1, transformers_version="4.57.1",
             rope_scaling={"type": rope["rope_type"], **{k: rope[k] for k in ("factor", "original_max_position_embeddings", "beta_fast", "beta_slow")}})
    (path / "config.json").write_text(json.dumps(c, indent=2, sort_keys=True) + "\n")


FP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def powers(x, most):
    """The least powers of two that x is at most so many times."""
    return 2.0 ** torch.ceil(torch.log2(x.clamp(min=1e-30) / most))


def packed_v4(name, w):
    """What DeepSeek V4's published folders have of a matrix: its bytes, its scales and its values; None: it is as it was."""
    if ".experts." in name:
        g = w.reshape(*w.shape[:-1], -1, 32)
        s = powers(g.abs().amax(-1), 6)
        v = g / s[..., None]
        code = (v.abs()[..., None] - FP4).abs().argmin(-1)
        value = (FP4[code] * v.sign() * s[..., None]).reshape(w.shape)
        code = (code | ((v < 0) << 3)).reshape(*w.shape[:-1], -1, 2).to(torch.uint8)
        return (code[..., 0] | code[..., 1] << 4).view(torch.int8), s, value
    if not re.search(r"\.(wq_a|wq_b|wkv|wo_a|wo_b|shared_experts\.w.|(q_a|q_b|kv|o_a|o_b)_proj|shared_experts\..*_proj)\.weight$", name) or re.search(r"compressor\.(indexer\.)?(kv|gate)_proj|compressor\.w", name):
        return None
    n, k = w.shape
    s = powers(torch.nn.functional.pad(w, (0, -k % 128, 0, -n % 128)).reshape(-(-n // 128), 128, -1, 128).abs().amax((1, 3)), 448)
    full = s.repeat_interleave(128, 0).repeat_interleave(128, 1)[:n, :k]
    q = (w / full).to(torch.float8_e4m3fn)
    return q, s, q.float() * full


def round_v4(model):
    for name, p in model.named_parameters():
        if packed := packed_v4(name, p.detach()):
            p.copy_(packed[2])


def drafting_v4(tensors):
    """The layer that drafts as published folders have it: the last one again, without experts, and what stands around it; nothing reads it."""
    last = max(int(k.split(".")[1]) for k in tensors if k.startswith("layers."))
    front, n = f"layers.{last}.", tensors["norm.weight"].shape[0]
    out = {"mtp.0." + k[len(front):]: w.clone() for k, w in tensors.items() if k.startswith(front) and ".experts." not in k}
    for k in ("e_proj", "h_proj"):
        out[f"mtp.0.{k}.weight"] = torch.zeros(n, n).to(torch.float8_e4m3fn)
        out[f"mtp.0.{k}.scale"] = torch.ones(-(-n // 128), -(-n // 128)).to(torch.float8_e8m0fnu)
    out.update({f"mtp.0.{k}.weight": torch.ones(n).bfloat16() for k in ("enorm", "hnorm", "norm")})
    return {**out, **{"mtp.0." + k: w.clone() for k, w in tensors.items() if k.startswith("hc_head_")}}


def as_v4_packed(path):
    """The published folders themselves: FP8 with scales of blocks, experts as FP4 with scales of 32 columns, all powers of two."""
    as_v4(path)
    out = {}
    with safe_open(path / "model.safetensors", "pt") as f:
        for k in f.keys():
            w = f.get_tensor(k)
            packed = packed_v4(k, w.float()) if w.ndim == 2 and k.endswith(".weight") else None
            if not packed:
                out[k] = w
                continue
            assert (packed[2] == w.float()).all(), k
            out[k], out[k.replace(".weight", ".scale")] = packed[0], packed[1].to(torch.float8_e8m0fnu)
    save_file({**out, **drafting_v4(out)}, path / "model.safetensors", {"format": "pt"})
    c = json.loads((path / "config.json").read_text())
    c.update(expert_dtype="fp4", quantization_config=dict(quant_method="fp8", fmt="e4m3", activation_scheme="dynamic", scale_fmt="ue8m0", weight_block_size=[128, 128]))
    (path / "config.json").write_text(json.dumps(c, indent=2, sort_keys=True) + "\n")


def as_kimi(path):
    """Kimi K2 is deepseek_v3 under its own name, with the keys of its published folders."""
    c = json.loads((path / "config.json").read_text())
    rope = c.pop("rope_parameters")
    theta = rope.pop("rope_theta")
    for k in ("rope_interleave", "head_dim", "qk_head_dim", "dtype", "output_router_logits"):
        c.pop(k, None)
    c.update(model_type="kimi_k2", architectures=["DeepseekV3ForCausalLM"], rope_theta=theta, torch_dtype="bfloat16",
             rope_scaling={"type": rope.pop("rope_type"), **rope}, topk_method="noaux_tc", scoring_func="sigmoid", seq_aux=True, ep_size=1,
             moe_layer_freq=1, aux_loss_alpha=0.001, pretraining_tp=1, num_nextn_predict_layers=0)
    (path / "config.json").write_text(json.dumps(c, indent=2, sort_keys=True) + "\n")


LATENT = {
    "deepseek_v2": moe("DeepseekV2", gap=0.006, about="latent attention, q of low rank, YaRN with both of its factors, two of four groups by their best "
                       "expert, two shared experts, not renormalised", q_lora_rank=24, topk_method="group_limited_greedy",
                       rope_parameters=SCALES, **MLA, **DEEP),
    "deepseek_v2-lite": moe("DeepseekV2", gap=0.006, about="q of full rank, YaRN with equal factors, the best of all experts", q_lora_rank=None,
                            topk_method="greedy", rope_parameters={**YARN, "mscale": 0.7, "mscale_all_dim": 0.7}, **MLA, **{
                                **DEEP, "num_hidden_layers": 2, "n_group": 1, "topk_group": 1, "routed_scaling_factor": 1.0}),
    "deepseek_v3": moe("DeepseekV3", "two of four groups by their two best experts, a bias for the choice, YaRN with both of its factors",
                       q_lora_rank=24, rope_parameters=SCALES, num_mtp_layers=0, **MLA, **{**DEEP, "n_shared_experts": 1}),
    "deepseek_v3-draft": moe("DeepseekV3", seed=1, about="a layer that drafts behind the last one, no groups", draft="nextn", q_lora_rank=None, num_mtp_layers=1,
                             rope_parameters=dict(rope_type="default", rope_theta=10000.0), **MLA, **{
                                 **DEEP, "num_hidden_layers": 2, "n_shared_experts": 1, "n_group": 1, "topk_group": 1}),
    "kimi_k2": moe("DeepseekV3", "deepseek_v3 as Kimi K2 has it: no groups, YaRN that changes at one frequency", after=as_kimi, unread=True,
                   q_lora_rank=24, num_mtp_layers=0, rope_parameters={**YARN, "beta_fast": 1.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0},
                   **MLA, **{**DEEP, "num_hidden_layers": 2, "n_shared_experts": 1, "n_group": 1, "topk_group": 1}),
    "glm4_moe_lite": moe("Glm4MoeLite", seed=4, about="latent attention, one of two groups of three experts, first layer dense", q_lora_rank=24, **MLA,
                         num_hidden_layers=3, n_routed_experts=6, num_experts_per_tok=2, n_group=2, topk_group=1, moe_intermediate_size=16,
                         n_shared_experts=1, routed_scaling_factor=1.8),
    "glm4_moe_lite-stacked": moe("Glm4MoeLite", seed=3, about="one tensor for all experts, no groups", save=STACKED, q_lora_rank=24, **MLA,
                                 num_hidden_layers=2, n_routed_experts=6, num_experts_per_tok=2, n_group=1, topk_group=1,
                                 moe_intermediate_size=16, n_shared_experts=1, routed_scaling_factor=1.8),
    "glm_moe_dsa": moe("GlmMoeDsa", gap=0.004, about="latent attention to the 12 positions that three heads choose, the third layer takes the choice of the "
                       "second; first layer dense", marks=(12, 13), q_lora_rank=24, indexer_types=["full", "full", "shared", "full"], **INDEX, **{
                           **DEEP, "num_hidden_layers": 4, "n_shared_experts": 1, "n_group": 1, "topk_group": 1}),
    "deepseek_v32": moe("DeepseekV32", seed=1, gap=0.004, about="70 positions, chosen by keys that rotate in halves, YaRN with both of its factors, two of four groups "
                        "by their two best experts", marks=(70, 72), q_lora_rank=24, rope_parameters=SCALES, **{**INDEX, "index_topk": 70}, **{
                            **DEEP, "num_hidden_layers": 2, "n_shared_experts": 1}),
    "deepseek_v4": moe("DeepseekV4", gap=0.002, about="a window of 20 beside entries of 4 positions, of which three heads choose 6, and of 16, all of them; four streams "
                       "that are mixed; experts of the first layer by tokens, limits of gates at work; two bases, YaRN in one", marks=(16, 20, 24, 48), states=True, **V4),
    "deepseek_v4-published": moe("DeepseekV4", gap=0.002, about="deepseek_v4 with names and keys of its published folders, entries of 4 positions, of which 9 are chosen, and "
                                 "one of 128", marks=(36, 128), states=True, after=as_v4, **{
                                     **V4, "num_hidden_layers": 2, "layer_types": ["compressed_sparse_attention", "heavily_compressed_attention"],
                                     "mlp_layer_types": ["moe", "hash_moe"][::-1], "compress_rates": None, "index_topk": 9, "sliding_window": 33}),
    "deepseek_v4-packed": moe("DeepseekV4", gap=0.002, about="deepseek_v4-published in FP8, with experts in FP4 and a layer that drafts, as it is published", marks=(36, 128), states=True, prepare=round_v4,
                              after=as_v4_packed, unread=True, **{
                                  **V4, "num_hidden_layers": 2, "layer_types": ["compressed_sparse_attention", "heavily_compressed_attention"], "mlp_layer_types": ["hash_moe", "moe"],
                                  "compress_rates": None, "index_topk": 9, "sliding_window": 33, "hidden_size": 128, "intermediate_size": 32, "moe_intermediate_size": 32}),
    "mistral4": moe("Mistral4", gap=0.006, about="latent attention, queries that grow at 32, 64 and 96, YaRN, softmax over all, two of four groups by their two "
                    "best experts", marks=(32, 96), q_lora_rank=24, rope_parameters={
                        **YARN, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.3}, **MLA, **{
                        **DEEP, "n_shared_experts": 1, "first_k_dense_replace": 0, "num_hidden_layers": 2}),
}
