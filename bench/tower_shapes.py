#!/usr/bin/env python3
"""Pairs of a text model and its tower in the shapes of published ones, with random numbers in float16: for figures, not for answers.
usage: tower_shapes.py SHAPE FOLDER [LAYERS]      model.gguf of so many layers (2; 30: as SmolLM2-135M) and mmproj-model.gguf
shapes: smolvlm-256m (pictures of 512 x 512 to 1,024 pixels a side), qwen3vl-2b. Standard library only."""
import math, os, random, struct, sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path.insert(0, os.path.join(ROOT, "tests/lib"))
import sight_files
from sight_files import ARRAY, BOOL, F32, I32, STRING, U32, text

F16 = 1


def u32(x): return U32, struct.pack("<I", x)
def f32(x): return F32, struct.pack("<f", x)
def string(x): return STRING, x.encode()
def many(kind, form, values): return ARRAY, (kind, [struct.pack(form, v) for v in values])


class Tensors:
    def __init__(self): self.table, self.n, self.data, self.rng = [], 0, bytearray(), random.Random(1)

    def put(self, name, shape, kind, data):
        self.table.append(text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape) + struct.pack("<IQ", kind, len(self.data)))
        self.data += data + b"\0" * (-len(data) % 32)

    def matrix(self, name, *shape):
        """numbers near 1 / sqrt(columns), of both signs"""
        columns = math.prod(shape[:-1]) if len(shape) == 4 else shape[0]
        high = (15 - round(math.log2(columns) / 2)) << 2
        data = bytearray(self.rng.randbytes(2 * math.prod(shape)))
        data[1::2] = data[1::2].translate(bytes(b & 0x83 | high for b in range(256)))
        self.put(name, shape, F16, bytes(data))

    def vector(self, name, n, value=0): self.put(name, (n,), 0, struct.pack("<f", value) * n)
    def linear(self, name, k, n): self.matrix(name + ".weight", k, n), self.vector(name + ".bias", n)
    def norm(self, name, n): self.vector(name + ".weight", n, 1), self.vector(name + ".bias", n)

    def write(self, path, keys): sight_files.write(path, keys, (len(self.table), b"".join(self.table)), bytes(self.data))


def text_model(path, arch, embd, ff, heads, kv_heads, layers, names, more={}):
    r = sight_files.Reader(open(os.path.join(ROOT, "tests/golden/chat/chat-llama.gguf"), "rb").read())
    r.take(16)
    keys = {}
    for _ in range(r.u(8)):
        name, kind = r.take(r.u(8)).decode(), r.u(4)
        if name.startswith(("general.", "tokenizer.")): keys[name] = kind, r.value(kind)
        else: r.value(kind)
    tokens, types = keys["tokenizer.ggml.tokens"][1][1], keys["tokenizer.ggml.token_type"][1][1]
    for byte, name in zip((0xFF, 0xFE, 0xFD, 0xFC, 0xFB), names):  # bytes that no text has
        at = tokens.index(chr(byte).encode())
        tokens[at], types[at] = name.encode(), struct.pack("<i", 3)
    keys["general.architecture"] = string(arch)
    keys |= {f"{arch}.{k}": v for k, v in {
        "block_count": u32(layers), "context_length": u32(8192), "embedding_length": u32(embd), "feed_forward_length": u32(ff), "attention.head_count": u32(heads),
        "attention.head_count_kv": u32(kv_heads), "attention.layer_norm_rms_epsilon": f32(1e-5), "rope.freq_base": f32(1e5), "vocab_size": u32(len(tokens)), **more}.items()}
    t, dim = Tensors(), more["attention.key_length"][1] if "attention.key_length" in more else None
    dim = struct.unpack("<I", dim)[0] if dim else embd // heads
    t.matrix("token_embd.weight", embd, len(tokens))
    t.vector("output_norm.weight", embd, 1)
    for i in range(layers):
        b = f"blk.{i}."
        t.vector(b + "attn_norm.weight", embd, 1), t.vector(b + "ffn_norm.weight", embd, 1)
        t.matrix(b + "attn_q.weight", embd, heads * dim), t.matrix(b + "attn_output.weight", heads * dim, embd)
        for x in "kv": t.matrix(b + f"attn_{x}.weight", embd, kv_heads * dim)
        if arch == "qwen3vl":
            for x in "qk": t.vector(b + f"attn_{x}_norm.weight", dim, 1)
        t.matrix(b + "ffn_gate.weight", embd, ff), t.matrix(b + "ffn_up.weight", embd, ff), t.matrix(b + "ffn_down.weight", ff, embd)
    t.write(path, keys)


