#!/usr/bin/env python3
"""infer serve with --kv-store: what one server computed, the next one and one beside it take over, with the same bits; kills, users, bounds
and a full disk. Standard library only. usage: serve_kept.py INFER TESTS SERVE_FAKE"""
import os, resource, shutil, signal, tempfile, threading, time
from serve_client import *

WORDS = "hello there my friend, count to ten and say it again please "

def kept(folder, *args, **more): return Server("--kv-store", folder, "--metrics", "--cache", "exact", *args, **more)

def told(s, text, headers={}, **more):
    """tokens with their log probabilities, and how many of the prompt's were cached"""
    status, _, a = s.ask(TEXT, {"prompt": text, "max_tokens": 6, "temperature": 0, "logprobs": 3, "ignore_eos": True, **more}, headers)
    same("an answer", status, 200)
    l = a["choices"][0]["logprobs"]
    return [a["choices"][0]["text"], l["tokens"], l["token_logprobs"], l["top_logprobs"]], a["usage"]["prompt_tokens_details"]["cached_tokens"]

def written(s, n):
    for _ in range(2000):
        if gauge(s, "infer_kv_store_written_total") >= n: return
        time.sleep(0.005)
    check(f"{n} files are written", False, s.ask("/metrics", text=True)[2])

def restarts(folder):
    plain = Server()
    want, _ = told(plain, WORDS * 3)
    plain.stop()
    s = kept(folder)
    same("computed", told(s, WORDS * 3), (want, 0))
    written(s, 2)
    beside = kept(folder)
    same("a server beside it", told(beside, WORDS * 3), (want, 128))
    same("another prompt", told(beside, "x" + WORDS * 3)[1], 0)
    s.stop()
    beside.stop(signal.SIGKILL, -9)
    s = kept(folder)
    same("the next server", told(s, WORDS * 3), (want, 128))
    check("its log", f"kept in {folder}" in s.log(), s.log())
    same("scored prompts are computed", told(s, WORDS * 3, echo=True)[1], 0)
    same("another salt", [told(s, WORDS * 3, cache_salt="a")[1] for _ in range(2)], [0, 128])
    s.stop()
    s = kept(folder)
    same("another salt, later", [told(s, WORDS * 3, cache_salt=x)[1] for x in "ab"], [128, 0])
    s.stop()

def crowd(folder):
    """ten at once of a new server, half of them known to the files, say what they say alone"""
    texts = [f"{i % 5} " + WORDS * 3 for i in range(10)]
    s = kept(folder)
    want = [told(s, t)[0] for t in texts]
    s.stop()
    s = kept(folder, "--slots", "4")
    got = [None] * 10
    def one(i): got[i] = told(s, texts[i] if i < 5 else "new " + texts[i])[0]
    threads = [threading.Thread(target=one, args=(i,)) for i in range(10)]
    for t in threads: t.start()
    for t in threads: t.join()
    same("as alone", got[:5], want[:5])
    check("from files", gauge(s, "infer_kv_store_read_total") >= 10)
    s.stop()

def users(folder):
    """a key's pages are its own, also where the file of keys has another order"""
    a, b = "anna:secret-key-1\n", "bert:secret-key-2\n"
    with tempfile.TemporaryDirectory() as d:
        def asked(lines, key):
            with open(d + "/keys", "w") as f: f.write(lines)
            os.chmod(d + "/keys", 0o600)
            s = kept(folder, "--api-key-file", d + "/keys")
            n = told(s, "keys " + WORDS * 3, {"Authorization": "Bearer " + key})[1]
            s.stop()
            return n
        same("whose pages", [asked(a + b, "secret-key-1"), asked(b + a, "secret-key-2"), asked(b + a, "secret-key-1")], [0, 0, 128])

def no_room(folder):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    s = kept(folder)
    resource.prlimit(s.p.pid, resource.RLIMIT_FSIZE, (4096, before[1]))
    want = [told(s, f"full {i} " + WORDS * 3)[0] for i in range(3)]
    for _ in range(400):
        if gauge(s, "infer_kv_store_failed_total"): break
        time.sleep(0.01)
    log = s.stop()
    same("told once", log.count("pages are not kept"), 1)
    s = kept(folder)
    same("nothing was kept, all is said", [told(s, f"full {i} " + WORDS * 3) for i in range(3)], [(w, 0) for w in want])
    s.stop()

