#!/usr/bin/env python3
"""Quality beside llama.cpp on the same files: tokens of the prompts, greedy answers, perplexity in every format.

usage: quality.py [-m MODEL] [--infer PROGRAM] [--out FOLDER] [--only prompts,floor,error,perplexity] [--types q8_0,...] [--windows N] [--threads N]
needs: pip install llama-cpp-python jinja2 (a Python that has them runs this script)

prompts     Each line of tests/data/prompts.txt is rendered with the model's template by Jinja2, tokenised and continued greedily by
            64 tokens, here and there. Ids of the prompts must be equal; at least 6 of 8 answers must be equal token for
            token; at the first difference of the others the two candidates' logits, in both engines, must be closer than
            0.05 of the logits' standard deviation. This is done on MODEL and on MODEL decoded to F16: with 4-bit weights both
            engines round activations to 8 bits, each in its own way, and that alone moves logits by about as much.
floor       The same count for llama.cpp against itself on MODEL: flash attention on, and the prompt fed row by row, beside its
            default. What differs there is the order of sums alone, so no other engine can be asked for more equal answers.
error       Root mean square of each row of logits from those of `--device ref`, in standard deviations of the latter, on the first
            --rows tokens of tests/data/text.txt: every instruction set of this processor, prompt and decode rows, and llama.cpp's.
            The mean over the rows must be at most llama.cpp's.
perplexity  MODEL is decoded to F16 and written in each format by `infer quantize`. exp of the mean loss of tokens 256 to 511 of
            each 512-token window of tests/data/text.txt (16,384 tokens in the default model's vocabulary) must be within 0.5% of llama.cpp's on the
            same file, and Q8_0 within 1% of F16. With --exact the same weights are written as F16 too and llama.cpp reads those, where
            no engine rounds activations to 8 bits: it says whose error a difference is.

Exit code 3 when a rule is broken. Results go to FOLDER (default build/quality) as quality.json and quality.md. Parts and
types that an earlier run left there stay in the report until they are measured again, so a long run can be cut in pieces.
"""
import argparse
import datetime
import itertools
import json
import math
import os
import pathlib
import re
import subprocess
import sys

import jinja2.sandbox
import llama_cpp
import numpy as np

TOP = pathlib.Path(__file__).resolve().parent.parent
WINDOW, ANSWER = 512, 64
TYPES = ["f16", "bf16"] + re.findall(r'^QUANT\(\w+, \d+, "(\w+)"', (TOP / "engine/quant/quant.def").read_text(), re.M)


class Peer:
    """llama.cpp with the logits of chosen rows. rows: every prompt row in a step of its own."""

    def __init__(self, path, threads, flash=False, rows=False):
        self.model = llama_cpp.Llama(str(path), n_ctx=1024, n_batch=512, n_ubatch=512, n_threads=threads, n_threads_batch=threads,
                                     flash_attn=flash, logits_all=True, verbose=False)
        self.batch = llama_cpp.llama_batch_init(512, 0, 1)
        self.rows = rows

    def tokenize(self, text, special):
        return self.model.tokenize(text.encode(), add_bos=False, special=special)

    def piece(self, ids):
        return self.model.detokenize(ids, special=True)

    def ends(self, token):
        vocab = llama_cpp.llama_model_get_vocab(self.model.model)
        return llama_cpp.llama_vocab_is_eog(vocab, token)

    def clear(self):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.model.ctx), True)

    def eval(self, ids, first, wanted_from):
        """Feeds ids at positions first..; logits[len(ids) - wanted_from][n_vocab] of the rows from wanted_from on."""
        b, n = self.batch, len(ids)
        if self.rows and n > 1:
            rows = [self.eval([token], first + i, 0)[0] for i, token in enumerate(ids)]
            return np.stack(rows[wanted_from:])
        b.n_tokens = n
        for i, token in enumerate(ids):
            b.token[i], b.pos[i], b.n_seq_id[i], b.seq_id[i][0], b.logits[i] = token, first + i, 1, 0, int(i >= wanted_from)
        if llama_cpp.llama_decode(self.model.ctx, b):
            raise RuntimeError("llama_decode failed")
        shape = (self.model.n_vocab(),)
        return np.stack([np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(self.model.ctx, i), shape)
                         for i in range(wanted_from, n)])

    def greedy(self, prompt_ids):
        """The answer's ids, and the logits that each came from (one row more where the answer ended by itself)."""
        self.clear()
        rows, ids = [self.eval(prompt_ids, 0, len(prompt_ids) - 1)[-1]], []
        while len(ids) < ANSWER:
            token = int(rows[-1].argmax())
            if self.ends(token):
                break
            ids.append(token)
            rows.append(self.eval([token], len(prompt_ids) + len(ids) - 1, 0)[-1])
        return ids, rows


