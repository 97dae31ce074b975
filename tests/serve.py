#!/usr/bin/env python3
"""infer serve as clients meet it: each route, streams against whole answers, errors, limits, hang-ups, signals. Standard library only.
usage: serve.py INFER TESTS SERVE_FAKE"""
import http.client, json, os, re, signal, socket, subprocess, sys, tempfile, threading, time

infer, tests, fake = (os.path.realpath(a) for a in sys.argv[1:4])
MODEL = tests + "/golden/chat/chat-llama.gguf"
failed, count = 0, 0

def check(name, ok, what=""):
    global failed, count
    count += 1
    if not ok:
        failed += 1
        print(f"FAILED: {name}: {what}"[:900], flush=True)

def same(name, a, b): check(name, a == b, f"{a!r} is not {b!r}")

class Server:
    def __init__(self, *args, program=(infer, "serve"), env={}):
        e = {k: v for k, v in os.environ.items() if k not in ("INFER_API_KEY", "INFER_MODEL")}
        self.err = tempfile.TemporaryFile("w+b")
        self.p = subprocess.Popen([*program, "-m", MODEL, "--listen", "127.0.0.1:0", "--device", "cpu", "--threads", "2", *args], stderr=self.err,
                                  stdin=subprocess.DEVNULL, env={**e, **env})
        for _ in range(600):
            found = re.search(r"at https?://127\.0\.0\.1:(\d+)", self.log())
            if found or self.p.poll() is not None: break
            time.sleep(0.05)
        self.port = int(found[1]) if found else 0
        check("the server starts", found, self.log())

    def log(self):
        self.err.seek(0)
        return self.err.read().decode()

    def raw(self, data, timeout=20):
        """what comes back until the connection closes"""
        with socket.create_connection(("127.0.0.1", self.port), timeout) as s:
            s.sendall(data)
            out = b""
            try:
                while more := s.recv(65536): out += more
            except (ConnectionResetError, TimeoutError): pass
            return out

    def ask(self, path, body=None, headers={}, method=None, text=False):
        """status, headers, JSON"""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
        c.request(method or ("GET" if body is None else "POST"), path, data, headers)
        r = c.getresponse()
        got = r.read().decode()
        c.close()
        return r.status, r.headers, got if text or not got else json.loads(got)

    def events(self, path, body, **more):
        """the data of a stream's events, without [DONE], which has to come last"""
        status, headers, got = self.ask(path, {**body, "stream": True, **more}, text=True)
        same(f"{path} streams", (status, headers["Content-Type"]), (200, "text/event-stream"))
        blocks = [b for b in got.split("\n\n") if b and not b.startswith(":")]
        check(f"{path}: data alone", all(b.startswith("data: ") for b in blocks), got)
        same(f"{path}: the end", blocks[-1:], ["data: [DONE]"])
        return [json.loads(b[6:]) for b in blocks[:-1]]

    def stop(self, how=signal.SIGTERM, code=0):
        self.p.send_signal(how)
        try: same("exit code", self.p.wait(30), code)
        except subprocess.TimeoutExpired:
            check("the server ends", False, self.log())
            self.p.kill()
        return self.log()

def user(text, **more): return {"messages": [{"role": "user", "content": text}], "temperature": 0, **more}
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"

def added_up(events):
    """the choices of a chat stream as the whole answer has them"""
    out = {}
    for e in events:
        for c in e["choices"]:
            o = out.setdefault(c["index"], {"content": "", "reasoning_content": "", "logprobs": [], "finish": None, "role": 0})
            d = c["delta"]
            o["role"] += "role" in d
            for k in ("content", "reasoning_content"): o[k] += d.get(k) or ""
            o["logprobs"] += (c["logprobs"] or {}).get("content") or []
            check("one end", o["finish"] is None)
            o["finish"] = c["finish_reason"]
    return out