def slots(folder):
    os.mkdir(folder)
    def slot(s, n, action, headers={}, **body): return s.ask(f"/slots/{n}?action={action}", body or None, headers, method="POST")
    def completion(s, text, **more): return (lambda r: (r["content"], r["id_slot"], r["timings"]["cache_n"]))(s.ask("/completion", {"prompt": text, "n_predict": 8, "temperature": 0, "ignore_eos": True, **more})[2])
    for cache in ("exact", "fast"):
        s = Server("--slot-save-path", folder, "--cache", cache, "--slots", "2")
        want = completion(s, WORDS * 3, id_slot=1)
        same("its slot", want[1:], (1, 0))
        status, _, a = slot(s, 1, "save", filename="a b.bin")
        same("saved", (status, a["id_slot"], a["filename"], a["n_saved"], a["n_written"], list(a["timings"])),
             (200, 1, "a b.bin", 128, os.path.getsize(folder + "/a b.bin"), ["save_ms"]))
        same("goes on in its slot", completion(s, WORDS * 3 + want[0])[1], 1)
        s.ask(CHAT, user("hello " * 30, id_slot=0))
        check("a chat's slot", slot(s, 0, "save", filename="chat")[2]["n_saved"] >= 64)
        slot(s, 0, "erase")
        same("an empty slot", slot(s, 0, "save", filename="none")[2]["n_saved"], 0)
        same("mode", os.stat(folder + "/a b.bin").st_mode & 0o777, 0o600)
        status, _, a = slot(s, 1, "erase")
        check("erased", (status, list(a), a["n_erased"] > 128) == (200, ["id_slot", "n_erased"], True), a)
        same("erased is computed", completion(s, WORDS * 3, id_slot=1), (want[0], 1, 0))
        s.stop()
        s = Server("--slot-save-path", folder, "--cache", cache, "--slots", "2")
        status, _, a = slot(s, 0, "restore", filename="a b.bin")
        same("restored", (status, a["id_slot"], a["filename"], a["n_restored"], a["n_read"], list(a["timings"])),
             (200, 0, "a b.bin", 128, os.path.getsize(folder + "/a b.bin"), ["restore_ms"]))
        same("hit", completion(s, WORDS * 3, id_slot=0), (want[0], 0, 128))
        with open(folder + "/a b.bin", "r+b") as f: f.seek(5000); f.write(b"xx")
        for n, action, body, code in ((0, "restore", {"filename": "a b.bin"}, 400), (0, "restore", {"filename": "other"}, 400), (0, "save", {"filename": "../x"}, 400), (0, "save", {"filename": ".x"}, 400),
                                      (0, "save", {"filename": ""}, 400), (0, "save", {}, 400), (2, "erase", {}, 400), ("x", "erase", {}, 400), (0, "jump", {}, 400), (0, "save", {"filename": 3}, 400)):
            status, _, a = slot(s, n, action, **body)
            same(f"{n} {action} {body}", (status, list(a)), (code, ["error"]))
        s.stop()
    s = Server()
    same("without the flag", slot(s, 0, "save", filename="x")[0], 501)
    same("no slot is told", completion(s, "hello")[1], -1)
    s.stop()
    with open(folder + "/keys", "w") as f: f.write("anna:secret-key-1\nbert:secret-key-2\n")
    os.chmod(folder + "/keys", 0o600)
    s = Server("--slot-save-path", folder, "--api-key-file", folder + "/keys", "--slots", "2")
    anna, bert = ({"Authorization": f"Bearer secret-key-{i}"} for i in "12")
    told(s, WORDS * 3, anna)
    n = [slot(s, i, "save", h, filename="k")[2]["n_saved"] for h in (bert, anna) for i in (0, 1)]
    same("others' slots are empty", sorted(n), [0, 0, 0, 128])
    crowd = [threading.Thread(target=told, args=(s, f"{i} " + WORDS * 3, anna)) for i in range(4)]
    for t in crowd: t.start()
    same("beside answers", [slot(s, 0, a, anna, filename="busy")[0] for a in ("save", "restore", "erase")], [200, 200, 200])
    for t in crowd: t.join()
    s.stop()

def refusals(folder):
    import subprocess
    for args, code, words in ((["--kv-store", "/nowhere/at/all"], 1, "/nowhere/at/all"), (["--kv-store", ""], 2, "--kv-store"), (["--kv-store", folder, "--kv-store-max", "x"], 2, "--kv-store-max")):
        r = subprocess.run([infer, "serve", "-m", MODEL, "--listen", "127.0.0.1:0", "--device", "cpu", *args], stderr=subprocess.PIPE, timeout=60)
        check(f"refused: {args}", r.returncode not in (0, 70) and words in r.stderr.decode(), (r.returncode, r.stderr))

with tempfile.TemporaryDirectory() as d:
    for part in (restarts, crowd, users, no_room, slots, refusals): part(os.path.join(d, part.__name__))
done()
