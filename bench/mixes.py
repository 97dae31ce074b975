#!/usr/bin/env python3
"""Types of every tensor that `infer quantize` and llama.cpp's quantiser choose for the same file and mix, one by one.

usage: mixes.py [--infer PROGRAM] [--layers N] [--types q4_k_m,...] [SHAPE ...]

Files of `infer synth` in small shapes, their layers repeated up to N, are written in F16 and quantised by both (llama.cpp:
llama_cpp.llama_model_quantize of the package llama-cpp-python, which must be there, as must gguf). Exit code 3 when a tensor differs.
"""
import argparse
import ctypes
import pathlib
import re
import subprocess
import sys
import tempfile

import gguf
import llama_cpp
import numpy as np

TOP = pathlib.Path(__file__).resolve().parent.parent
SHAPES = "tiny tiny-mqa tiny-moe-wide tiny-delta-128 tiny-delta-moe-128 tiny-lfm2".split()

SAME = "f32 f16 bf16 q3_k q4_k q5_k nf4 mxfp4 nvfp4 q1_0 q2_0".split()  # another name for one of the others, or not llama.cpp's


def mixes():
    text = (TOP / "tools" / "mixes.def").read_text()
    rows = re.findall(r'MIX\("(\w+)", \w+, \w+, \w+, (\d+)\)', text)
    return {name: int(number) for name, number in rows if name not in SAME}


def repeat(source, target, layers):
    """The file with its layers again and again, up to so many."""
    r = gguf.GGUFReader(source)
    arch = r.fields["general.architecture"].contents()
    n = r.fields[f"{arch}.block_count"].contents()
    w = gguf.GGUFWriter(target, arch)
    for key, field in r.fields.items():
        if key.startswith("GGUF.") or key in ("general.architecture", "general.alignment"):
            continue
        kind, value = field.types[0], field.contents()
        if key == f"{arch}.block_count":
            value = layers
        if kind == gguf.GGUFValueType.ARRAY:
            if key.startswith(arch) and len(value) == n:
                value = [value[i % n] for i in range(layers)]
            w.add_array(key, value)
        else:
            w.add_key_value(key, value, kind)
    for t in r.tensors:
        name = re.match(r"blk\.(\d+)\.(.*)", t.name)
        if not name:
            w.add_tensor(t.name, t.data, raw_dtype=t.tensor_type)
            continue
        for i in range(int(name[1]), layers, n):
            w.add_tensor(f"blk.{i}.{name[2]}", t.data, raw_dtype=t.tensor_type)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def types(path):
    return {t.name: t.tensor_type.name for t in gguf.GGUFReader(path).tensors}


def importance(source, target):
    """Of every matrix in a block: as a file, and as llama.cpp's function takes it. All columns count alike."""
    w = gguf.GGUFWriter(target, "")
    w.add_type("imatrix")
    w.add_array("imatrix.datasets", ["none"])
    w.add_uint32("imatrix.chunk_count", 1)
    w.add_uint32("imatrix.chunk_size", 512)
    rows = []
    for t in gguf.GGUFReader(source).tensors:
        if len(t.shape) < 2 or not t.name.startswith("blk."):
            continue
        n, k = (int(t.shape[2]) if len(t.shape) > 2 else 1), int(t.shape[0])
        w.add_tensor(t.name + ".in_sum2", np.ones((n, k), np.float32))
        w.add_tensor(t.name + ".counts", np.ones((n, 1), np.float32))
        rows.append((t.name.encode(), np.ones(n * k, np.float32)))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    data = (llama_cpp.llama_cpp.llama_model_imatrix_data * (len(rows) + 1))()
    for d, (name, ones) in zip(data, rows):
        d.name, d.data, d.size = name, ones.ctypes.data_as(ctypes.POINTER(ctypes.c_float)), ones.size
    return data, rows  # the rows hold the memory


def theirs(source, target, number, data):
    p = llama_cpp.llama_model_quantize_default_params()
    p.ftype, p.nthread, p.allow_requantize = number, 2, True
    if data:
        p.imatrix = data
    return llama_cpp.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(p))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--infer", default=str(TOP / "build" / "infer"))
    p.add_argument("--layers", type=int, default=16)
    p.add_argument("--types")
    p.add_argument("shapes", nargs="*", default=SHAPES)
    a = p.parse_args()
    wrong = 0
    quiet = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    with tempfile.TemporaryDirectory() as folder:
        one, source, ours, other, im = (pathlib.Path(folder) / n for n in ("one.gguf", "many.gguf", "ours.gguf", "theirs.gguf", "im.gguf"))
        for shape in a.shapes:
            subprocess.run([a.infer, "synth", "--shape", shape, "--type", "f16", "-o", one, "--quiet"], check=True)
            repeat(one, source, a.layers)
            data = importance(source, im)
            for name, number in mixes().items():
                if a.types and name not in a.types.split(","):
                    continue
                for weighed in (False, True):
                    label = f"{shape} {name}{', importance' if weighed else ''}"
                    refused = theirs(source, other, number, data[0] if weighed else None)
                    args = ["--type", name, "--quiet"] + (["--imatrix", im] if weighed else [])
                    r = subprocess.run([a.infer, "quantize", source, ours, *args], capture_output=True, text=True)
                    if refused or r.returncode:
                        print(f"{label}: refused by {'llama.cpp' if refused else ''}{' and ' if refused and r.returncode else ''}{r.stderr.strip()[:160]}", flush=True)
                        continue
                    x, y = types(ours), types(other)
                    differ = {}
                    for t in y:
                        if x.get(t) != y[t]:
                            differ.setdefault((re.sub(r"blk\.\d+\.", "", t), x.get(t), y[t]), []).append(re.sub(r"\D", "", t.split(".w")[0]))
                    wrong += len(differ)
                    for (t, mine, their), where in differ.items():
                        print(f"{label}: {t} is {mine}, llama.cpp has {their}: {len(where)} ({','.join(where[:6])})", flush=True)
                    if not differ:
                        print(f"{label}: {len(y)} tensors, the same types", flush=True)
    return 3 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
