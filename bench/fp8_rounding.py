#!/usr/bin/env python3
"""What activations rounded to FP8 make of a trained model: divergence from the same FP8 weights with activations as they are. The arithmetic
of --matmul-precision fp8 (weights e4m3 with a scale for 128x128, activations e4m3 with a scale for each row or for 128 columns of it, sums
in float32) in PyTorch, so that it needs no card; embeddings, head, attention and norms stay float32, as there.

usage: fp8_rounding.py [-m MODEL.gguf] [--text FILE] [--windows N]
"""
import argparse
import pathlib
import subprocess

import torch
import transformers

TOP = pathlib.Path(__file__).resolve().parent.parent
WINDOW = 512


def rounded(x, top):
    scale = (top / 448).clamp_min(1e-30)
    return (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn).float() * scale


def by_rows(x):
    return rounded(x, x.abs().amax(-1, keepdim=True))


def by_blocks(x):
    return torch.cat([by_rows(b) for b in x.split(128, -1)], -1)


def weights(w):
    for rows in w.split(128, 0):
        for block in rows.split(128, 1):
            block.copy_(rounded(block, block.abs().max()))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("-m", "--model")
    p.add_argument("--text", default=str(TOP / "tests" / "data" / "text.txt"))
    p.add_argument("--windows", type=int, default=8)
    a = p.parse_args()
    if not a.model:
        a.model = subprocess.run([TOP / "scripts" / "get-model"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    file = pathlib.Path(a.model)
    with torch.no_grad():
        model = transformers.AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
        ids = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)(open(a.text).read(), return_tensors="pt").input_ids[0]
        products = [m for n, m in model.named_modules() if isinstance(m, torch.nn.Linear) and n != "lm_head"]
        windows = ids[: a.windows * WINDOW].view(-1, WINDOW)

        def run():
            return torch.cat([torch.log_softmax(model(w[None]).logits[0, :-1], -1) for w in windows])

        came = torch.cat([w[1:] for w in windows])[:, None]

        def row(name, q, base):
            kl, same = (0.0, 1.0) if q is base else ((base.exp() * (base - q)).sum(-1).mean().item(), (base.argmax(-1) == q.argmax(-1)).float().mean().item())
            print(f"| {name} | {q.gather(-1, came).mean().neg().exp().item():.3f} | {kl:.5f} | {same:.3f} |", flush=True)

        print("| activations | perplexity | KL mean | same top |\n| --- | --- | --- | --- |")
        for m in products:
            weights(m.weight)
        base = run()
        row("float32", base, base)
        for name, f in (("a scale for each row", by_rows), ("a scale for 128 columns", by_blocks)):
            hooks = [m.register_forward_pre_hook(lambda _, x, f=f: (f(x[0]),)) for m in products]
            row(name, run(), base)
            for h in hooks:
                h.remove()


if __name__ == "__main__":
    main()
