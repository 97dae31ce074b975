#!/usr/bin/env python3
"""Routes and fields of infer serve beside answers as such: embeddings, and what steers an answer. Standard library only.
usage: serve_fields.py INFER TESTS SERVE_FAKE"""
import base64, http.client, json, math, os, re, shutil, signal, struct, subprocess, tempfile, threading, time
from serve_client import *

EMBEDDINGS = "/v1/embeddings"

def with_keys(keys):
    """a copy of the model with further keys, name: number; the data of the tensors stays at a multiple of 32"""
    data = open(MODEL, "rb").read()
    text = lambda t: struct.pack("<Q", len(t)) + t.encode()
    more = b"".join(text(k) + struct.pack("<II", 4, v) for k, v in keys.items())
    more += text("general.description") + struct.pack("<I", 8)
    more += text("x" * (-(len(more) + 8) % 32))
    magic, version, tensors, n = struct.unpack_from("<IIQQ", data)
    f = tempfile.NamedTemporaryFile(suffix=".gguf")
    f.write(struct.pack("<IIQQ", magic, version, tensors, n + len(keys) + 1) + more + data[24:])
    f.flush()
    return f

def vectors(s, body, path=EMBEDDINGS):
    status, _, a = s.ask(path, body)
    same(f"embeddings of {str(body)[:40]}", status, 200)
    same("their order", [d["index"] for d in a["data"]], list(range(len(a["data"]))))
    return [d["embedding"] for d in a["data"]]

def near(name, a, b): check(name, len(a) == len(b) and all(abs(x - y) < 1e-5 for x, y in zip(a, b)), f"{a} is not {b}")

def embeddings(s):
    one = vectors(s, {"input": "hello there"})[0]
    near("length 1", [math.fsum(x * x for x in one)], [1])
    many = vectors(s, {"input": ["count", "hello there", "one two three four five six seven"]})
    near("the same among others", many[1], one)
    check("others are other ones", max(abs(x - y) for x, y in zip(many[0], one)) > 1e-3)
    ids = s.ask("/tokenize", {"content": "hello there", "add_special": True})[2]["tokens"]
    near("ids", vectors(s, {"input": ids})[0], one)
    near("lists of ids", vectors(s, {"input": [ids, ids[:1]]})[0], one)
    packed = s.ask(EMBEDDINGS, {"input": "hello there", "encoding_format": "base64"})[2]["data"][0]["embedding"]
    near("base64", list(struct.unpack(f"<{len(one)}f", base64.b64decode(packed, validate=True))), one)
    few = one[:8]
    length = math.sqrt(math.fsum(x * x for x in few))
    near("dimensions", vectors(s, {"input": "hello there", "dimensions": 8})[0], [x / length for x in few])
    a = s.ask(EMBEDDINGS, {"input": ["hello there"] * 2, "model": "x"})[2]
    same("usage", (a["object"], a["model"], a["usage"]), ("list", "chat-llama", {"prompt_tokens": 2 * len(ids), "total_tokens": 2 * len(ids)}))
    a = s.ask("/api/embed", {"model": "m", "input": ["hello there", "count"]})[2]
    near("ollama", a["embeddings"][0], one)
    same("ollama counts", (len(a["embeddings"]), a["prompt_eval_count"] > 2), (2, True))
    near("ollama's older route", s.ask("/api/embeddings", {"prompt": "hello there"})[2]["embedding"], one)
    for body, code, param in (({}, "invalid_value", "input"), ({"input": []}, "invalid_value", "input"), ({"input": 5}, "invalid_value", "input"), ({"input": ["a", 5]}, "invalid_value", "input[1]"),
                              ({"input": [1, 99999]}, "invalid_value", "input"), ({"input": "a", "dimensions": 9999}, "invalid_value", "dimensions"), ({"input": ["a"] * 2049}, "invalid_value", "input"),
                              ({"input": "a", "encoding_format": "int8"}, "invalid_value", "encoding_format"), ({"input": "word " * 400}, "context_length_exceeded", "prompt")):
        status, _, e = s.ask(EMBEDDINGS, body)
        same(f"refused {str(body)[:40]}", (status, e["error"]["code"], e["error"]["param"]), (400, code, param))

