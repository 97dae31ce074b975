"""Tiny models with towers for images, as folders, and what transformers makes of pictures with them: rows of the tower, logits behind them."""
import inspect
import json
import zlib

import numpy as np
import PIL.Image
import torch
import transformers as t

from . import folder
from .dense import GEMMA, SMALL, layers, published, tower
from .moe import FEW
from .state import DELTA
from .state import MROPE as HYBRID_MROPE

VISION = folder.HF.parent / "tower"
IMAGE = 60  # the id that stands for rows of a picture


def picture(width, height, n):
    """[height][width][3]: a pattern that differs for each n; tests draw the same."""
    y, x, c = np.meshgrid(np.arange(height), np.arange(width), np.arange(3), indexing="ij")
    return ((x * (11 + n) + y * 17 + c * 71 + x * y * (c + 1) % 97 + 40 * n) & 255).astype(np.uint8)


# ---- processors: pixel_values and what else the model takes for one picture, and the size that it became ----------------------------
def from_patches(processor, image):
    out = processor(PIL.Image.fromarray(image), return_tensors="pt")
    grid = out["image_grid_thw"]
    side = processor.patch_size
    return dict(pixel_values=out["pixel_values"], image_grid_thw=grid), (int(grid[0, 2]) * side, int(grid[0, 1]) * side)


def whole(processor, image):
    out = processor(PIL.Image.fromarray(image), return_tensors="pt")
    height, width = out["pixel_values"].shape[-2:]
    return dict(pixel_values=out["pixel_values"]), (width, height)


def whole_sized(processor, image):
    inputs, size = whole(processor, image)
    return dict(**inputs, image_sizes=torch.tensor([size[::-1]])), size


def tiled(processor, image):
    out = processor(PIL.Image.fromarray(image), return_tensors="pt", return_row_col_info=True)
    down, across = (int(out[k][0][0]) for k in ("rows", "cols"))
    side = out["pixel_values"].shape[-1]
    return dict(pixel_values=out["pixel_values"]), (max(across, 1) * side, max(down, 1) * side)


def budgeted(processor, image):
    """Gemma 4: patches without those that fill up."""
    out = processor(PIL.Image.fromarray(image), return_tensors="pt")
    places = out["image_position_ids"][0]
    real = (places != -1).all(-1)
    side = processor.patch_size
    size = ((places[real].max(0).values + 1) * side).tolist()
    return dict(pixel_values=out["pixel_values"][:, real], image_position_ids=places[None, real]), tuple(size)


def merged(processor, image):
    """Gemma 4 unified: the other's patches, merged."""
    from transformers.models.gemma4_unified.image_processing_gemma4_unified import patches_merge

    inputs, size = budgeted(processor, image)
    n = inputs["pixel_values"].shape[1] // processor.pooling_kernel_size**2
    values, places = patches_merge(inputs["pixel_values"], inputs["image_position_ids"], n)
    return dict(pixel_values=values, image_position_ids=places), size


def budget(n, **more):
    """A processor of Gemma 4 with a budget that published ones do not have."""
    from transformers.models.gemma4 import image_processing_pil_gemma4 as g

    g._SUPPORTED_SOFT_TOKENS = (n,)
    return g.Gemma4ImageProcessorPil(max_soft_tokens=n, **more)


def qwen(**more):
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    return Qwen2VLImageProcessorPil(image_mean=[0.5] * 3, image_std=[0.5] * 3, merge_size=2, temporal_patch_size=2, **more)


def pixtral(**more):
    from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil

    return PixtralImageProcessorPil(**more)


def idefics3(**more):
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

    return Idefics3ImageProcessorPil(image_mean=[0.5] * 3, image_std=[0.5] * 3, **more)


def gemma3(**more):
    from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

    return Gemma3ImageProcessorPil(image_mean=[0.5] * 3, image_std=[0.5] * 3, **more)


# ---- the folders ----------------------------------------------------------------------------------------------------------------------
def clipped(model):
    """Bounds that cut some of what they bound."""
    for name, p in model.named_buffers():
        if name.endswith(("input_min", "output_min")):
            p.copy_(torch.tensor(-1.5 + 0.3 * float(torch.rand(()))).bfloat16().float())
        if name.endswith(("input_max", "output_max")):
            p.copy_(torch.tensor(1.5 - 0.3 * float(torch.rand(()))).bfloat16().float())


TEXT = {**SMALL, "num_hidden_layers": 2}
MROPE = dict(rope_type="default", rope_theta=10000.0, mrope_section=[2, 2, 2], mrope_interleaved=True)
GEMMA4 = {**TEXT, **GEMMA, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "global_head_dim": 32,
          "num_global_key_value_heads": 1, "attention_k_eq_v": True, "layer_types": layers(1, 1, 0), "pad_token_id": 0}
