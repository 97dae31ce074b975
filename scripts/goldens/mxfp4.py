"""Experts of gpt-oss in MXFP4: blocks of 32 numbers of 4 bits with a power of two."""
import json

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file

LEVELS = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
READ = dict(quantization_config=transformers.Mxfp4Config(dequantize=True))
KEEP = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]


def encode(rows):
    """rows[..., k] -> codes[..., k / 32, 32] and exponents[..., k / 32]; what encode gave decodes to itself."""
    blocks = rows.float().unflatten(-1, (-1, 32))
    exponent = torch.floor(torch.log2(blocks.abs().amax(-1).clamp_min(2.0**-100))) - 2
    scaled = blocks / torch.exp2(exponent)[..., None]
    code = (scaled.abs()[..., None] - LEVELS).abs().argmin(-1) + 8 * (scaled < 0)
    return code, exponent


def decode(code, exponent):
    value = LEVELS[code % 8] * (1 - 2 * (code // 8))
    return (value * torch.exp2(exponent)[..., None]).flatten(-2)


def round_experts(model):
    for layer in model.model.layers:
        for p in (layer.mlp.experts.gate_up_proj, layer.mlp.experts.down_proj):  # [expert][input][output]
            p.copy_(decode(*encode(p.transpose(1, 2))).transpose(1, 2))


def pack_experts(path):
    """The folder with X_blocks and X_scales in place of X: byte i of a block has elements 2i low and 2i + 1 high."""
    with safe_open(path / "model.safetensors", "pt") as f:
        tensors = {k: f.get_tensor(k) for k in f.keys()}
        about = f.metadata()
    for name in [k for k in tensors if k.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        code, exponent = encode(tensors.pop(name).transpose(1, 2))
        tensors[f"{name}_blocks"] = (code[..., 0::2] | code[..., 1::2] << 4).to(torch.uint8).contiguous()
        tensors[f"{name}_scales"] = (exponent + 127).to(torch.uint8)
    save_file(tensors, path / "model.safetensors", about)
    config = json.loads((path / "config.json").read_text())
    config["quantization_config"] = {"modules_to_not_convert": KEEP, "quant_method": "mxfp4"}
    (path / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
