#!/usr/bin/env python3
"""GET /debug/trace: steps, operations and requests of the last seconds; and the file of --trace, with all of them. Called with INFER TESTS SERVE_FAKE."""
import threading
from serve_client import *

PARTS = "read", "queue", "prompt", "answer"

def spans(events): return [e for e in events if e["ph"] == "X"]
def requests(events): return {e["name"]: e for e in spans(events) if "completion_tokens" in e["args"]}

with tempfile.TemporaryDirectory() as dir:
    s = Server("--trace", dir + "/t.json")
    answers = []
    def one(n): answers.append(s.ask(CHAT, user("hello", max_tokens=n))[2])
    threads = [threading.Thread(target=one, args=(n,)) for n in (4, 6, 8)]
    for t in threads: t.start()
    for t in threads: t.join()
    status, head, got = s.ask("/debug/trace/600")
    same("the trace", (status, head["Content-Type"]), (200, "application/json"))
    events = got["traceEvents"]
    told = requests(events)
    same("every request is told", sorted(told), sorted(a["id"] for a in answers))
    for a in answers:
        e, u = told[a["id"]], a["usage"]
        same("its tokens", (e["args"]["prompt_tokens"], e["args"]["completion_tokens"]), (u["prompt_tokens"], u["completion_tokens"]))
        inside = [x for x in spans(events) if x["tid"] == e["tid"] and x is not e and e["ts"] <= x["ts"] and x["ts"] + x["dur"] <= e["ts"] + e["dur"] + 1]
        same("what it went through", [x["name"] for x in inside if x["name"] in PARTS], list(PARTS))
        check("one behind the other", abs(sum(x["dur"] for x in inside if x["name"] in PARTS) - e["dur"]) < 1, inside)
    rows = [(e["tid"], e["ts"], e["ts"] + e["dur"]) for e in told.values()]
    check("no two in a row at once", all(a is b or a[0] != b[0] or a[2] <= b[1] or b[2] <= a[1] for a in rows for b in rows), rows)
    names = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    check("rows have names", {e["tid"] for e in spans(events)} <= set(names) and {names[e["tid"]] for e in told.values()} == {"requests"}, names)
    steps = [e for e in spans(events) if e["tid"] == 1]
    check("steps of both classes", {e["name"] for e in steps} == {"prompt", "decode"})
    check("operations", any(e["name"] == "ffn_down" and e["args"]["layer"] == 0 for e in spans(events)))
    time.sleep(0.3)
    same("nothing ended since", spans(s.ask("/debug/trace/0.1")[2]["traceEvents"]), [])
    for odd in "0", "-1", "x", "1e9", "1x", "nan":
        status, _, got = s.ask("/debug/trace/" + odd)
        check(f"seconds {odd}", status == 400 and "SECONDS: a number above 0, 1000000 at most" in got["error"]["message"], got)
    # one that still runs: what it waited for, its prompt, its answer so far
    for _ in range(200):
        run = threading.Thread(target=s.ask, args=(CHAT, user("hello", max_tokens=200, ignore_eos=True, n=8)))
        run.start()
        going = []
        while run.is_alive() and not going:
            events = s.ask("/debug/trace/600")[2]["traceEvents"]
            going = [e for e in spans(events) if e["args"].get("running")]
        if going: break
        run.join()
    check("a running one is told", len(going) == 1 and going[0]["name"] not in told, going)
    inside = [x["name"] for x in spans(events) if x["tid"] == going[0]["tid"] and x is not going[0] and x["ts"] >= going[0]["ts"]]
    same("its parts so far", inside, list(PARTS[:len(inside)]))
    run.join()
    told.update(requests(s.ask("/debug/trace/600")[2]["traceEvents"]))
    check("and then it has ended", not [e for e in spans(s.ask("/debug/trace/600")[2]["traceEvents"]) if e["args"].get("running")])
    s.stop()
    events = json.load(open(dir + "/t.json"))["traceEvents"]
    same("the file has the requests, too", sorted(requests(events)), sorted(told))
    levels = [e for e in events if e["ph"] == "C" and e["name"] == "memory of the host, MiB"]
    check("memory is counted while it runs", len(levels) > 1 and all(1 < e["args"]["now"] < 1e6 for e in levels)
          and all(a["ts"] < b["ts"] for a, b in zip(levels, levels[1:])), levels)

s = Server("--profile", env={"INFER_API_KEY": "secret-key"})
same("it needs a key", s.ask("/debug/trace")[0], 401)
same("with it", s.ask("/debug/trace", headers={"Authorization": "Bearer secret-key"})[0], 200)
s.ask(CHAT, user("hello", max_tokens=3), {"Authorization": "Bearer secret-key"})
check("the table comes at the end", "decode: " in s.stop())
s = Server()
status, _, got = s.ask("/debug/trace")
check("no trace", status == 404 and "--profile" in got["error"]["message"], got)
s.stop()
p = subprocess.run([infer, "serve", "--models", tests + "/golden/chat", "--profile"], capture_output=True, text=True, timeout=60)
check("not of several models", p.returncode == 2 and "--profile is of one model" in p.stderr, p.stderr)
done()
