#!/usr/bin/env python3
"""What clients of other servers send to infer serve, and look for in its answers: vLLM's, llama.cpp's, TGI's, ollama's and OpenAI's fields,
shapes and routes. Standard library only. usage: serve_peers.py INFER TESTS SERVE_FAKE"""
import json, os, re, subprocess, sys, tempfile
from serve_client import *

MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"], "additionalProperties": False}}}
HI = [{"role": "user", "content": "hello"}]

def text(a): return a["choices"][0]["message"]["content"]
def ids(a): return a["choices"][0]["token_ids"]

def refused(s, name, path, body, param, code="invalid_value", status=400):
    got, _, e = s.ask(path, body)
    error = e.get("error", {}) if isinstance(e, dict) else {}
    same(name, (got, error.get("code"), error.get("param")), (status, code, param))

def forced_call_beside_a_format(s):
    schema = {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]}
    for form in ({"type": "json_object"}, {"type": "json_schema", "json_schema": {"name": "b", "schema": schema}}):
        status, headers, a = s.ask(CHAT, user("hello", tools=[TOOL], tool_choice={"type": "function", "function": {"name": "f"}}, response_format=form))
        same(f"a forced call beside {form['type']}", status, 200)
        if status != 200: continue
        call = a["choices"][0]["message"]["tool_calls"][0]["function"]
        check("the call wins", call["name"] == "f" and json.loads(call["arguments"])["a"] in "xy" and "response_format" in headers["x-infer-warning"], a)
    a = s.ask(CHAT, user("hello", tools=[TOOL], tool_choice={"function": {"name": "f"}}))[2] # huggingface_hub's client leaves the type out
    same("a function without a type", a["choices"][0]["finish_reason"] if "choices" in a else a, "tool_calls")
    status, headers, a = s.ask(RESPONSES, {"input": "hello", "tools": [{"type": "function", **TOOL["function"]}], "tool_choice": {"type": "function", "name": "f"},
                                           "text": {"format": {"type": "json_schema", "name": "b", "schema": schema}}, "temperature": 0})
    same("responses: a forced call beside a format", (status, a.get("output", [{}])[0].get("type")), (200, "function_call"))

def no_limit(s):
    whole = text(s.ask(CHAT, user("hello"))[2])
    for value in (-1, None):
        for name, path, body in (("max_tokens", CHAT, user("hello")), ("max_completion_tokens", CHAT, user("hello")), ("n_predict", CHAT, user("hello")),
                                 ("max_tokens", MESSAGES, {"messages": HI, "temperature": 0}), ("max_output_tokens", RESPONSES, {"input": "hello", "temperature": 0})):
            status, headers, a = s.ask(path, {**body, name: value})
            same(f"{path}: {name} {value}", (status, headers["x-infer-warning"]), (200, None))
            if status == 200: same("the answer", text(a) if path == CHAT else a["content"][0]["text"] if path == MESSAGES else a["output"][0]["content"][0]["text"], whole)
        a = s.ask(TEXT, {"prompt": "hello", "max_tokens": value, "temperature": 0, "ignore_eos": True})[2]
        same(f"completions: {value}", (a["choices"][0]["finish_reason"], a["usage"]["total_tokens"] > 200), ("length", True))
    same("completions: sixteen", s.ask(TEXT, {"prompt": "hello", "temperature": 0, "ignore_eos": True})[2]["usage"]["completion_tokens"], 16)
    same("the lesser of both", s.ask(CHAT, user("count", max_tokens=-1, max_completion_tokens=3))[2]["usage"]["completion_tokens"], 3)
    for path, body, param in ((CHAT, user("x", max_tokens=-2), "max_tokens"), (CHAT, user("x", max_tokens=0), "max_tokens"), (RESPONSES, {"input": "x", "max_output_tokens": 0}, "max_output_tokens")):
        refused(s, f"{path}: no such limit", path, body, param)
    same("messages need one", s.ask(MESSAGES, {"messages": HI})[0], 400)

