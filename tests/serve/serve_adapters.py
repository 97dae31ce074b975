#!/usr/bin/env python3
"""Adapters of infer serve: /lora-adapters, scales of requests, requests with and without side by side; the program's --lora, merge and
control vectors on the same model. Standard library only.
usage: serve_adapters.py INFER TESTS SERVE_FAKE"""
import array, os, random, struct, subprocess, tempfile, threading
from serve_client import *

text = lambda t: struct.pack("<Q", len(t)) + t.encode()

def gguf(path, keys, tensors):
    """F32 tensors {name: (dims, numbers)}, the first dimension contiguous"""
    head, data = b"", b""
    for name, value in keys.items(): head += text(name) + (struct.pack("<If", 6, value) if isinstance(value, float) else struct.pack("<I", 8) + text(value))
    for name, (dims, x) in tensors.items():
        head += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, 0, len(data))
        data += array.array("f", x).tobytes() + b"\0" * (-4 * len(x) % 32)
    head = struct.pack("<IIQQ", 0x46554747, 3, len(tensors), len(keys)) + head
    with open(path, "wb") as f: f.write(head + b"\0" * (-len(head) % 32) + data)
    return path

def adapter(path, seed):
    """of rank 3, on three matrices of the model, so strong that answers change"""
    draw = random.Random(seed)
    numbers = lambda n: [draw.gauss(0, 0.15) for _ in range(n)]
    tensors = {}
    for name, n, k in (("blk.0.attn_q", 64, 64), ("blk.0.ffn_down", 64, 128), ("blk.1.ffn_up", 128, 64)):
        tensors |= {f"{name}.weight.lora_a": ((k, 3), numbers(3 * k)), f"{name}.weight.lora_b": ((3, n), numbers(3 * n))}
    return gguf(path, {"general.type": "adapter", "general.architecture": "llama", "adapter.type": "lora", "adapter.lora.alpha": 6.0}, tensors)

def answer(s, **more): return s.ask(CHAT, user("hello", max_tokens=24, **more))[2]["choices"][0]["message"]["content"]

def routes(s, first, second):
    same("their list", s.ask("/lora-adapters")[2], [{"id": 0, "path": first, "scale": 0.5}, {"id": 1, "path": second, "scale": 0}])
    half, without, other = answer(s), answer(s, lora=[]), answer(s, lora=[{"id": 1, "scale": 1}])
    same("without", without, "hi there!")
    same("all three differ", len({half, without, other}), 3)
    same("the server's own scales are 0 where a request names some", answer(s, lora=[{"id": 0, "scale": 0}]), without)
    same("both", answer(s, lora=[{"id": 0, "scale": 0.5}, {"id": 1, "scale": 0}]), half)
    same("llama.cpp's route", s.ask("/completion", {"prompt": "x", "n_predict": 4, "temperature": 0, "lora": [{"id": 1, "scale": 1}]})[0], 200)
    got = {}
    def one(i): got[i] = answer(s, **({"lora": [[], [{"id": 1, "scale": 1}]][i % 2]} if i % 3 else {}))
    threads = [threading.Thread(target=one, args=(i,)) for i in range(9)]
    for t in threads: t.start()
    for t in threads: t.join()
    for i in range(9): same(f"side by side {i}", got[i], (without, other)[i % 2] if i % 3 else half)
    same("other scales", s.ask("/lora-adapters", [{"id": 1, "scale": 1}])[2], {"success": True})
    same("are told", [a["scale"] for a in s.ask("/lora-adapters")[2]], [0, 1])
    same("and hold", answer(s), other)
    same("but for requests that say others", answer(s, lora=[{"id": 0, "scale": 0.5}]), half)
    for bad in ([{"id": 2, "scale": 1}], [{"id": 0}], [{"scale": 1}], [{"id": 0, "scale": "x"}], [5], 5, [{"id": -1, "scale": 1}]):
        status, _, e = s.ask(CHAT, user("hello", lora=bad))
        same(f"refused {bad}", (status, e["error"]["param"][:4]), (400, "lora"))
    for bad in ({}, [{"id": 7, "scale": 1}], "x"): same(f"the route refuses {bad}", s.ask("/lora-adapters", json.dumps(bad))[0], 400)
    same("nothing has changed", [a["scale"] for a in s.ask("/lora-adapters")[2]], [0, 1])
    return half, other

