#!/usr/bin/env python3
"""Attention of prompt rows beside PyTorch's on a card: `infer bench attn`, scaled_dot_product_attention, `infer bench attn`.

usage: sdpa.py INFER [--reps N]

Every shape of `infer bench attn` with a cache of halves and no window (which PyTorch's call has not): causal, one sequence,
the same heads of queries and of keys, random data, tensors as PyTorch wants them; f16 and bf16, each by the backends that
PyTorch has for it. TFLOP/s of the keys that a row sees, medians; ours is the slower of the two runs around PyTorch's. A table on
stdout. Wants PyTorch with CUDA."""
import argparse
import json
import re
import statistics
import subprocess

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

NAME = re.compile(r"(\d+) rows, (\d+) heads of (\d+), (\d+) of keys, (wgmma|mma)$")
BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}


def ours(infer, reps):
    """{(rows, heads, dim, heads of keys): {kernel: TFLOP/s}}"""
    done = subprocess.run([infer, "bench", "attn", "--device", "cuda", "--json", "-r", str(reps)], stdout=subprocess.PIPE, check=True)
    found = {}
    for r in json.loads(done.stdout):
        m = NAME.match(r["name"])
        if m:
            found.setdefault(tuple(map(int, m.groups()[:4])), {})[m[5]] = r["ours"]
    return found


def milliseconds(f, reps):
    """Median of one call, each measurement some milliseconds of calls."""
    f()
    all_ms, calls = [], 1
    for i in range(reps + 1):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(calls):
            f()
        end.record()
        end.synchronize()
        ms = begin.elapsed_time(end)
        if i:
            all_ms.append(ms / calls)
        else:
            calls = int(5 / max(ms, 0.005)) + 1
    return statistics.median(all_ms)


def theirs(shape, dtype, reps):
    """(TFLOP/s, backend) of the fastest backend."""
    rows, heads, dim, kv_heads = shape
    q, k, v = (torch.randn(1, n, rows, dim, device="cuda", dtype=dtype) for n in (heads, kv_heads, kv_heads))
    best = (0.0, "none")
    for name, backend in BACKENDS.items():
        try:
            with sdpa_kernel(backend):
                ms = milliseconds(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True), reps)
        except RuntimeError:
            continue
        best = max(best, (2e-9 * heads * rows * (rows + 1) * dim / ms, name))
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("infer")
    parser.add_argument("--reps", type=int, default=9)
    o = parser.parse_args()
    before = ours(o.infer, o.reps)
    peers = {s: [theirs(s, t, o.reps) for t in (torch.float16, torch.bfloat16)] for s in before}
    after = ours(o.infer, o.reps)
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    print("| rows | heads | wgmma | mma | SDPA f16 | SDPA bf16 | share of the faster |\n| --- | --- | --- | --- | --- | --- | --- |")
    for shape, (half, brain) in peers.items():
        mine = {k: min(v, after[shape][k]) for k, v in before[shape].items()}
        share = 100 * max(mine.values()) / max(half[0], brain[0], 1e-9)
        print(f"| {shape[0]:,} | {shape[1]} of {shape[2]}, {shape[3]} of keys | {mine.get('wgmma', 0):.0f} | {mine.get('mma', 0):.0f} "
              f"| {half[0]:.0f} ({half[1]}) | {brain[0]:.0f} ({brain[1]}) | {share:.0f}% |")


main()