# a value that asks for something, and one that does not
FIELDS = {"use_beam_search": (True, False), "prompt_logprobs": (1, None), "logits_processors": (["x"], []), "length_penalty": (0.8, 1.0), "lora": ([{"id": 0, "scale": 1}], []), "lora_path": ("a", None),
          "truncate_prompt_tokens": (5, -1), "include_stop_str_in_output": (True, False), "documents": ([{"text": "x"}], []), "watermark": (True, False),
          "min_keep": (1, 0), "tfs_z": (0.9, 1), "adapter_id": ("a", ""), "post_sampling_probs": (True, False), "mcp_servers": ([{"url": "x"}], []), "spaces_between_special_tokens": (False, True),
          "dry_sequence_breakers": (["x"], ["\n", ":", '"', "*"]), "top_n_tokens": (3, 0), "return_tokens_as_token_ids": (True, False), "repetition_detection": ({"max_pattern_size": 5}, None)}

def undone(s):
    bodies = {CHAT: user("hello", max_tokens=2), TEXT: {"prompt": "hello", "max_tokens": 2}, MESSAGES: {"messages": HI, "max_tokens": 2}, RESPONSES: {"input": "hello", "max_output_tokens": 2}}
    for name, (asks, says_nothing) in FIELDS.items():
        for path, body in bodies.items():
            if path == MESSAGES:
                status, _, e = s.ask(path, {**body, name: asks})
                check(f"{path}: {name} is refused", status == 400 and name in e["error"]["message"], e)
            else: refused(s, f"{path}: {name} is refused", path, {**body, name: asks}, name, "unsupported_parameter")
            status, headers, _ = s.ask(path, {**body, name: says_nothing})
            same(f"{path}: {name} {says_nothing}", (status, headers["x-infer-warning"]), (200, None))
    for name, asks, says_nothing in (("best_of", 3, 1), ("echo", True, False), ("functions", [{"name": "f"}], []), ("function_call", {"name": "f"}, "none"), ("web_search_options", {"search_context_size": "low"}, None),
                                     ("audio", {"voice": "x"}, {})):
        refused(s, name, CHAT, {**bodies[CHAT], name: asks}, name, "unsupported_parameter")
        same(f"{name} {says_nothing}", (lambda r: (r[0], r[1]["x-infer-warning"]))(s.ask(CHAT, {**bodies[CHAT], name: says_nothing})), (200, None))
    for body in ({"template": "{{ .Prompt }}"}, {"options": {"rope_frequency_base": 10000}}, {"options": {"tfs_z": 0.5}}, {"debug_render_only": True}):
        status, _, e = s.ask("/api/generate", {"prompt": "x", "stream": False, **body})
        check(f"ollama: {body}", status == 400 and list(e) == ["error"] and (list(body["options"])[0] if "options" in body else list(body)[0]) in e["error"], e)
    same("ollama: nothing asked", s.ask("/api/generate", {"prompt": "x", "stream": False, "template": "", "truncate": True, "options": {"rope_frequency_base": 0, "num_predict": 2}})[0], 200)

def bounds(s):
    """the only tokens that may come; texts that may not"""
    plain = ids(s.ask(CHAT, user("count", max_tokens=40, return_token_ids=True))[2])
    some = sorted(set(plain))[:3]
    for more in ({}, {"temperature": 1.5, "seed": 3}, {"n": 3, "temperature": 2, "seed": 9}):
        a = s.ask(CHAT, user("count", max_tokens=20, return_token_ids=True, allowed_token_ids=some, **more))[2]
        check(f"allowed_token_ids {more}", all(set(c.get("token_ids", [])) <= set(some) and c.get("token_ids") for c in a["choices"]), a)
    for bad, param in (({"allowed_token_ids": [99999]}, "allowed_token_ids"), ({"allowed_token_ids": 5}, "allowed_token_ids"), ({"allowed_token_ids": [5], "response_format": {"type": "json_object"}}, "allowed_token_ids"),
                       ({"bad_words": "x"}, "bad_words"), ({"bad_words": [""]}, "bad_words"), ({"bad_words": ["x" * 200]}, "bad_words"), ({"bad_words": ["x"] * 65}, "bad_words")):
        refused(s, f"refused {bad}", CHAT, user("x", **bad), param)
    said = text(s.ask(CHAT, user("count", max_tokens=60))[2])
    check("there is something to forbid", " three" in said and "four" in said, said)
    for words in (["three"], ["four", "ee"], [" th"], ["r", "o"], ["three four"], ["one two three four five six"]):
        for more in ({}, {"temperature": 1, "seed": 4}, {"min_tokens": 30}, {"logprobs": True, "top_logprobs": 2}):
            a = s.ask(CHAT, user("count", max_tokens=60, bad_words=words, return_token_ids=True, **more))[2]
            check(f"bad_words {words} {more}", not any(w in text(a) for w in words) and (not more.get("min_tokens") or len(ids(a)) >= 30), text(a))
    a = s.ask(CHAT, user("count", max_tokens=60, bad_words=["zebra"], return_token_ids=True))[2]
    same("what would not come changes nothing", text(a), said)
    events = s.events(CHAT, user("count", max_tokens=60, bad_words=["three"]))
    check("in a stream", "three" not in "".join(e["choices"][0]["delta"].get("content") or "" for e in events))
    a = s.ask(MESSAGES, {"messages": [{"role": "user", "content": "count"}], "max_tokens": 60, "temperature": 0, "bad_words": ["three"]})[2]
    check("messages", "three" not in a["content"][0]["text"], a)

