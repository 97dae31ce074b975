#!/usr/bin/env python3
"""Adapters of infer serve: /lora-adapters, scales of requests, requests with and without side by side; the program's --lora, merge and
control vectors on the same model. Standard library only.
usage: serve_adapters.py INFER TESTS SERVE_FAKE"""
import array, http.client, json, os, random, struct, subprocess, tempfile, threading
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

def adapter(path, seed, r=3):
    """of rank r, on three matrices of the model, so strong that answers change"""
    draw = random.Random(seed)
    numbers = lambda n: [draw.gauss(0, 0.15) for _ in range(n)]
    tensors = {}
    for name, n, k in (("blk.0.attn_q", 64, 64), ("blk.0.ffn_down", 64, 128), ("blk.1.ffn_up", 128, 64)):
        tensors |= {f"{name}.weight.lora_a": ((k, r), numbers(r * k)), f"{name}.weight.lora_b": ((r, n), numbers(r * n))}
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

def coming(d, want):
    """adapters that come and go; want: {file: its answer}"""
    first, second = want
    other = adapter(tempfile.mkdtemp(dir=d) + "/third.gguf", 3) # not in the folder
    folder = d + "/loras"
    os.mkdir(folder)
    for f in want: os.link(f, folder + "/" + os.path.basename(f))
    os.symlink(other, folder + "/out.gguf")
    with open(folder + "/none.gguf", "wb") as f: f.write(b"no adapter")
    with open(d + "/keys", "w") as f: f.write("admin:abcdefghijklmnop:priority\nuser:qrstuvwxyzabcdef\n")
    os.chmod(d + "/keys", 0o600)
    s = Server("--lora-dir", folder, "--max-loras", "2", "--max-lora-rank", "3", "--api-key-file", d + "/keys", "--slots", "3")
    key = {"Authorization": "Bearer abcdefghijklmnop"}
    ask = lambda path, body=None, k=key, **more: s.ask(path, body, headers=k, **more)
    say = lambda **more: ask(CHAT, user("hello", max_tokens=24, **more))[2]["choices"][0]["message"]["content"]
    load, unload = "/lora-adapters/load", "/lora-adapters/unload"
    same("none yet", (ask("/lora-adapters")[2], say()), ([], "hi there!"))
    same("a key of users", ask(load, {"path": "first.gguf"}, {"Authorization": "Bearer qrstuvwxyzabcdef"})[0], 403)
    same("one comes", ask(load, {"path": "first.gguf"})[2], {"success": True, "id": 0, "name": "first"})
    same("nobody has it who does not ask", say(), "hi there!")
    same("it is asked for", say(lora=[{"id": 0, "scale": 1}]), want[first])
    same("by its name, as a model", say(model="first"), want[first])
    same("vLLM's route", ask("/v1/load_lora_adapter", {"lora_name": "sql", "lora_path": folder + "/second.gguf"})[2], "Success: LoRA adapter 'sql' added successfully.")
    same("both", (say(model="sql"), say(model="first"), say()), (want[second], want[first], "hi there!"))
    same("the list", [(a["id"], a["name"], a["scale"]) for a in ask("/lora-adapters")[2]], [(0, "first", 0), (1, "sql", 0)])
    same("of models", [x["id"] for x in ask("/v1/models")[2]["data"]][1:], ["first", "sql"])
    same("for all", (ask("/lora-adapters", [{"id": 1, "scale": 1}])[0], say(), say(lora=[])), (200, want[second], "hi there!"))
    for bad, status in (({"path": "first.gguf"}, 400), ({"path": "first.gguf", "name": "again"}, 409), ({}, 400), ({"path": "../third.gguf"}, 400), ({"path": other}, 400), ({"path": "out.gguf"}, 400),
                        ({"path": "/etc/passwd"}, 400), ({"path": "gone.gguf"}, 400), ({"path": "first.gguf", "name": "chat-llama"}, 400), ({"path": ""}, 400), ({"path": "first.gguf", "scale": "x"}, 400)):
        same(f"refused {bad}", ask(load, bad)[0], status)
    for bad, status in (({"name": "nobody"}, 404), ({"id": 7}, 404), ({}, 400)): same(f"refused {bad}", ask(unload, bad)[0], status)
    same("vLLM's word for it", ask("/v1/unload_lora_adapter", {"lora_name": "nobody"})[0], 404)
    # answers that run keep theirs: one streams while it is taken out and another takes its place
    got, long = {}, user("hello", model="first", max_tokens=200, ignore_eos=True, loop_stop=False, seed=5, temperature=1)
    alone = ask(CHAT, long)[2]["choices"][0]["message"]["content"]
    begun = threading.Event()
    def stream():
        c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=240)
        c.request("POST", CHAT, json.dumps({**long, "stream": True}), key)
        text = ""
        for line in c.getresponse():
            if not line.startswith(b"data: {"): continue
            some = json.loads(line[6:])["choices"]
            text += some[0]["delta"].get("content") or "" if some else ""
            if text: begun.set()
        got[0] = text
        begun.set()
    t = threading.Thread(target=stream)
    t.start()
    check("it has begun", begun.wait(120))
    same("taken out", ask(unload, {"name": "first"})[2], {"success": True})
    same("nobody finds it", (ask(CHAT, user("hello", lora=[{"id": 0, "scale": 1}]))[0], [a["name"] for a in ask("/lora-adapters")[2]]), (400, ["sql"]))
    t.join()
    same("the answer is as it was", got[0], alone)
    same("the other one goes", ask("/v1/unload_lora_adapter", {"lora_name": "sql"})[2], "Success: LoRA adapter 'sql' removed successfully.")
    same("as if there had been none", say(), "hi there!")
    # in the place of the first comes the second: what was computed with the first is not its, and it is found by its content
    other = ask(load, {"path": "second.gguf", "name": "first"})[2]["id"]
    same("it is another one", say(model="first"), want[second])
    # (the request that has just been answered may still have its place for a moment)
    same("back", (ask(unload, {"id": other})[0], ask(load, {"path": "first.gguf", "scale": 1})[0], say(), say(lora=[])), (200, 200, want[first], "hi there!"))
    same("no adapter", ask(load, {"path": "none.gguf", "name": "x"})[0], 400)
    wide = adapter(folder + "/wide.gguf", 4, 5)
    status, _, e = ask(load, {"path": "wide.gguf"})
    check("a rank too large", status == 400 and "rank 5" in e["error"]["message"], e)
    s.stop()
    s = Server()
    same("no folder", (s.ask(load, {"path": "first.gguf"})[0], s.ask("/v1/unload_lora_adapter", {"lora_name": "x"})[0]), (400, 400))
    s.stop()

with tempfile.TemporaryDirectory() as d:
    first, second = adapter(d + "/first.gguf", 1), adapter(d + "/second.gguf", 2)
    s = Server("--lora", first + ":0.5", "--lora", second + ":0", "--slot-save-path", d)
    half, other = routes(s, first, second)
    lanes(s)
    whole = answer(s, lora=[{"id": 0, "scale": 1}])
    s.stop()
    coming(d, {first: whole, second: other})
    s = Server()
    same("a server without", s.ask("/lora-adapters")[2], [])
    same("refuses them", s.ask(CHAT, user("hello", lora=[{"id": 0, "scale": 1}]))[0], 400)
    same("and lets through what asks for nothing", answer(s, lora=[]), "hi there!")
    s.stop()
    several(first, d)
    program(first, second, half, other, d)
done()