def pooled():
    with with_keys({"llama.pooling_type": 2}) as f: # the first token's: what comes behind it does not matter
        s = Server(model=f.name)
        a, b, c = vectors(s, {"input": [[259, 260], [259, 262, 263], [260, 259]]})
        near("the first token's", a, b)
        check("another first token", max(abs(x - y) for x, y in zip(a, c)) > 1e-3)
        s.stop()
    with with_keys({"llama.pooling_type": 1}) as f:
        s = Server(model=f.name)
        a, b, c = vectors(s, {"input": [[259, 259, 259], [259, 260], [259]]})
        check("the mean", max(abs(x - y) for x, y in zip(b, c)) > 1e-3)
        s.stop()
    with with_keys({"llama.pooling_type": 4}) as f:
        s = Server(model=f.name)
        same("no embeddings", s.ask(EMBEDDINGS, {"input": "x"})[2]["error"]["code"], "unsupported_parameter")
        s.stop()

def no_judge(s):
    status, _, a = s.ask("/v1/rerank", {"query": "one", "documents": ["two"]})
    same("no words to judge with", (status, a["error"]["code"]), (400, "unsupported_parameter"))

def rerank():
    """a vocabulary in which the two words are tokens: other letters of the same length in those that are there"""
    data = open(MODEL, "rb").read()
    sized = lambda t: struct.pack("<Q", len(t)) + t.encode()
    for old, new in (("he", "no"), ("h e", "n o"), ("hell", "noll"), ("he ll", "no ll"), ("hello", "nollo"), ("hell o", "noll o"), ("as", "ye"), ("a s", "y e"), ("ass", "yes"), ("as s", "ye s"),
                     ("assis", "yesis"), ("ass is", "yes is"), ("assistan", "yesistan"), ("assis tan", "yesis tan"), ("assistant", "yesistant"), ("assistan t", "yesistan t")):
        data = data.replace(sized(old), sized(new))
    with tempfile.NamedTemporaryFile(suffix=".gguf") as f:
        f.write(data)
        f.flush()
        s = Server("--ctx", "2048", model=f.name)
        body = {"query": "one", "documents": ["two", {"text": "three"}, "one two"]}
        a = s.ask("/v1/rerank", body)[2]
        scores = [r["relevance_score"] for r in a["results"]]
        check("their order", scores == sorted(scores, reverse=True) and all(0 < x < 1 for x in scores) and len(set(scores)) == 3 and sorted(r["index"] for r in a["results"]) == [0, 1, 2], a)
        for r in a["results"]:
            alone = s.ask("/rerank", {"query": "one", "documents": [body["documents"][r["index"]]], "return_documents": True})[2]["results"][0]
            check("alone", abs(alone["relevance_score"] - r["relevance_score"]) < 1e-5 and alone["document"]["text"] in ("two", "three", "one two"), (alone, r))
        same("the best", s.ask("/rerank", {**body, "top_n": 1})[2]["results"], a["results"][:1])
        cohere = s.ask("/v2/rerank", {**body, "max_tokens_per_doc": 100})
        same("Cohere's route", (cohere[2]["results"], "max_tokens_per_doc" in cohere[1]["x-infer-warning"]), (a["results"], True))
        by_index = {r["index"]: r["relevance_score"] for r in a["results"]}
        pairs = s.ask("/v1/score", {"text_1": "one", "text_2": ["two", "three", "one two"]})[2]
        near("vLLM's scores", [d["score"] for d in pairs["data"]], [by_index[i] for i in range(3)])
        same("their shape", ([(d["index"], d["object"]) for d in pairs["data"]], pairs["object"]), ([(i, "score") for i in range(3)], "list"))
        other = s.ask("/score", {"text_1": ["one", "two"], "text_2": ["two", "one"]})[2]["data"]
        near("pairs", [d["score"] for d in other], [by_index[0], s.ask("/v1/score", {"queries": "two", "documents": "one"})[2]["data"][0]["score"]])
        for bad, param in (({"text_1": "x"}, "text_2"), ({"text_2": "x"}, "text_1"), ({"text_1": ["x", "y"], "text_2": ["x", "y", "z"]}, "text_1"), ({"text_1": "x", "text_2": [5]}, "text_2")):
            status, _, e = s.ask("/v1/score", bad)
            same(f"refused {bad}", (status, e["error"]["param"]), (400, param))
        # p(yes) of the two, by the log probabilities of an answer to the same prompt
        judge = 'Judge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer can only be "yes" or "no".'
        chat = {"messages": [{"role": "system", "content": judge}, {"role": "user", "content": "<Instruct>: t\n<Query>: one\n<Document>: two"}], "max_tokens": 1, "temperature": 0, "logprobs": True, "top_logprobs": 0}
        p = {w: s.ask(CHAT, {**chat, "logit_bias": {str(s.ask("/tokenize", {"content": w})[2]["tokens"][0]): 100}})[2]["choices"][0]["logprobs"]["content"][0] for w in ("yes", "no")}
        same("the two words", [p[w]["token"] for w in p], ["yes", "no"])
        got = s.ask("/rerank", {**body, "instruction": "t"})[2]["results"]
        near("p(yes)", [r["relevance_score"] for r in got if r["index"] == 0], [1 / (1 + math.exp(p["no"]["logprob"] - p["yes"]["logprob"]))])
        for bad, param in (({"query": "x"}, "documents"), ({"documents": ["x"]}, "query"), ({**body, "documents": [5]}, "documents"), ({**body, "top_n": 0}, "top_n")):
            status, _, e = s.ask("/rerank", bad)
            same(f"refused {bad}", (status, e["error"]["param"]), (400, param))
        s.stop()