def formats(s):
    """a schema as TGI has it, and llama.cpp"""
    for form in ({"type": "json_object", "value": {"enum": ["yes", "no"]}}, {"type": "json_object", "schema": {"enum": ["yes", "no"]}}, {"type": "json_schema", "json_schema": {"schema": {"enum": ["yes", "no"]}}}):
        a = s.ask(CHAT, user("hello", response_format=form))[2]
        check(f"{form}", json.loads(text(a)) in ("yes", "no"), text(a))

def no_tools(s):
    for choice in ("required", {"type": "function", "function": {"name": "f"}}):
        refused(s, f"{choice} without tools", CHAT, user("hello", tool_choice=choice), "tool_choice")
    refused(s, "responses: required without tools", RESPONSES, {"input": "x", "tool_choice": "required"}, "tool_choice")
    status, _, e = s.ask(MESSAGES, {"messages": HI, "max_tokens": 5, "tool_choice": {"type": "any"}})
    check("messages: any without tools", status == 400 and "tool_choice" in e["error"]["message"], e)
    same("none without tools", s.ask(CHAT, user("hello", tool_choice="none"))[0], 200)

def null_choice():
    """tool_choice null is as if it were not there"""
    s = Fake("--say", '<tool_call>\n{"name": "f", "arguments": {"a": "x"}}\n</tool_call>')
    same("null", [s.ask(CHAT, user("hello", tools=[TOOL], **more))[2]["choices"][0]["finish_reason"] for more in ({}, {"tool_choice": None})], ["tool_calls"] * 2)
    same("null of responses", s.ask(RESPONSES, {"input": "x", "tools": [{"type": "function", **TOOL["function"]}], "tool_choice": None})[2]["output"][0]["type"], "function_call")
    s.stop()

def responses_fields(s):
    for how in ("auto", "disabled"):
        status, _, a = s.ask(RESPONSES, {"input": "hello", "truncation": how, "max_output_tokens": 5})
        same(f"truncation {how}", (status, a.get("truncation")), (200, how))
    refused(s, "what does not fit", RESPONSES, {"input": "hello " * 300, "truncation": "auto"}, "messages", "context_length_exceeded")
    refused(s, "another word", RESPONSES, {"input": "x", "truncation": "some"}, "truncation")
    def prompt(messages): return s.ask("/apply-template", {"messages": messages})[2].get("prompt")
    plain = prompt([{"role": "user", "content": "a"}, {"role": "assistant", "content": "I cannot."}, {"role": "user", "content": "b"}])
    for said in ({"content": [{"type": "refusal", "refusal": "I cannot."}]}, {"content": None, "refusal": "I cannot."}, {"content": [{"type": "text", "text": "I "}, {"type": "refusal", "refusal": "cannot."}]}):
        same(f"a refusal of before {said}", prompt([{"role": "user", "content": "a"}, {"role": "assistant", **said}, {"role": "user", "content": "b"}]), plain)
    n = [s.ask(RESPONSES + "/input_tokens", {"input": [{"role": "user", "content": "a"}, {"type": "message", "role": "assistant", "content": [part]}, {"role": "user", "content": "b"}]})[2].get("input_tokens")
         for part in ({"type": "output_text", "text": "I cannot."}, {"type": "refusal", "refusal": "I cannot."})]
    same("of responses", n[0], n[1])

