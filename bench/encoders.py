#!/usr/bin/env python3
"""Error of the encoders beside llama.cpp's, as a Markdown table.

usage: encoders.py [--infer PROGRAM] [--model MODEL] [--elements N]
needs: pip install gguf numpy llama-cpp-python (a Python that has them runs this script)

Normal and Laplace weights (and, with --model, those of a model's file) are written by `infer quantize --pure` and by
ggml_quantize_chunk without an importance matrix, both decoded by the package gguf. Figures: root mean square of the error over that
of the weights, in percent, and ours over theirs.
"""
import argparse
import ctypes
import glob
import os
import pathlib
import re
import subprocess
import tempfile

import gguf
import llama_cpp
import numpy as np

TOP = pathlib.Path(__file__).resolve().parent.parent
TYPES = re.findall(r'^QUANT\(\w+, \d+, "(\w+)"', (TOP / "engine/quant/quant.def").read_text(), re.M)
COLS = 2048


def peer():
    """ggml_quantize_chunk(type, source, target, first, rows, columns, importance)"""
    folder = os.path.join(os.path.dirname(llama_cpp.__file__), "lib")
    lib = ctypes.CDLL(glob.glob(folder + "/libggml-base.so*")[0])
    f = lib.ggml_quantize_chunk
    f.restype = ctypes.c_size_t
    f.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    return f


def sources(args):
    rng = np.random.default_rng(1)
    yield "normal", rng.standard_normal(args.elements).astype(np.float32)
    yield "Laplace", rng.laplace(size=args.elements).astype(np.float32)
    if args.model:
        parts = [gguf.quants.dequantize(t.data, t.tensor_type).reshape(-1) for t in gguf.GGUFReader(args.model).tensors
                 if len(t.shape) == 2 and t.name.startswith("blk")]
        x = np.concatenate([p[: args.elements // len(parts)] for p in parts]).astype(np.float32)
        yield os.path.basename(args.model), x[: len(x) // COLS * COLS].copy()


def ours(program, x, name, folder):
    source, target = folder + "/in.gguf", folder + "/out.gguf"
    w = gguf.GGUFWriter(source, "llama")
    w.add_tensor("blk.0.ffn_up.weight", x.reshape(-1, COLS))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    subprocess.run([program, "quantize", source, target, "--type", name, "--pure", "--quiet"], check=True)
    t = gguf.GGUFReader(target).tensors[0]
    assert t.tensor_type.name.lower() == name, t.tensor_type
    return gguf.quants.dequantize(t.data, t.tensor_type).reshape(-1)


def theirs(quantize, x, name):
    kind = gguf.GGMLQuantizationType[name.upper()]
    elems, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = np.zeros(x.size // elems * size, np.uint8)
    quantize(kind.value, x.ctypes.data, blocks.ctypes.data, 0, x.size // COLS, COLS, None)
    return gguf.quants.dequantize(blocks, kind).reshape(-1)


def error(x, y):
    return 100 * np.sqrt(np.mean((x.astype(np.float64) - y) ** 2) / np.mean(x.astype(np.float64) ** 2))


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--infer", default="build/infer")
    p.add_argument("--model")
    p.add_argument("--elements", type=int, default=1 << 20)
    args = p.parse_args()
    quantize, table = peer(), {name: [] for name in TYPES}
    heads = []
    with tempfile.TemporaryDirectory() as folder:
        for head, x in sources(args):
            heads.append(head)
            for name in TYPES:
                a, b = error(x, ours(args.infer, x, name, folder)), error(x, theirs(quantize, x, name))
                table[name].append(f"{a:.3f} / {b:.3f}" + (f" ({a / b:.2f})" if b > 1e-6 else ""))
    print("| type | " + " | ".join(heads) + " |\n| --- |" + " --- |" * len(heads))
    for name in TYPES:
        print(f"| {name} | " + " | ".join(table[name]) + " |")


main()
