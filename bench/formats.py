#!/usr/bin/env python3
"""What formats make of a model: bits a weight, perplexity and divergence from F16, with and without an importance matrix, beside llama.cpp
on the same files.

usage: formats.py [-m MODEL] [--infer PROGRAM] [--text FILE] [--calibration FILE] [--windows N] [--types q8_0,nf4,...] [--peer]

MODEL becomes F16 first, the base of all comparisons; importance comes from the calibration text. --peer: llama-cpp-python must be there; its
perplexity of the same file, of the tokens that `infer perplexity` counts (bench/quality.py), and exit code 3 where the two differ by more
than 0.5%. fp8: weights rounded to e4m3 with a scale for 128x128, as folders have them, computed as F32.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parent.parent
TYPES = "f16 q8_0 fp8 q6_k q5_k_m q4_k_m q4_k_s iq4_xs nf4 nvfp4 mxfp4 q4_0 q3_k_m iq3_xxs q2_k"
BITS = {"fp8": 8 + 32 / 128 / 128}


def fp8(source, target):
    import gguf
    import numpy as np

    r = gguf.GGUFReader(source)
    w = gguf.GGUFWriter(target, r.fields["general.architecture"].contents())
    for key, field in r.fields.items():
        if key.startswith("GGUF.") or key in ("general.architecture", "general.alignment"):
            continue
        if field.types[0] == gguf.GGUFValueType.ARRAY:
            w.add_array(key, field.contents())
        else:
            w.add_key_value(key, field.contents(), field.types[0])
    for t in r.tensors:
        x = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)
        if x.ndim == 2 and "norm" not in t.name:
            for i in range(0, x.shape[0], 128):
                for k in range(0, x.shape[1], 128):
                    b = x[i : i + 128, k : k + 128]
                    s = np.abs(b).max() / 448 or 1
                    v = b / s
                    e = np.maximum(np.floor(np.log2(np.maximum(np.abs(v), 1e-30))), -6)
                    step = 2.0 ** (e - 3)
                    x[i : i + 128, k : k + 128] = np.clip(np.round(v / step) * step, -448, 448) * s
        w.add_tensor(t.name, x)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("-m", "--model")
    p.add_argument("--infer", default=str(TOP / "build" / "infer"))
    p.add_argument("--text", default=str(TOP / "tests" / "data" / "text.txt"))
    p.add_argument("--calibration", help="a text for importance; without one there is none")
    p.add_argument("--windows", type=int, default=16)
    p.add_argument("--types", default=TYPES.replace(" ", ","))
    p.add_argument("--peer", action="store_true")
    a = p.parse_args()

    def infer(*args):
        return subprocess.run([a.infer, *map(str, args)], check=True, stdout=subprocess.PIPE, text=True).stdout

    if not a.model:
        a.model = subprocess.run([TOP / "scripts" / "get-model"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    if a.peer:
        import quality
    far = 0
    with tempfile.TemporaryDirectory() as folder:
        f16, file, base, im = (pathlib.Path(folder) / n for n in ("f16.gguf", "x.gguf", "base", "im.gguf"))
        infer("quantize", a.model, f16, "--type", "f16", "--quiet")
        infer("perplexity", "-m", f16, "-f", a.text, "--windows", a.windows, "--save-logits", base, "--quiet")
        if a.calibration:
            infer("imatrix", "-m", f16, "-f", a.calibration, "-o", im, "--quiet")
        print("| type | importance | bits a weight | perplexity | of F16 | KL mean | same top |" + (" llama.cpp | difference |" if a.peer else ""))
        print("| --- " * (9 if a.peer else 7) + "|")
        for name in a.types.split(","):
            for weighed in [False] + [True] * (bool(a.calibration) and name not in ("f16", "q8_0", "fp8")):
                if name == "fp8":
                    fp8(f16, file)
                else:
                    infer("quantize", f16, file, "--type", name, "--quiet", *(["--imatrix", im] if weighed else []))
                bits = BITS.get(name)
                if not bits:
                    bits = float(infer("inspect", file).strip().splitlines()[-1].split()[-3])
                r = json.loads(infer("perplexity", "-m", file, "-f", a.text, "--kl", base, "--json", "--quiet"))
                row = f"| {name} | {'yes' if weighed else 'no'} | {bits:.3f} | {r['perplexity']:.3f} | {r['perplexity_ratio']:.4f} | {r['kl_mean']:.4f} | {r['same_top']:.3f} |"
                if a.peer and name != "nf4":
                    peer = quality.Peer(file, 2)
                    ids = peer.tokenize(pathlib.Path(a.text).read_text(), False)[: a.windows * quality.WINDOW]
                    theirs = quality.peer_perplexity(peer, ids)
                    row += f" {theirs:.3f} | {100 * (r['perplexity'] / theirs - 1):+.2f}% |"
                    far += abs(r["perplexity"] / theirs - 1) > 0.005
                elif a.peer:
                    row += " does not read it | |"
                print(row, flush=True)
    return 3 if far else 0


if __name__ == "__main__":
    sys.exit(main())