def ollama_errors(s):
    for name, path, body, method, status in (("a route", "/api/pull", {"model": "x"}, None, 404), ("a method", "/api/chat", None, "GET", 405), ("JSON", "/api/chat", "{", None, 400), ("a method of tags", "/api/tags", {}, None, 405),
                                             ("a field", "/api/generate", {"prompt": 5}, None, 400), ("a host", "/api/tags", None, "HOST", 403)):
        got, _, e = s.ask(path, body, {"Host": "evil.example"} if method == "HOST" else {}, None if method == "HOST" else method)
        check(f"ollama's error of {name}", got == status and isinstance(e, dict) and list(e) == ["error"] and isinstance(e["error"], str), (got, e))
    got, _, e = s.ask("/v1/messages/batches", {})
    same("Anthropic's", (got, e["type"], e.get("error", {}).get("type")), (404, "error", "not_found_error")) if "type" in e else check("Anthropic's", False, e)

def ollama_context(s):
    """an answer's context goes on where the answer ended"""
    options = {"temperature": 0, "num_predict": 30}
    a = s.ask("/api/generate", {"prompt": "hello", "stream": False, "options": options})[2]
    check("a context", all(isinstance(i, int) for i in a.get("context", ["none"])), a)
    if "context" not in a: return
    shown = s.ask("/detokenize", {"tokens": a["context"]})[2]["content"]
    same("its text", shown, s.ask("/apply-template", {"messages": [{"role": "user", "content": "hello"}]})[2]["prompt"] + a["response"] + "<|im_end|>")
    lines = [json.loads(l) for l in s.ask("/api/generate", {"prompt": "hello", "options": options}, text=True)[2].splitlines()]
    same("of a stream", (lines[-1]["context"], ["context" in l for l in lines[:-1]].count(True)), (a["context"], 0))
    b = s.ask("/api/generate", {"prompt": "count", "context": a["context"], "stream": False, "options": options})[2]
    second = s.ask("/tokenize", {"messages": [{"role": "user", "content": "count"}]})[2]["tokens"]
    n = len(a["context"]) + len(second)
    same("the next prompt", (b["context"][:n], b["prompt_eval_count"]), (a["context"] + second, n))
    want = s.ask(TEXT, {"prompt": a["context"] + second, "temperature": 0, "max_tokens": 30})[2]["choices"][0]["text"]
    same("its answer", b["response"], want)
    same("none of raw", "context" in s.ask("/api/generate", {"prompt": "x", "raw": True, "stream": False, "options": options})[2], False)
    for bad in ({"context": "x"}, {"context": [99999]}, {"context": [1], "raw": True}):
        status, _, e = s.ask("/api/generate", {"prompt": "x", "stream": False, **bad})
        check(f"refused {bad}", status == 400 and "context" in e["error"], e)

def ollama_logprobs(s):
    options = {"temperature": 0, "num_predict": 8}
    want = s.ask(CHAT, user("hello", max_tokens=8, logprobs=True, top_logprobs=2))[2]["choices"][0]["logprobs"]["content"]
    for path, body in (("/api/chat", {"messages": HI}), ("/api/generate", {"prompt": "hello"})):
        a = s.ask(path, {**body, "stream": False, "options": options, "logprobs": True, "top_logprobs": 2})[2]
        same(f"{path}: logprobs", a.get("logprobs"), want)
        lines = [json.loads(l) for l in s.ask(path, {**body, "options": options, "logprobs": True, "top_logprobs": 2}, text=True)[2].splitlines()]
        same(f"{path}: streamed", sum((l.get("logprobs", []) for l in lines), []), want)
        same(f"{path}: none", "logprobs" in s.ask(path, {**body, "stream": False, "options": options})[2], False)

