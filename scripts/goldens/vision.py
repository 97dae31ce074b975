"""Tiny models with towers for images, as folders, and what transformers makes of pictures with them: rows of the tower, logits behind them."""
import inspect
import json
import zlib

import numpy as np
import PIL.Image
import torch
import transformers as t

from . import folder, resampler
from .dense import GEMMA, LLAMA3, SMALL, layers, published, tower
from .moe import FEW, GLM, as_llama4
from .state import DELTA, LFM
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


def gridded(processor, image):
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import get_optimal_tiled_canvas

    out = processor(PIL.Image.fromarray(image), return_tensors="pt")
    side = out["pixel_values"].shape[-1]
    across, down = get_optimal_tiled_canvas(image.shape[:2], (side, side), processor.min_patches, processor.max_patches)
    return dict(pixel_values=out["pixel_values"]), (across * side, down * side)


def canvas(processor, image):
    out = processor(PIL.Image.fromarray(image), return_tensors="pt")
    down, across = (int(n) for n in out["aspect_ratios"][0])
    side = out["pixel_values"].shape[-1]
    return dict(pixel_values=out["pixel_values"]), (across * side, down * side)


def sliced(processor, image):
    out = processor(PIL.Image.fromarray(image), return_tensors="pt")
    down, across = out["grids"][0]
    height, width = (int(n) * processor.patch_size for n in out["target_sizes"][1 if down else 0])
    return {k: out[k] for k in ("pixel_values", "target_sizes")}, (max(across, 1) * width, max(down, 1) * height)


def near(processor, image):
    """LFM2-VL: tiles and the whole, or the whole alone."""
    out = processor(PIL.Image.fromarray(image), return_tensors="pt", return_row_col_info=True)
    down, across, size = (out[k][0] for k in ("image_rows", "image_cols", "image_sizes"))
    tiles = max(int(down), int(across)) > 1
    to = [int(across) * processor.tile_size, int(down) * processor.tile_size] if tiles else [int(size[1]), int(size[0])]
    return {k: out[k] for k in ("pixel_values", "pixel_attention_mask", "spatial_shapes")}, tuple(to)


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


HALVES = dict(image_mean=[0.5] * 3, image_std=[0.5] * 3)


def qwen(**more):
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    return Qwen2VLImageProcessorPil(merge_size=2, temporal_patch_size=2, **more)


def pixtral(**more):
    from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil

    return PixtralImageProcessorPil(**more)


def idefics3(**more):
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

    return Idefics3ImageProcessorPil(image_mean=[0.5] * 3, image_std=[0.5] * 3, **more)


def internvl(**more):
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil

    return GotOcr2ImageProcessorPil(image_mean=[0.485, 0.456, 0.406], image_std=[0.229, 0.224, 0.225], crop_to_patches=True, **more)


def pillow():
    """Where there is no other processor: Pillow's filter, which torchvision's differs from by one step."""
    from transformers.image_processing_backends import TorchvisionBackend

    def resize(self, image, size, **how):
        images = [PIL.Image.fromarray(x.permute(1, 2, 0).numpy()).resize((size.width, size.height), PIL.Image.BILINEAR) for x in image]
        return torch.stack([torch.from_numpy(np.array(x)).permute(2, 0, 1) for x in images])

    TorchvisionBackend.resize = resize


def lfm2(**more):
    from transformers.models.lfm2_vl.image_processing_lfm2_vl import Lfm2VlImageProcessor

    pillow()
    return Lfm2VlImageProcessor(**HALVES, **more)


def glm4v(**more):
    from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil

    return Glm4vImageProcessorPil(merge_size=2, temporal_patch_size=2, **more)


def llama4(**more):
    from transformers.modeling_outputs import MoeCausalLMOutputWithPast
    from transformers.models.llama4.image_processing_llama4 import Llama4ImageProcessor

    MoeCausalLMOutputWithPast.image_outputs = None  # which the model of version 5.24 asks the text model's output for
    pillow()
    return Llama4ImageProcessor(**HALVES, **more)


