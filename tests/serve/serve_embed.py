#!/usr/bin/env python3
"""infer embed, and the routes of a server with an encoder or a cross-encoder: what sentence-transformers computes (tests/golden/embed). Called with
INFER TESTS SERVE_FAKE."""
import array, json, math, pathlib, subprocess, tempfile
from serve_client import *

golden = pathlib.Path(tests) / "golden" / "embed"
dir = pathlib.Path(tempfile.mkdtemp())

def expected(name): return json.loads((golden / name / "expected.json").read_text())
def near(name, got, want, most=2e-3):
    """BF16 weights, whose products may be of BF16"""
    worst = max(abs(x - y) for a, b in zip(got, want) for x, y in zip(a, b))
    check(f"{name}: {worst:.1e}", len(got) == len(want) and worst <= most)
def embed(name, *more, text=""):
    return subprocess.run([infer, "embed", "-m", golden / name, "--quiet", *more], input=text, capture_output=True, text=True, timeout=60)
def refused(name, r, *words): check(name, r.returncode in (1, 2) and r.stderr.count("\n") == 1 and all(w in r.stderr for w in words) and not r.stdout, r)

# ---- the command ----
e = expected("bert-mean")
lines = "".join(json.dumps(t) + "\n" for t in e["texts"])
r = embed("bert-mean", "--jsonl", text=lines)
rows = [json.loads(line) for line in r.stdout.splitlines()]
same("lines come in their order", [x["index"] for x in rows], list(range(len(e["texts"]))))
near("JSON lines", [x["embedding"] for x in rows], e["vectors"])
check("a longer text is cut off", rows[-1]["tokens"] == 32 and "1 of 12" in subprocess.run([infer, "embed", "-m", golden / "bert-mean", "--jsonl"], input=lines, capture_output=True, text=True).stderr)
r = embed("bert-mean", "-f", "-", "-o", dir / "v.npy", text="hello world\nrunning\r\n\n")
data = (dir / "v.npy").read_bytes()
values = array.array("f", data[128:])
same("NumPy's file", (data[:6], b"(3, 40)" in data[:128], len(values)), (b"\x93NUMPY", True, 120))
near("of a line's text", [values[:40]], [e["vectors"][e["texts"].index("hello world")]])
r = embed("bert-mean", "a", "--normalize", "off")
long = json.loads(r.stdout)["embedding"]
check("vectors as they are", abs(math.sqrt(sum(x * x for x in long)) - 1) > 0.01, long)
many = embed("bert-cls", text="".join(f"the cat {i} sat {'on the mat ' * (i % 7)}\n" for i in range(200)))
one = embed("bert-cls", "the cat 150 sat " + "on the mat " * (150 % 7))
same("the same digits among others", json.loads(many.stdout.splitlines()[150])["embedding"], json.loads(one.stdout)["embedding"])
p = expected("bert-rerank")
r = embed("bert-rerank", "--query", p["pairs"][0][0], text="".join(d + "\n" for q, d in p["pairs"][:2]))
near("scores of pairs", [[json.loads(x)["score"]] for x in r.stdout.splitlines()], [[s] for s in p["scores"][:2]], 2e-2)
refused("a text without its pair", embed("bert-rerank", "a"), "--query")
refused("a pair of a model of vectors", embed("bert-cls", "a", "--query", "b"), "--query")
refused("no JSON", embed("bert-cls", "--jsonl", text='"a"\n{"no": 1}\n'), "line 2")
refused("no text", embed("bert-cls", text=""), "texts")
refused("a step that is too short", embed("bert-cls", "a", "--batch", "8"), "--batch")
refused("a text for a model", subprocess.run([infer, "run", "-m", golden / "bert-cls", "--raw", "-q", "-p", "a"], capture_output=True, text=True), "encoder")