def loops(s):
    """an answer that repeats itself is stopped, and says so"""
    again = s.ask("/tokenize", {"content": " one"})[2]["tokens"][0]
    ask = user("count", logit_bias={str(again): 100})
    def infer_of(e): return [w for w in e.get("infer", {}).get("warnings", []) if "repeats itself" in w]
    status, headers, a = s.ask(CHAT, ask)
    c = a["choices"][0]
    same("a loop", (c["finish_reason"], 256 <= a["usage"]["completion_tokens"] < 600, len(infer_of(a)), "repeats itself" in (headers["x-infer-warning"] or "")), ("stop", True, 1, True))
    same("with a limit", s.ask(CHAT, {**ask, "max_tokens": 900})[2]["choices"][0]["finish_reason"], "stop")
    for off in ({"loop_stop": False}, {"ignore_eos": True}, {"min_tokens": 10}):
        a = s.ask(CHAT, {**ask, **off, "max_tokens": 700})[2]
        same(f"not stopped {off}", (a["choices"][0]["finish_reason"], a["usage"]["completion_tokens"], infer_of(a)), ("length", 700, []))
    a = s.ask(CHAT, user("count", grammar='root ::= "a"*', logit_bias={str(s.ask("/tokenize", {"content": "a"})[2]["tokens"][0]): 100}))[2]
    same("under a grammar it has not come to its end", (a["choices"][0]["finish_reason"], len(infer_of(a))), ("length", 1))
    e = s.events(CHAT, ask)
    same("in a stream", (e[-1]["choices"][0]["finish_reason"], len(infer_of(e[-1]))), ("stop", 1))
    e = s.events(TEXT, {"prompt": "count", "max_tokens": -1, "temperature": 0, "logit_bias": ask["logit_bias"]})
    same("in a stream of a text", (e[-1]["choices"][0]["finish_reason"], len(infer_of(e[-1]))), ("stop", 1))
    body = {"max_tokens": 900, "messages": ask["messages"], "temperature": 0, "logit_bias": ask["logit_bias"]}
    a = s.ask(MESSAGES, body)[2]
    same("messages", (a["stop_reason"], len(infer_of(a))), ("end_turn", 1))
    got = [json.loads(l[6:]) for l in s.ask(MESSAGES, {**body, "stream": True}, text=True)[2].splitlines() if l.startswith("data: ")]
    same("messages in a stream", [len(infer_of(e)) for e in got if e["type"] == "message_delta"], [1])
    a = s.ask(RESPONSES, {"input": "count", "temperature": 0, "logit_bias": ask["logit_bias"]})[2]
    same("responses", (a["status"], len(infer_of(a))), ("completed", 1))
    a = s.ask("/api/generate", {"prompt": "count", "stream": False, "options": {"temperature": 0, "logit_bias": ask["logit_bias"]}})[2]
    same("ollama", (a["done_reason"], len(infer_of(a))), ("stop", 1))

def scores(s):
    """the token that ends an answer is one of a scored text's: lm-eval drops one behind the prompt"""
    done = s.ask("/apply-template", {"messages": HI})[2]["prompt"] + text(s.ask(CHAT, user("hello"))[2])
    n = len(s.ask("/tokenize", {"content": done, "add_special": True})[2]["tokens"])
    body = {"prompt": done, "echo": True, "logprobs": 1, "temperature": 0}
    for most in (0, 1, 5):
        l = s.ask(TEXT, {**body, "max_tokens": most})[2]["choices"][0]["logprobs"]
        same(f"scores and {most} more", [len(l[k]) for k in ("tokens", "token_logprobs", "top_logprobs", "text_offset")], [n + (most > 0)] * 4)
    same("the end", l["tokens"][-1], "<|im_end|>")

