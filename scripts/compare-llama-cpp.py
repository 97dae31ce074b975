#!/usr/bin/env python3
"""Opens what `infer convert` makes of the folders of tests/golden/hf with llama-cpp-python and compares logits and greedy tokens.

usage: compare-llama-cpp.py [--infer PATH] [NAME ...]      all folders of tests/golden/hf when none is named
needs: pip install numpy gguf llama-cpp-python
Ends with 1 when one differs; what llama.cpp does not know or does otherwise is said and passed over.
"""
import argparse
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile

import gguf
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
HF = ROOT / "tests" / "golden" / "hf"
N_GREEDY = 16
# what llama.cpp does not do
WINDOWS, SCALE = "has no windows there", "has no key for the scale of scores there"
CHUNKS = "has chunks of 8192 positions there"
LATENT = "has the usual bounds of YaRN alone there, mscale as mscale_all_dim, and one epsilon"
INNER, SHARED = "asks for a Mamba layer twice as wide as x there", "has one order of layers that lend their keys there"
INDEX = "asks for index heads of a multiple of 64 numbers there"
CLAMP = "clamps at 7 and rounds the bounds of YaRN there"
OTHER = {"mistral": WINDOWS, "qwen2": WINDOWS, "starcoder2": WINDOWS, "mixtral-stacked": WINDOWS,
         "exaone4": "has windows there in models of 64 layers alone", "olmo3": "has one base for all layers and the usual bounds of YaRN alone",
         "qwen3_moe-stacked": "always normalises weights of experts there",
         "deepseek_v2": LATENT, "deepseek_v3": LATENT, "deepseek_v3-draft": LATENT, "kimi_k2": LATENT, "mistral4": LATENT, "glm_moe_dsa": INDEX, "deepseek_v32": INDEX,
         "lfm2-bias": "has no biases of convolutions there", "lfm2_moe": "has no scale of experts' weights there",
         "granitemoehybrid": INNER, "granitemoehybrid-dense": INNER, "gemma4-e4b": SHARED,
         "gpt_oss": CLAMP, "gpt_oss-mxfp4": CLAMP, "llama4": CHUNKS, "llama4-image": "normalises q and k there unless there are 128 experts", "gemma2": SCALE, "gemma3": SCALE, "gemma3-image": SCALE}
TOLERANCE = 1e-1  # of the logits' standard deviation: GELU comes from a table of halves there


def read_golden(path):
    """[(ids, rows, logits[rows][vocabulary])], standard deviation; layout: tests/golden/README.md"""
    data = path.read_bytes()
    n_prompt, n_vocab = np.frombuffer(data, "<i4", 2)
    sd, at, prompts = np.frombuffer(data, "<f4", 1, 8)[0], 12, []
    for _ in range(n_prompt):
        n, n_rows = np.frombuffer(data, "<i4", 2, at)
        ids, rows = np.frombuffer(data, "<i4", n, at + 8), np.frombuffer(data, "<i4", n_rows, at + 8 + 4 * n)
        at += 8 + 4 * (n + n_rows)
        prompts.append((ids, rows, np.frombuffer(data, "<f4", n_rows * n_vocab, at).reshape(n_rows, n_vocab)))
        at += 4 * n_rows * n_vocab
    return prompts, float(sd)


def with_vocabulary(source, target):
    """The same file with a vocabulary of pieces that mean nothing: llama.cpp opens none without."""
    reader = gguf.GGUFReader(source)
    arch = reader.fields["general.architecture"].contents()
    n = int(next(t for t in reader.tensors if t.name == "token_embd.weight").shape[1])
    writer = gguf.GGUFWriter(target, arch)
    for name, field in reader.fields.items():
        if name.startswith(("GGUF.", "tokenizer.")) or name in ("general.architecture", "general.alignment"):
            continue
        sub = field.types[1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], sub)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"t{i}" for i in range(n)])
    writer.add_token_scores([0.0] * n)
    writer.add_token_types([gguf.TokenType.NORMAL] * n)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    for t in reader.tensors:
        writer.add_tensor(t.name, t.data, raw_dtype=t.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return arch


@contextlib.contextmanager
def quiet():
    """llama.cpp writes its own account of a file to stderr."""
    saved, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(null)


def greedy_of_infer(program, model, ids, n):
    """Token by token through `infer logits`, on ref."""
    ids = list(map(int, ids))
    with tempfile.NamedTemporaryFile(suffix=".npy") as out:
        for _ in range(n):
            subprocess.run([program, "logits", "-m", model, "--device", "ref", "-q", "--tokens", ",".join(map(str, ids)), "-o", out.name],
                           check=True)
            ids.append(int(np.load(out.name).reshape(-1).argmax()))
    return ids[-n:]


def compare(program, name, folder):
    import llama_cpp

    if OTHER.get(name) in (INNER, SHARED, INDEX):  # which ends the program
        print(f"{name}: llama.cpp {OTHER[name]}")
        return True
    plain, model = f"{folder}/plain.gguf", f"{folder}/vocabulary.gguf"
    subprocess.run([program, "convert", str(HF / name), plain, "--type", "f32", "-q"], check=True)
    arch = with_vocabulary(plain, model)
    prompts, sd = read_golden(HF / name / "logits.bin")
    try:
        with quiet():
            there = llama_cpp.Llama(model_path=model, n_ctx=256, n_batch=256, n_threads=1, logits_all=True, type_k=0, type_v=0, swa_full=True,
                                    yarn_attn_factor=-1.0, yarn_beta_fast=-1.0, yarn_beta_slow=-1.0, verbose=False)
    except ValueError:
        print(f"{name}: {arch} is not opened by llama.cpp")
        return True
    worst = 0.0
    for ids, rows, want in prompts:
        there.reset()
        there.eval(ids.tolist())
        worst = max(worst, float(np.abs(there.scores[rows] - want).max()) / sd)
    ids = prompts[1][0].tolist()
    there.reset()
    there.eval(ids)
    got = []
    for _ in range(N_GREEDY):
        got.append(int(there.scores[there.n_tokens - 1].argmax()))
        there.eval([got[-1]])
    ours = greedy_of_infer(program, plain, ids, N_GREEDY)
    good = got == ours and worst <= TOLERANCE
    if not good and name in OTHER:
        print(f"{name}: llama.cpp {OTHER[name]}")
        return True
    print(f"{name}: {arch}, logits within {worst:.1e} of sd, greedy tokens {'equal' if got == ours else f'{got} there, {ours} here'}")
    return good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--infer", default=str(ROOT / "build" / "infer"))
    parser.add_argument("name", nargs="*")
    args = parser.parse_args()
    names = args.name or sorted(f.parent.name for f in HF.glob("*/config.json"))
    good = True
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            try:
                good &= compare(args.infer, name, folder)
            except subprocess.CalledProcessError as e:
                print(f"{name}: {e}")
                good = False
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