def content(a): return a["choices"][0]["message"]["content"]

def ends(s):
    """what ends an answer, and what keeps it from ending"""
    short = s.ask(CHAT, user("hello", return_token_ids=True))[2]
    ids = short["choices"][0]["token_ids"]
    a = s.ask(CHAT, user("hello", min_tokens=20, max_tokens=30, return_token_ids=True))[2]
    same("min_tokens", (len(a["choices"][0]["token_ids"]) >= 20, a["choices"][0]["token_ids"][:len(ids)], a["infer"]["warnings"]), (True, ids, []))
    a = s.ask(CHAT, user("hello", stop_token_ids=[ids[3]], return_token_ids=True))[2]["choices"][0]
    same("the id that stopped", (a["stop_reason"], a["finish_reason"], a["token_ids"]), (ids[3], "stop", ids[:3]))
    e = s.events(CHAT, user("hello", stop_token_ids=[ids[3]]))[-1]["choices"][0]
    same("and in a stream", (e["stop_reason"], e["finish_reason"]), (ids[3], "stop"))
    same("the model's own end", short["choices"][0]["stop_reason"], None)
    a = s.ask(CHAT, user("hello", stop_token_ids=[ids[3]], min_tokens=6, return_token_ids=True))[2]["choices"][0]
    check("not before min_tokens", len(a["token_ids"]) >= 6 and ids[3] not in a["token_ids"][:6], a)
    a = s.ask(CHAT, user("hello", prediction={"type": "content", "content": "hi there!"}))[2]
    same("prediction", content(a), "hi there!")
    for field, value, status in (("priority", "high", 400), ("service_tier", "best", 400), ("service_tier", "flex", 200), ("priority", -3, 200), ("min_tokens", -1, 400), ("thinking_budget_tokens", 0, 200)):
        same(f"{field} {value}", s.ask(CHAT, user("hello", **{field: value}))[0], status)
    same("no infill", [(r[0], r[2]["error"]["code"], r[2]["error"]["param"]) for r in (s.ask("/infill", {"input_prefix": "a", "input_suffix": "b"}), s.ask(TEXT, {"prompt": "a", "suffix": "b"}))],
         [(400, "unsupported_parameter", "input_prefix"), (400, "unsupported_parameter", "suffix")])