def native(s):
    """llama.cpp's own routes"""
    plain = {"prompt": "one two", "temperature": 0, "ignore_eos": True}
    want = s.ask(TEXT, {**plain, "max_tokens": 12})[2]["choices"][0]["text"]
    n = len(s.ask("/tokenize", {"content": "one two", "add_special": True})[2]["tokens"])
    a = s.ask("/completion", {**plain, "n_predict": 12, "cache_prompt": True, "id_slot": -1})[2]
    same("completion", (a.get("content"), a.get("tokens_predicted"), a.get("tokens_evaluated"), a.get("stop_type"), a.get("stop"), a.get("truncated")), (want, 12, n, "limit", True, False))
    if "content" not in a: return
    same("settings", (a["generation_settings"]["temperature"], a["generation_settings"]["n_predict"]), (0, 12))
    same("no limit", s.ask("/completion", {**plain, "n_predict": -1, "loop_stop": False})[2]["tokens_predicted"] > 100, True)
    status, headers, got = s.ask("/completion", {**plain, "n_predict": 12, "stream": True, "return_tokens": True}, text=True)
    events = [json.loads(b[6:]) for b in got.split("\n\n") if b]
    same("completion streams", (headers["Content-Type"], "".join(e["content"] for e in events), [e["stop"] for e in events].count(True), events[-1]["stop"], len(sum((e.get("tokens", []) for e in events), []))),
         ("text/event-stream", want, 1, True, 12))
    a = s.ask("/completion", {**plain, "n_predict": 3, "n_probs": 2})[2]
    want_probs = s.ask(TEXT, {**plain, "max_tokens": 3, "logprobs": 2})[2]["choices"][0]["logprobs"]
    same("probabilities", [(p["token"], p["logprob"], len(p["top_logprobs"])) for p in a["completion_probabilities"]], [(t, l, 2) for t, l in zip(want_probs["tokens"], want_probs["token_logprobs"])])
    word = s.ask("/completion", {**plain, "n_predict": 12, "stop": [want[3:5]]})[2]
    same("a stopping word", (word["stop_type"], word["stopping_word"]), ("word", want[3:5]))
    tokens = s.ask("/tokenize", {"content": "one two", "add_special": True})[2]["tokens"]
    for prompt in (tokens, [*tokens[:-1], s.ask("/detokenize", {"tokens": tokens[-1:]})[2]["content"]]):
        same(f"a prompt {prompt}", s.ask("/completion", {**plain, "prompt": prompt, "n_predict": 12})[2]["content"], want)
    same("two prompts", [x["content"] for x in s.ask("/completion", {**plain, "prompt": ["one two", "one two"], "n_predict": 12})[2]], [want] * 2)
    refused(s, "no prompt", "/completion", {}, "prompt")
    refused(s, "a prompt of other things", "/completion", {"prompt": ["a", 5, None]}, "prompt")
    one = s.ask("/v1/embeddings", {"input": "hello there"})[2]["data"][0]["embedding"]
    same("embedding", s.ask("/embedding", {"content": "hello there"})[2], [{"index": 0, "embedding": [one]}])
    same("embeddings", [len(x["embedding"]) for x in s.ask("/embedding", {"content": ["a", "b"], "embd_normalize": 2})[2]], [1, 1])

def routes(s):
    version = s.ask("/version")[2]
    check("version", re.match(r"\d", version.get("version", "")), version)
    same("ping", s.ask("/ping")[0], 200)
    info = s.ask("/tokenizer_info")[2]
    same("tokenizer_info", (info.get("eos_token"), "im_start" in (info.get("chat_template") or "")), ("<|im_end|>", True))
    eos = s.ask("/tokenize", {"prompt": info.get("eos_token") or "", "add_special_tokens": False})[2]["tokens"]
    same("lm-eval's end", len(eos), 1)
    same("there and back", s.ask("/detokenize", {"tokens": s.ask("/tokenize", {"prompt": "one two", "add_special_tokens": False})[2]["tokens"]})[2]["prompt"], "one two")
    for path, body in (("/chat/completions", user("hello")), ("/completions", {"prompt": "one", "temperature": 0, "seed": 1}), ("/responses", {"input": "hello", "temperature": 0}), ("/embeddings", {"input": "one"}),
                       ("/messages", {"messages": HI, "max_tokens": 9, "temperature": 0})):
        def kept(a): return {k: v for k, v in a.items() if k in ("choices", "data", "content")}
        same(f"{path} without /v1", kept(s.ask(path, body)[2]), kept(s.ask("/v1" + path, body)[2]))
    same("models without /v1", [m["id"] for m in s.ask("/models")[2].get("data", [])], ["chat-llama"])

