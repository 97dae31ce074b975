"""config.json as transformers 4 wrote it, and as most published folders have it: rotation at the root, kinds of layers by a period."""
import json
import pathlib
import shutil
import tempfile

# no version 4 of these, or its keys cannot say what config.json says
NEW = ("deepseek_v4", "qwen4_exp_text", "qwen4_exp", "minimax_m3_vl_text", "minimax_m3_vl", "minimax_m3", "lfm3", "gemma3n_text", "gemma3n", "laguna", "kimi_linear", "step3p7", "step3p5", "phimoe", "muse_glimmer", "muse_glimmer_text", "mimo_v2_flash", "hy_v3", "cohere2_moe", "internlm2", "internlm3", "kimi_k2", "mistral4", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_5", "qwen3_5_moe", "gpt2", "gemma4_text", "gemma4", "ministral3", "mistral3", "olmo3", "bailing_moe", "exaone_moe")
# the kind of a rotation under its oldest name
OLDEST = ("phi3", "deepseek_v2", "deepseek_v3")
PERIOD = {"gemma2": None, "gemma3_text": ("sliding_window_pattern", 6), "cohere2": ("sliding_window_pattern", 4), "qwen2": None, "qwen2_moe": None}


def rotation(c):
    """rope_parameters at the root of c"""
    rope = c.pop("rope_parameters", None)
    if not rope:
        return
    if "full_attention" in rope:
        c["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    kind = rope.pop("rope_type")
    neox = c["model_type"] == "gpt_neox"
    c["rotary_emb_base" if neox else "rope_theta"] = rope.pop("rope_theta")
    part = rope.pop("partial_rotary_factor", None)
    if part is not None and c["model_type"] == "minimax_m2":
        c["rotary_dim"] = int(c["head_dim"] * part)
    elif part is not None:
        c["rotary_pct" if neox else "partial_rotary_factor"] = part
    if c["model_type"] == "phi3":
        rope.pop("original_max_position_embeddings", None)
    c["rope_scaling"] = {"type" if c["model_type"] in OLDEST else "rope_type": kind, **rope} if rope or kind != "default" else None


def text(c):
    rotation(c)
    kind = c["model_type"]
    if kind in PERIOD and "layer_types" in c:
        period, types = PERIOD[kind], c["layer_types"]
        if not period or all((t == "full_attention") == (i % period[1] == period[1] - 1) for i, t in enumerate(types)):
            del c["layer_types"]
            c.pop("_sliding_window_pattern", None)
            c.update([period] if period else [])
    if kind == "exaone4" and c["sliding_window"]:
        c["sliding_window_pattern"] = "LLLG"
    if "deepseek" in kind:
        for k in ("head_dim", "qk_head_dim", "output_router_logits", "mlp_bias", "rope_interleave", *(["layer_types", "mlp_layer_types"] if kind == "deepseek_v32" else [])):
            c.pop(k, None)
        c.update(scoring_func="softmax" if kind == "deepseek_v2" else "sigmoid", seq_aux=True, ep_size=1, moe_layer_freq=1,
                 aux_loss_alpha=0.001, topk_method=c.get("topk_method", "noaux_tc"))
    if kind == "glm_moe_dsa":
        for k in ("head_dim", "layer_types", "mlp_layer_types", "mlp_bias", "output_router_logits"):
            c.pop(k, None)
        c.update(scoring_func="sigmoid", topk_method="noaux_tc", ep_size=1, moe_layer_freq=1, num_nextn_predict_layers=0, rope_interleave=True,
                 indexer_rope_interleave=True, index_topk_freq=1, index_skip_topk_offset=2, moe_router_dtype="float32",
                 index_share_for_mtp_iteration=True)
    if kind == "glm4_moe_lite":
        assert c.pop("mlp_layer_types") == ["dense"] + ["sparse"] * (c["num_hidden_layers"] - 1)
        for k in ("head_dim", "qk_head_dim", "output_router_logits", "rope_interleave"):
            c.pop(k, None)
        c.update(first_k_dense_replace=1, topk_method="noaux_tc", partial_rotary_factor=1.0, num_nextn_predict_layers=0)
    if kind == "lfm2":
        c.update(block_dim=c["hidden_size"], block_ff_dim=c.pop("intermediate_size"), conv_dim=c["hidden_size"], conv_dim_out=c["hidden_size"],
                 conv_use_xavier_init=True, block_mlp_init_scale=1.0, block_norm_eps=c["norm_eps"], block_use_swiglu=True,
                 block_use_xavier_init=True, num_heads=c["num_attention_heads"], use_pos_enc=True,
                 full_attn_idxs=[i for i, t in enumerate(c.pop("layer_types")) if t == "full_attention"])
    if kind == "qwen3_next":
        assert c.pop("layer_types") == (3 * ["linear_attention"] + ["full_attention"]) * (c["num_hidden_layers"] // 4)
        c["full_attention_interval"] = 4
    if kind == "granitemoehybrid":
        c["layer_types"] = [{"linear_attention": "mamba", "full_attention": "attention"}[t] for t in c["layer_types"]]
    if kind == "nemotron_h":
        marks = {"linear_attention": "M", "full_attention": "*", "moe": "E", "mlp": "-"}
        c["hybrid_override_pattern"] = "".join(marks[t] for t in c.pop("layers_block_type"))
        c["num_hidden_layers"] = len(c["hybrid_override_pattern"])
    if "lfm2" in kind:
        c["tie_embedding"] = c.pop("tie_word_embeddings")
    if kind in ("qwen3_moe", "qwen3_vl_moe_text") and "num_local_experts" in c:
        c["num_experts"] = c.pop("num_local_experts")


def old_config(c):
    """None: there is none."""
    if c["model_type"] in NEW or "gemma4" in c["model_type"]:
        return None
    c = json.loads(json.dumps(c))
    c["torch_dtype"] = c.pop("dtype")
    c["transformers_version"] = "4.57.1"
    text(c.get("text_config", c))
    if c["model_type"] in ("qwen2_vl", "qwen2_5_vl"):  # all of it at the root
        own = c.pop("text_config")
        c = {**own, **c, "tie_word_embeddings": own.get("tie_word_embeddings", False)}
        c["rope_scaling"] = {"type": "mrope", "mrope_section": c["rope_scaling"]["mrope_section"]}
    return c


def write(path, check):
    """path/config-4.json, after check(folder with it) has found the same logits."""
    c = old_config(json.loads((path / "config.json").read_text()))
    if c is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder) / path.name
        folder.mkdir()
        shutil.copy(path / "model.safetensors", folder)
        (folder / "config.json").write_text(json.dumps(c))
        check(folder)
    (path / "config-4.json").write_text(json.dumps(c, indent=2, sort_keys=True) + "\n")