def projected(model, inputs):
    """Llama 4: its tower's rows without the projector are what get_image_features gives."""
    return model.multi_modal_projector(model.get_image_features(inputs["pixel_values"].double()).last_hidden_state).flatten(0, 1).numpy()


def minicpm(**more):
    from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import MiniCPMV4_6ImageProcessorPil

    return MiniCPMV4_6ImageProcessorPil(**more)


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


def apart(model):
    """Rows of a picture that differ: with places that weigh less they are nearly one row, and what they see of each other does not show."""
    for name, p in model.named_parameters():
        if name.endswith("position_embedding.weight"):
            p.mul_(8)
        if name.endswith("post_layernorm.bias"):
            p.mul_(0.125)


def as_internvl_chat(path):
    """The folder as OpenGVLab publishes it, with code of its own: other names, q, k and v in one."""
    import safetensors.torch as st

    whole = {"vision_tower.embeddings.cls_token": "vision_model.embeddings.class_embedding", "vision_tower.embeddings.position_embeddings": "vision_model.embeddings.position_embedding"}
    parts = [("vision_tower.embeddings.patch_embeddings.projection.", "vision_model.embeddings.patch_embedding."), ("vision_tower.encoder.layer.", "vision_model.encoder.layers."),
             ("attention.projection_layer.", "attn.proj."), ("layernorm_before.", "norm1."), ("layernorm_after.", "norm2."), ("lambda_", "ls"), ("multi_modal_projector.layer_norm.", "mlp1.0."),
             ("multi_modal_projector.linear_1.", "mlp1.1."), ("multi_modal_projector.linear_2.", "mlp1.3."), ("lm_head.", "language_model.lm_head.")]
    old, new = {k.removeprefix("model."): p for k, p in st.load_file(path / "model.safetensors").items()}, {}
    for name, p in old.items():
        to = whole.get(name, name)
        if name.startswith("language_model.") and not name.startswith("language_model.model."):
            to = "language_model.model." + name.removeprefix("language_model.")
        for a, b in parts:
            to = to.replace(a, b)
        if "attention.q_proj" in name:
            new[to.replace("attention.q_proj", "attn.qkv")] = torch.cat([old[name.replace("q_proj", x)] for x in ("q_proj", "k_proj", "v_proj")])
        elif "vision_tower" not in name or "attention.k_proj" not in name and "attention.v_proj" not in name:
            new[to] = p
    st.save_file(new, path / "model.safetensors", metadata={"format": "pt"})
    c = json.loads((path / "config.json").read_text())
    v = c["vision_config"]
    config = dict(architectures=["InternVLChatModel"], model_type="internvl_chat", llm_config=c["text_config"], downsample_ratio=0.5, dynamic_image_size=True, force_image_size=v["image_size"][0],
                  max_dynamic_patch=3, min_dynamic_patch=1, ps_version="v2", select_layer=-1, template="internvl2_5", use_backbone_lora=0, use_llm_lora=0, use_thumbnail=True, pad2square=False,
                  tie_word_embeddings=c["tie_word_embeddings"], torch_dtype="bfloat16",
                  vision_config=dict({k: v[k] for k in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "hidden_act", "layer_norm_eps", "norm_type")}, model_type="intern_vit_6b",
                                     image_size=v["image_size"][0], patch_size=v["patch_size"][0], qkv_bias=True, qk_normalization=False, use_moe=False, num_experts=8))
    (path / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def without_biases(path):
    """config.json with a key that published folders have and transformers does not write."""
    config = json.loads((path / "config.json").read_text())
    config["text_config"]["attention_bias"] = False
    (path / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


TEXT = {**SMALL, "num_hidden_layers": 2}
MROPE = dict(rope_type="default", rope_theta=10000.0, mrope_section=[2, 2, 2], mrope_interleaved=True)
SECTIONS = dict(rope_type="default", rope_theta=10000.0, mrope_section=[1, 1, 2])
QWEN_IDS = dict(image_token_id=IMAGE, vision_start_token_id=58, vision_end_token_id=59, video_token_id=57)
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
    "qwen3vl": dict(tower("Qwen3VL", "a table resized, pairs turned, two layers into the text model's", {**TEXT, "num_hidden_layers": 3, "head_dim": 12, "rope_parameters": MROPE}, **QWEN_IDS,
                          vision_config=dict(depth=3, hidden_size=24, intermediate_size=20, num_heads=2, out_hidden_size=32, patch_size=4, deepstack_visual_indexes=[0, 2],
                                             num_position_embeddings=25)),
                    processor=lambda: qwen(**HALVES, patch_size=4, size=dict(shortest_edge=256, longest_edge=3200)), read=from_patches, talk=(5, 4),
                    sizes=[(1, 1), (600, 17), (32, 24), (33, 25), (28, 12), (20, 90)]),
    "qwen3_5": dict(tower("Qwen3_5", "the same tower without parts for later layers, a text model with states", {
        **FEW, **DELTA, "model_type": "qwen3_5_text", "num_hidden_layers": 2, "rope_parameters": HYBRID_MROPE, "layer_types": ["linear_attention", "full_attention"]},
        zero_centred=True, **QWEN_IDS,
        vision_config=dict(depth=2, hidden_size=16, intermediate_size=20, num_heads=2, out_hidden_size=32, patch_size=4, num_position_embeddings=16)),
        processor=lambda: qwen(**HALVES, patch_size=4, size=dict(shortest_edge=256, longest_edge=1600)), read=from_patches, sizes=[(40, 16), (20, 41)]),
    "qwen2_5_vl": dict(tower("Qwen2_5_VL", "windows of 3 x 3 rows, each second block sees all, gates, pairs turned", {**TEXT, "rope_parameters": SECTIONS}, **QWEN_IDS,
                             vision_config=dict(depth=4, hidden_size=24, intermediate_size=20, num_heads=2, out_hidden_size=32, patch_size=4, window_size=24, fullatt_block_indexes=[1, 3])),
                       processor=lambda: qwen(patch_size=4, size=dict(shortest_edge=256, longest_edge=3200)), read=from_patches, talk=(5, 4),
                       sizes=[(1, 1), (600, 17), (32, 24), (33, 25), (28, 12), (20, 90)]),
    "qwen2_vl": dict(tower("Qwen2VL", "pairs turned, quick GELU", {**TEXT, "rope_parameters": SECTIONS}, **QWEN_IDS,
                           vision_config=dict(depth=2, embed_dim=24, mlp_ratio=2, num_heads=2, hidden_size=32, patch_size=4)),
                     processor=lambda: qwen(patch_size=4, size=dict(shortest_edge=256, longest_edge=1600)), read=from_patches, sizes=[(40, 16), (20, 41)]),
    "pixtral": dict(tower("Mistral3", "neighbours turned by line and column, 2 x 2 merged", {**TEXT, "model_type": "mistral", "head_dim": 16, "sliding_window": None, "rms_norm_eps": 1e-4},
                          image_token_index=IMAGE, vision_config=dict(hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2, head_dim=12, image_size=48, patch_size=4,
                                             model_type="pixtral", hidden_act="silu")),
                    processor=lambda: pixtral(patch_size=dict(height=8, width=8), size=dict(longest_edge=48)), read=whole_sized, talk=(2, 5),
                    sizes=[(9, 1), (3000, 80), (40, 24), (41, 25), (30, 200), (39, 23)]),
    "idefics3": dict(tower("Idefics3", "tiles and the whole, 2 x 2 patches beside each other", {**TEXT, "model_type": "llama", "head_dim": 8}, image_token_id=IMAGE, scale_factor=2,
                           vision_config=dict(hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2, image_size=24, patch_size=4)),
                     processor=lambda: idefics3(size=dict(longest_edge=48), max_image_size=dict(longest_edge=24)), read=tiled, talk=(0, 2), sizes=[(1, 1), (300, 17), (48, 48), (33, 47), (20, 90)]),
    "internvl": dict(tower("InternVL", "a row of a class beside patches, layer scales, the grid of tiles that is nearest, a text model of another kind", {**TEXT, "model_type": "qwen3", "head_dim": 12}, image_token_id=IMAGE,
                           image_seq_length=9, vision_config=dict(hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2, image_size=24, patch_size=4, attention_bias=True,
                                                                  layer_norm_eps=1e-4)),
                     processor=lambda: internvl(size=dict(height=24, width=24), max_patches=5), read=gridded, talk=(0, 3), sizes=[(1, 1), (3000, 17), (48, 48), (49, 24), (20, 90), (24, 24)]),
    "internvl-rms": dict(tower("InternVL", "RMS norms, also of q and k", {**TEXT, "model_type": "qwen2"}, image_token_id=IMAGE, image_seq_length=4,
                               vision_config=dict(hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2, image_size=16, patch_size=4, norm_type="rms_norm", use_qk_norm=True)),
                         processor=lambda: internvl(size=dict(height=16, width=16), max_patches=3), read=gridded, sizes=[(40, 16), (20, 20)]),
    "lfm2": dict(tower("Lfm2Vl", "a table smoothed, tiles and a whole of another shape, a text model with states", {
        **TEXT, **LFM, "model_type": "lfm2", "num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"], "block_auto_adjust_ff_dim": False}, image_token_id=IMAGE,
        projector_hidden_size=28, vision_config=dict(hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2, patch_size=4, num_patches=25, model_type="siglip2_vision_model", vision_use_head=False)),
        processor=lambda: lfm2(encoder_patch_size=4, tile_size=24, min_image_tokens=4, max_image_tokens=12, min_tiles=2, max_tiles=4), read=near, talk=(1, 4), sizes=[(1, 1), (150, 17), (48, 24), (49, 25), (28, 12), (33, 50), (60, 7)]),
    "glm4v": dict(tower("Glm4v", "a table resized with a cubic, a convolution of patches, a gated part behind it", {
        **TEXT, "num_attention_heads": 2, "num_key_value_heads": 1, "rope_parameters": dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5, mrope_section=[1, 1, 2])},
        image_token_id=IMAGE, image_start_token_id=58, image_end_token_id=59, video_start_token_id=55, video_end_token_id=56, video_token_id=57,
        vision_config=dict(depth=2, hidden_size=24, intermediate_size=28, num_heads=2, out_hidden_size=32, patch_size=4, image_size=20, rms_norm_eps=1e-4)),
        processor=lambda: glm4v(patch_size=4, size=dict(shortest_edge=512, longest_edge=6400)), read=from_patches, talk=(5, 4),
        sizes=[(1, 1), (600, 17), (32, 24), (33, 25), (28, 12), (20, 90), (3, 90)]),
    "glm4v_moe": dict(tower("Glm4vMoe", "the same with a text model of experts", {
        **TEXT, **GLM, "num_hidden_layers": 2, "attention_bias": True, "rope_parameters": dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5, mrope_section=[1, 0, 1])},
        image_token_id=IMAGE, image_start_token_id=58, image_end_token_id=59, video_start_token_id=55, video_end_token_id=56, video_token_id=57,
        vision_config=dict(depth=2, hidden_size=24, intermediate_size=28, num_heads=2, out_hidden_size=32, patch_size=4, image_size=12, rms_norm_eps=1e-4)),
        processor=lambda: glm4v(patch_size=4, size=dict(shortest_edge=512, longest_edge=6400)), read=from_patches, sizes=[(40, 16), (20, 41)]),
    "glm_ocr": dict(tower("GlmOcr", "no table, q and k normalised, biases", {
        **TEXT, "head_dim": 12, "rope_parameters": dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=1.0, mrope_section=[2, 2, 2])},
        image_token_id=IMAGE, image_start_token_id=58, image_end_token_id=59, video_start_token_id=55, video_end_token_id=56, video_token_id=57, after=without_biases,
        vision_config=dict(depth=2, hidden_size=24, intermediate_size=28, num_heads=2, out_hidden_size=32, patch_size=4, image_size=20, rms_norm_eps=1e-4)),
        processor=lambda: glm4v(patch_size=4, size=dict(shortest_edge=512, longest_edge=6400)), read=from_patches, talk=(1, 0), sizes=[(40, 16), (20, 41), (3, 90)]),
    "llama4": dict(tower("Llama4", "a row of a class behind patches, neighbours turned by column and line, tiles on a canvas, pixels in bfloat16", {
        **FEW, "model_type": "llama4_text", "num_hidden_layers": 2, "head_dim": 8, "hidden_size": 24, "intermediate_size": 16, "intermediate_size_mlp": 32, "num_local_experts": 3,
        "num_experts_per_tok": 2, "interleave_moe_layer_step": 1, "use_qk_norm": False, "attention_chunk_size": 256, "floor_scale": 16, "attn_scale": 0.3, "rope_parameters": LLAMA3},
        after=as_llama4, image_token_index=IMAGE, vision_config=dict(hidden_size=24, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2, image_size=24, patch_size=4,
                                              vision_output_dim=20, projector_input_dim=20, projector_output_dim=20)),
        processor=lambda: llama4(size=dict(height=24, width=24), max_patches=5), read=canvas, rows=projected, talk=(0, 3), sizes=[(1, 1), (3000, 17), (48, 48), (49, 24), (20, 90), (24, 24), (30, 26)]),
    "minicpmv4_6": dict(tower("MiniCPMV4_6", "the nearest of a table, four patches to one behind a block, slices of other shapes than the whole", {
        **FEW, **DELTA, "model_type": "qwen3_5_text", "num_hidden_layers": 2, "rope_parameters": HYBRID_MROPE, "layer_types": ["linear_attention", "full_attention"]},
        zero_centred=True, image_token_id=IMAGE, video_token_id=57, insert_layer_id=1, vision_config=dict(hidden_size=24, intermediate_size=20, num_hidden_layers=4, num_attention_heads=2,
                                                                                                    image_size=20, patch_size=4)),
        processor=lambda: minicpm(patch_size=4, scale_resolution=48, max_slice_nums=4), read=sliced, side_by_side=("pixel_values",), talk=(0, 3), sizes=[(1, 1), (150, 17), (48, 48), (49, 60), (20, 90), (100, 100)]),
    "minicpmv4_6-4x": dict(tower("MiniCPMV4_6", "without the part behind a block: four times as many rows", {
        **FEW, **DELTA, "model_type": "qwen3_5_text", "num_hidden_layers": 2, "rope_parameters": HYBRID_MROPE, "layer_types": ["linear_attention", "full_attention"]},
        zero_centred=True, image_token_id=IMAGE, video_token_id=57, insert_layer_id=0, downsample_mode="4x",
        vision_config=dict(hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2, image_size=20, patch_size=4)),
        processor=lambda: minicpm(patch_size=4, scale_resolution=24, max_slice_nums=2, downsample_mode="4x"), read=sliced, side_by_side=("pixel_values",), sizes=[(40, 16), (10, 20)]),
    "minicpmv": dict(about="queries that see patches, slices of other shapes than the whole", config=resampler.config, model=resampler.MiniCPMV, prepare=resampler.coarse,
                     options=dict(SMALL, hidden_size=256, num_hidden_layers=1, head_dim=16, query_num=6, version=2.6, slice_mode=True, use_image_id=True, drop_vision_last_layer=False, image_id=IMAGE,
                                  text_class="Qwen2ForCausalLM", image_size=48, patch_size=4, slice_config=dict(max_slice_nums=4, patch_size=4, model_type="minicpmv"),
                                  vision_config=dict(hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2, image_size=20, patch_size=4, layer_norm_eps=1e-6,
                                                     hidden_act="gelu_pytorch_tanh", model_type="siglip_vision_model")),
                     processor=lambda: resampler.Slices(patch_size=4, scale_resolution=48, max_slice_nums=4), read=resampler.read, rows=resampler.rows_of, talk=(0, 3),
                     sizes=[(1, 1), (150, 17), (48, 48), (49, 60), (20, 90), (100, 100)]),
    "internvl_chat": dict(tower("InternVL", "the folder of other names", {**TEXT, "model_type": "qwen2"}, image_token_id=IMAGE, image_seq_length=4, after=as_internvl_chat,
                                vision_config=dict(hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2, image_size=16, patch_size=4, attention_bias=True)),
                          processor=lambda: internvl(size=dict(height=16, width=16), max_patches=3), read=gridded, sizes=[(40, 16), (20, 20)]),
    "gemma3": dict(tower("Gemma3", "a table, means of 2 x 2, one size", {**TEXT, **GEMMA, "model_type": "gemma3_text", "query_pre_attn_scalar": 20, "layer_types": layers(1, 0)}, zero_centred=True,
                         image_token_index=IMAGE, mm_tokens_per_image=9, vision_config=dict(hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2, image_size=24, patch_size=4,
                                            model_type="siglip_vision_model", vision_use_head=False)),
                   processor=lambda: gemma3(size=dict(height=24, width=24)), prepare=apart, seed=17, keep_pictures=True, talk=(2, 3), read=whole, sizes=[(1, 1), (300, 17), (24, 24), (25, 25)]),
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