def tower(path, projector, embd, ff, layers, heads, image, patch, n_text, merge, fused, mean, more, parts):
    t, v = Tensors(), "clip.vision."
    keys = {"general.architecture": string("clip"), "general.type": string("mmproj"), "general.file_type": u32(1), "clip.has_vision_encoder": (BOOL, b"\1"), "clip.projector_type": string(projector),
            "clip.use_gelu": (BOOL, b"\1"), v + "embedding_length": u32(embd), v + "feed_forward_length": u32(ff), v + "block_count": u32(layers),
            v + "attention.head_count": u32(heads), v + "projection_dim": u32(n_text), v + "attention.layer_norm_epsilon": f32(1e-6), v + "image_size": u32(image),
            v + "patch_size": u32(patch), v + "image_mean": many(F32, "<f", [mean] * 3), v + "image_std": many(F32, "<f", [0.5] * 3), **{v + k: x for k, x in more.items()}}
    t.matrix("v.patch_embd.weight", patch, patch, 3, embd)
    if fused: t.matrix("v.patch_embd.weight.1", patch, patch, 3, embd)
    t.vector("v.patch_embd.bias", embd)
    t.put("v.position_embd.weight", (embd, (image // patch) ** 2), 0, struct.pack("<f", 0.1) * (embd * (image // patch) ** 2))
    t.norm("v.post_ln", embd)
    for i in range(layers):
        b = f"v.blk.{i}."
        t.norm(b + "ln1", embd), t.norm(b + "ln2", embd)
        if fused: t.linear(b + "attn_qkv", embd, 3 * embd)
        else: [t.linear(b + "attn_" + x, embd, embd) for x in "qkv"]
        t.linear(b + "attn_out", embd, embd), t.linear(b + "ffn_up", embd, ff), t.linear(b + "ffn_down", ff, embd)
    parts(t, merge * merge * embd)
    t.write(path, keys)


def smolvlm(folder, layers):
    text_model(folder + "/model.gguf", "llama", 576, 1536, 9, 3, layers, ["<image>", "<fake_token_around_image>", "<global-img>", "<row_1_col_1>", "<end_of_utterance>"])
    tower(folder + "/mmproj-model.gguf", "idefics3", 768, 3072, 12, 12, 512, 16, 576, 4, False, 0.5, {"projector.scale_factor": u32(4), "preproc_image_size": u32(1024)},
          lambda t, wide: t.matrix("mm.model.fc.weight", wide, 576))


def qwen3vl(folder, layers):
    def parts(t, wide):
        t.linear("mm.0", wide, wide), t.linear("mm.2", wide, 2048)
        for i in (5, 11, 17): t.norm(f"v.deepstack.{i}.norm", wide), t.linear(f"v.deepstack.{i}.fc1", wide, wide), t.linear(f"v.deepstack.{i}.fc2", wide, 2048)
    text_model(folder + "/model.gguf", "qwen3vl", 2048, 6144, 16, 8, max(layers, 4), ["<|image_pad|>", "<|vision_start|>", "<|vision_end|>"],
               {"attention.key_length": u32(128), "attention.value_length": u32(128), "n_deepstack_layers": u32(3), "rope.dimension_sections": many(I32, "<i", [24, 20, 20, 0])})
    tower(folder + "/mmproj-model.gguf", "qwen3vl_merger", 1024, 4096, 24, 16, 768, 16, 2048, 2, True, 0.5,
          {"spatial_merge_size": u32(2), "is_deepstack_layers": many(BOOL, "<?", [i in (5, 11, 17) for i in range(24)])}, parts)


if __name__ == "__main__":
    shapes = {"smolvlm-256m": smolvlm, "qwen3vl-2b": qwen3vl}
    if len(sys.argv) < 3 or sys.argv[1] not in shapes: sys.exit(__doc__)
    os.makedirs(sys.argv[2], exist_ok=True)
    shapes[sys.argv[1]](sys.argv[2], int((sys.argv[3:] or ["2"])[0]))