# ---- servers ----
s = Server(model=golden / "bert-cls")
e = expected("bert-cls")
status, _, got = s.ask("/v1/embeddings", {"input": e["texts"][:6]})
near("/v1/embeddings", [x["embedding"] for x in got["data"]], e["vectors"][:6])
same("cut to its first numbers", [len(s.ask("/v1/embeddings", {"input": "a", "dimensions": 5})[2]["data"][0]["embedding"]), s.ask("/v1/embeddings", {"input": "a", "dimensions": 49})[0]], [5, 400])
same("nothing is written", s.ask("/v1/completions", {"prompt": "a", "max_tokens": 2})[0], 400)
same("nothing is judged", s.ask("/v1/rerank", {"query": "a", "documents": ["b"]})[0], 400)
s.stop()
s, e = Server(model=golden / "bert-mean"), expected("bert-mean") # made for 32 tokens, has 72 positions
long, vector = e["texts"][-1], e["vectors"][-1]
status, _, got = s.ask("/v1/embeddings", {"input": ["a", long]})
same("a text beyond what the model was made for", (status, got["error"]["code"], "32 tokens" in got["error"]["message"]), (400, "context_length_exceeded", True))
same("as ids", s.ask("/v1/embeddings", {"input": [5] * 33})[0], 400)
same("as many as it was made for", s.ask("/v1/embeddings", {"input": [5] * 32})[0], 200)
for more in (-1, 32, 1000): near(f"cut off by truncate_prompt_tokens {more}", [s.ask("/v1/embeddings", {"input": long, "truncate_prompt_tokens": more})[2]["data"][0]["embedding"]], [vector])
got = s.ask("/v1/embeddings", {"input": long, "truncate_prompt_tokens": 9})[2]
check("shorter", got["usage"]["prompt_tokens"] == 9 and any(abs(a - b) > 1e-3 for a, b in zip(got["data"][0]["embedding"], vector)), got)
same("too short", [s.ask("/v1/embeddings", {"input": long, "truncate_prompt_tokens": n})[0] for n in (-2, 0, 3, "9")], [400] * 4)
near("ollama cuts", s.ask("/api/embed", {"input": ["a", long]})[2]["embeddings"][1:], [vector])
near("ollama's older route, too", [s.ask("/api/embeddings", {"prompt": long})[2]["embedding"]], [vector])
same("ollama is told not to", s.ask("/api/embed", {"input": long, "truncate": False})[0], 400)
s.stop()
tasks = dir / "tasks.ini"
name = golden / "jina-bert-v3-tasks"
tasks.write_text("".join(f"[{n}]\nmodel = {name}\n{t}" for n, t in (("plain", ""), ("query", "task = retrieval.query\n"), ("matching", "task = text-matching\n"))))
s, e = Server("--models", tasks, model=None), expected("jina-bert-v3-tasks")
got = {m: [x["embedding"] for x in s.ask("/v1/embeddings", {"model": m, "input": e["texts"][:3]})[2]["data"]] for m in ("plain", "query", "matching")}
near("no task", got["plain"], e["without"][:3])
near("a task by a model's name", got["matching"], e["vectors"][:3])
check("another task", max(abs(a - b) for a, b in zip(got["query"][0], got["matching"][0])) > 0.01)
s.stop()
s = Server(model=golden / "bert-dense")
status, _, got = s.ask("/v1/embeddings", {"input": expected("bert-dense")["texts"][:3]})
near("products behind the pooling", [x["embedding"] for x in got["data"]], expected("bert-dense")["vectors"][:3], 5e-3)
s.stop()
for name in ("bert-rerank", "xlm-roberta-rerank"):
    s, p = Server(model=golden / name), expected(name)
    q = p["pairs"][0][0]
    documents = [d for _, d in p["pairs"]]
    order = s.ask("/v1/rerank", {"query": q, "documents": documents})[2]["results"]
    check("the best first", all(a["relevance_score"] >= b["relevance_score"] for a, b in zip(order, order[1:])), order)
    score = {x["index"]: math.log(x["relevance_score"] / (1 - x["relevance_score"])) for x in order}
    near(name, [[score[0]], [score[1]]], [[p["scores"][0]], [p["scores"][1]]], 2e-2)
    pairs = s.ask("/v1/score", {"text_1": [q for q, _ in p["pairs"]], "text_2": documents})[2]["data"]
    near("/v1/score", [[math.log(x["score"] / (1 - x["score"]))] for x in pairs], [[x] for x in p["scores"]], 2e-2)
    same("no vectors", s.ask("/v1/embeddings", {"input": "a"})[0], 400)
    s.stop()
done()