def talk(model, pictures, rows_of, side_by_side=()):
    """Two pictures with text before, between and behind: ids, and the logits at the rows of text behind the first picture."""
    given = [len(rows_of(model, p)) for p in pictures]
    ids, at = [], []
    for text, n in zip(TEXT_BETWEEN, [*given, 0]):
        ids += text
        at.append(len(ids))
        ids += [IMAGE] * n
    ids = torch.tensor([ids])
    inputs = {k: torch.cat([p[k] for p in pictures], -1) if k in side_by_side else torch.cat([p[k] for p in pictures]) if pictures[0][k].shape[1:] == pictures[1][k].shape[1:] else [p[k] for p in pictures] for k in pictures[0]}
    inputs = {k: v.double() if torch.is_floating_point(v) else v for k, v in inputs.items()}
    kinds = (ids == IMAGE).long()
    names = inspect.signature(model.forward).parameters
    more = {k: kinds for k in ("token_type_ids", "mm_token_type_ids") if k in names}
    logits = model(input_ids=ids, **inputs, **more, use_cache=False).logits[0].double().numpy()
    return ids[0].numpy(), at[:-1], given, logits


def write_talk(path, which, ids, at, given, logits, pictures):
    """Logits of the rows of text behind the first picture; pictures: also of all rows of these."""
    keep = range(at[0], len(ids)) if pictures else [i for i in range(at[0] + given[0], len(ids)) if ids[i] != IMAGE]
    with open(path, "wb") as f:
        np.array([len(ids), logits.shape[1], len(keep), *which, *at, *given], "<i4").tofile(f)
        np.array([logits.std()], "<f4").tofile(f)
        np.array([*ids, *keep], "<i4").tofile(f)
        logits[keep].astype("<f4").tofile(f)


