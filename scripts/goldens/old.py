"""config.json as transformers 4 wrote it, and as most published folders have it: rotation at the root, kinds of layers by a period."""
import json
import pathlib
import shutil
import tempfile

# no version 4 of these, or its keys cannot say what config.json says
NEW = ("gpt2", "gemma4_text", "gemma4", "ministral3", "mistral3", "olmo3", "bailing_moe", "exaone_moe")
PERIOD = {"gemma2": None, "gemma3_text": ("sliding_window_pattern", 6), "cohere2": ("sliding_window_pattern", 4), "qwen2": None, "qwen2_moe": None}


def rotation(c):
    """rope_parameters at the root of c"""
    rope = c.pop("rope_parameters")
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
    c["rope_scaling"] = {"type" if c["model_type"] == "phi3" else "rope_type": kind, **rope} if rope or kind != "default" else None


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