def infill():
    with with_keys({"tokenizer.ggml.fim_pre_token_id": 20, "tokenizer.ggml.fim_suf_token_id": 21, "tokenizer.ggml.fim_mid_token_id": 22}) as f:
        s = Server(model=f.name)
        ids = {t: s.ask("/tokenize", {"content": t})[2]["tokens"] for t in ("one two", "four five", " three")}
        bos = s.ask("/tokenize", {"content": "", "add_special": True})[2]["tokens"]
        prompt = bos + [20] + ids["one two"] + [21] + ids["four five"] + [22]
        plain = {"temperature": 0, "max_tokens": 12, "ignore_eos": True}
        want = s.ask(TEXT, {"prompt": prompt, **plain})[2]["choices"][0]["text"]
        a = s.ask(TEXT, {"prompt": "one two", "suffix": "four five", **plain})[2]
        same("suffix", (a["choices"][0]["text"], a["usage"]["prompt_tokens"]), (want, len(prompt)))
        body = {"input_prefix": "one two", "input_suffix": "four five", "n_predict": 12, "temperature": 0, "ignore_eos": True, "samplers": ["top_k", "infill", "temperature"], "t_max_predict_ms": 500}
        a = s.ask("/infill", body)[2]
        same("infill", (a["content"], a["tokens_evaluated"], a["tokens_predicted"], a["stop_type"]), (want, len(prompt), 12, "limit"))
        got = s.ask("/infill", {**body, "stream": True}, text=True)[2]
        events = [json.loads(b[6:]) for b in got.split("\n\n") if b]
        same("infill streams", ("".join(e["content"] for e in events), [e["stop"] for e in events].count(True), events[-1]["stop"]), (want, 1, True))
        begun = s.ask(TEXT, {"prompt": prompt + ids[" three"], **plain})[2]["choices"][0]["text"]
        same("what has begun", s.ask("/infill", {**body, "prompt": " three"})[2]["content"], begun)
        check("other files", s.ask("/infill", {**body, "input_extra": [{"filename": "a.c", "text": "count"}]})[2]["tokens_evaluated"] > len(prompt))
        a = s.ask("/api/generate", {"prompt": "one two", "suffix": "four five", "stream": False, "options": {"temperature": 0, "num_predict": 12, "ignore_eos": True}})[2]
        same("ollama", a["response"], want)
        for path, bad, param in (("/infill", {}, "input_prefix"), ("/infill", {**body, "input_extra": [5]}, "input_extra"), (TEXT, {"prompt": [1, 2], "suffix": "x"}, "suffix"), (TEXT, {"prompt": "a", "suffix": "x", "echo": True}, "echo")):
            status, _, e = s.ask(path, bad)
            same(f"refused {bad}", (status, e["error"]["param"]), (400, param))
        s.stop()