def clean(path, image):
    """config.json as it is; of the processor what says numbers."""
    keep = ("size", "image_mean", "image_std", "patch_size", "min_pixels", "max_pixels", "do_image_splitting", "max_image_size", "max_soft_tokens", "min_patches",
            "max_patches", "scale_resolution", "max_slice_nums", "norm_mean", "norm_std", "tile_size", "min_tiles", "max_tiles", "min_image_tokens", "max_image_tokens")
    (path / "preprocessor_config.json").write_text(json.dumps({k: v for k, v in image.to_dict().items() if k in keep}, indent=2, sort_keys=True) + "\n")


@torch.no_grad()
def make(name):
    row = ROWS[name]
    torch.manual_seed(zlib.crc32(name.encode()) + row.get("seed", 0))
    model = folder.build(row)
    processor, features = row["processor"](), row.get("rows", rows_of)
    path = VISION / name
    model.double()
    all_rows, heads, seen = [], [], []
    for i, (width, height) in enumerate(row["sizes"]):
        inputs, size = row["read"](processor, picture(width, height, i))
        seen.append(inputs)
        all_rows.append(features(model, inputs))
        heads.append([width, height, *size, len(all_rows[-1])])
        print(name, (width, height), "->", size, all_rows[-1].shape)
    which = row.get("talk", (0, 1))
    told = None if row.get("alone") else talk(model, [seen[i] for i in which], features, row.get("side_by_side", ()))
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
        write_talk(path / "talk.bin", which, *told, row.get("keep_pictures", False))