def several(first, d):
    """of several models one has an adapter"""
    with open(d + "/models.ini", "w") as f: f.write(f"[one]\nmodel = {MODEL}\nlora = {first}:0.5\n[two]\nmodel = {MODEL}\n")
    s = Server("--models", d + "/models.ini", model=None)
    one, two = answer(s, model="one"), answer(s, model="two")
    same("which has it", (one != "hi there!", two), (True, "hi there!"))
    same("its list", s.ask("/lora-adapters?model=one")[2], [{"id": 0, "path": first, "scale": 0.5}])
    same("the other's", s.ask("/lora-adapters?model=two")[2], [])
    same("other scales", s.ask("/lora-adapters", {"model": "one", "lora": [{"id": 0, "scale": 0}]})[2], {"success": True})
    same("of one model", (answer(s, model="one"), s.ask("/lora-adapters", [])[0]), ("hi there!", 400))
    s.stop()

def lanes(s):
    """what a slot holds is of its request's adapters"""
    prompt = "one two three four five six seven " * 5
    body = {"prompt": prompt, "n_predict": 4, "temperature": 0, "id_slot": 1, "lora": [{"id": 0, "scale": 0.5}]}
    same("an answer", s.ask("/completion", body)[0], 200)
    saved = s.ask("/slots/1?action=save", {"filename": "a"})[2]
    check("its pages are found", saved["n_saved"] >= 64, saved)
    same("not restored for others", s.ask("/slots/1?action=restore", {"filename": "a"})[0], 400)
    s.ask("/lora-adapters", [{"id": 0, "scale": 0.5}])
    same("restored", s.ask("/slots/1?action=restore", {"filename": "a"})[2]["n_restored"], saved["n_saved"])

def program(first, second, half, other, d):
    run = lambda *a: subprocess.run([infer, *a], capture_output=True, text=True, errors="replace", timeout=240)
    answer = lambda *a: run("run", "-m", MODEL, "-p", "hello", "-q", "-n", "24", "--temp", "0", "--device", "cpu", "--threads", "2", *a).stdout.strip()
    same("--lora", answer("--lora", first + ":0.5"), half.strip())
    same("two", answer("--lora", first + ":0", "--lora", second), other.strip())
    merged = d + "/merged.gguf"
    r = run("merge", MODEL, merged, "--lora", first + ":0.5")
    check("merge", r.returncode == 0 and "3 of 20 tensors changed" in r.stderr, r.stderr)
    same("merged", run("run", "-m", merged, "-p", "hello", "-q", "-n", "24", "--temp", "0", "--device", "cpu").stdout.strip(), half.strip())
    r = run("merge", MODEL, MODEL, "--lora", first)
    check("not over its input", r.returncode != 0 and os.path.getsize(MODEL) == 374720, r.stderr)
    vector = gguf(d + "/vector.gguf", {"general.architecture": "controlvector"}, {"direction.1": ((64,), [3.0 if i % 2 else -3.0 for i in range(64)])})
    check("a control vector", answer("--control-vector", vector) not in ("hi there!", ""))
    same("none of it", answer("--control-vector", vector + ":0"), "hi there!")
    for bad, says in ((("--control-vector", first), "no control vector"), (("--lora", vector), "is a control vector"), (("--control-vector", vector, "--control-vector-layers", "2"), "must be N-M")):
        r = run("run", "-m", MODEL, "-p", "hello", *bad)
        check(f"refused {bad[0]}", r.returncode == 2 and says in r.stderr and r.stderr.count("\n") == 1, r.stderr)

with tempfile.TemporaryDirectory() as d:
    first, second = adapter(d + "/first.gguf", 1), adapter(d + "/second.gguf", 2)
    s = Server("--lora", first + ":0.5", "--lora", second + ":0", "--slot-save-path", d)
    half, other = routes(s, first, second)
    lanes(s)
    s.stop()
    s = Server()
    same("a server without", s.ask("/lora-adapters")[2], [])
    same("refuses them", s.ask(CHAT, user("hello", lora=[{"id": 0, "scale": 1}]))[0], 400)
    same("and lets through what asks for nothing", answer(s, lora=[]), "hi there!")
    s.stop()
    several(first, d)
    program(first, second, half, other, d)
done()
