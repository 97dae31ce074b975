"""A text model that knows the tokens of pictures, and a tower for it: chat-llama.gguf with three of its tokens renamed, and an mmproj file of
pixtral's kind with random weights. Without packages of others."""
import os
import random
import struct

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY, U32, F32, BOOL, I32 = 8, 9, 4, 6, 7, 5
PICTURE_TEMPLATE = """{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.content is string %}{{ m.content }}{% else %}\
{% for c in m.content %}{% if c.type == 'image' %}[IMG]{% else %}{{ c.text }}{% endif %}{% endfor %}{% endif %}{{ '<|im_end|>\\n' }}{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""


def text(s):
    b = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(b)) + b


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        self.at += n
        return self.data[self.at - n:self.at]

    def u(self, n):
        return int.from_bytes(self.take(n), "little")

    def value(self, kind):
        """the bytes of a value; an array of strings as a list"""
        if kind == STRING: return self.take(self.u(8))
        if kind != ARRAY: return self.take(SIZES[kind])
        item, n = self.u(4), self.u(8)
        return item, [self.value(item) for _ in range(n)]


def put_value(kind, value):
    if kind == STRING: return text(value)
    if kind != ARRAY: return value
    item, values = value
    return struct.pack("<IQ", item, len(values)) + b"".join(put_value(item, v) for v in values)


def write(path, keys, tensors, data):
    """keys: {name: (kind, value)}; tensors: bytes of the table of n; data behind it"""
    n, table = tensors
    out = b"GGUF" + struct.pack("<IQQ", 3, n, len(keys))
    out += b"".join(text(k) + struct.pack("<I", kind) + put_value(kind, v) for k, (kind, v) in keys.items()) + table
    with open(path, "wb") as f: f.write(out + b"\0" * (-len(out) % 32) + data)


def write_text_model(path, source, template=None):
    r = Reader(open(source, "rb").read())
    r.take(8)
    n, n_key = r.u(8), r.u(8)
    keys = {}
    for _ in range(n_key):
        name, kind = r.take(r.u(8)).decode(), r.u(4)
        keys[name] = (kind, r.value(kind))
    begin = r.at
    for _ in range(n):
        r.take(r.u(8))
        r.take(8 * r.u(4) + 12)
    table = r.data[begin:r.at]
    data = r.data[r.at + -r.at % 32:]
    tokens, types = keys["tokenizer.ggml.tokens"][1][1], keys["tokenizer.ggml.token_type"][1][1]
    for byte, name in ((0xFF, "[IMG]"), (0xFE, "[IMG_BREAK]"), (0xFD, "[IMG_END]")):
        at = tokens.index(chr(byte).encode())  # bytes that no text has; as letters of the byte-level alphabet they are themselves
        tokens[at], types[at] = name.encode(), struct.pack("<i", 3)
    keys["llama.context_length"] = (U32, struct.pack("<I", 2048))
    if template: keys["tokenizer.chat_template"] = (STRING, template.encode())
    write(path, keys, (n, table), data)


def write_tower(path, n_text, seed=1, projector="pixtral", edge=64):
    """One block of 16 numbers and 2 heads, patches of 8 x 8."""
    rng = random.Random(seed)
    embd, ff, patch = 16, 24, 8
    shapes = {"v.patch_embd.weight": (patch, patch, 3, embd), "v.pre_ln.weight": (embd,), "v.blk.0.ln1.weight": (embd,), "v.blk.0.ln2.weight": (embd,),
              "v.blk.0.attn_q.weight": (embd, embd), "v.blk.0.attn_k.weight": (embd, embd), "v.blk.0.attn_v.weight": (embd, embd),
              "v.blk.0.attn_out.weight": (embd, embd), "v.blk.0.ffn_gate.weight": (embd, ff), "v.blk.0.ffn_up.weight": (embd, ff),
              "v.blk.0.ffn_down.weight": (ff, embd), "mm.1.weight": (embd, n_text), "mm.2.weight": (n_text, n_text)}
    table, data = b"", b""
    for name, shape in shapes.items():
        count = 1
        for s in shape: count *= s
        values = [1 + rng.gauss(0, 0.1) if "ln" in name else rng.gauss(0, 0.3) for _ in range(count)]
        table += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape) + struct.pack("<IQ", 0, len(data))
        data += struct.pack(f"<{count}f", *values)
        data += b"\0" * (-len(data) % 32)
    def u32(x): return (U32, struct.pack("<I", x))
    def f32(x): return (F32, struct.pack("<f", x))
    three = lambda *x: (ARRAY, (F32, [struct.pack("<f", v) for v in x]))
    keys = {"general.architecture": (STRING, b"clip"), "general.type": (STRING, b"mmproj"), "clip.has_vision_encoder": (BOOL, b"\1"),
            "clip.projector_type": (STRING, projector.encode()), "clip.use_silu": (BOOL, b"\1"), "clip.vision.embedding_length": u32(embd),
            "clip.vision.feed_forward_length": u32(ff), "clip.vision.block_count": u32(1), "clip.vision.attention.head_count": u32(2),
            "clip.vision.projection_dim": u32(n_text), "clip.vision.attention.layer_norm_epsilon": f32(1e-5), "clip.vision.image_size": u32(edge),
            "clip.vision.patch_size": u32(patch), "clip.vision.image_mean": three(0.5, 0.4, 0.3), "clip.vision.image_std": three(0.3, 0.3, 0.3)}
    write(path, keys, (len(shapes), table), data)


def write_pair(folder, tests, template=PICTURE_TEMPLATE):
    """model.gguf and mmproj-model.gguf beside it"""
    write_text_model(os.path.join(folder, "model.gguf"), os.path.join(tests, "golden/chat/chat-llama.gguf"), template)
    write_tower(os.path.join(folder, "mmproj-model.gguf"), 64)