def infer(a, *args, stdin=""):
    """stdout of a subcommand; its message when it fails."""
    p = subprocess.run([a.infer, *map(str, args)], input=stdin.encode(), capture_output=True)
    if p.returncode:
        raise SystemExit(f"infer {' '.join(map(str, args))}: exit code {p.returncode}: {p.stderr.decode().strip()[-400:]}")
    return p.stdout


def infer_tokenize(a, model, text, *flags):
    return [int(x) for x in infer(a, "tokenize", "-m", model, *flags, stdin=text).split()]


# ---- greedy answers --------------------------------------------------------------------------------------------------
def gap(logits, x, y):
    return abs(float(logits[x] - logits[y])) / float(logits.std())


def compare_answer(a, peer, model, prompt_ids, text):
    """One prompt's row: what llama.cpp says token by token, against our text."""
    ids, rows = peer.greedy(prompt_ids)
    theirs = peer.piece(ids)
    if text == theirs or text == theirs + b"\n":
        return {"equal": True, "tokens": len(ids)}
    same = 0
    while same < len(ids) and text.startswith(peer.piece(ids[: same + 1])):
        same += 1
    # our candidate is the token that our text goes on with; theirs the one that llama.cpp chose
    rest = peer.tokenize(text[len(peer.piece(ids[:same])):].decode("utf-8", "replace"), False)
    npy = pathlib.Path(a.out) / "row.npy"
    infer(a, "logits", "-m", model, "--tokens", ",".join(map(str, prompt_ids + ids[:same])), "-o", npy, *a.engine)
    ours, y = np.load(npy)[-1], int(rows[same].argmax())
    x = rest[0] if rest else int(ours.argmax())
    return {"equal": False, "tokens": same, "gap_ours": gap(ours, x, y), "gap_peer": gap(rows[same], x, y),
            "ours": peer.piece([x]).decode("utf-8", "replace"), "peer": peer.piece([y]).decode("utf-8", "replace")}


