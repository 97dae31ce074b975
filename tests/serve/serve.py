#!/usr/bin/env python3
"""infer serve as clients meet it: each route, streams against whole answers, errors, limits, hang-ups, signals. Standard library only.
usage: serve.py INFER TESTS SERVE_FAKE"""
import http.client, json, os, re, shutil, signal, socket, ssl, subprocess, tempfile, threading, time
from serve_client import *

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
    settings = lambda **more: s.ask("/completion", {"prompt": "hello", "n_predict": 1, **more})[2]["generation_settings"]
    same("sampling as chat has it", [settings()[k] for k in ("temperature", "top_k", "top_p", "min_p", "repeat_penalty")], [0.5, 0, 1, 0.1, 1.1])
    same("greedy is greedy", [settings(temperature=0, **more)["repeat_penalty"] for more in ({}, {"repeat_penalty": 1.1})], [1, 1.1])
    same("stop text", [c["stop_reason"] for c in s.ask(CHAT, user("count", stop=["four", "three"]))[2]["choices"]], ["three"])
    same("length", s.ask(CHAT, user("count", max_tokens=4))[2]["choices"][0]["finish_reason"], "length")
    first = s.ask(CHAT, user("hello", return_token_ids=True))[2]["choices"][0]["token_ids"][0]
    check("bias", s.ask(CHAT, user("hello", logit_bias={str(first): -100}, return_token_ids=True))[2]["choices"][0]["token_ids"][:1] != [first])
    j = s.ask(CHAT, user("hello", response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": ["yes", "no"]}}}))[2]
    check("schema", json.loads(j["choices"][0]["message"]["content"]) in ("yes", "no"), j)
    j = s.ask(CHAT, user("hello", grammar='root ::= "abc"'))[2]
    same("grammar", j["choices"][0]["message"]["content"], "abc")
    for name, form, want in (("regex", {"guided_regex": "[a]bc"}, "abc"), ("Lark", {"grammar": '%llguidance {}\nstart: "a" BC\nBC: "bc"'}, "abc"),
                             ("of vLLM", {"structured_outputs": {"regex": "a{3}"}}, "aaa"), ("as a format", {"response_format": {"type": "regex", "value": "a|a"}}, "a"),
                             ("of SGLang", {"regex": "ab", "ebnf": ""}, "ab"), ("Lark as a format", {"response_format": {"type": "grammar", "grammar": 'start: "x"~2'}}, "xx"),
                             ("tags", {"response_format": {"type": "structural_tag", "format": {"type": "tag", "begin": "<a>", "end": "</a>", "content": {"type": "json_schema", "json_schema": {"const": 7}}}}}, "<a>7</a>"),
                             ("tags as text", {"structured_outputs": {"structural_tag": json.dumps({"type": "structural_tag", "format": {"type": "const_string", "value": "hm"}})}}, "hm")):
        same(name, "".join(s.ask(CHAT, user("hello", **form))[2]["choices"][0]["message"]["content"].split()), want)
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
    ids = s.ask("/tokenize", {"content": "hello there my friend"})[2]["tokens"]
    scored = s.ask(TEXT, {"prompt": ids, "max_tokens": 0, "echo": True, "logprobs": 20})[2]["choices"][0]["logprobs"]
    same("a scored prompt", (len(scored["tokens"]), scored["token_logprobs"][0], scored["top_logprobs"][0], scored["text_offset"][:2]), (len(ids), None, None, [0, 5]))
    for i in range(1, len(ids)):
        one = s.ask(TEXT, {"prompt": ids[:i], "max_tokens": 1, "logprobs": 20, "temperature": 0, "ignore_eos": True})[2]["choices"][0]["logprobs"]["top_logprobs"][0]
        same("the likeliest at a place", list(scored["top_logprobs"][i]), list(one))
        check("their log probabilities", all(abs(scored["top_logprobs"][i][t] - one[t]) < 1e-3 for t in one), (scored["top_logprobs"][i], one))
    same("echo", s.ask(TEXT, {"prompt": "hello", "echo": True, "max_tokens": 0})[2]["choices"][0]["text"], "hello")

def errors(s):
    for name, path, body, status, code, param in (
        ("bad JSON", CHAT, "{", 400, "invalid_json", None), ("an array", CHAT, "[]", 400, "invalid_json", None), ("twice", CHAT, '{"n":1,"n":2}', 400, "invalid_json", None),
        ("deep", CHAT, "[" * 100, 400, "invalid_json", None), ("no messages", CHAT, {}, 400, "invalid_value", "messages"), ("empty", CHAT, {"messages": []}, 400, "invalid_value", "messages"),
        ("a role", CHAT, {"messages": [{"role": "boss", "content": ""}]}, 400, "invalid_value", "messages[0].role"),
        ("an image", CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "unsupported_content", "messages[0].content[0]"),
        ("a type", CHAT, user("x", temperature="hot"), 400, "invalid_value", "temperature"), ("a range", CHAT, user("x", top_p=2), 400, "invalid_value", "top_p"),
        ("n", CHAT, user("x", n=17), 400, "invalid_value", "n"), ("top_logprobs alone", CHAT, user("x", top_logprobs=2), 400, "invalid_value", "top_logprobs"),
        ("refused", CHAT, user("x", functions=[{"name": "f"}]), 400, "unsupported_parameter", "functions"), ("a bias", CHAT, user("x", logit_bias={"99999": 1}), 400, "invalid_value", "logit_bias"),
        ("a regex", CHAT, user("x", guided_regex="a(?=b)"), 400, "invalid_schema", "guided_regex"),
        ("two forms", CHAT, user("x", guided_regex="a", grammar='root ::= "a"'), 400, "invalid_value", "grammar"),
        ("a format", CHAT, user("x", response_format={"type": "regex"}), 400, "invalid_value", "response_format.regex"),
        ("tags", CHAT, user("x", response_format={"type": "structural_tag", "format": {"type": "qwen_xml_parameter"}}), 400, "invalid_schema", "response_format"),
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
    same("slots", len(s.ask("/slots")[2]), 16)
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

class Stream:
    """a stream that is read bit by bit"""
    def __init__(self, s, body):
        self.s = socket.create_connection(("127.0.0.1", s.port), 120)
        data = json.dumps({**body, "stream": True}).encode()
        self.s.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (CHAT.encode(), len(data)) + data)
        self.got = b""
    def until(self, what, seconds=120):
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
    states = {x: gauge(s, f'infer_cancelled_total{{state="{x}"}}') for x in ("read", "queue", "prompt", "answer")}
    same("hang-ups are counted", (states["queue"], sum(states.values()), states["answer"] >= 4), (3, 9, True))
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
    s = Fake("--step", "20", "--slots", "1", "--timeout", "0.25")
    x = Stream(s, say(2000))
    check("a stream ends with an error", x.until(b'"type":"timeout_error"') and b"[DONE]" not in x.rest(), x.got[-300:])
    status, _, a = s.ask(CHAT, say(2000))
    check("a whole answer has what there is", status == 200 and a["choices"][0]["finish_reason"] == "length" or (status, a.get("error", {}).get("code")) == (504, "timeout"), a)
    x = Stream(s, say(2000))
    x.until(b'"content":"o"')
    status, _, e = s.ask(CHAT, say(2000))
    check("in the queue", (status, e.get("error", {}).get("code")) == (504, "timeout") or status == 200, e)
    s.stop()

def idle():
    """where nothing can be computed the engine thread sleeps instead of asking over and over"""
    s = Fake("--idle", "1000000", "--slots", "2", "--timeout", "0.5")
    x = Stream(s, say(3))
    check("a stream without a step ends in time", x.until(b'"type":"timeout_error"'), x.got[-300:])
    steps = gauge(s, "llamacpp:n_decode_total")
    check("few steps were asked for", 0 < steps < 1000, steps)
    s.stop()

def sleeps():
    """a server that nobody asks anything is asleep, whoever is connected"""
    s, kept = Fake(), []
    for _ in range(50):
        kept.append(http.client.HTTPConnection("127.0.0.1", s.port, timeout=20))
        kept[-1].request("GET", "/health")
        kept[-1].getresponse().read()
    def wakes():
        tasks = f"/proc/{s.p.pid}/task"
        return sum(int(re.search(r"\nvoluntary_ctxt_switches:\s*(\d+)", open(f"{tasks}/{t}/status").read())[1]) for t in os.listdir(tasks))
    time.sleep(0.5)
    before = wakes()
    time.sleep(1.5)
    check("it sleeps", wakes() - before <= 3, wakes() - before)
    same("and hears", s.ask("/health")[0], 200)
    for c in kept: c.close()
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
    same("exit code", s.p.wait(120), 0)
    s = Fake("--step", "5", "--drain", "0.2")
    x = Stream(s, say(5000))
    x.until(b'"content":"o"')
    s.p.send_signal(signal.SIGTERM)
    check("too long for the drain", b'"message":"the server is stopping"' in x.rest() and b"[DONE]" not in x.got, x.got[-200:])
    same("exit code", s.p.wait(120), 0)
    s = Fake("--step", "5", "--drain", "30")
    x = Stream(s, say(5000))
    x.until(b'"content":"o"')
    s.p.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    s.p.send_signal(signal.SIGTERM)
    same("a second signal", s.p.wait(120), 130)
    s = Fake("--step", "5", "--lost", "20")
    x = Stream(s, say(5000))
    check("the device is lost", b'"code":"device_lost"' in x.rest() and b"[DONE]" not in x.got, x.got[-300:])
    same("exit code", s.p.wait(120), 70)

def slow():
    s = Fake("--slow", "0.1")
    for name, data in (("a head", b"GET /hea"), ("a body", b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"), ("nothing", b"")):
        begin = time.monotonic()
        s.raw(data, timeout=60)
        check(f"{name} that is too slow is cut off", 0.05 < time.monotonic() - begin < 60, time.monotonic() - begin)
    same("others are served", s.ask(CHAT, say(3))[0], 200)
    s.stop()

def tls():
    if not shutil.which("openssl"): return
    with tempfile.TemporaryDirectory() as d:
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", d + "/key", "-out", d + "/cert", "-days", "2", "-subj", "/CN=localhost"], check=True, capture_output=True)
        s = Fake("--tls-cert", d + "/cert", "--tls-key", d + "/key", "--step", "2")
        context = ssl.create_default_context(cafile=d + "/cert")
        context.check_hostname = False
        c = http.client.HTTPSConnection("127.0.0.1", s.port, timeout=20, context=context)
        c.request("POST", CHAT, json.dumps(say(20, stream=True)))
        check("TLS", c.getresponse().read().endswith(b"data: [DONE]\n\n"))
        c.close()
        s.stop()

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
    end = time.monotonic() + 60
    while descriptors() > before and time.monotonic() < end: time.sleep(0.02)
    check("no descriptor is left", descriptors() <= before, (before, descriptors()))
    s.stop()

def load():
    """infer bench serve: figures against targets, and a program for gnuplot"""
    s = Fake("--step", "2", "--slots", "4")
    with tempfile.TemporaryDirectory() as folder:
        def bench(targets, *more):
            with open(folder + "/t", "w") as f: json.dump(targets, f)
            p = subprocess.run([infer, "bench", "serve", "--url", f"http://127.0.0.1:{s.port}", "--streams", "2", "--requests", "4", "--tokens-in", "8", "--tokens-out",
                                "5", "--temp", "0.5", "--targets", folder + "/t", *more], capture_output=True, text=True)
            return p.returncode, p.stdout, p.stderr
        code, out, _ = bench({"req_s": 0.1, "first_ms_p95": 60000}, "--plot", folder + "/p")
        check("targets kept", code == 0 and out.count("reached") == 2, (code, out))
        plot = open(folder + "/p").read()
        check("a program for gnuplot", plot.count("\n") > 101 and f"set output '{folder}/p.png'" in plot and "2 streams" in plot, plot[-300:])
        code, out, _ = bench({"tok_s": 1e9, "gap_ms_p99": 60000})
        check("a target missed", code == 3 and "MISSED" in out and "reached" in out, (code, out))
        code, _, err = bench({"speed": 3})
        check("no such figure", code == 2 and "no figure 'speed'" in err, (code, err))
    s.stop()

# ---- calls and reasoning, in three APIs ----

CALLS = '<think>hm</think>Let me look.\n<tool_call>\n{"name": "f", "arguments": {"a": "x \\"y\\""}}\n</tool_call>\n<tool_call>\n{"name": "g", "arguments": {"n": [3]}}\n</tool_call>\nDone.'
MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
PROPERTIES = {"type": "object", "properties": {"a": {"type": "string"}}}

def sse(s, path, body):
    """events of a stream with names: [(name, data)]"""
    status, headers, got = s.ask(path, {**body, "stream": True}, text=True)
    same(f"{path} streams", (status, headers["Content-Type"]), (200, "text/event-stream"))
    out = []
    for b in got.split("\n\n")[:-1]:
        name, data = b.split("\n")
        out.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
        same("event and type", out[-1][0], out[-1][1]["type"])
    return out

def runs(names):
    """names with repetitions as one"""
    return [n for i, n in enumerate(names) if not i or names[i - 1] != n]

def chat_calls(s):
    tools = [{"type": "function", "function": {"name": n, "parameters": PROPERTIES}} for n in "fg"]
    want = [("f", '{"a": "x \\"y\\""}'), ("g", '{"n": [3]}')]
    c = s.ask(CHAT, user("x", tools=tools))[2]["choices"][0]
    m = c["message"]
    same("calls", (m["reasoning"], m["content"], [(x["function"]["name"], x["function"]["arguments"]) for x in m["tool_calls"]], c["finish_reason"]),
         ("hm", "Let me look.Done.", want, "tool_calls"))
    text, calls, ends = "", {}, []
    for e in s.events(CHAT, user("x", tools=tools)):
        d = e["choices"][0]["delta"]
        text += d.get("content") or ""
        ends.append(e["choices"][0]["finish_reason"])
        for x in d.get("tool_calls", []):
            k = calls.setdefault(x["index"], ["", "", ""])
            k[0] += x.get("id", "")
            k[1] += x["function"].get("name", "")
            k[2] += x["function"].get("arguments", "")
    same("streamed", (text, [tuple(k[1:]) for k in calls.values()], ends[-1]), ("Let me look.Done.", want, "tool_calls"))
    check("ids", all(re.fullmatch("call_[a-z0-9]{24}", k[0]) for k in calls.values()), calls)
    c = s.ask(CHAT, user("x", tools=tools, parallel_tool_calls=False))[2]["choices"][0]
    same("one call", (len(c["message"]["tool_calls"]), c["finish_reason"]), (1, "tool_calls"))
    c = s.ask(CHAT, user("x", tools=tools, max_tokens=75))[2]["choices"][0]
    check("cut short", c["finish_reason"] == "length" and want[0][1].startswith(c["message"]["tool_calls"][0]["function"]["arguments"]), c)
    c = s.ask(CHAT, user("x", tools=tools, tool_choice="none"))[2]["choices"][0]
    check("none", "tool_calls" not in c["message"] and "<tool_call>" in c["message"]["content"], c)
    c = s.ask(CHAT, user("x", tools=tools, stop="look"))[2]["choices"][0]
    same("stop in the content", (c["message"]["content"], c["finish_reason"], c["stop_reason"]), ("Let me ", "stop", "look"))
    for bad, param in (({"tool_choice": {"type": "function", "function": {"name": "h"}}}, "tool_choice"),
                       ({"tool_choice": "required", "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "strange"}}}]}, "tools[0].function.parameters")):
        status, _, e = s.ask(CHAT, user("x", **{"tools": tools, **bad}))
        same("refused", (status, e["error"]["param"]), (400, param))

def messages(s):
    tools = [{"name": n, "input_schema": PROPERTIES} for n in "fg"]
    body = {"max_tokens": 500, "messages": [{"role": "user", "content": "x"}], "tools": tools, "temperature": 0}
    whole = s.ask(MESSAGES, {**body, "max_tokens": len(CALLS)})[2]
    events = sse(s, MESSAGES, {**body, "max_tokens": len(CALLS)})
    same("order", runs([n for n, _ in events]), ["message_start", "ping"] + 5 * ["content_block_start", "content_block_delta", "content_block_stop"] + ["message_delta", "message_stop"])
    start = events[0][1]["message"]
    check("message_start", start["usage"]["input_tokens"] == whole["usage"]["input_tokens"] > 0 and start["content"] == [] and start["stop_reason"] is None, start)
    blocks, json_text = [], {}
    for _, e in events:
        if e["type"] == "content_block_start":
            same("index", e["index"], len(blocks))
            blocks.append(e["content_block"])
        if e["type"] == "content_block_delta":
            d, b = e["delta"], blocks[e["index"]]
            if d["type"] == "text_delta": b["text"] += d["text"]
            if d["type"] == "thinking_delta": b["thinking"] += d["thinking"]
            if d["type"] == "signature_delta": b["signature"] += d["signature"]
            if d["type"] == "input_json_delta": json_text[e["index"]] = json_text.get(e["index"], "") + d["partial_json"]
    for i, t in json_text.items(): blocks[i]["input"] = json.loads(t)
    same("stream = whole", *[[{k: v for k, v in b.items() if k != "id"} for b in x] for x in (blocks, whole["content"])])
    same("blocks", [b["type"] for b in blocks], ["thinking", "text", "tool_use", "tool_use", "text"])
    check("ids", all(re.fullmatch("toolu_[a-z0-9]{24}", b["id"]) for b in whole["content"] if b["type"] == "tool_use"), whole)
    same("the end", (events[-2][1]["delta"], whole["stop_reason"]), ({"stop_reason": "tool_use", "stop_sequence": None}, "tool_use"))
    same("usage", {k: v for k, v in whole["usage"].items() if k in events[-2][1]["usage"]}, events[-2][1]["usage"])
    plain = {"max_tokens": 20, "messages": body["messages"]}
    same("length", s.ask(MESSAGES, plain)[2]["stop_reason"], "max_tokens")
    a = s.ask(MESSAGES, {**plain, "tools": tools, "max_tokens": 60, "stop_sequences": ["me"]})[2]
    same("stop sequence", (a["stop_reason"], a["stop_sequence"]), ("stop_sequence", "me"))
    # a second round, a header that changes each time, content of every kind
    round2 = {**plain, "tools": tools, "system": [{"type": "text", "text": "x-anthropic-billing-header: 1"}, {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
              "messages": body["messages"] + [{"role": "assistant", "content": whole["content"]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": b["id"], "content": [{"type": "text", "text": "r"}]} for b in whole["content"] if b["type"] == "tool_use"] +
                 [{"type": "text", "text": "so?"}, {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "page"}}]},
                {"role": "system", "content": "go on"}, {"role": "user", "content": "yes"}], "thinking": {"type": "disabled"}, "metadata": {"user_id": "1"}}
    same("second round", s.ask(MESSAGES, round2)[0], 200)
    count = s.ask(MESSAGES + "/count_tokens", {k: v for k, v in round2.items() if k != "max_tokens"})[2]
    same("count_tokens", count, {"input_tokens": s.ask(MESSAGES, round2)[2]["usage"]["input_tokens"]})
    round2["system"][0]["text"] = "x-anthropic-billing-header: another, longer"
    same("the header is left out", s.ask(MESSAGES + "/count_tokens", round2)[2], count)
    for bad, status, kind, words in (({"messages": []}, 400, "invalid_request_error", "messages"), ({"max_tokens": 0}, 400, "invalid_request_error", "max_tokens"),
                                     ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, 400, "invalid_request_error", "image"),
                                     ({"messages": [{"role": "user", "content": "x" * 9000}]}, 400, "invalid_request_error", "prompt is too long: ")):
        got, headers, e = s.ask(MESSAGES, {**plain, **bad})
        check(f"error {words}", got == status and e["type"] == "error" and e["error"]["type"] == kind and words in e["error"]["message"] and e["request_id"] == headers["x-request-id"], e)

def responses(s):
    tools = [{"type": "function", "name": n, "parameters": PROPERTIES} for n in "fg"]
    body = {"input": "x", "tools": tools, "temperature": 0, "max_output_tokens": len(CALLS), "metadata": {"k": "v"}}
    whole = s.ask(RESPONSES, body)[2]
    same("items", [i["type"] for i in whole["output"]], ["reasoning", "message", "function_call", "function_call", "message"])
    same("call", [whole["output"][2][k] for k in ("name", "arguments", "status")], ["f", '{"a": "x \\"y\\""}', "completed"])
    same("echoes", (whole["metadata"], whole["tools"], whole["object"], whole["store"]), ({"k": "v"}, tools, "response", False))
    for summary in (False, True):
        b = {**body, "reasoning": {"summary": "auto"}} if summary else body
        events = sse(s, RESPONSES, b)
        same("numbers", [e["sequence_number"] for _, e in events], list(range(len(events))))
        r = ["reasoning_summary_part.added", "reasoning_summary_text.delta", "reasoning_summary_text.done", "reasoning_summary_part.done"] if summary else \
            ["content_part.added", "reasoning_text.delta", "reasoning_text.done", "content_part.done"]
        m = ["content_part.added", "output_text.delta", "output_text.done", "content_part.done"]
        f = ["function_call_arguments.delta", "function_call_arguments.done"]
        inner = [x for part in (r, m, f, f, m) for x in ["output_item.added", *part, "output_item.done"]]
        same("order", runs([n for n, _ in events]), ["response." + n for n in ["created", "in_progress", *inner, "completed"]])
        done = [e["item"] for n, e in events if n == "response.output_item.done"]
        same("items of the events are the response's", done, events[-1][1]["response"]["output"])
        strip = lambda items: [{k: v for k, v in i.items() if k not in ("id", "call_id", "content", "summary")} for i in items]
        same("stream = whole", strip(done), strip(whole["output"]))
        for i, item in enumerate(done):
            of = [e for _, e in events if e.get("item_id") == item["id"]]
            check("item_id and output_index", of and all(e["output_index"] == i for e in of), item)
            text = "".join(e["delta"] for e in of if e["type"].endswith(".delta"))
            same("deltas", text, item.get("arguments") or (item.get("content") or item["summary"])[0]["text"])
    custom = {**body, "tools": [{"type": "custom", "name": "f"}, {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "g"}]}, {"type": "web_search"}]}
    status, headers, a = s.ask(RESPONSES, custom)
    check("custom tools", a["output"][2]["type"] == "custom_tool_call" and "web_search" in headers["x-infer-warning"], a["output"])
    second = [{"role": "user", "content": [{"type": "input_text", "text": "x"}]}, *whole["output"],
              *[{"type": "function_call_output", "call_id": i["call_id"], "output": "r"} for i in whole["output"] if i["type"] == "function_call"], {"type": "compaction"}]
    a = s.ask(RESPONSES, {**body, "input": second, "instructions": "Be brief."})[2]
    same("second round", a["status"], "completed")
    n = s.ask(RESPONSES + "/input_tokens", {**body, "input": second, "instructions": "Be brief."})[2]
    same("input_tokens", n, {"object": "response.input_tokens", "input_tokens": a["usage"]["input_tokens"]})
    a = s.ask(RESPONSES, {"input": "", "max_output_tokens": 1})[2]
    same("a probe", (a["status"], a["incomplete_details"]), ("incomplete", {"reason": "max_output_tokens"}))
    for name in ("text", "reasoning", "include", "tools", "input"):
        status, _, e = s.ask(RESPONSES, {"input": "x", name: 5})
        same("wrong type", (status, e["error"]["param"]), (400, name))
    for bad in ({"previous_response_id": "r"}, {"background": True}, {"input": [{"type": "item_reference", "id": "x"}]}):
        status, _, e = s.ask(RESPONSES, {"input": "x", **bad})
        same(f"refused {bad}", (status, e["error"]["code"]), (400, "unsupported_parameter"))

def ollama(s):
    def lines(path, body):
        status, headers, got = s.ask(path, body, text=True)
        same(f"{path} streams", (status, headers["Content-Type"]), (200, "application/x-ndjson"))
        return [json.loads(l) for l in got.splitlines()]
    tools = [{"type": "function", "function": {"name": n, "parameters": PROPERTIES}} for n in "fg"]
    options = {"temperature": 0, "num_ctx": 100000, "stop": ["zz"]}
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": tools, "options": options}
    whole = s.ask("/api/chat", {**body, "stream": False})[2]
    m = whole["message"]
    want = [{"function": {"name": "f", "arguments": {"a": 'x "y"'}}}, {"function": {"name": "g", "arguments": {"n": [3]}}}]
    same("ollama chat", (m["content"], m["thinking"], m["tool_calls"], whole["done"], whole["done_reason"]), ("Let me look.Done.", "hm", want, True, "stop"))
    parts = lines("/api/chat", body)
    same("ollama: stream = whole", ["".join(p["message"].get(k, "") for p in parts) for k in ("content", "thinking")] + [sum((p["message"].get("tool_calls", []) for p in parts), [])],
         [m["content"], m["thinking"], want])
    same("ollama: one end", [p["done"] for p in parts], [False] * (len(parts) - 1) + [True])
    same("ollama: counts", *[{k: p[k] for k in ("prompt_eval_count", "eval_count", "done_reason")} for p in (parts[-1], whole)])
    second = body["messages"] + [m] + [{"role": "tool", "tool_name": n, "content": "r"} for n in "fg"]
    same("ollama: second round", s.ask("/api/chat", {**body, "messages": second, "stream": False})[0], 200)
    a = s.ask("/api/generate", {"prompt": "x", "system": "s", "stream": False, "options": {"num_predict": 5}, "think": False})[2]
    same("ollama generate", (a["response"][:5], a["done_reason"], a["eval_count"]), (CALLS[:5], "length", 5))
    same("ollama generate streams", "".join(p["response"] for p in lines("/api/generate", {"prompt": "x", "raw": True, "options": {"num_predict": 5}})), a["response"])
    same("ollama: a refusal", (lambda r: (r[0], list(r[2])))(s.ask("/api/chat", {"messages": [{"role": "user", "content": "x", "images": ["aa"]}]})), (400, ["error"]))
    same("ollama tags", s.ask("/api/tags")[2]["models"][0]["name"], s.ask("/api/ps")[2]["models"][0]["model"])
    show = s.ask("/api/show", {"model": "m"})[2]
    check("ollama show", "tools" in show["capabilities"] and show["model_info"][show["model_info"]["general.architecture"] + ".context_length"] > 0, show)
    check("ollama version", tuple(map(int, s.ask("/api/version")[2]["version"].split("."))) >= (0, 6, 4))
    same("props", s.ask("/props")[2]["tools"]["format"], "hermes")

def apis():
    s = Fake("--say", CALLS)
    for part in (chat_calls, messages, responses, ollama): part(s)
    s.stop()
    s = Fake("--step", "5", "--lost", "60")
    same("messages: an error ends the stream", [n for n, _ in sse(s, MESSAGES, {"max_tokens": 5000, "messages": [{"role": "user", "content": "x"}]})][-1], "error")
    s.p.wait(120)
    s = Fake("--step", "5", "--lost", "60")
    last = sse(s, RESPONSES, {"max_output_tokens": 5000, "input": "x"})[-1]
    same("responses: an error ends the stream", (last[0], last[1]["response"]["error"]["code"]), ("response.failed", "device_lost"))
    s.p.wait(120)

s = Server("--metrics")
for part in (answers, completions, errors, framing, others, crowd): part(s)
wait_for(s, "vllm:kv_cache_usage_perc", 0)
s.stop()
for part in (keys, hang_ups, queue, deadlines, idle, sleeps, signals, slow, tls, many, load, apis): part()
done()
