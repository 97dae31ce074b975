#!/usr/bin/env python3
"""Servers that guess (--lookup, --draft): what they answer is what a server answers that does not, alone and side by side, and they tell how
many tokens were guessed. Called with INFER TESTS SERVE_FAKE."""
import threading
from serve_client import *

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
abc = "a b c a b c a b c a b"
schema = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": False}}}
def say(text, **more): return CHAT, {"messages": [{"role": "user", "content": text}], "temperature": 0, **more}
def go_on(text, **more): return TEXT, {"prompt": text, "max_tokens": 40, "temperature": 0, **more}

asked = [go_on(abc), go_on(abc, temperature=1.5, seed=5), go_on(abc, temperature=1, seed=6, top_k=20, frequency_penalty=1.5, repeat_penalty=1.2),
         go_on(abc, logprobs=2), go_on(abc, stop=["t"]), go_on(abc, temperature=2, seed=9, n=3), go_on("count " * 8, min_tokens=20),
         say("count"), say("hello", temperature=1, seed=3), say("count", logprobs=True, top_logprobs=3, temperature=0.7, seed=1),
         say("give me json", response_format={"type": "json_object"}, max_tokens=30), say("count", response_format=schema, temperature=1, seed=4, max_tokens=40),
         go_on(abc, temperature=1, seed=2, min_p=0.05, **{"speculative.n_max": 0}), go_on("one two three " * 10, loop_stop=False)]

def told(answer):
    """all but what differs from call to call"""
    return [{k: v for k, v in c.items() if k != "index"} for c in answer["choices"]]

def all_at_once(s):
    """the answers to all of it, side by side"""
    got = [None] * len(asked)
    def one(i): got[i] = s.ask(*asked[i])
    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(asked))]
    for t in threads: t.start()
    for t in threads: t.join()
    return got

def predictions(s):
    """what the answer is thought to be: right, right but for a word, right from its middle on, wrong, in parts; the answers are the same"""
    for text in ("hello", "count"):
        want = s.ask(*say(text, max_tokens=40))[2]["choices"][0]["message"]["content"]
        words = want.split(" ")
        for content in (want, want, " ".join(words[:1] + ["other"] + words[1:]), " ".join(words[1:]), "nothing of the kind " * 9, "x" * 20000, "",
                        [{"type": "text", "text": want[:3]}, {"type": "text", "text": want[3:]}]):
            a = s.ask(*say(text, max_tokens=40, prediction={"type": "content", "content": content}))[2]
            same(f"prediction {content[:30]}", (a["choices"][0]["message"]["content"], a["infer"]["warnings"]), (want, []))
            d = a["usage"]["completion_tokens_details"]
            same("told twice", (a["timings"].get("draft_n", 0), a["timings"].get("draft_n_accepted", 0)),
                 (d["accepted_prediction_tokens"] + d["rejected_prediction_tokens"], d["accepted_prediction_tokens"]))
        a = s.ask(*say(text, max_tokens=40, prediction={"type": "content", "content": want}, **{"speculative.n_max": 0}))[2]
        same("no guesses are wanted", ("draft_n" in a["timings"], [w[:10] for w in a["infer"]["warnings"]]), (False, ["prediction"]))
        drawn = say(text, temperature=1.2, seed=3, max_tokens=40)
        same("drawn", told(s.ask(drawn[0], {**drawn[1], "prediction": {"type": "content", "content": want}})[2]), told(s.ask(*drawn)[2]))
    for bad in (5, {}, {"type": "text", "content": "x"}, {"type": "content"}, {"type": "content", "content": 5}, {"type": "content", "content": [{"type": "text"}]}):
        status, _, e = s.ask(*say("hello", prediction=bad))
        same(f"refused {bad}", (status, e["error"]["param"]), (400, "prediction"))

s = Server("--lookup")
d = s.ask(*say("hello", prediction={"type": "content", "content": "hi there!"}))[2]["usage"]["completion_tokens_details"]
check("the first one is guessed by it, of nothing else could it be", d["accepted_prediction_tokens"] > 0 and not d["rejected_prediction_tokens"], d)
predictions(s)
s.stop()
s = Server("--metrics", "--slots", "1")
a = s.ask(*say("hello", prediction={"type": "content", "content": "hi there!"}))[2]
same("no room for guesses", (a["choices"][0]["message"]["content"], [w[:10] for w in a["infer"]["warnings"]]), ("hi there!", ["prediction"]))
s.stop()
s = Server("--metrics")
want = []
for path, body in asked:
    status, _, answer = s.ask(path, body)
    same(f"{path} {body}", status, 200)
    d = answer["usage"]["completion_tokens_details"]
    same("nobody guesses", (d["accepted_prediction_tokens"], d["rejected_prediction_tokens"], "draft_n" in answer["timings"]), (0, 0, False))
    want.append(told(answer))
check("no guesses are counted", "vllm:spec_decode_num_draft_tokens_total{model_name=\"chat-llama\",engine=\"0\"} 0\n" in s.ask("/metrics", text=True)[2])
s.stop()

for how in (["--lookup"], ["--draft", MODEL], ["--draft", tests + "/golden/head/chat"]):
    s = Server("--metrics", *how)
    check("it says so", "tokens are guessed" in s.log(), s.log())
    guessed = right = 0
    answers = [s.ask(*asked[0])] + all_at_once(s) + all_at_once(s)
    for i, (status, _, answer) in enumerate(answers):
        k = max(0, i - 1) % len(asked)
        same(f"{how} {asked[k]}", status, 200)
        same(f"{how} {asked[k]}", told(answer), want[k])
        d, t = answer["usage"]["completion_tokens_details"], answer["timings"]
        same("told twice", (t.get("draft_n", 0), t.get("draft_n_accepted", 0)),
             (d["accepted_prediction_tokens"] + d["rejected_prediction_tokens"], d["accepted_prediction_tokens"]))
        if "speculative.n_max" in asked[k][1]: same("guesses that nobody wants", "draft_n" in t, False)
        guessed += t.get("draft_n", 0)
        right += d["accepted_prediction_tokens"]
        if i == 0: check("the first one is guessed", guessed > 0, answer)
    e = s.events(*asked[0], stream_options={"include_usage": True})
    same("a stream", "".join(x["choices"][0]["text"] for x in e if x["choices"]), want[0][0]["text"])
    guessed += e[-1]["timings"].get("draft_n", 0)
    right += e[-1]["usage"]["completion_tokens_details"]["accepted_prediction_tokens"]
    metrics = s.ask("/metrics", text=True)[2]
    for name, n in (("draft", guessed), ("accepted", right)):
        check(f"{name} {n}", f'vllm:spec_decode_num_{name}_tokens_total{{model_name="chat-llama",engine="0"}} {n}\n' in metrics, metrics)
    same("n_max is a number", s.ask(TEXT, {**asked[0][1], "speculative.n_max": -1})[2]["error"]["param"], "speculative.n_max")
    s.stop()
done()