def budgets():
    """a template that opens the thinking; the model thinks on and on"""
    data = open(MODEL, "rb").read()
    with tempfile.NamedTemporaryFile(suffix=".gguf") as f:
        f.write(data.replace(rb"<|im_start|>assistant\n'", rb"<|im_start|>as<think>\n'"))
        f.flush()
        s = Server(model=f.name)
        ask = user("count", max_tokens=40, ignore_eos=True, return_token_ids=True)
        free = s.ask(CHAT, ask)[2]
        check("no budget", free["usage"]["completion_tokens_details"]["reasoning_tokens"] > 20, free)
        same("no limit", s.ask(CHAT, {**ask, "thinking_budget_tokens": -1})[2]["choices"][0]["token_ids"], free["choices"][0]["token_ids"])
        for budget in ({"thinking_budget_tokens": 6}, {"reasoning": {"max_tokens": 6}}, {"thinking_token_budget": 6}, {"thinking_budget": 6}, {"reasoning_budget": 6}, {"reasoning_budget_tokens": 6}, {"thinking": {"type": "enabled", "budget_tokens": 6}}):
            a = s.ask(CHAT, {**ask, **budget})[2]
            c = a["choices"][0]
            same("the same so far", c["token_ids"][:6], free["choices"][0]["token_ids"][:6])
            check("a budget", 6 <= a["usage"]["completion_tokens_details"]["reasoning_tokens"] <= 20 and c["message"]["content"] and "think" not in c["message"]["content"] + c["message"]["reasoning"], a)
        _, headers, a = s.ask(CHAT, {**ask, "thinking_budget_tokens": 6, "reasoning_format": "none"})
        check("no budget of what is not told apart", "a budget has no effect" in headers["x-infer-warning"], headers)
        same("as Anthropic's clients say it, of none", [s.ask(CHAT, {**ask, "thinking": {"type": t}})[0] for t in ("disabled", "adaptive", "odd")], [200, 200, 400])
        m = s.ask("/v1/messages", {"messages": [{"role": "user", "content": "count"}], "max_tokens": 40, "temperature": 0, "ignore_eos": True, "thinking": {"type": "enabled", "budget_tokens": 6}})
        same("messages", ([b["type"] for b in m[2]["content"]], m[1]["x-infer-warning"]), (["thinking", "text"], "reasoning_effort: the model's template has no switch for it"))
        r = s.ask("/v1/responses", {"input": "count", "max_output_tokens": 40, "temperature": 0, "ignore_eos": True, "reasoning": {"max_tokens": 6}})[2]
        same("responses", [i["type"] for i in r["output"]], ["reasoning", "message"])
        a = s.ask(CHAT, {**ask, "thinking_budget_tokens": 0})[2]["choices"][0]["message"]
        check("none at all", "reasoning" not in a and a["content"], a)
        reasoned = lambda s, **more: s.ask(CHAT, {**ask, **more})[2]["usage"]["completion_tokens_details"]["reasoning_tokens"]
        check("seconds", 1 <= reasoned(s, thinking_budget_seconds=1e-6) <= 16)
        check("seconds that are many", reasoned(s, thinking_budget_seconds=1e5) > 20)
        s.stop()
        s = Server("--think-budget", "6", model=f.name)
        check("the house's budget", 6 <= reasoned(s) <= 20 and reasoned(s, thinking_budget_tokens=1000) > 20)
        s.stop()
        s = Server("--think-budget", "0", model=f.name)
        same("none in the house", reasoned(s), 0)
        s.stop()
        s = Server("--think-seconds", "0.000001", model=f.name)
        check("the house's seconds", reasoned(s) <= 16 and reasoned(s, thinking_budget_seconds=1000) > 20)
        s.stop()
        run = lambda *more: subprocess.run([infer, "run", "-m", f.name, "--device", "cpu", "-p", "count", "--temp", "0", "-n", "40", "--thinking", "hide", "--logit-bias", "2=-100", *more], capture_output=True, text=True, timeout=60).stdout
        check("infer run", len(run("--think-budget", "6")) > len(run()), (run(), run("--think-budget", "6")))
        same("infer run without a limit", run("--think-budget", "-1"), run())

def key(name): return {"x-api-key": f"secret-key-{name}"}

def hold(s, headers={}):
    """an answer that is under way until the connection is closed"""
    c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=240)
    c.request("POST", CHAT, json.dumps(say(900000, stream=True)), headers)
    c.getresponse()
    return c