def house():
    """what the command line says holds where a request says nothing"""
    def prompt(s, *messages, **more): return s.ask("/apply-template", {"messages": [{"role": r, "content": c} for r, c in messages], **more})[2].get("prompt")
    with tempfile.TemporaryDirectory() as d:
        def template(name, text):
            with open(f"{d}/{name}", "w") as f: f.write(text)
            return f"{d}/{name}"
        own = template("own", "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}[assistant {{ enable_thinking }}]{% endif %}")
        s = Server("--system", "Be brief.", "--temp", "0.25", "--template", own, "--thinking", "off")
        if not s.port: return
        same("template, system, thinking", prompt(s, ("user", "a")), "[system] Be brief.\n[user] a\n[assistant False]")
        same("the request's system", prompt(s, ("system", "x"), ("user", "a")), "[system] x\n[user] a\n[assistant False]")
        same("the request's developer", prompt(s, ("developer", "x"), ("user", "a"), reasoning_effort="high"), "[system] x\n[user] a\n[assistant True]")
        same("the request's switch", prompt(s, ("user", "a"), chat_template_kwargs={"enable_thinking": True})[-6:], " True]")
        same("the other APIs", [s.ask(path, body)[2]["input_tokens"] for path, body in ((RESPONSES + "/input_tokens", {"input": "a"}), (MESSAGES + "/count_tokens", {"messages": [{"role": "user", "content": "a"}]}))],
             [s.ask("/apply-template", {"messages": [{"role": "user", "content": "a"}]})[2]["tokens"]] * 2)
        same("temperature", (s.ask("/props")[2]["default_generation_settings"]["params"]["temperature"], s.ask(RESPONSES, {"input": "a", "max_output_tokens": 1})[2]["temperature"],
                             s.ask(RESPONSES, {"input": "a", "max_output_tokens": 1, "temperature": 1.5})[2]["temperature"]), (0.25, 0.25, 1.5))
        s.stop()
        s = Server("--template", own, "--thinking", "on", "--temp", "0")
        same("thinking on", (prompt(s, ("user", "a"))[-6:], prompt(s, ("user", "a"), reasoning_effort="none")[-7:]), (" True]", " False]"))
        same("greedy", s.ask("/props")[2]["default_generation_settings"]["params"]["temperature"], 0)
        s.stop()
        thinks = template("thinks", "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>as<think>\n{% endif %}")
        ask = user("count", max_tokens=20, ignore_eos=True)
        got = {}
        for how in ("", "show", "hide", "off"):
            s = Server("--template", thinks, *(["--thinking", how] if how else []))
            a = s.ask(CHAT, ask)[2]
            m = a["choices"][0]["message"]
            got[how] = m["content"], m.get("reasoning"), a["usage"]["completion_tokens_details"]["reasoning_tokens"]
            if how == "hide":
                same("told where it is asked for", s.ask(CHAT, {**ask, "include_reasoning": True})[2]["choices"][0]["message"].get("reasoning"), got[""][1])
                same("nor in a stream", [e for e in s.events(CHAT, ask) if "reasoning" in e["choices"][0]["delta"]], [])
            if not how:
                for more in ({"include_reasoning": False}, {"reasoning": {"exclude": True}}, {"reasoning_format": "hidden"}):
                    m = s.ask(CHAT, {**ask, **more})[2]["choices"][0]["message"]
                    same(f"left out {more}", (m["content"], "reasoning" in m), ("", False))
            s.stop()
        check("told apart", got[""][0] == "" and got[""][1] and got[""][2] == 20, got)
        same("part of the text", got["show"][:2], (got[""][1], None))
        same("not told", got["hide"], ("", None, 20))
        check("none", got["off"][0] and got["off"][1:] == (None, 0), got)
        bad = template("bad", "{% for m in messages %}")
        p = subprocess.run([infer, "serve", "-m", MODEL, "--template", bad, "--listen", "127.0.0.1:0"], capture_output=True, timeout=60)
        check("a template that makes nothing", p.returncode == 2 and b"--template " + bad.encode() in p.stderr, p)

s = Server()
for part in (no_limit, undone, bounds, formats, no_tools, responses_fields, ollama_errors, ollama_context, ollama_logprobs, scores, native, routes): part(s)
s.stop()
s = Server("--ctx", "2048")
for part in (forced_call_beside_a_format, loops): part(s)
s.stop()
for part in (null_choice, house): part()
done()