def answers(s):
    status, headers, a = s.ask(CHAT, user("hello"), {"X-Request-Id": "my-1"})
    same("hello", (status, a["choices"][0]["message"]["content"], a["choices"][0]["finish_reason"]), (200, "hi there!", "stop"))
    same("request id", headers["x-request-id"], "my-1")
    same("object", (a["object"], a["model"]), ("chat.completion", "chat-llama"))
    check("id", re.fullmatch(r"chatcmpl-[a-z0-9]{24}", a["id"]), a["id"])
    same("usage", a["usage"]["total_tokens"], a["usage"]["prompt_tokens"] + a["usage"]["completion_tokens"])
    for more in ({}, {"n": 3, "temperature": 0.9, "seed": 5}, {"logprobs": True, "top_logprobs": 3}, {"max_tokens": 4}, {"stop": "three"}, {"stop": ["x", " the"]},
                 {"temperature": 1.5, "top_k": 20, "top_p": 0.9, "min_p": 0.01, "seed": 7, "repeat_penalty": 1.1, "n": 2}):
        whole = s.ask(CHAT, user("count", **more))[2]
        events = s.events(CHAT, user("count", **more), stream_options={"include_usage": True})
        added = added_up(events)
        for c in whole["choices"]:
            o = added[c["index"]]
            same(f"stream = whole {more}", (o["content"], o["finish"], o["logprobs"], o["role"]),
                 (c["message"]["content"], c["finish_reason"], (c["logprobs"] or {}).get("content") or [], 1))
        same("usage chunk", events[-1]["choices"], [])
        u, v = events[-1]["usage"], whole["usage"]
        same("usage of both", (u["prompt_tokens"], u["completion_tokens"]), (v["prompt_tokens"], v["completion_tokens"]))
    same("stop text", [c["stop_reason"] for c in s.ask(CHAT, user("count", stop=["four", "three"]))[2]["choices"]], ["three"])
    same("length", s.ask(CHAT, user("count", max_tokens=4))[2]["choices"][0]["finish_reason"], "length")
    first = s.ask(CHAT, user("hello", return_token_ids=True))[2]["choices"][0]["token_ids"][0]
    check("bias", s.ask(CHAT, user("hello", logit_bias={str(first): -100}, return_token_ids=True))[2]["choices"][0]["token_ids"][:1] != [first])
    j = s.ask(CHAT, user("hello", response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": ["yes", "no"]}}}))[2]
    check("schema", json.loads(j["choices"][0]["message"]["content"]) in ("yes", "no"), j)
    j = s.ask(CHAT, user("hello", grammar='root ::= "abc"'))[2]
    same("grammar", j["choices"][0]["message"]["content"], "abc")
    a = s.ask(CHAT, {"messages": [{"role": "user", "content": "count"}, {"role": "assistant", "content": "one two"}], "temperature": 0, "continue_final_message": True})[2]
    check("continued", a["choices"][0]["message"]["content"].startswith(" three"), a)
    a = s.ask(CHAT, user([{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}], user="x", fantasy=1))
    same("parts, warnings", (a[2]["choices"][0]["message"]["content"], a[2]["infer"]["warnings"]), ("hi there!", ["fantasy: is not known here and was ignored"]))
    check("warning header", "fantasy" in a[1]["x-infer-warning"])
    a = s.ask(CHAT, user("hello", model="gpt-x"))[2]
    same("another model", a["model"], "chat-llama")
    same("seeds", *[s.ask(CHAT, user("tell", temperature=1.8, seed=3, max_tokens=12))[2]["choices"][0]["message"]["content"] for _ in range(2)])

def completions(s):
    for body in ({"prompt": "hello"}, {"prompt": ["hello", "count"], "n": 2, "logprobs": 2}, {"prompt": [259, 260]}, {"prompt": [[259], [260, 256]], "echo": True}):
        body = {**body, "temperature": 0.7, "seed": 2, "max_tokens": 8}
        whole = s.ask(TEXT, body)[2]
        same("number of choices", len(whole["choices"]), body.get("n", 1) * (len(body["prompt"]) if isinstance(body["prompt"][0], (list, str)) and isinstance(body["prompt"], list) else 1))
        text, tokens = {}, {}
        for e in s.events(TEXT, body):
            for c in e["choices"]:
                text[c["index"]] = text.get(c["index"], "") + c["text"]
                tokens.setdefault(c["index"], []).extend((c["logprobs"] or {}).get("tokens", []))
        for c in whole["choices"]:
            same(f"stream = whole {body}", (text[c["index"]], tokens[c["index"]]), (c["text"], (c["logprobs"] or {}).get("tokens", [])))
    same("echo", s.ask(TEXT, {"prompt": "hello", "echo": True, "max_tokens": 0})[2]["choices"][0]["text"], "hello")

def errors(s):
    for name, path, body, status, code, param in (
        ("bad JSON", CHAT, "{", 400, "invalid_json", None), ("an array", CHAT, "[]", 400, "invalid_json", None), ("twice", CHAT, '{"n":1,"n":2}', 400, "invalid_json", None),
        ("deep", CHAT, "[" * 100, 400, "invalid_json", None), ("no messages", CHAT, {}, 400, "invalid_value", "messages"), ("empty", CHAT, {"messages": []}, 400, "invalid_value", "messages"),
        ("a role", CHAT, {"messages": [{"role": "boss", "content": ""}]}, 400, "invalid_value", "messages[0].role"),
        ("an image", CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "unsupported_content", "messages[0].content[0]"),
        ("a type", CHAT, user("x", temperature="hot"), 400, "invalid_value", "temperature"), ("a range", CHAT, user("x", top_p=2), 400, "invalid_value", "top_p"),
        ("n", CHAT, user("x", n=17), 400, "invalid_value", "n"), ("top_logprobs alone", CHAT, user("x", top_logprobs=2), 400, "invalid_value", "top_logprobs"),
        ("refused", CHAT, user("x", functions=[]), 400, "unsupported_parameter", "functions"), ("a bias", CHAT, user("x", logit_bias={"99999": 1}), 400, "invalid_value", "logit_bias"),
        ("a schema", CHAT, user("x", response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": {"$ref": "http://x"}}}), 400, "invalid_schema", "response_format"),
        ("too long", CHAT, user("hello " * 300), 400, "context_length_exceeded", "messages"), ("too long, streamed", CHAT, user("hello " * 300, stream=True), 400, "context_length_exceeded", "messages"),
        ("no prompt", TEXT, {}, 400, "invalid_value", "prompt"), ("best_of", TEXT, {"prompt": "x", "best_of": 2}, 400, "unsupported_parameter", "best_of"),
        ("prompts", TEXT, {"prompt": ["x"] * 65}, 400, "invalid_value", "prompt"), ("no route", "/v1/nothing", {}, 404, "not_found", None)):
        got, headers, e = s.ask(path, body)
        same(name, (got, e["error"]["code"], e["error"]["param"], e["error"]["type"], sorted(e["error"])), (status, code, param, "invalid_request_error", ["code", "message", "param", "type"]))
    same("a method", s.ask(CHAT)[0], 405)
    check("numbers of both", "maximum context length is 256 tokens" in s.ask(CHAT, user("hello " * 300))[2]["error"]["message"])

def framing(s):
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    body = json.dumps(user("hello")).encode()
    for name, more, want in (
        ("length twice", b"Content-Length: %d\r\nContent-Length: 1\r\n" % len(body), b"400"), ("length and chunks", b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n" % len(body), b"400"),
        ("host twice", b"Host: localhost\r\nContent-Length: %d\r\n" % len(body), b"400"), ("an encoding", b"Transfer-Encoding: gzip\r\n", b"400"),
        ("too long", b"Content-Length: 999999999\r\n", b"413"), ("headers", b"a: b\r\n" * 120 + b"Content-Length: %d\r\n" % len(body), b"431"),
        ("whole", b"Content-Length: %d\r\n" % len(body), b"200")):
        got = s.raw(head + more + b"\r\n" + body)
        same(f"framing: {name}", got[9:12], want)
    for name, headers, want in (("a foreign host", {"Host": "evil.example"}, 403), ("a foreign page", {"Origin": "https://evil.example"}, 403), ("a form", {"Sec-Fetch-Site": "cross-site"}, 400),
                                ("an own page", {"Origin": "http://localhost:3000", "Content-Type": "application/json"}, 200), ("an own name", {"Host": "localhost:1"}, 200)):
        same(name, s.ask(CHAT, user("hello"), headers)[0], want)

def others(s):
    same("health", s.ask("/health")[2], {"status": "ok"})
    same("models", [m["id"] for m in s.ask("/v1/models")[2]["data"]], ["chat-llama"])
    same("a model", s.ask("/v1/models/chat-llama")[2]["max_model_len"], 256)
    same("no model", s.ask("/v1/models/other")[0], 404)
    ids = s.ask("/tokenize", {"content": "hello there"})[2]["tokens"]
    same("there and back", s.ask("/detokenize", {"tokens": ids})[2]["content"], "hello there")
    t = s.ask("/apply-template", user("hello"))[2]
    same("template", (t["prompt"], t["tokens"]), ("<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n", s.ask(CHAT, user("hello"))[2]["usage"]["prompt_tokens"]))
    same("count", s.ask(CHAT + "/input_tokens", user("hello"))[2]["input_tokens"], t["tokens"])
    same("slots", len(s.ask("/slots")[2]), 4)
    check("metrics", 'vllm:request_success_total{model_name="chat-llama",engine="0",finished_reason="stop"}' in s.ask("/metrics", text=True)[2])

def crowd(s):
    """ten at once say what each says alone"""
    bodies = [user(("hello", "count")[i % 2], seed=i, temperature=(0, 1.2)[i % 3 == 0], max_tokens=60) for i in range(10)]
    alone = [s.ask(CHAT, b)[2]["choices"][0]["message"]["content"] for b in bodies]
    got = [None] * len(bodies)
    def one(i): got[i] = added_up(s.events(CHAT, bodies[i]))[0]["content"]
    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(bodies))]
    for t in threads: t.start()
    for t in threads: t.join()
    same("ten at once", got, alone)

def keys():
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as f:
        f.write("# of tests\nanna:secret-key-1\nbert:secret-key-2\n")
        f.flush()
        s = Server("--api-key-file", f.name, "--strict-model", "--strict-fields", "--model-name", "m,alias", "--log", "json", "--metrics")
        same("no key", (s.ask("/v1/models")[0], s.ask("/v1/models")[1]["WWW-Authenticate"]), (401, "Bearer"))
        same("health without", s.ask("/health")[0], 200)
        for headers, want in (({"Authorization": "Bearer secret-key-2"}, 200), ({"x-api-key": "secret-key-1"}, 200), ({"x-api-key": "secret-key-3"}, 401), ({"Authorization": "Bearer secret-key"}, 401)):
            same("key", s.ask("/v1/models", headers=headers)[0], want)
        key = {"x-api-key": "secret-key-1"}
        same("strict model", s.ask(CHAT, user("x", model="other"), key)[2]["error"]["code"], "model_not_found")
        same("alias", s.ask(CHAT, user("hello", model="alias"), key)[2]["model"], "m")
        same("strict fields", s.ask(CHAT, user("x", fantasy=1), key)[2]["error"]["code"], "unsupported_parameter")
        log = s.stop()
        lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
        check("log", any(line["key"] == "anna" and line["route"] == CHAT and line["status"] == 200 and line["answer_tokens"] == 7 for line in lines), log)
        check("no text in the log", "hi there" not in log)

def say(n, **more): return {"messages": [{"role": "user", "content": "x"}], "max_tokens": n, **more}

class Stream:
    """a stream that is read bit by bit"""
    def __init__(self, s, body):
        self.s = socket.create_connection(("127.0.0.1", s.port), 20)
        data = json.dumps({**body, "stream": True}).encode()
        self.s.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (CHAT.encode(), len(data)) + data)
        self.got = b""
    def until(self, what, seconds=10):
        end = time.monotonic() + seconds
        while what not in self.got and time.monotonic() < end:
            more = self.s.recv(65536)
            if not more: break
            self.got += more
        return what in self.got
    def rest(self):
        try:
            while not self.got.endswith(b"\r\n0\r\n\r\n") and (more := self.s.recv(65536)): self.got += more
        except ConnectionResetError: pass
        return self.got
    def close(self): self.s.close()

def gauge(s, name):
    return float(re.search(rf"^{name}(?:{{.*}})? (\S+)$", s.ask("/metrics", text=True)[2], re.M)[1])

def wait_for(s, name, value, seconds=5):
    """seconds until a metric has a value; fails when it never has"""
    begin = time.monotonic()
    while gauge(s, name) != value:
        if time.monotonic() - begin > seconds:
            check(f"{name} becomes {value}", False, gauge(s, name))
            break
        time.sleep(0.01)
    return time.monotonic() - begin

def Fake(*args): return Server(*args, program=(fake,))

def hang_ups():
    s = Fake("--step", "5", "--slots", "2", "--queue", "8")
    for how in ("stream", "whole", "queued"):
        streams = [Stream(s, say(2000)) for _ in range(2)] if how != "whole" else []
        for x in streams: check("it begins", x.until(b'"content":"o"'))
        if how == "whole":
            for _ in range(2):
                x = socket.create_connection(("127.0.0.1", s.port))
                data = json.dumps(say(2000)).encode()
                x.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (CHAT.encode(), len(data)) + data)
                streams.append(x)
        wait_for(s, "vllm:num_requests_running", 2)
        if how == "queued":
            queued = [Stream(s, say(20)) for _ in range(3)]
            wait_for(s, "vllm:num_requests_waiting", 3)
            for x in queued: x.close()
            wait_for(s, "vllm:num_requests_waiting", 0)
        for x in streams: x.close()
        wait_for(s, "vllm:num_requests_running", 0)
    same("it still answers", s.ask(CHAT, say(3))[0], 200)
    same("hang-ups are counted", gauge(s, "infer_cancelled_total"), 9)
    s.stop()

def queue():
    s = Fake("--step", "5", "--slots", "1", "--queue", "2")
    streams = [Stream(s, say(2000))]
    streams[0].until(b'"content":"o"')
    streams += [Stream(s, say(5)) for _ in range(2)]
    wait_for(s, "vllm:num_requests_waiting", 2)
    for body in (say(5), say(5, stream=True)):
        status, headers, e = s.ask(CHAT, body)
        same("queue full", (status, e["error"]["type"], e["error"]["code"], headers["Retry-After"], headers["retry-after-ms"]), (429, "rate_limit_error", "rate_limit_exceeded", "3", "3000"))
    check("said so", "try again in 3s" in e["error"]["message"])
    same("health under load", s.ask("/health")[0], 200)
    streams[0].close()
    for x in streams[1:]: check("the queue goes on", x.until(b"[DONE]"))
    s.stop()

def deadlines():
    s = Fake("--step", "20", "--slots", "1", "--timeout", "0.5")
    x = Stream(s, say(2000))
    check("a stream ends with an error", x.until(b'"type":"timeout_error"') and b"[DONE]" not in x.rest(), x.got[-300:])
    status, _, a = s.ask(CHAT, say(2000))
    same("a whole answer has what there is", (status, a["choices"][0]["finish_reason"]), (200, "length"))
    x = Stream(s, say(2000))
    x.until(b'"content":"o"')
    status, _, e = s.ask(CHAT, say(2000))
    check("in the queue", (status, e.get("error", {}).get("code")) == (504, "timeout") or status == 200, e)
    s.stop()

def signals():
    s = Fake("--step", "5", "--slots", "2", "--drain", "5")
    running, queued = [Stream(s, say(60)) for _ in range(2)], []
    for x in running: x.until(b'"content":"o"')
    queued = [Stream(s, say(60)) for _ in range(2)]
    wait_for(s, "vllm:num_requests_waiting", 2)
    s.p.send_signal(signal.SIGTERM)
    for x in running: check("it ends well", x.rest().endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"), x.got[-200:])
    for x in queued: check("it is told", b'"code":"unavailable"' in x.rest(), x.got[-200:])
    same("exit code", s.p.wait(10), 0)
    s = Fake("--step", "5", "--drain", "0.3")
    x = Stream(s, say(5000))
    x.until(b'"content":"o"')
    s.p.send_signal(signal.SIGTERM)
    check("too long for the drain", b'"message":"the server is stopping"' in x.rest() and b"[DONE]" not in x.got, x.got[-200:])
    same("exit code", s.p.wait(10), 0)
    s = Fake("--step", "5", "--drain", "30")
    x = Stream(s, say(5000))
    x.until(b'"content":"o"')
    s.p.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    s.p.send_signal(signal.SIGTERM)
    same("a second signal", s.p.wait(5), 130)
    s = Fake("--step", "5", "--lost", "20")
    x = Stream(s, say(5000))
    check("the device is lost", b'"code":"device_lost"' in x.rest() and b"[DONE]" not in x.got, x.got[-300:])
    same("exit code", s.p.wait(10), 70)

def many():
    """two hundred streams, a third of which hang up; nothing is left behind"""
    s = Fake("--step", "1", "--slots", "32", "--queue", "1000")
    def descriptors(): return len(os.listdir(f"/proc/{s.p.pid}/fd"))
    s.ask(CHAT, say(2))
    before, bad = descriptors(), []
    def one(i):
        try:
            x = Stream(s, say(30))
            ok = x.until(b'"content":"o') if i % 3 == 0 else x.until(b"[DONE]")
            x.close()
            if not ok: bad.append(i)
        except OSError as e: bad.append(str(e))
    threads = [threading.Thread(target=one, args=(i,)) for i in range(200)]
    for t in threads: t.start()
    for t in threads: t.join()
    same("all streams end", bad, [])
    wait_for(s, "vllm:num_requests_running", 0)
    end = time.monotonic() + 5
    while descriptors() > before and time.monotonic() < end: time.sleep(0.02)
    check("no descriptor is left", descriptors() <= before, (before, descriptors()))
    s.stop()

s = Server("--metrics")
for part in (answers, completions, errors, framing, others, crowd): part(s)
s.stop()
for part in (keys, hang_ups, queue, deadlines, signals, many): part()
print(f"{count} checks, {failed} failed")
sys.exit(failed > 0)