def shares():
    """one key with many requests and one with few; classes; how many a key may have"""
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as f, tempfile.NamedTemporaryFile() as trace:
        f.write("anna:secret-key-anna\nbert:secret-key-bert:priority\ncarl:secret-key-carl:flex:2\ndora:secret-key-dora\n")
        f.flush()
        s = Fake("--step", "2", "--slots", "1", "--api-key-file", f.name, "--key-max", "20", "--ctx", "1000000", "--trace", trace.name)
        threads = []
        def one(name, n, **more):
            def run(): same("served", s.ask(CHAT, say(n, **more), {**key(name[0]), "X-Request-Id": str(name[1])})[0], 200)
            threads.append(threading.Thread(target=run))
            threads[-1].start()
        def waiting(n): wait_for(s, "vllm:num_requests_waiting", n, headers=key("bert"))
        first = hold(s, {**key("anna"), "X-Request-Id": "first"})
        wait_for(s, "vllm:num_requests_running", 1, headers=key("bert"))
        for i in range(12):
            one(("anna", i), 10)
            waiting(i + 1)
        one(("dora", "dora"), 10)
        waiting(13)
        one(("bert", "flex"), 10, service_tier="flex")
        waiting(14)
        one(("bert", "urgent"), 10, priority=-1)
        waiting(15)
        first.close()
        for t in threads: t.join()
        order = open(trace.name).read().split() # as they began
        same("all have begun", (order[0], len(order)), ("first", 16))
        same("the urgent one comes first, the flexible one last", (order[1], order[-1]), ("urgent", "flex"))
        check("the one of a key among many waits for two at most", order.index("dora") <= 4, order)
        same("a key's own are served as they came", [x for x in order if x.isdigit()], [str(i) for i in range(12)])
        for name, more, status in (("anna", {"service_tier": "priority"}, 403), ("carl", {"service_tier": "flex"}, 200), ("bert", {"priority": -1}, 200), ("anna", {"priority": 5}, 200)):
            r = s.ask(CHAT, say(1, **more), key(name))
            same(f"{name} with {more}", (r[0], r[2].get("error", {}).get("type")), (status, "permission_error" if status == 403 else None))
        first = hold(s, key("carl"))
        wait_for(s, "vllm:num_requests_running", 1, headers=key("bert"))
        one(("carl", "x"), 5)
        waiting(1)
        status, headers, e = s.ask(CHAT, say(5), key("carl"))
        same("a key's share is full", (status, e["error"]["code"], headers["Retry-After"]), (429, "rate_limit_exceeded", "3"))
        one(("bert", "y"), 1)
        waiting(2)
        first.close()
        for t in threads: t.join()
        s.stop()

def deadlines():
    s = Fake("--step", "20", "--slots", "1")
    for headers, stream in (({"X-Request-Timeout": "0.2"}, True), ({"x-stainless-read-timeout": "0.2"}, False), ({"X-Request-Timeout": "0.2"}, False)):
        status, _, got = s.ask(CHAT, say(2000, stream=stream), headers, text=True)
        # where the machine was too slow to begin in time there is nothing to tell but the error
        part = '"type":"timeout_error"' in got if stream else '"finish_reason":"length"' in got and json.loads(got)["usage"]["completion_tokens"] < 2000
        check(f"{headers}", (status == 200 and part) or (status == 504 and '"code":"timeout"' in got), got[-200:])
    status, _, got = s.ask(CHAT, say(30, stream=True), {"x-stainless-read-timeout": "0.2"}, text=True)
    check("a stream is read as it comes", got.endswith("data: [DONE]\n\n"), got[-200:])
    for bad in ("x", "-1", "0", "nan"): same(f"a timeout of {bad} is none", s.ask(CHAT, say(1), {"X-Request-Timeout": bad})[0], 200)
    s.stop()