ROWS = {
    "gemma4uv": dict(tower("Gemma4Unified", "no blocks", {**GEMMA4, "model_type": "gemma4_unified_text", "use_bidirectional_attention": "vision"}, after=published, audio_config=None,
                           image_token_id=IMAGE, vision_config=dict(patch_size=4, pooling_kernel_size=3, mm_embed_dim=20, mm_posemb_size=70, output_proj_dims=20)),
                     processor=lambda: budget(24, patch_size=4, pooling_kernel_size=3), read=merged, talk=(2, 3),
                     sizes=[(1, 1), (3000, 17), (48, 36), (49, 37), (30, 200)]),
    "gemma4v": dict(tower("Gemma4", "two tables, halves turned by column and line, means of 3 x 3, standardised", {
        **GEMMA4, "model_type": "gemma4_text", "use_bidirectional_attention": "vision", "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 71}, after=published, audio_config=None, image_token_id=IMAGE,
        vision_config=dict(hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, head_dim=12, patch_size=4,
                           position_embedding_size=80, standardize=True)),
        processor=lambda: budget(12, patch_size=4, pooling_kernel_size=3), read=budgeted, talk=(1, 2), sizes=[(1, 1), (3000, 17), (48, 36), (49, 37), (30, 200)]),
    "gemma4v-bounds": dict(tower("Gemma4", "bounded inputs and outputs of products, inputs of each layer", {
        **GEMMA4, "model_type": "gemma4_text", "attention_k_eq_v": False, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 71, "num_kv_shared_layers": 0,
        "use_double_wide_mlp": False}, after=published,
        audio_config=None, image_token_id=IMAGE, vision_config=dict(hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, head_dim=8,
                                              patch_size=4, position_embedding_size=80, use_clipped_linears=True)),
        prepare=clipped, processor=lambda: budget(12, patch_size=4, pooling_kernel_size=3), read=budgeted, sizes=[(40, 30), (7, 90)]),
    "qwen3vl": dict(tower("Qwen3VL", "a table resized, pairs turned, two layers into the text model's", {**TEXT, "num_hidden_layers": 3, "head_dim": 12, "rope_parameters": MROPE}, image_token_id=IMAGE,
                          vision_start_token_id=58, vision_end_token_id=59, video_token_id=57,
                          vision_config=dict(depth=3, hidden_size=24, intermediate_size=20, num_heads=2, out_hidden_size=32, patch_size=4, deepstack_visual_indexes=[0, 2],
                                             num_position_embeddings=25)),
                    processor=lambda: qwen(patch_size=4, size=dict(shortest_edge=256, longest_edge=3200)), read=from_patches, talk=(5, 4),
                    sizes=[(1, 1), (600, 17), (32, 24), (33, 25), (28, 12), (20, 90)]),
    "qwen3_5": dict(tower("Qwen3_5", "the same tower without parts for later layers, a text model with states", {
        **FEW, **DELTA, "model_type": "qwen3_5_text", "num_hidden_layers": 2, "rope_parameters": HYBRID_MROPE, "layer_types": ["linear_attention", "full_attention"]},
        zero_centred=True, image_token_id=IMAGE, vision_start_token_id=58, vision_end_token_id=59, video_token_id=57,
        vision_config=dict(depth=2, hidden_size=16, intermediate_size=20, num_heads=2, out_hidden_size=32, patch_size=4, num_position_embeddings=16)),
        processor=lambda: qwen(patch_size=4, size=dict(shortest_edge=256, longest_edge=1600)), read=from_patches, sizes=[(40, 16), (20, 41)]),
    "pixtral": dict(tower("Mistral3", "neighbours turned by line and column, 2 x 2 merged", {**TEXT, "model_type": "mistral", "head_dim": 16, "sliding_window": None, "rms_norm_eps": 1e-4},
                          image_token_index=IMAGE, vision_config=dict(hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2, head_dim=12, image_size=48, patch_size=4,
                                             model_type="pixtral", hidden_act="silu")),
                    processor=lambda: pixtral(patch_size=dict(height=8, width=8), size=dict(longest_edge=48)), read=whole_sized, talk=(2, 5),
                    sizes=[(9, 1), (3000, 80), (40, 24), (41, 25), (30, 200), (39, 23)]),
    "idefics3": dict(tower("Idefics3", "tiles and the whole, 2 x 2 patches beside each other", {**TEXT, "model_type": "llama", "head_dim": 8}, image_token_id=IMAGE, scale_factor=2,
                           vision_config=dict(hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2, image_size=24, patch_size=4)),
                     processor=lambda: idefics3(size=dict(longest_edge=48), max_image_size=dict(longest_edge=24)), read=tiled, talk=(0, 2), sizes=[(1, 1), (300, 17), (48, 48), (33, 47), (20, 90)]),
    "gemma3": dict(tower("Gemma3", "a table, means of 2 x 2, one size", {**TEXT, **GEMMA, "model_type": "gemma3_text", "query_pre_attn_scalar": 20, "layer_types": layers(1, 0)}, zero_centred=True,
                         image_token_index=IMAGE, mm_tokens_per_image=9, vision_config=dict(hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2, image_size=24, patch_size=4,
                                            model_type="siglip_vision_model", vision_use_head=False)),
                   processor=lambda: gemma3(size=dict(height=24, width=24)), read=whole, sizes=[(1, 1), (300, 17), (24, 24), (25, 25)]),
}


def rows_of(model, inputs):
    """[rows][n_embd * (1 + deepstack)]"""
    core = model.model
    inputs = {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()}
    got = core.get_image_features(**inputs)
    out = got.pooler_output
    out = torch.cat(list(out)) if isinstance(out, (tuple, list)) else out
    deep = [torch.cat(list(d)) if isinstance(d, (tuple, list)) else d for d in getattr(got, "deepstack_features", None) or []]
    return torch.cat([out.reshape(-1, out.shape[-1]), *deep], -1).double().numpy()


TEXT_BETWEEN = ([3, 14, 15, 9], [26, 5, 35], [8, 9, 7, 9, 3, 23, 46, 2, 6])


def talk(model, pictures):
    """Two pictures with text before, between and behind: ids, and the logits at the rows of text behind the first picture."""
    given = [len(rows_of(model, p)) for p in pictures]
    ids, at = [], []
    for text, n in zip(TEXT_BETWEEN, [*given, 0]):
        ids += text
        at.append(len(ids))
        ids += [IMAGE] * n
    ids = torch.tensor([ids])
    inputs = {k: torch.cat([p[k] for p in pictures]) if pictures[0][k].shape[1:] == pictures[1][k].shape[1:] else [p[k] for p in pictures] for k in pictures[0]}
    inputs = {k: v.double() if torch.is_floating_point(v) else v for k, v in inputs.items()}
    kinds = (ids == IMAGE).long()
    names = inspect.signature(model.forward).parameters
    more = {k: kinds for k in ("token_type_ids", "mm_token_type_ids") if k in names}
    logits = model(input_ids=ids, **inputs, **more, use_cache=False).logits[0].double().numpy()
    return ids[0].numpy(), at[:-1], given, logits


def write_talk(path, which, ids, at, given, logits):
    keep = [i for i in range(at[0] + given[0], len(ids)) if ids[i] != IMAGE]
    with open(path, "wb") as f:
        np.array([len(ids), logits.shape[1], len(keep), *which, *at, *given], "<i4").tofile(f)
        np.array([logits.std()], "<f4").tofile(f)
        np.array([*ids, *keep], "<i4").tofile(f)
        logits[keep].astype("<f4").tofile(f)


def clean(path, image):
    """config.json as it is; of the processor what says numbers."""
    keep = ("size", "image_mean", "image_std", "patch_size", "min_pixels", "max_pixels", "do_image_splitting", "max_image_size", "max_soft_tokens")
    (path / "preprocessor_config.json").write_text(json.dumps({k: v for k, v in image.to_dict().items() if k in keep}, indent=2, sort_keys=True) + "\n")


@torch.no_grad()
def make(name):
    row = ROWS[name]
    torch.manual_seed(zlib.crc32(name.encode()))
    model = folder.build(row)
    processor = row["processor"]()
    path = VISION / name
    model.double()
    all_rows, heads, seen = [], [], []
    for i, (width, height) in enumerate(row["sizes"]):
        inputs, size = row["read"](processor, picture(width, height, i))
        seen.append(inputs)
        all_rows.append(rows_of(model, inputs))
        heads.append([width, height, *size, len(all_rows[-1])])
        print(name, (width, height), "->", size, all_rows[-1].shape)
    which = row.get("talk", (0, 1))
    told = None if row.get("alone") else talk(model, [seen[i] for i in which])
    model.bfloat16()  # exact: fill() rounded. It rounds frequencies of rotation, too, so nothing is computed behind it
    model.config.dtype = torch.bfloat16
    folder.save(model, path)
    if "after" in row:
        row["after"](path)
    clean(path, processor)
    with open(path / "rows.bin", "wb") as f:
        np.array([len(heads), all_rows[0].shape[1]], "<i4").tofile(f)
        np.array([np.concatenate(all_rows).std()], "<f4").tofile(f)
        for head, rows in zip(heads, all_rows):
            np.array(head, "<i4").tofile(f)
            rows.astype("<f4").tofile(f)
    if told:
        write_talk(path / "talk.bin", which, *told)
