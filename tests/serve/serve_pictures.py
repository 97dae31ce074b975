#!/usr/bin/env python3
"""Pictures, from files and from requests of all APIs: the same answer everywhere, alone, beside others and from the cache; what is refused.
usage: serve_pictures.py INFER TESTS SERVE_FAKE"""
import base64, http.server, os, re, struct, subprocess, sys, tempfile, threading, time, zlib
from serve_client import *
import sight_files

def chunk(name, data): return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

def png(width, height, seed):
    """stripes; of 64 x 64 pixels 64 rows and 8 marks"""
    rows = b"".join(b"\0" + bytes((x * seed * 7 + y * 3 + c * 50) % 256 for x in range(width) for c in range(3)) for y in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))

def b64(data): return base64.b64encode(data).decode()
def url(data, kind="png"): return f"data:image/{kind};base64,{b64(data)}"
def part(data, **more): return {"type": "image_url", "image_url": {"url": url(data), **more}}
def text(t): return {"type": "text", "text": t}
def say(*content, n=12, **more): return {"messages": [{"role": "user", "content": list(content)}], "temperature": 0, "max_tokens": n, **more}

A, B = png(64, 64, 1), png(64, 40, 2)

def all_apis(s):
    """the answer to A and "hello", and tokens of the prompt"""
    status, _, a = s.ask(CHAT, say(part(A), text("hello")))
    same("chat", status, 200)
    answer, n = a["choices"][0]["message"]["content"], a["usage"]["prompt_tokens"]
    plain = s.ask(CHAT, say(text("hello")))[2]["usage"]["prompt_tokens"]
    same("64 rows and 8 marks of lines", n - plain, 72)
    r = s.ask("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": url(A), "detail": "high"}, {"type": "input_text", "text": "hello"}]}],
                                "temperature": 0, "max_output_tokens": 12})[2]
    same("responses", (r["output"][0]["content"][0]["text"], r["usage"]["input_tokens"]), (answer, n))
    m = {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": b64(A)}}, {"type": "text", "text": "hello"}]}], "max_tokens": 12}
    a = s.ask("/v1/messages", {**m, "temperature": 0})[2]
    same("messages", (a["content"][0]["text"], a["usage"]["input_tokens"] + a["usage"].get("cache_read_input_tokens", 0)), (answer, n))
    same("count_tokens", s.ask("/v1/messages/count_tokens", m)[2]["input_tokens"], n)
    o = s.ask("/api/chat", {"model": "m", "stream": False, "options": {"temperature": 0, "num_predict": 12}, "messages": [{"role": "user", "content": "hello", "images": [b64(A)]}]})[2]
    same("ollama", (o["message"]["content"], o["prompt_eval_count"]), (answer, n))
    o = s.ask("/api/generate", {"model": "m", "stream": False, "options": {"temperature": 0, "num_predict": 12}, "prompt": "hello", "images": [b64(A)]})[2]
    same("ollama generate", o["response"], answer)
    check("ollama's capabilities", "vision" in s.ask("/api/show", {"model": "m"})[2]["capabilities"])
    t = s.ask("/apply-template", say(part(A), text("hello")))[2]
    same("the template's own place", (t["prompt"].count("[IMG]"), t["tokens"]), (1, n))
    return answer, n

def counts(s):
    """tokens of pictures before anything is computed: of headers alone"""
    def message(*data): return {"messages": [{"role": "user", "content": [*({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": b64(d)}} for d in data), {"type": "text", "text": "hello"}]}], "max_tokens": 1}
    def count(*data): return s.ask("/v1/messages/count_tokens", message(*data))[2]["input_tokens"]
    def used(*data): return s.ask(CHAT, say(*map(part, data), text("hello"), n=1))[2]["usage"]["prompt_tokens"]
    for name, data in (("two", (A, B)), ("1 x 1", (png(1, 1, 1),)), ("3000 x 17", (png(3000, 17, 1),)), ("one pixel more", (png(65, 41, 1),))): same(f"count_tokens: {name}", count(*data), used(*data))
    same("count_tokens reads headers", count(A[:60]), count(A))
    status, _, a = s.ask("/v1/messages/count_tokens", message(A, b"hello"))
    check("count_tokens: no picture", status == 400 and "no JPEG, PNG, WebP, GIF or BMP" in a["error"]["message"], (status, a))

def again(s, answer, n):
    """a talk: the second turn computes no row of the picture; others beside it change nothing"""
    talk = [{"role": "user", "content": [part(A), text("hello")]}, {"role": "assistant", "content": answer}, {"role": "user", "content": "and you?"}]
    ask = {"messages": talk, "temperature": 0, "max_tokens": 12, "logprobs": True}
    first = s.ask(CHAT, ask)[2]
    check("taken over", first["usage"]["prompt_tokens_details"]["cached_tokens"] >= 64, first["usage"])
    got = [None] * 6
    def one(i): got[i] = s.ask(CHAT, ask if i % 2 else say(part(B if i == 2 else A), text("count"), part(A), n=20))[2]
    threads = [threading.Thread(target=one, args=(i,)) for i in range(6)]
    for t in threads: t.start()
    for t in threads: t.join()
    for i in (1, 3, 5): same("beside others", got[i]["choices"], first["choices"])
    check("another picture, another answer", got[0]["choices"] != got[2]["choices"], got[0]["choices"])
    fresh = Server("--mmproj", folder + "/mmproj-model.gguf", model=folder + "/model.gguf")
    same("without a cache", fresh.ask(CHAT, ask)[2]["choices"], first["choices"])
    fresh.stop()

def refusals(s):
    def no(name, body, param, *words, path=CHAT):
        status, _, a = s.ask(path, body)
        message = a["error"]["message"]
        check(f"refused: {name}", status == 400 and a["error"].get("param") == param and all(w in message for w in words), (status, a))
    at = "messages[0].content[0]"
    no("cut", say(part(A[:-60]), text("x")), at, at, "the PNG is broken: it ends early")
    no("text", say(part(b"hello"), text("x")), at, "no JPEG, PNG, WebP, GIF or BMP")
    no("too large", say(part(A[:16] + struct.pack(">II", 60000, 60000) + A[24:]), text("x")), at, "60000 x 60000")
    no("an address", say({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}), at, "addresses are not fetched here")
    no("a file", say({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}), at, "addresses are not fetched here")
    no("no base64", say({"type": "image_url", "image_url": {"url": "data:image/png;base64,@@@@"}}), at, "is not base64")
    no("more than 20 MB", say(part(A + bytes(20 << 20)), text("x")), at, "at most")
    no("nothing", say(part(b""), text("x")), at)
    no("the second of two", say(part(A), part(B[:-60]), text("x")), "messages[0].content[1]", "the PNG is broken: it ends early")
    no("detail", say(part(A, detail="most")), at, "detail")
    no("no URL", say({"type": "image_url", "image_url": {}}), at, "has no URL")
    no("many", say(*[part(B)] * 65), "messages[0].content[64]", "64 pictures")
    no("sound", say({"type": "input_audio"}), at, "'input_audio'")
    status, _, a = s.ask(CHAT, say(*[part(png(64, 64, i)) for i in range(40)], text("x"), n=1))
    same("too many tokens", (status, a["error"]["code"]), (400, "context_length_exceeded"))

class Host(http.server.BaseHTTPRequestHandler):
    """pictures, and what goes wrong"""
    asked = []
    def log_message(self, *_): pass
    def do_GET(self):
        Host.asked.append(self.path)
        if self.path.startswith("/to?"):
            self.send_response(302)
            self.send_header("Location", self.path[4:])
            self.end_headers()
            return
        data = {"/a.png": A, "/b.png": B, "/cut.png": A[:-60]}.get(self.path)
        if self.path == "/slow.png": time.sleep(60)
        self.send_response(200 if data or self.path == "/large.png" else 404)
        self.end_headers()
        if data: self.wfile.write(data)
        try:
            if self.path == "/large.png":
                for _ in range(30): self.wfile.write(b"\0" * (1 << 20))
        except OSError: pass

def addresses(answer):
    """pictures of hosts that --image-urls names"""
    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Host)
    web.daemon_threads = True
    threading.Thread(target=web.serve_forever, daemon=True).start()
    port = web.server_port
    here, other = f"http://127.0.0.1:{port}", f"http://localhost:{port}"
    def from_url(u): return {"type": "image_url", "image_url": {"url": u}}
    s = Server("--image-urls", f"example.org,127.0.0.1:{port}", model=folder + "/model.gguf")
    check("it says from where", f"127.0.0.1:{port}" in s.log(), s.log())
    same("by address", s.ask(CHAT, say(from_url(here + "/a.png"), text("hello")))[2]["choices"][0]["message"]["content"], answer)
    same("sent on, to a listed host", s.ask(CHAT, say(from_url(here + "/to?/a.png"), text("hello")))[2]["choices"][0]["message"]["content"], answer)
    two = [s.ask(CHAT, say(*p, text("hello")))[2]["choices"] for p in ((part(A), part(B)), (from_url(here + "/a.png"), from_url(here + "/b.png")))]
    same("two of them", two[1], two[0])
    m = {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": here + "/a.png"}}, {"type": "text", "text": "hello"}]}], "max_tokens": 12, "temperature": 0}
    same("messages", s.ask("/v1/messages", m)[2]["content"][0]["text"], answer)
    same("count_tokens", s.ask("/v1/messages/count_tokens", m)[0], 200)
    at = "messages[0].content[0]"
    def no(name, u, *words):
        n = len(Host.asked)
        status, _, a = s.ask(CHAT, say(from_url(u), text("x")))
        check(f"refused: {name}", status == 400 and a["error"].get("param") == at and all(w in a["error"]["message"] for w in words), (status, a))
        return Host.asked[n:]
    for name, u in (("another host", other + "/a.png"), ("another port", "http://127.0.0.1:1/a.png"), ("a name in front", f"http://127.0.0.1:{port}@localhost:{port}/a.png"),
                    ("a backslash", f"http://127.0.0.1:{port}\\@localhost/a.png"), ("a file", "file:///etc/passwd"), ("ftp", "ftp://127.0.0.1/a.png")):
        same(f"nobody was asked: {name}", no(name, u, "--image-urls"), [])
    for name, u in (("sent on elsewhere", f"/to?{other}/a.png"), ("sent on without a scheme", f"/to?//localhost:{port}/a.png"), ("to a file", "/to?file:///etc/passwd")):
        same(f"only the first was asked: {name}", no(name, here + u), [u])
    same("in a circle", len(no("in a circle", here + "/to?/to?/to?/to?/to?/to?/to?/to?/a.png", "sent on more than")), 5)
    no("none there", here + "/c.png", "its server says 404")
    no("too large", here + "/large.png", "more than")
    no("broken", here + "/cut.png", "it ends early")
    no("nobody answers", "http://example.org:1/a.png", "--image-urls")
    got = []
    t = threading.Thread(target=lambda: got.append(s.ask(CHAT, say(from_url(here + "/slow.png"), text("x")))))
    t.start()
    same("texts do not wait", s.ask(CHAT, say(text("hello")))[0], 200)
    t.join()
    check("refused: slow", got[0][0] == 400 and "cannot be fetched" in got[0][2]["error"]["message"], got)
    s.stop()
    def run(u, *more):
        p = subprocess.run([infer, "run", "--image", u, "-p", "hello", "-n", "12", "-m", folder + "/model.gguf", "--device", "cpu", "--threads", "2", *more], capture_output=True, timeout=120)
        return p.returncode, p.stdout.decode().strip(), p.stderr.decode()
    same("run by address", run(here + "/a.png")[:2], (0, answer.strip()))
    code, _, err = run(here + f"/to?{other}/a.png")
    check("run, sent on elsewhere", code == 2 and "sent on to a host that --image-urls does not name" in err, (code, err))
    same("run, where it may be", run(here + f"/to?{other}/a.png", "--image-urls", f"localhost:{port}")[:2], (0, answer.strip()))
    web.shutdown()

def text_alone():
    s = Server()
    status, _, a = s.ask(CHAT, say(part(A), text("x")))
    check("a model without a tower", status == 400 and "chat-llama reads text alone" in a["error"]["message"], a)
    status, _, a = s.ask("/api/chat", {"model": "m", "messages": [{"role": "user", "content": "x", "images": [b64(A)]}]})
    check("of ollama, too", status == 400 and "chat-llama reads text alone" in str(a), a)
    s.stop()

def program(answer, two):
    """run and chat give the server's answer"""
    file = folder + "/a b.png"
    open(file, "wb").write(A)
    def run(*args, text=None, model="model.gguf"):
        p = subprocess.run([infer, *args, "-m", folder + "/" + model, "--device", "cpu", "--threads", "2"], input=text, capture_output=True, timeout=120)
        return p.returncode, p.stdout.decode(), p.stderr.decode()
    code, out, err = run("run", "--image", file, "-p", "hello", "-n", "12")
    same("run", (code, out.strip()), (0, answer.strip()))
    check("its line", "a b.png: PNG of 64 x 64, seen as 64 x 64: 72 tokens" in err, err)
    open(folder + "/b.png", "wb").write(B)
    same("run: two", run("run", "--image", file, "--image", folder + "/b.png", "-p", "hello", "-n", "12", "-q")[1].strip(), two.strip())
    same("from stdin", run("run", "--image", "-", "-p", "hello", "-n", "12", "-q", text=A)[1].strip(), answer.strip())
    same("chat", run("chat", "-n", "12", "-q", "--temp", "0", text=f'/image "{file}"\nhello\n'.encode())[1].strip(), answer.strip())
    talk, cut = folder + "/talk.json", folder + "/cut.png"
    open(cut, "wb").write(A[:-60])
    out = run("chat", "-n", "12", "-q", "--temp", "0", text=f'/image {cut}\nhello\n/image "{file}"\nhello\n/save {talk}\nand you?\n'.encode())
    check("a broken one is forgotten", "cut.png: the PNG is broken" in out[2] and out[1].startswith(answer.strip()), out)
    second = out[1].strip().split("\n")[-1]
    def go_on(): return run("chat", "-n", "12", "-q", "--temp", "0", text=f"/load {talk}\nand you?\n/stats\n".encode())
    out = go_on()
    there = int((re.search(r"\((\d+) more were there\)", out[2]) or [0, 0])[1])
    check("a saved talk goes on where it was", out[1].strip().split("\n")[-1] == second and there > 75 and "computed again" not in out[2], (second, out))
    os.rename(talk + ".kv", talk + ".gone")
    out = go_on()
    check("without what was computed", out[1].strip().split("\n")[-1] == second and "computed again" in out[2] and "more were there" not in out[2], (second, out))
    os.rename(talk + ".gone", talk + ".kv")
    open(file, "wb").write(B)
    there, out = 0, go_on()
    there = int((re.search(r"\((\d+) more were there\)", out[2]) or [0, 0])[1])
    check("another picture in its file is computed", out[0] == 0 and there < 20, out)
    open(file, "wb").write(A)
    check("no picture of stdin", "/image -: what you say" in run("chat", "-n", "12", "-q", text=b"/image -\nhello\n")[2])
    code, out, err = run("plan", "--image-max-tokens", "40")
    check("plan", code == 0 and "mmproj-model.gguf (pixtral)" in out and "at most 40 tokens" in out, (code, out, err))
    inspect = lambda *a: subprocess.run([infer, "inspect", *a], capture_output=True, text=True)
    p = inspect(folder + "/mmproj-model.gguf")
    check("inspect", "tower of pictures: pixtral, 1 to " in p.stdout and "rows of 64 numbers a picture" in p.stdout, p)
    p = inspect("--check", folder + "/mmproj-model.gguf")
    check("inspect --check", p.returncode == 0 and "no fault found" in p.stdout, p)
    p = inspect("--check", folder + "/unknown.gguf")
    check("inspect --check, unknown", p.returncode == 2 and "projector 'step3vl' is not known" in p.stderr, p)
    check("plan as JSON", json.loads(run("plan", "--json")[1])["pictures"]["max_tokens"] == 1024, out)
    code, out, err = run("run", "--image", file, "-p", "hello", "-n", "3", "--image-max-tokens", "40")
    check("fewer tokens", code == 0 and "seen as 40 x 40: 30 tokens" in err or "seen as 48 x 48: 42 tokens" in err, err)
    code, out, err = run("run", "--image", "-", "-p", "hello", text=A[:-60])
    check("a broken one", code == 2 and "stdin: the PNG is broken: it ends early" in err, (code, err))
    code, out, err = run("run", "--image", folder + "/none.png", "-p", "hello")
    check("none", code == 2 and "none.png" in err, (code, err))
    code, out, err = run("run", "--image", file, "-p", "hello", "--mmproj", "none")
    check("not wanted", code == 2 and "reads text alone: --mmproj is none" in err, (code, err))
    code, out, err = run("run", "--image", file, "-p", "hello", "--mmproj", folder + "/other.gguf")
    check("a tower of another model", code == 2 and "other.gguf" in err, (code, err))
    code, out, err = run("run", "--image", file, "-p", "hello", "--mmproj", folder + "/unknown.gguf")
    check("an unknown one", code == 2 and "projector 'step3vl' is not known" in err, (code, err))

with tempfile.TemporaryDirectory() as folder:
    sight_files.write_pair(folder, tests)
    sight_files.write_tower(folder + "/other.gguf", 48)
    sight_files.write_tower(folder + "/unknown.gguf", 64, projector="step3vl")
    s = Server(model=folder + "/model.gguf")
    same("what it reads", s.ask("/v1/models")[2]["data"][0]["input_modalities"], ["text", "image"])
    check("it says what sees", "mmproj-model.gguf (pixtral)" in s.log(), s.log())
    answer, n = all_apis(s)
    again(s, answer, n)
    counts(s)
    two = s.ask(CHAT, say(part(A), part(B), text("hello")))[2]["choices"][0]["message"]["content"]
    refusals(s)
    s.stop()
    addresses(answer)
    text_alone()
    program(answer, two)
done()
