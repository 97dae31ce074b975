"""Towers with the sizes that published ones have, two narrow blocks, and what transformers makes with them of the pictures that
build/tests/test_drawn --write draws: some rows of each picture, and a sum of all."""
import pathlib
import subprocess
import tempfile
import zlib

import numpy as np
import PIL.Image
import safetensors.torch as st
import torch

from . import folder, vision
from .dense import GEMMA, published, tower
from .moe import FEW
from .state import DELTA

DRAWN = folder.HF.parent / "drawn"
TEXT = dict(vision.TEXT, num_hidden_layers=1, hidden_size=16, head_dim=12)
NARROW = dict(hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=2)
MROPE = dict(vision.MROPE)
GEMMA4 = {**vision.GEMMA4, "model_type": "gemma4_text", "use_bidirectional_attention": "vision", "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 71, "hidden_size": 16}
ROWS = {
    "qwen3vl": dict(tower("Qwen3VL", "", {**TEXT, "rope_parameters": MROPE}, **vision.QWEN_IDS,
                          vision_config=dict(depth=2, hidden_size=24, intermediate_size=20, num_heads=2, out_hidden_size=16, patch_size=16, deepstack_visual_indexes=[], num_position_embeddings=2304)),
                    processor=lambda: vision.qwen(**vision.HALVES, patch_size=16, size=dict(shortest_edge=65536, longest_edge=262144)), read=vision.from_patches, filter="BICUBIC"),
    "pixtral": dict(tower("Mistral3", "", {**TEXT, "model_type": "mistral", "sliding_window": None}, image_token_index=60,
                          vision_config=dict(NARROW, head_dim=12, image_size=1540, patch_size=14, model_type="pixtral", hidden_act="silu")),
                    processor=lambda: vision.pixtral(patch_size=dict(height=28, width=28), size=dict(longest_edge=560)), read=vision.whole_sized, filter="BICUBIC"),
    "idefics3": dict(tower("Idefics3", "", {**TEXT, "model_type": "llama"}, image_token_id=60, scale_factor=4, vision_config=dict(NARROW, image_size=256, patch_size=16)),
                     processor=lambda: vision.idefics3(size=dict(longest_edge=768), max_image_size=dict(longest_edge=256)), read=vision.tiled),
    "gemma4v": dict(tower("Gemma4", "", GEMMA4, after=published, audio_config=None, image_token_id=60,
                          vision_config=dict(NARROW, num_key_value_heads=2, head_dim=12, patch_size=16, position_embedding_size=320, standardize=True)),
                    processor=lambda: vision.budget(140, patch_size=16, pooling_kernel_size=3), read=vision.budgeted, filter="BICUBIC"),
    "minicpmv4_6": dict(tower("MiniCPMV4_6", "", {**FEW, **DELTA, "model_type": "qwen3_5_text", "num_hidden_layers": 2, "rope_parameters": vision.HYBRID_MROPE,
                                                 "layer_types": ["linear_attention", "full_attention"]}, zero_centred=True, image_token_id=60, video_token_id=57, insert_layer_id=0,
                              vision_config=dict(NARROW, image_size=490, patch_size=14)),
                        processor=lambda: vision.minicpm(patch_size=14, scale_resolution=224, max_slice_nums=9), read=vision.sliced, filter="BICUBIC"),
}


def mark(data):
    i = np.arange(data.size, dtype=np.uint64)
    odd = (i * np.uint64(2654435761) & np.uint64(0xFFFFFFFF)) | np.uint64(1)
    return int(((data.reshape(-1).astype(np.uint64) + np.uint64(1)) * odd & np.uint64(0xFFFFFFFF)).sum() & np.uint64(0xFFFFFFFF))


def sum_of(rows):
    share = (np.arange(len(rows), dtype=np.uint64) * np.uint64(2654435761) & np.uint64(0xFFFFFFFF)).astype(float) / 2**32 - 0.5
    return share @ rows / len(rows) ** 0.5


def save(model, path):
    """Of the weights those of the tower."""
    folder.save(model, path)
    file = path / "model.safetensors"
    st.save_file({k: v for k, v in st.load_file(file).items() if "language_model" not in k and "text_model" not in k and "lm_head" not in k}, file, metadata={"format": "pt"})


@torch.no_grad()
def make(name, pictures):
    row = ROWS[name]
    torch.manual_seed(zlib.crc32(name.encode()))
    model, processor = folder.build(row), row["processor"]()
    model.double()
    all_rows, heads = [], []
    for image in pictures:
        inputs, size = row["read"](processor, image)
        all_rows.append(vision.rows_of(model, inputs))
        resized = mark(np.asarray(PIL.Image.fromarray(image).resize(size, getattr(PIL.Image.Resampling, row["filter"])))) if "filter" in row else 0
        heads.append([image.shape[1], image.shape[0], *size, len(all_rows[-1]), mark(image), resized])
        print(name, image.shape[1::-1], "->", size, all_rows[-1].shape, flush=True)
    model.bfloat16()
    model.config.dtype = torch.bfloat16
    save(model, DRAWN / name)
    if "after" in row:
        row["after"](DRAWN / name)
    vision.clean(DRAWN / name, processor)
    with open(DRAWN / name / "rows.bin", "wb") as f:
        np.array([len(heads), all_rows[0].shape[1]], "<i4").tofile(f)
        np.array([np.concatenate(all_rows).std()], "<f4").tofile(f)
        for head, rows in zip(heads, all_rows):
            keep = sorted({k * (len(rows) - 1) // 9 for k in range(10)})
            np.array([*head, len(keep)], "<u4").tofile(f)
            np.array(keep, "<i4").tofile(f)
            rows[keep].astype("<f4").tofile(f)
            sum_of(rows).astype("<f4").tofile(f)


def make_all(names, program):
    with tempfile.TemporaryDirectory() as place:
        subprocess.run([program, "--write", place], check=True)
        files = sorted(pathlib.Path(place).glob("*.ppm"), key=lambda p: int(p.stem))
        pictures = [np.array(PIL.Image.open(p)) for p in files]
    for name in names or ROWS:
        make(name, pictures)
