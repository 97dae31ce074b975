"""The models with experts: one row each. Prompts are drawn so that no router's choice is close."""
import json

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file

from .dense import GEMMA, LLAMA3, SMALL, YARN, keyed, layers, row, tower
from . import mxfp4

FEW = {**SMALL, "num_hidden_layers": 2, "intermediate_size": 40, "vocab_size": 61}
STACKED = dict(save_original_format=False)


def moe(stem, about, marks=(), gap=0.02, base=FEW, **options):
    return row(stem, about, marks, gap=gap, base=base, **options)


def as_published(path):
    """Stacks of experts as [expert][input][output], which transformers writes the other way since it reads both."""
    with safe_open(path / "model.safetensors", "pt") as f:
        tensors = {k: f.get_tensor(k) for k in f.keys()}
        about = f.metadata()
    for k, x in tensors.items():
        if ".experts." in k and x.shape[1 if k.endswith("gate_up_proj") else 2] != 32:
            tensors[k] = x.transpose(1, 2).contiguous()
    save_file(tensors, path / "model.safetensors", about)


def as_llama4(path):
    """config.json as published: what follows from other keys is left out, and an empty list stands for every fourth layer."""
    config = json.loads((path / "config.json").read_text())
    text = config["text_config"]
    for key in ("moe_layers", "layer_types", "no_rope_layer_interval"):
        del text[key]
    text.update(no_rope_layers=[], for_llm_compressor=False)
    (path / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


LING = {"self_attn.o_proj": "attention.dense", "self_attn.q_norm": "attention.query_layernorm", "self_attn.k_norm": "attention.key_layernorm",
        "model.embed_tokens": "model.word_embeddings", "e_score_correction_bias": "expert_bias"}


def as_ling(path):
    """Ling 2 computes what GLM 4 does; transformers has no class of its own for it. Names and keys as in its published folders."""
    with safe_open(path / "model.safetensors", "pt") as f:
        tensors, out = {k: f.get_tensor(k) for k in f.keys()}, {}
    for k, x in tensors.items():
        if "q_proj" in k:
            x = torch.cat([x, tensors[k.replace("q_proj", "k_proj")], tensors[k.replace("q_proj", "v_proj")]])
            k = k.replace("self_attn.q_proj", "attention.query_key_value")
        for old, new in LING.items():
            k = k.replace(old, new)
        if "k_proj" not in k and "v_proj" not in k:
            out[k] = x
    save_file(out, path / "model.safetensors", {"format": "pt"})
    c = json.loads((path / "config.json").read_text())
    same = ("hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads hidden_act rms_norm_eps head_dim dtype "
            "tie_word_embeddings max_position_embeddings vocab_size num_experts_per_tok n_group topk_group moe_intermediate_size "
            "first_k_dense_replace routed_scaling_factor norm_topk_prob")
    (path / "config.json").write_text(json.dumps({
        "architectures": ["BailingMoeV2ForCausalLM"], "model_type": "bailing_moe", "attention_dropout": 0.0, "embedding_dropout": 0.0,
        "output_dropout": 0.0, "initializer_range": 0.02, "num_experts": c["n_routed_experts"], "num_shared_experts": c["n_shared_experts"],
        "rope_theta": c["rope_parameters"]["rope_theta"], "partial_rotary_factor": c["rope_parameters"]["partial_rotary_factor"],
        "rope_scaling": None, "use_bias": False, "use_qkv_bias": False, "use_qk_norm": True, "use_rmsnorm": True, "use_cache": True,
        "score_function": "sigmoid", "moe_router_enable_expert_bias": True, "num_nextn_predict_layers": 0, "max_window_layers": 28,
        "router_dtype": "fp32", "output_router_logits": False, **{k: c[k] for k in same.split()}}, indent=2, sort_keys=True) + "\n")


def open_choice(model):
    """Biases in front of routers so small that each expert is chosen somewhere."""
    for name, p in model.named_parameters():
        if name.endswith("post_attention_layernorm.bias"):
            p.copy_((0.1 * p).bfloat16().float())


def as_ling_1(path):
    """Ling 1 computes what Granite with a shared expert does whose factors are 1; transformers has no class of its own for it. Names and keys as in its published folders."""
    with safe_open(path / "model.safetensors", "pt") as f:
        tensors, out = {k: f.get_tensor(k) for k in f.keys()}, {}
    for k, x in tensors.items():
        at = k.rsplit(".", 2)[0].replace("block_sparse_moe", "mlp").replace("shared_mlp", "mlp.shared_experts")
        if "q_proj" in k:
            out[k.replace("self_attn.q_proj", "attention.query_key_value")] = torch.cat([x, tensors[k.replace("q_proj", "k_proj")], tensors[k.replace("q_proj", "v_proj")]])
        elif "o_proj" in k:
            out[k.replace("self_attn.o_proj", "attention.dense")] = x
        elif "router.layer" in k:
            out[k.replace("block_sparse_moe.router.layer", "mlp.gate")] = x
        elif "input_linear" in k and x.ndim == 2:
            out[f"{at}.gate_proj.weight"], out[f"{at}.up_proj.weight"] = (y.contiguous() for y in x.chunk(2))
        elif "output_linear" in k and x.ndim == 2:
            out[f"{at}.down_proj.weight"] = x
        elif "_linear" in k:
            for e, y in enumerate(x):
                for name, z in zip(("gate_proj", "up_proj"), y.chunk(2)) if "input" in k else [("down_proj", y)]:
                    out[f"{at}.experts.{e}.{name}.weight"] = z.contiguous()
        elif "k_proj" not in k and "v_proj" not in k:
            out[k.replace("embed_tokens", "word_embeddings")] = x
    save_file(out, path / "model.safetensors", {"format": "pt"})
    c = json.loads((path / "config.json").read_text())
    same = "hidden_size num_hidden_layers num_attention_heads num_key_value_heads hidden_act rms_norm_eps tie_word_embeddings max_position_embeddings vocab_size num_experts_per_tok"
    (path / "config.json").write_text(json.dumps({
        "architectures": ["BailingMoeForCausalLM"], "model_type": "bailing_moe", "attention_dropout": 0.0, "embedding_dropout": 0.0, "output_dropout": 0.0,
        "initializer_range": 0.02, "intermediate_size": 2 * c["intermediate_size"], "moe_intermediate_size": c["intermediate_size"], "num_experts": c["num_local_experts"], "num_shared_experts": 2,
        "first_k_dense_replace": 0, "norm_head": False, "norm_softmax": False, "norm_topk_prob": True, "output_router_logits": False, "rope_scaling": None, "rope_theta": c["rope_parameters"]["rope_theta"],
        "use_bias": False, "use_cache": True, "use_qkv_bias": False, "max_window_layers": 28, **{k: c[k] for k in same.split()}}, indent=2, sort_keys=True) + "\n")


class GatedPart(torch.nn.Module):
    def __init__(self, n, ff):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = (torch.nn.Linear(*s, bias=False) for s in ((n, ff), (n, ff), (ff, n)))

    def forward(self, x):
        return self.down_proj(torch.nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class DeepseekMoE(torch.nn.Module):
    """Weights as the softmax over all has them, or over the sum of the chosen; what all rows share is added."""
    def __init__(self, c):
        super().__init__()
        n, ff = c.hidden_size, c.moe_intermediate_size
        self.gate, self.k, self.norm = torch.nn.Linear(n, c.n_routed_experts, bias=False), c.num_experts_per_tok, c.norm_topk_prob
        self.experts = torch.nn.ModuleList(GatedPart(n, ff) for _ in range(c.n_routed_experts))
        self.shared_experts = GatedPart(n, ff * c.n_shared_experts)

    def forward(self, x):
        w, ids = torch.topk(torch.softmax(self.gate(x), -1), self.k, dim=-1)
        w = w / w.sum(-1, keepdim=True) if self.norm else w
        each = torch.stack([e(x) for e in self.experts], -2)
        return (w[..., None] * each.gather(-2, ids[..., None].expand(*ids.shape, x.shape[-1]))).sum(-2) + self.shared_experts(x)


class DeepseekForCausalLM(transformers.LlamaForCausalLM):
    """DeepSeekMoE: a Llama with experts behind the first layers; transformers has no class of its own for it. source: modeling_deepseek of its folders"""
    def __init__(self, config):
        super().__init__(config)
        for layer in self.model.layers[config.first_k_dense_replace:]:
            layer.mlp = DeepseekMoE(config)


def deepseek(about, norm):
    own = dict(n_routed_experts=5, n_shared_experts=2, num_experts_per_tok=2, moe_intermediate_size=12, norm_topk_prob=norm, first_k_dense_replace=1, moe_layer_freq=1,
               scoring_func="softmax")
    of = moe("Llama", about, unread=True, after=keyed(architectures=["DeepseekForCausalLM"], model_type="deepseek", aux_loss_alpha=0.001, seq_aux=True), **{**FEW, "num_hidden_layers": 3}, **own)
    return {**of, "model": DeepseekForCausalLM}


def as_step35(path):
    """Step 3.5's text alone, with the keys of its published folders: lists by layer where transformers has kinds of layers."""
    with safe_open(path / "model.safetensors", "pt") as f:
        tensors = {k: f.get_tensor(k) for k in f.keys() if "vi" not in k.split(".")[0]}
    save_file(tensors, path / "model.safetensors", {"format": "pt"})
    c = json.loads((path / "config.json").read_text())["text_config"]
    rope, types = c["rope_parameters"], c["layer_types"]
    scaling = {k: v for k, v in rope["full_attention"].items() if k not in ("rope_theta", "partial_rotary_factor")}
    same = ("hidden_size intermediate_size num_hidden_layers num_attention_heads head_dim rms_norm_eps max_position_embeddings vocab_size "
            "moe_intermediate_size share_expert_dim sliding_window moe_router_scaling_factor tie_word_embeddings")
    (path / "config.json").write_text(json.dumps({
        "architectures": ["Step3p5ForCausalLM"], "model_type": "step3p5", "att_impl_type": "GQA", "max_seq_len": 256, "need_fp32_gate": True,
        "num_attention_groups": c["num_key_value_heads"], "moe_num_experts": c["n_routed_experts"], "moe_top_k": c["num_experts_per_tok"],
        "moe_layers_enum": ",".join(str(i) for i, k in enumerate(c["mlp_layer_types"]) if k == "sparse"), "use_moe": True,
        "moe_router_activation": "sigmoid", "norm_expert_weight": True, "use_moe_router_bias": True, "use_qk_norm": True,
        "use_head_wise_attn_gate": True, "zero_centered": True, "sink": False, "use_rope_layers": [], "moe_every_n_layer": 1,
        "torch_dtype": "bfloat16", "num_nextn_predict_layers": 1, "layer_types": types + ["sliding_attention"],
        "rope_theta": [rope[k]["rope_theta"] for k in types] + [rope["sliding_attention"]["rope_theta"]],
        "partial_rotary_factors": [rope[k]["partial_rotary_factor"] for k in types] + [1.0],
        "rope_scaling": scaling, "yarn_only_types": ["full_attention"],
        "swiglu_limits": [v or 0.0 for v in c["swiglu_limits"]], "swiglu_limits_shared": [v or 0.0 for v in c["swiglu_limits_shared"]] + [0.0],
        "attention_other_setting": {"attention_type": "sliding_attention", "num_attention_heads": c["num_sliding_attention_heads"],
                                    "num_attention_groups": c["num_key_value_heads"], "head_dim": c["head_dim"]},
        **{k: c[k] for k in same.split()}}, indent=2, sort_keys=True) + "\n")


def as_minimax_m3(path):
    """config.json as published: what chooses positions in an object of its own, kinds of layers as flags."""
    config = json.loads((path / "config.json").read_text())
    text = config["text_config"]
    freq = [int(k == "minimax_m3_sparse") for k in text.pop("layer_types")]
    text.update(model_type="minimax_m3", architectures=["MiniMaxM3SparseForCausalLM"], hidden_act="swigluoai", moe_layer_freq=[int(k == "sparse") for k in text.pop("mlp_layer_types")], n_shared_experts=1, scoring_func="sigmoid",
                use_routing_bias=True, use_gemma_norm=True, attention_output_gate=False, use_qk_norm=True, qk_norm_type="per_head", num_mtp_modules=0, partial_rotary_factor=0.5, rope_theta=text.pop("rope_parameters")["rope_theta"],
                sparse_attention_config=dict(use_sparse_attention=True, sparse_num_index_heads=text.pop("index_n_heads"), sparse_index_dim=text.pop("index_head_dim"), sparse_topk_blocks=text.pop("index_topk_blocks"),
                                             sparse_block_size=text.pop("index_block_size"), sparse_local_block=text.pop("index_local_blocks"), sparse_init_block=0, sparse_score_type="max", sparse_disable_index_value=freq, sparse_attention_freq=freq))
    (path / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


STEP = dict(model_type="step3p5", hidden_size=24, intermediate_size=32, num_hidden_layers=4, num_attention_heads=4, num_sliding_attention_heads=6,
            num_key_value_heads=2, head_dim=12, vocab_size=61, max_position_embeddings=256, tie_word_embeddings=False, rms_norm_eps=0.01,
            pad_token_id=1, bos_token_id=None, eos_token_id=None, sliding_window=16, layer_types=layers(0, 1, 1, 0),
            mlp_layer_types=["dense", "sparse", "sparse", "sparse"], n_routed_experts=5, num_experts_per_tok=2, moe_intermediate_size=12,
            share_expert_dim=16, moe_router_scaling_factor=1.7, swiglu_limits=[None, None, 0.4, 0.7], swiglu_limits_shared=[0.5, None, 0.3, None],
            rope_parameters=dict(full_attention=dict(LLAMA3, rope_theta=100.0, partial_rotary_factor=0.5),
                                 sliding_attention=dict(rope_type="default", rope_theta=500.0, partial_rotary_factor=1.0)))
STEP_EYE = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4, mlp_ratio=1.0)


MINIMAX = {**FEW, **dict(num_hidden_layers=3, hidden_size=24, head_dim=12, intermediate_size=16, dense_intermediate_size=32, shared_intermediate_size=20, num_local_experts=5, num_experts_per_tok=2,
                         rotary_dim=6, swiglu_limit=0.9, swiglu_alpha=1.3, mlp_layer_types=["dense", "sparse", "sparse"], layer_types=["full_attention", "minimax_m3_sparse", "minimax_m3_sparse"], index_n_heads=2, index_head_dim=10,
                         index_block_size=8, index_topk_blocks=3, index_local_blocks=1, rope_parameters=dict(rope_type="default", rope_theta=100.0, partial_rotary_factor=0.5))}

QWEN3 = dict(num_hidden_layers=3, head_dim=12, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=20, norm_topk_prob=True,
             mlp_only_layers=[1])
MIXTRAL = dict(num_local_experts=5, num_experts_per_tok=2, intermediate_size=24)
GLM = dict(num_hidden_layers=3, n_routed_experts=6, num_experts_per_tok=2, n_group=2, topk_group=1, moe_intermediate_size=20,
           first_k_dense_replace=1, n_shared_experts=1, routed_scaling_factor=1.7, norm_topk_prob=True)
GPT_OSS = dict(num_hidden_layers=2, num_local_experts=5, num_experts_per_tok=2, intermediate_size=24, head_dim=16,
               sliding_window=8, swiglu_limit=0.5, rope_parameters={**YARN, "truncate": False}, num_attention_heads=4, num_key_value_heads=2)
GRANITE = dict(num_local_experts=5, num_experts_per_tok=2, intermediate_size=20, embedding_multiplier=3.0, residual_multiplier=0.4,
               attention_multiplier=0.4, logits_scaling=0.3)

MOE = {
    "qwen3_moe": moe("Qwen3Moe", "six experts, two used, renormalised; the second of three layers dense", seed=1, **QWEN3),
    "qwen3_moe-stacked": moe("Qwen3Moe", "one tensor for all experts, not renormalised", save=STACKED, **{
        **QWEN3, "num_hidden_layers": 2, "norm_topk_prob": False, "mlp_only_layers": []}),
    "qwen2_moe": moe("Qwen2Moe", "a shared expert behind a gate, not renormalised; the second of three layers dense", num_hidden_layers=3,
                     num_experts=5, num_experts_per_tok=2, moe_intermediate_size=20, shared_expert_intermediate_size=24,
                     mlp_only_layers=[1]),
    "qwen2_moe-stacked": moe("Qwen2Moe", "one tensor for all experts", save=STACKED, num_experts=5, num_experts_per_tok=2,
                             moe_intermediate_size=20, shared_expert_intermediate_size=24),
    "mixtral": moe("Mixtral", "five experts, two used", **MIXTRAL),
    "mixtral-stacked": moe("Mixtral", "one tensor for all experts, a window of 20", (20,), save=STACKED, sliding_window=20, **MIXTRAL),
    "olmoe": moe("Olmoe", "q and k normalised over the whole row, weights as the softmax has them, q, k and v between -1.5 and 1.5", num_experts=5, num_experts_per_tok=2,
                 intermediate_size=20, clip_qkv=1.5),
    "solar_open": moe("SolarOpen", "glm4_moe without dense layers and with all of a head rotated", base={k: v for k, v in FEW.items() if k != "intermediate_size"}, head_dim=12,
                      n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=20, n_shared_experts=1, routed_scaling_factor=1.7),
    "gpt_oss": moe("GptOss", "sinks, window of 8 in even layers, YaRN without rounding, clamped experts with biases", (8,), **GPT_OSS),
    "gpt_oss-mxfp4": moe("GptOss", "experts in MXFP4, as published", (8,), prepare=mxfp4.round_experts, after=mxfp4.pack_experts, read=mxfp4.READ,
                         **{**GPT_OSS, "intermediate_size": 64, "num_local_experts": 4}),
    "gemma4-moe": moe("Gemma4", "experts beside the dense feed-forward, factors for each expert", (24,), base={**SMALL, **GEMMA},
                      config="Gemma4TextConfig", num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, global_head_dim=32,
                      num_global_key_value_heads=1, attention_k_eq_v=True, hidden_size_per_layer_input=0, vocab_size_per_layer_input=71,
                      layer_types=layers(1, 1, 0), enable_moe_block=True, num_experts=5, top_k_experts=2, moe_intermediate_size=20),
    "glm4_moe": moe("Glm4Moe", "two groups of three experts, one taken; first layer dense, a shared expert, half of a head rotated", head_dim=12,
                    use_qk_norm=True, attention_bias=True, **GLM),
    "glm4_moe-stacked": moe("Glm4Moe", "one tensor for all experts, q and k not normalised", save=STACKED, head_dim=12, **GLM),
    "glm4_moe-draft": moe("Glm4Moe", seed=1, about="a layer that drafts behind the last one", draft="nextn", head_dim=12, use_qk_norm=True, **{
        **GLM, "num_hidden_layers": 2, "n_group": 1, "num_mtp_layers": 1}),
    "deepseek": deepseek("DeepSeekMoE: softmax over all as it is, two shared experts, the first layer dense", False),
    "deepseek-norm": deepseek("weights over their sum", True),
    "bailing_moe": moe("GraniteMoeShared", "Ling 1: q, k and v in one tensor, softmax, two shared experts", after=as_ling_1, unread=True, num_local_experts=5, num_experts_per_tok=2, intermediate_size=16,
                       shared_intermediate_size=32, embedding_multiplier=1.0, residual_multiplier=1.0, attention_multiplier=8 ** -0.5, logits_scaling=1.0),
    "bailing_moe_v2": moe("Glm4Moe", "Ling 2: glm4_moe under other names, q, k and v in one tensor", after=as_ling, unread=True, head_dim=12,
                          use_qk_norm=True, **GLM),
    "minimax_m2": moe("MiniMaxM2", "q and k normalised over the whole row, half of a head rotated", num_local_experts=6,
                      num_experts_per_tok=2, intermediate_size=20, head_dim=12,
                      rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)),
    "minimax_m3": moe("MiniMaxM3VL", "behind a dense layer two heads choose two of the runs of 8 positions beside the row's own, for a key head each; clamped gates, half of a head rotated, a shared expert", (8, 16, 24, 32), config="MiniMaxM3VLTextConfig",
                      zero_centred=True, base={}, **MINIMAX),
    "minimax_m3-image": {**tower("MiniMaxM3Sparse", "the text part of a model with a tower for images, with the names and keys of published folders; the last two blocks always", {**MINIMAX, "model_type": "minimax_m3_vl_text",
                                 "num_hidden_layers": 2, "mlp_layer_types": ["dense", "sparse"], "layer_types": ["full_attention", "minimax_m3_sparse"], "index_local_blocks": 2}, (8, 16, 24, 32), config="MiniMaxM3VLConfig", zero_centred=True, gap=0.02,
                                 after=as_minimax_m3, projector_hidden_size=8, vision_config=dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, image_size=8, patch_size=4)), "unread": True},
    "minimax_m2-stacked": moe("MiniMaxM2", "one tensor for all experts", save=STACKED, seed=1, num_local_experts=6,
                              num_experts_per_tok=2, intermediate_size=20, head_dim=12,
                              rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)),
    "granitemoe": moe("GraniteMoe", "softmax over the chosen experts, granite's factors", **GRANITE),
    "granitemoeshared": moe("GraniteMoeShared", "with a shared expert", shared_intermediate_size=24, **GRANITE),
    "ernie4_5_moe": moe("Ernie4_5_Moe", "first layer dense, a bias for the choice, two shared experts in one", num_hidden_layers=3,
                        moe_intermediate_size=20, moe_k=2, moe_num_experts=6, moe_num_shared_experts=2, moe_layer_start_index=1,
                        moe_layer_end_index=2),
    "hunyuan_v1_moe": moe("HunYuanMoEV1", "q and k normalised after their rotation, a shared expert, base by alpha", num_experts=5, moe_topk=2,
                          head_dim=12, intermediate_size=20, rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, alpha=50.0,
                                                                                 factor=1.0)),
    "exaone_moe": moe("ExaoneMoe", "window of 16 and rotation in three of four layers, neither in the other; groups of experts", (16,),
                      num_hidden_layers=4, intermediate_size=24, sliding_window=16, first_k_dense_replace=1, moe_intermediate_size=12,
                      num_experts=6, num_experts_per_tok=2, num_shared_experts=1, n_group=2, topk_group=1, routed_scaling_factor=1.7),
    "dots1": moe("Dots1", "groups of experts, two shared ones, first layer dense", num_hidden_layers=3, n_shared_experts=2,
                 n_routed_experts=6, num_experts_per_tok=2, n_group=2, topk_group=1, first_k_dense_replace=1, moe_intermediate_size=20,
                 norm_topk_prob=True, routed_scaling_factor=1.7, head_dim=12),
    "mimo_v2_flash": moe("MiMoV2Flash", "keys of 12 and values of 8, half of a head rotated; window of 16 with sinks, more key heads and a base of its own in two of three layers", (16,),
                         num_hidden_layers=3, hidden_size=24, num_key_value_heads=1, head_dim=12, v_head_dim=8, intermediate_size=32, sliding_window=16, layer_types=layers(0, 1, 1), n_routed_experts=6,
                         num_experts_per_tok=2, n_group=2, topk_group=1, moe_intermediate_size=12, attention_value_scale=0.6,
                         rope_parameters=dict(full_attention=dict(rope_type="default", rope_theta=100000.0, partial_rotary_factor=0.5),
                                              sliding_attention=dict(rope_type="default", rope_theta=500.0, partial_rotary_factor=0.5))),
    "step3p5": {**tower("Step3p7", "window of 16, more heads and whole ones rotated in two of four layers, half of one and scaled in the others; a gate for each head; limits behind "
                        "SiLU; first layer dense; as published, lists by layer", STEP, (16,), zero_centred=True, after=as_step35, gap=0.02, vision_config=STEP_EYE), "unread": True},
    "step3p7-image": tower("Step3p7", "the same beside a tower for images", {**STEP, "num_hidden_layers": 2, "layer_types": layers(1, 0), "mlp_layer_types": ["sparse", "sparse"],
                           "swiglu_limits": None, "swiglu_limits_shared": None}, (16,), zero_centred=True, gap=0.02, vision_config=STEP_EYE),
    "laguna": moe("Laguna", "window of 16, more heads and whole ones rotated in two of four layers, half of one and scaled by YaRN in the others; a gate for each head; capped scores; first layer dense", (16,),
                  num_hidden_layers=4, hidden_size=24, head_dim=16, num_attention_heads=4, num_attention_heads_per_layer=[4, 6, 6, 4], intermediate_size=32, sliding_window=16,
                  layer_types=layers(0, 1, 1, 0), num_experts=5, num_experts_per_tok=2, moe_intermediate_size=12, shared_expert_intermediate_size=16, moe_routed_scaling_factor=1.7,
                  moe_router_logit_softcapping=1.5, rope_parameters=dict(full_attention=dict(YARN, partial_rotary_factor=0.5),
                                                                         sliding_attention=dict(rope_type="default", rope_theta=500.0, partial_rotary_factor=1.0))),
    "laguna-element": moe("Laguna", seed=1, about="a gate for each number, no windows, biases, every layer sparse", num_hidden_layers=2, hidden_size=24, head_dim=8, gating="per-element", attention_bias=True, rope_parameters=dict(full_attention=dict(rope_type="default", rope_theta=500.0, partial_rotary_factor=0.5)),
                          mlp_layer_types=["sparse", "sparse"], num_experts=5, num_experts_per_tok=2, moe_intermediate_size=12, shared_expert_intermediate_size=16),
    "phimoe": moe("Phimoe", "LayerNorms, biases of attention and head, two experts by a softmax over those that are near", prepare=open_choice, seed=1, attention_bias=True, lm_head_bias=True, num_local_experts=4,
                  num_experts_per_tok=2, intermediate_size=20),
    "afmoe": moe("Afmoe", "window of 16 and rotation in three of four layers, a gate of each number, four norms, first layer dense", (16,), seed=3, num_hidden_layers=4, hidden_size=24, intermediate_size=32,
                 head_dim=8, sliding_window=16, num_dense_layers=1, num_experts=6, num_experts_per_tok=2, num_shared_experts=2, moe_intermediate_size=12, route_scale=1.7, mup_enabled=True),
    "hy_v3": moe("HYV3", "first layer dense, a bias for the choice, a shared expert", num_hidden_layers=3, head_dim=12, intermediate_size=32, num_experts=6, num_experts_per_tok=2,
                 moe_intermediate_size=16, router_scaling_factor=1.7),
    "cohere2_moe": moe("Cohere2Moe", "window of 16 and rotation in three of four layers, the first layer dense and rotated without one; the mean with a shared expert", (16,), num_hidden_layers=5,
                       hidden_size=24, head_dim=8, sliding_window=16, first_k_dense_replace=1, prefix_dense_intermediate_size=32, intermediate_size=16, num_experts=5, num_experts_per_tok=2,
                       num_shared_experts=1, expert_selection_fn="sigmoid", logit_scale=0.3, tie_word_embeddings=True, layer_norm_eps=0.01),
    "cohere2_moe-rms": moe("Cohere2Moe", "RMS norms, a softmax over the chosen, no shared expert", (16,), num_hidden_layers=2, head_dim=8, sliding_window=16, layer_types=layers(1, 0), intermediate_size=16,
                           num_experts=5, num_experts_per_tok=2, logit_scale=0.3, rms_norm_eps=0.02, layer_norm_eps=0.01),
    "llama4": moe("Llama4", "one expert, weight on its input, a shared one; chunks of 32 with rotation, every fourth layer full without, "
                  "queries that grow; dense layers in between", (32, 64), config="Llama4TextConfig", num_hidden_layers=4, head_dim=8,
                  hidden_size=24, intermediate_size=16, intermediate_size_mlp=32, num_local_experts=4, num_experts_per_tok=1,
                  interleave_moe_layer_step=2, attention_chunk_size=32, floor_scale=16, attn_scale=0.3),
    "llama4-image": tower("Llama4", "the text part of a model with a tower for images, with the keys that its published folders have; experts in "
                          "every layer, two used, q and k as they are", {
        **FEW, "model_type": "llama4_text", "num_hidden_layers": 4, "head_dim": 8, "hidden_size": 24, "intermediate_size": 16,
        "intermediate_size_mlp": 32, "num_local_experts": 3, "num_experts_per_tok": 2, "interleave_moe_layer_step": 1, "use_qk_norm": False,
        "attention_chunk_size": 32, "floor_scale": 16, "attn_scale": 0.3, "rope_parameters": LLAMA3}, (32, 64), gap=0.02, after=as_llama4,
        vision_config=dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4,
                           vision_output_dim=8, projector_input_dim=8, projector_output_dim=8)),
    "qwen3_vl_moe": tower("Qwen3VLMoe", "the text part of a model with a tower for images, stacks of experts stored transposed", {
        **FEW, **QWEN3, "num_hidden_layers": 2, "mlp_only_layers": [], "rope_parameters": dict(
            rope_type="default", rope_theta=500000.0, mrope_section=[2, 2, 2], mrope_interleaved=True)}, gap=0.02, after=as_published, vision_config=dict(
        depth=1, hidden_size=8, intermediate_size=8, num_heads=2, out_hidden_size=32, patch_size=2, deepstack_visual_indexes=[0],
        num_position_embeddings=4)),
}