def metrics(s):
    """names that dashboards look for; numbers that add up"""
    s.ask(CHAT, {"messages": [{"role": "boss"}]})
    s.ask("/nothing", {})
    text = s.ask("/metrics", text=True)[2]
    lines = [l for l in text.splitlines() if not l.startswith("#")]
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    for l in lines: check("a line of the format", re.fullmatch(r'[a-z0-9_:]+(\{([a-z_]+="[^"]*",?)*\})? [0-9.e+-]+', l), l)
    for l in lines:
        name = re.match(r"[a-z0-9_:]+", l)[0]
        check("its type is said", re.sub(r"_(bucket|sum|count)$", "", name) in types or name in types, l)
        check("vLLM's labels", not name.startswith("vllm:") or '{model_name="chat-llama",engine="0"' in l, l)
    same("each once", len({l.rsplit(" ", 1)[0] for l in lines}), len(lines))
    for name in ("time_to_first_token_seconds", "inter_token_latency_seconds", "time_per_output_token_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds", "request_inference_time_seconds",
                 "request_prefill_time_seconds", "request_decode_time_seconds", "request_prompt_tokens", "request_generation_tokens", "request_params_max_tokens", "request_params_n", "iteration_tokens_total"):
        check(f"{name} counts", types.get(f"vllm:{name}") == "histogram" and gauge(s, f"vllm:{name}_count") > 0, types)
    for name in ("kv_cache_usage_perc", "num_preemptions_total", "prefix_cache_queries_total"): check(name, f"vllm:{name}" in types)
    check("tokens of steps", gauge(s, "vllm:iteration_tokens_total_sum") >= gauge(s, "vllm:generation_tokens_total"))
    for kind in ("prompt", "decode"): check(f"steps with {kind}", gauge(s, f'infer_step_seconds_count{{model_name="chat-llama",engine="0",class="{kind}"}}') > 0)
    same("why requests are refused", [gauge(s, f'infer_rejected_total{{reason="{r}"}}') > 0 for r in ("invalid", "not_found", "too_long", "busy")], [True, True, True, False])
    check("the process", gauge(s, "process_resident_memory_bytes") > 1e6 and 5 < gauge(s, "process_open_fds") < 100 and gauge(s, "process_threads") > 3)
    for panel in json.load(open(os.path.dirname(tests) + "/serve/http/dist/grafana.json"))["panels"]:
        for t in panel["targets"]:
            for name in re.findall(r"(?:vllm:|infer_|process_)[a-z0-9_]+", t["expr"]): check("the dashboard's names", re.search(f"^(# TYPE )?{name}[ {{]", text, re.M), name)
    if shutil.which("promtool"): same("promtool", subprocess.run(["promtool", "check", "metrics"], input=text.encode(), capture_output=True).stderr.decode().count("error"), 0)

def manifests(s):
    """flags, probes, times and metrics of the manifests for Kubernetes are those of this program (their form: scripts/check-manifests)"""
    of = {n: open(f"{os.path.dirname(tests)}/serve/http/dist/kubernetes/{n}.yaml").read() for n in ("infer", "leaderworkerset", "metrics")}
    known = set(re.findall(r"--[a-z-]+", subprocess.run([infer, "help", "serve", "--all"], capture_output=True, text=True).stdout))
    for n in "infer", "leaderworkerset":
        flags = {f for a in re.findall(r"args: \[(.*?)\]", of[n], re.S) for f in re.findall(r"--[a-z-]+", a)}
        check(f"{n}: flags", "--drain" in flags and flags <= known, flags - known)
        for path in set(re.findall(r"path: (/\w+)", of[n])): same(f"{n}: {path}", s.ask(path)[0], 200)
        for pod in re.split("terminationGracePeriodSeconds: ", of[n])[1:]:
            took = sum(map(int, re.findall(r"sleep: {seconds: (\d+)}", pod) + re.findall(r'--drain, "(\d+)"', pod)))
            check(f"{n}: time to end", int(re.match(r"\d+", pod)[0]) >= took + 5 > 100, took)
    series, name = re.search(r"seriesQuery: '([\w:]+)", of["metrics"])[1], re.search("as: (\\w+)", of["metrics"])[1]
    same("the metric of the adapter", gauge(s, series), 0)
    same("the metric of the autoscaler", re.findall("metric: {name: (\\w+)}", of["infer"]), [name])