def rendered_prompts(peer):
    """[(line, messages, text)] of tests/data/prompts.txt."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(peer.model.metadata["tokenizer.chat_template"])
    out = []
    for line in (TOP / "tests" / "data" / "prompts.txt").read_text().splitlines():
        messages = [{"role": "user", "content": line}]
        out.append((line, messages, template.render(messages=messages, add_generation_prompt=True, bos_token="", eos_token="")))
    return out


def floor(a, report):
    """llama.cpp against itself: pairs of its routes."""
    routes = {"default": {}, "flash attention": {"flash": True}, "prompt row by row": {"rows": True}}
    answers = {}
    for name, options in routes.items():
        peer = Peer(a.model, a.threads, **options)
        answers[name] = [peer.greedy(peer.tokenize(text, True)) for _, _, text in rendered_prompts(peer)]
    report["floor"] = []
    for x, y in itertools.combinations(routes, 2):
        equal, gaps = 0, []
        for (ids, rows), (other, other_rows) in zip(answers[x], answers[y]):
            if ids == other:
                equal += 1
                continue
            same = next((i for i, (p, q) in enumerate(zip(ids, other)) if p != q), min(len(ids), len(other)))
            p, q = rows[same], other_rows[same]
            gaps.append(max(gap(p, p.argmax(), q.argmax()), gap(q, p.argmax(), q.argmax())))
        apart = np.concatenate([p[0] - p[0].mean() - q[0] + q[0].mean() for (_, p), (_, q) in zip(answers[x], answers[y])])
        deviation = np.mean([float(p[0].std()) for _, p in answers[x]])
        report["floor"].append({"routes": [x, y], "equal": equal, "gaps": gaps, "rms": float(np.sqrt((apart ** 2).mean()) / deviation)})
        print(json.dumps(report["floor"][-1]), file=sys.stderr)


def error(a, report):
    """Every CPU route and the peer against the reference backend, on one text."""
    ids = infer_tokenize(a, a.model, (TOP / "tests" / "data" / "text.txt").read_text())[: a.rows]
    npy = pathlib.Path(a.out) / "error.npy"

    def ours(*flags):
        infer(a, "logits", "-m", a.model, "--tokens", ",".join(map(str, ids)), "--all", "-o", npy, "-q", *flags)
        return np.load(npy).astype(np.float64)

    ref = ours("--device", "ref")
    isas = {"avx2": "avx2", "avxvnni": "avx_vnni", "avx512": "avx512_vnni", "amx": "amx_tile"}
    flags = next(line for line in open("/proc/cpuinfo") if line.startswith("flags")).split()
    routes = {f"{isa}, {rows}": ours("--device", "cpu", "--threads", a.threads, "--isa", isa, *extra)
              for isa, flag in isas.items() if flag in flags
              for rows, extra in (("prompt", []), ("decode", ["--as-decode"]))}
    for rows in ("prompt", "decode"):
        peer = Peer(a.model, a.threads, rows=rows == "decode")
        peer.clear()
        routes[f"llama.cpp, {rows}"] = peer.eval(ids, 0, 0).astype(np.float64)
    report["error"] = []
    for name, logits in routes.items():
        rms = np.sqrt(((logits - ref) ** 2).mean(axis=1)) / ref.std(axis=1)
        report["error"].append({"route": name, "mean": float(rms.mean()), "max": float(rms.max()),
                                "same_first": float((logits.argmax(axis=1) == ref.argmax(axis=1)).mean())})
    mean = {row["route"]: row["mean"] for row in report["error"]}
    report["rules"]["error of logits at most llama.cpp's"] = all(
        m <= mean["llama.cpp, " + route.split(", ")[1]] for route, m in mean.items())


def prompts(a, report, model, label):
    peer, rows = Peer(model, a.threads), []
    for line, messages, text in rendered_prompts(peer):
        ids = peer.tokenize(text, True)
        ours = infer_tokenize(a, model, text, "--special")
        case = pathlib.Path(a.out) / "case.json"
        case.write_text(json.dumps({"messages": messages, "add_generation_prompt": True}))
        rendered = infer(a, "template", "-m", model, "--input", case).decode()
        answer = infer(a, "run", "-m", model, "-p", line, "-n", ANSWER, "--temp", "0", "--quiet", *a.engine)
        row = {"model": label, "prompt": line, "template_equal": rendered == text, "ids_equal": ids == ours,
               **compare_answer(a, peer, model, ids, answer)}
        rows.append(row)
        print(json.dumps(row, ensure_ascii=False), file=sys.stderr)
    report["prompts"] = [r for r in report["prompts"] if r["model"] != label] + rows
    near = all(r["equal"] or max(r["gap_ours"], r["gap_peer"]) < 0.05 for r in rows)
    report["rules"][f"{label}: templates and ids of the prompts are llama.cpp's"] = all(r["template_equal"] and r["ids_equal"] for r in rows)
    report["rules"][f"{label}: at least 6 of 8 answers equal"] = sum(r["equal"] for r in rows) >= 6
    report["rules"][f"{label}: the others part where two candidates are within 0.05 of the standard deviation"] = near


def make_f16(a):
    path = pathlib.Path(a.out) / "f16.gguf"
    infer(a, "quantize", a.model, path, "--type", "f16", "--quiet")
    return path


# ---- perplexity --------------------------------------------------------------------------------------------------------
def peer_perplexity(peer, ids):
    half, loss = WINDOW // 2, []
    for begin in range(0, len(ids) // WINDOW * WINDOW, WINDOW):
        window = ids[begin:begin + WINDOW]
        peer.clear()
        rows = peer.eval(window, 0, half - 1)[:-1].astype(np.float64)  # rows 255 to 510 speak of tokens 256 to 511
        top = rows.max(axis=1, keepdims=True)
        log_sum = np.log(np.exp(rows - top).sum(axis=1)) + top[:, 0]
        loss.append(log_sum - rows[np.arange(half), window[half:]])
    return float(np.exp(np.concatenate(loss).mean()))


def perplexity(a, report):
    out = pathlib.Path(a.out)
    text = TOP / "tests" / "data" / "text.txt"
    f16 = out / "f16.gguf"
    if "f16" in a.types or not f16.exists():
        make_f16(a)
    if a.windows:  # the beginning alone, for a quick look
        peer = Peer(f16, a.threads)
        ids = peer.tokenize(text.read_text(), False)
        text = out / "text.txt"
        text.write_bytes(peer.piece(ids[: a.windows * WINDOW + 64]).rsplit(b" ", 1)[0])
    for typ in a.types:
        path = out / f"{typ}.gguf"
        if typ != "f16":
            infer(a, "quantize", f16, path, "--type", typ, "--quiet")
        peer = Peer(path, a.threads)
        ids = peer.tokenize(text.read_text(), False)
        if typ == "f16":
            report["rules"]["ids of the text are llama.cpp's"] = ids == infer_tokenize(a, path, text.read_text())
        theirs = peer_perplexity(peer, ids)
        result = json.loads(infer(a, "perplexity", "-m", path, "-f", text, "--json", *a.engine))
        row = {"type": typ, "bytes": path.stat().st_size, "tokens": len(ids), "ours": result["perplexity"], "peer": theirs}
        row["difference"] = row["ours"] / theirs - 1
        report["perplexity"] = [r for r in report["perplexity"] if r["type"] != typ] + [row]
        if a.exact:
            same = out / f"{typ}-f16.gguf"
            infer(a, "quantize", path, same, "--type", "f16", "--quiet", "--force")
            row["exact"] = peer_perplexity(Peer(same, a.threads), ids)
            same.unlink()
        print(json.dumps(row), file=sys.stderr)
        if typ != "f16":
            path.unlink()
    rows = report["perplexity"]
    rows.sort(key=lambda r: TYPES.index(r["type"]))
    for r in rows:
        r["over_f16"] = r["ours"] / rows[0]["ours"] - 1 if rows[0]["type"] == "f16" else math.nan
    report["rules"]["perplexity within 0.5% of llama.cpp's in every format"] = all(abs(r["difference"]) < 0.005 for r in rows)
    if q8 := [r for r in rows if r["type"] == "q8_0"]:
        report["rules"]["Q8_0 within 1% of F16"] = abs(q8[0]["over_f16"]) < 0.01


def markdown(report):
    lines = [f"{report['peer']}, {report['date']}; `{report['command']}`", ""]
    lines += [f"- {'yes' if ok else 'NO'}: {rule}" for rule, ok in report["rules"].items()]
    if report["prompts"]:
        lines += ["", "| model | prompt | answer | tokens equal | candidates | their gap, ours / llama.cpp |", "| --- | --- | --- | --- | --- | --- |"]
        for r in report["prompts"]:
            gaps = " | " if r["equal"] else f"{r['ours']!r}, {r['peer']!r} | {r['gap_ours']:.3f} / {r['gap_peer']:.3f}"
            lines.append(f"| {r['model']} | {r['prompt']} | {'equal' if r['equal'] else 'parts'} | {r['tokens']} | {gaps} |")
    if report["floor"]:
        lines += ["", "| llama.cpp against itself | equal answers | gaps where they part | rms of the first logits' difference |",
                  "| --- | --- | --- | --- |"]
        for r in report["floor"]:
            lines.append(f"| {' / '.join(r['routes'])} | {r['equal']} | {', '.join(f'{g:.3f}' for g in r['gaps'])} | {r['rms']:.3f} |")
    if report.get("error"):
        lines += ["", "| route | mean error of a row | largest | rows with the same best token |", "| --- | --- | --- | --- |"]
        lines += [f"| {r['route']} | {r['mean']:.4f} | {r['max']:.3f} | {r['same_first']:.3f} |" for r in report["error"]]
    if report["perplexity"]:
        lines += ["", "| type | MB | infer | llama.cpp | difference | over F16 | of the exact weights, infer / llama.cpp |",
                  "| --- | --- | --- | --- | --- | --- | --- |"]
        for r in report["perplexity"]:
            exact = f"{r['ours'] / r['exact'] - 1:+.3%} / {r['peer'] / r['exact'] - 1:+.3%}" if "exact" in r else ""
            lines.append(f"| {r['type']} | {r['bytes'] / 1e6:.0f} | {r['ours']:.4f} | {r['peer']:.4f} | {r['difference']:+.3%} | "
                         f"{r['over_f16']:+.2%} | {exact} |")
    return "\n".join(lines) + "\n"


def main():
    p = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    p.add_argument("-m", "--model")
    p.add_argument("--infer", default=str(TOP / "build" / "infer"))
    p.add_argument("--out", default=str(TOP / "build" / "quality"))
    p.add_argument("--only", default="prompts,floor,error,perplexity")
    p.add_argument("--rows", type=int, default=128, help="tokens of the text whose logits are compared (error)")
    p.add_argument("--types", default=",".join(TYPES))
    p.add_argument("--windows", type=int, help="perplexity of the first windows only")
    p.add_argument("--exact", action="store_true", help="perplexity of the same weights as F16 by llama.cpp too")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--device", default="cpu")
    a = p.parse_args()
    pathlib.Path(a.out).mkdir(parents=True, exist_ok=True)
    if not a.model:
        a.model = subprocess.run([TOP / "scripts" / "get-model"], capture_output=True, text=True, check=True).stdout.strip()
    a.types = a.types.split(",")
    a.engine = ["--device", a.device, "--threads", a.threads]
    before = pathlib.Path(a.out) / "quality.json"
    report = json.loads(before.read_text()) if before.exists() else {"rules": {}, "prompts": [], "floor": [], "perplexity": []}
    report |= {"date": datetime.date.today().isoformat(), "peer": f"llama-cpp-python {llama_cpp.__version__}",
               "command": " ".join(["bench/quality.py", *sys.argv[1:]])}
    if "prompts" in a.only:
        prompts(a, report, a.model, pathlib.Path(a.model).stem)
        prompts(a, report, make_f16(a), "decoded to F16")
    if "floor" in a.only:
        floor(a, report)
    if "error" in a.only:
        error(a, report)
    if "perplexity" in a.only:
        perplexity(a, report)
    before.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    text = markdown(report)
    (pathlib.Path(a.out) / "quality.md").write_text(text)
    print(text, end="")
    return 0 if all(report["rules"].values()) else 3


if __name__ == "__main__":
    sys.exit(main())
