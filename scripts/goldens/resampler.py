"""MiniCPM-V 2.6 to 4.5, which transformers has not: the same computed from its description. A tower as Idefics 2 has (SigLIP whose places are
the nearest of a table), queries that see the patches (a layer of torch's attention), a language model of transformers.
sources: OpenBMB's modeling_minicpmv, resampler and image_processing_minicpmv, as published with the weights."""
import json
import math

import numpy as np
import PIL.Image
import safetensors.torch
import torch
import transformers as t
from transformers.models.idefics2.configuration_idefics2 import Idefics2VisionConfig
from transformers.models.idefics2.modeling_idefics2 import Idefics2VisionTransformer

ROOM = 240  # pixels a side of what pieces are put into, so that those of several pictures are one tensor


def waves(position, n):
    """[..][n]: sines, then cosines, of frequencies from 1 down"""
    turn = position[..., None] * 10000.0 ** (-torch.arange(n // 2, dtype=torch.float64) / (n // 2))
    return torch.cat([turn.sin(), turn.cos()], -1)


def places(lines, columns, n):
    y, x = torch.meshgrid(torch.arange(lines, dtype=torch.float64), torch.arange(columns, dtype=torch.float64), indexing="ij")
    return torch.cat([waves(x, n // 2), waves(y, n // 2)], -1).reshape(lines * columns, n)


class Embeddings(torch.nn.Module):
    """Patches, each with the nearest of a table: how many of the table's ends its line and column, as parts of the piece, are not before.
    What was published adds up steps in float32, where a part that is an end falls before or behind it by the machine; here, as in what
    transformers has of version 4.6, the part is a quotient."""

    def __init__(self, own):
        super().__init__()
        self.patch_embedding, self.position_embedding = own.patch_embedding, own.position_embedding

    def forward(self, pixel_values, patch_attention_mask):
        patches = self.patch_embedding(pixel_values)
        side = math.isqrt(self.position_embedding.num_embeddings)
        ends = torch.arange(1 / side, 1.0, 1 / side)
        y, x = (torch.bucketize(torch.arange(n) / n, ends, right=True) for n in patches.shape[-2:])
        return patches.flatten(2).transpose(1, 2) + self.position_embedding((y[:, None] * side + x).flatten())


class Resampler(torch.nn.Module):
    def __init__(self, n_query, n, n_patch):
        super().__init__()
        self.query = torch.nn.Parameter(torch.empty(n_query, n))
        self.kv_proj = torch.nn.Linear(n_patch, n, bias=False)
        self.attn = torch.nn.MultiheadAttention(n, n // 128, batch_first=True)
        self.ln_q, self.ln_kv, self.ln_post = (torch.nn.LayerNorm(n, eps=1e-6) for _ in range(3))
        self.proj = torch.nn.Parameter(torch.empty(n, n))

    def forward(self, patches, lines, columns):
        values = self.ln_kv(self.kv_proj(patches))
        keys = values + places(lines, columns, values.shape[-1]).to(values.dtype)
        seen = self.attn(self.ln_q(self.query)[None], keys[None], values[None], need_weights=False)[0][0]
        return self.ln_post(seen) @ self.proj


class MiniCPMV(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.vpm = Idefics2VisionTransformer._from_config(Idefics2VisionConfig(**config.vision_config), attn_implementation="eager")
        self.vpm.embeddings = Embeddings(self.vpm.embeddings)
        self.resampler = Resampler(config.query_num, config.hidden_size, config.vision_config["hidden_size"])
        self.llm = getattr(t, config.text_class)._from_config(config, attn_implementation="eager")

    def features(self, pieces, sizes):
        side, rows = self.config.vision_config["patch_size"], []
        for piece, (lines, columns) in zip(pieces, sizes.tolist()):
            seen = self.vpm(piece[None, :, : lines * side, : columns * side], patch_attention_mask=torch.ones(1, lines, columns, dtype=torch.bool))
            rows.append(self.resampler(seen.last_hidden_state[0], lines, columns))
        return torch.cat(rows)

    def forward(self, input_ids, pixel_values, target_sizes, use_cache=False):
        inputs = self.llm.get_input_embeddings()(input_ids).clone()
        inputs[input_ids == self.config.image_id] = self.features(pixel_values, target_sizes)
        return self.llm(inputs_embeds=inputs, use_cache=use_cache)

    def save_pretrained(self, path):
        path.mkdir(parents=True)
        safetensors.torch.save_file({k: v.contiguous() for k, v in self.state_dict().items()}, path / "model.safetensors", metadata={"format": "pt"})
        config = {k: v for k, v in self.config.to_diff_dict().items() if k not in ("text_class", "image_id")}
        config.update(architectures=["MiniCPMV"], model_type="minicpmv")
        (path / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def coarse(model):
    """Few different weights where there are many, so that the folder packs well."""
    for name, p in model.named_parameters():
        if name.startswith("resampler") and p.ndim == 2:
            p.copy_((p * 32).round() / 32)


def rows_of(model, inputs):
    return model.features(inputs["pixel_values"].double(), inputs["target_sizes"]).double().numpy()


class Slices:
    """The whole, and slices of a larger picture, each of about an area and of whole patches."""

    def __init__(self, **numbers):
        self.__dict__.update(numbers)
        self.numbers = numbers

    def to_dict(self):
        return dict(self.numbers, norm_mean=[0.5] * 3, norm_std=[0.5] * 3, image_feature_size=6, use_image_id=True)

    def whole_patches(self, length, n):
        return max(round(length / n) * n, n)

    def near_area(self, width, height):
        ratio = width / height
        h = int(self.scale_resolution / math.sqrt(ratio))
        return self.whole_patches(int(h * ratio), self.patch_size), self.whole_patches(h, self.patch_size)

    def grid(self, width, height):
        n = min(math.ceil(width * height / self.scale_resolution**2), self.max_slice_nums)
        if n <= 1:
            return None
        grids = [(x, k // x) for k in (n - 1, n, n + 1) if 1 < k <= self.max_slice_nums for x in range(1, k + 1) if k % x == 0]
        return min(grids, key=lambda g: abs(math.log(width / height) - math.log(g[0] / g[1])))

    def __call__(self, image):
        """pieces [n][3][ROOM][ROOM], lines and columns of each, the size that the slices (else the whole) together have"""
        image = PIL.Image.fromarray(image)
        grid, pieces = self.grid(*image.size), []
        size = self.near_area(*image.size)
        pieces.append(image.resize(size, PIL.Image.Resampling.BICUBIC))
        if grid:
            x, y = grid
            w, h = self.near_area(self.whole_patches(image.width, x) / x, self.whole_patches(image.height, y) / y)
            size = (w * x, h * y)
            fine = image.resize(size, PIL.Image.Resampling.BICUBIC)
            pieces += [fine.crop((i * w, k * h, (i + 1) * w, (k + 1) * h)) for k in range(y) for i in range(x)]
        room = torch.zeros(len(pieces), 3, ROOM, ROOM)
        for to, piece in zip(room, pieces):
            to[:, : piece.height, : piece.width] = torch.from_numpy((np.asarray(piece).astype(np.float32) / 255 - 0.5) / 0.5).permute(2, 0, 1)
        sizes = torch.tensor([[p.height // self.patch_size, p.width // self.patch_size] for p in pieces])
        return dict(pixel_values=room, target_sizes=sizes), size


def read(processor, image):
    return processor(image)


def config(**options):
    return t.Qwen2Config(**options)