def grammars(s):
    """the same schema again is not compiled again"""
    made, known = (gauge(s, f"infer_grammar_cache_{x}_total") for x in ("misses", "hits"))
    body = user("hello", response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": ["yes", "no", "never"]}}})
    answers = [content(s.ask(CHAT, body)[2]) for _ in range(4)]
    check("one answer", len(set(answers)) == 1 and json.loads(answers[0]) in ("yes", "no", "never"), answers)
    same("compiled once", (gauge(s, "infer_grammar_cache_misses_total") - made, gauge(s, "infer_grammar_cache_hits_total") - known), (1, 3))
    for i in range(70): s.ask(CHAT, user("hello", max_tokens=3, grammar=f'root ::= "a{i}"'))
    same("others took its place", (content(s.ask(CHAT, body)[2]), gauge(s, "infer_grammar_cache_misses_total") - made), (answers[0], 72))

def progress(s):
    e = [x["prompt_progress"] for x in s.events(CHAT, user("hello " * 60, return_progress=True, max_tokens=2)) if "prompt_progress" in x]
    check("progress has a time", e and all(0 < p["time_ms"] < 1e5 for p in e) and e[-1]["processed"] == e[-1]["total"], e)

def log_of_prompts():
    with tempfile.TemporaryDirectory() as d:
        path = d + "/prompts"
        s = Fake("--log-prompts", path, "--say", 'say "it"')
        s.ask(CHAT, user("my question", max_tokens=9), {"X-Request-Id": "my-1"})
        s.ask(TEXT, {"prompt": [259, 260], "max_tokens": 3})
        s.ask(CHAT, {"messages": []})
        s.stop()
        lines = sorted((json.loads(l) for l in open(path)), key=lambda l: l["id"] != "my-1")  # each once its answer is out: another may be sooner
        same("logged", [(l["id"] == "my-1", l["route"], l["status"], len(l["answers"])) for l in lines], [(True, CHAT, 200, 1), (False, TEXT, 200, 1)])
        check("texts", "my question" in lines[0]["prompts"][0] and lines[0]["answers"][0]["text"].startswith('say "it"'), lines)
        same("its owner's alone", os.stat(path).st_mode & 0o777, 0o600)
        os.chmod(path, 0o644)
        p = subprocess.run([infer, "serve", "-m", MODEL, "--log-prompts", path, "--listen", "127.0.0.1:0"], capture_output=True, timeout=20)
        check("others can read it", p.returncode == 2 and b"chmod 600" in p.stderr, p)

def overload():
    """what waits when the server stops, streams too, hears 503 and nothing else before: a proxy asks another server"""
    s = Fake("--step", "2", "--slots", "1", "--drain", "500", "--ctx", "1000000")
    first, got = hold(s), {}
    wait_for(s, "vllm:num_requests_running", 1)
    def ask(path, stream): got[path, stream] = s.ask(path, say(5, stream=stream))
    threads = [threading.Thread(target=ask, args=(path, stream)) for path in ("/v1/messages", CHAT) for stream in (False, True)]
    for t in threads: t.start()
    wait_for(s, "vllm:num_requests_waiting", 4)
    s.p.send_signal(signal.SIGTERM)
    for t in threads: t.join()
    same("each has an answer in JSON", len(got), 4)
    for (path, stream), (status, headers, e) in got.items():
        same(f"{path}, stream {stream}", (status, e["error"]["type"], headers["Retry-After"]), (503, "overloaded_error" if path == "/v1/messages" else "server_error", "2"))
    first.close()
    s.p.wait(120)

s = Server("--metrics")
for part in (embeddings, no_judge, ends, grammars, progress, metrics, manifests): part(s)
s.stop()
for part in (pooled, rerank, infill, budgets, shares, deadlines, log_of_prompts, overload): part()
done()
