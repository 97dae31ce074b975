#!/usr/bin/env python3
"""infer serve --models: several models in one server. Which one answers, within which memory, what comes and goes beside running answers.
Standard library only. usage: serve_models.py INFER TESTS SERVE_FAKE [REQUESTS]"""
import http.client, json, os, random, re, shutil, signal, socket, subprocess, sys, tempfile, threading, time
requests = int(sys.argv.pop(4)) if len(sys.argv) > 4 else 200 if os.environ.get("INFER_SLOW") else 1000
from serve_client import *

work = tempfile.mkdtemp()
folder = work + "/models"
NAMES = [f"m{i}" for i in range(1, 6)]

def make():
    os.mkdir(folder)
    for i, name in enumerate(NAMES):
        subprocess.run([infer, "synth", "-q", "--shape", "tiny", "--type", "f16", "--seed", str(i + 1), "-o", f"{folder}/{name}.gguf"], check=True)
    with open(f"{folder}/m1.gguf", "rb") as f, open(f"{folder}/broken.gguf", "wb") as out: out.write(f.read(100000))

class Fleet(Server):
    """a server of the models in a folder, or of a file"""
    def __init__(self, *args, models=None, **more):
        super().__init__("--log", "off", "--metrics", "--ctx", "512", *args, program=(infer, "serve", "--models", models or folder), model=None, **more)
    def state(self, name): return self.ask("/v1/models/" + name)[2]["status"]
    def loaded(self): return sorted(m["id"] for m in self.ask("/v1/models")[2]["data"] if m["status"]["value"] == "loaded")
    def until(self, what, seconds=60):
        end = time.monotonic() + seconds
        while not (ok := what()) and time.monotonic() < end: time.sleep(0.01)
        check("what is waited for comes", ok, self.log())
    def metrics(self, name): return {m: float(x) for m, x in re.findall(rf'^{name}{{model="(\w+)"}} (\S+)$', self.ask("/metrics", text=True)[2], re.M)}

def ask_ids(model, prompt, n=12, **more): return {"model": model, "prompt": prompt, "max_tokens": n, "temperature": 0, "ignore_eos": True, **more}
def text_of(s, body): 
    status, _, a = s.ask(TEXT, body)
    check(f"{body['model']} answers", status == 200, a)
    return a["choices"][0]["text"] if status == 200 else None

PROMPTS = [[5, 6, 7 + i] * (1 + i % 3) for i in range(8)]
def alone():
    """what each model says when it is the only one"""
    out = {}
    for name in NAMES:
        s = Server("--ctx", "512", "--log", "off", model=f"{folder}/{name}.gguf")
        for i, p in enumerate(PROMPTS): out[name, i] = text_of(s, ask_ids(name, p))
        s.stop()
    check("models say different things", len({out[n, 0] for n in NAMES}) == 5)
    return out

def bytes_of_one():
    s = Fleet()
    s.until(lambda: s.ask("/v1/models/m1")[2].get("meta"))
    n = s.ask("/v1/models/m1")[2]["meta"]["bytes"]
    s.stop()
    return n

def crowd(said, one):
    """1,000 requests of 16 clients, at random, with room for two models: each answer as alone, never more than the room, few loads"""
    s = Fleet("--mem", str(int(2.5 * one)))
    rnd, lock, left, over, most = random.Random(7), threading.Lock(), [requests], [], [0]
    def client():
        while True:
            with lock:
                if not left[0]: return
                left[0] -= 1
                name, i, stream = rnd.choice(NAMES), rnd.randrange(len(PROMPTS)), rnd.random() < 0.3
            body = ask_ids(name, PROMPTS[i])
            if stream: got = "".join(c["text"] for e in s.events(TEXT, body) for c in e["choices"])
            else: got = text_of(s, body)
            if got != said[name, i]: over.append((name, i, got))
    def watch():
        while left[0]:
            most[0] = max(most[0], sum(s.metrics("infer_model_bytes").values()))
            time.sleep(0.005)
    threads = [threading.Thread(target=client) for _ in range(16)] + [threading.Thread(target=watch)]
    for t in threads: t.start()
    for t in threads: t.join()
    same("every answer is as alone", over[:3], [])
    check("two were there, and never more than the room", one * 2 <= most[0] <= 2.5 * one, most[0] / one)
    loads = sum(s.metrics("infer_model_loads_total").values())
    check("few loads", 5 <= loads <= requests / 3, loads)
    page = s.ask("/metrics", text=True)[2]
    heads = re.findall(r"^# TYPE (\S+) ", page, re.M)
    check("each metric has one head, and every line is under its own", len(heads) == len(set(heads)) and all(
        line.startswith(part.split(" ")[0]) for part in page.split("# TYPE ")[1:] for line in part.splitlines()[1:]), page[:500])
    same("nothing failed", s.metrics("infer_failed_total"), {n: 0.0 for n in sorted(NAMES + ["broken"])})
    s.stop()

def disorder(said, one):
    """requests that run out of time, clients that leave, loads, unloads and short stays at random: who is answered is answered right, and then all is still"""
    s = Fleet("--mem", str(int(2.5 * one)), "--idle", "0.2")
    rnd, lock, left, wrong = random.Random(3), threading.Lock(), [requests // 2], []
    def act(what, x, name, i):
        if what < 0.55:
            body = ask_ids(name, PROMPTS[i])
            status, _, a = s.ask(TEXT, body, {"X-Request-Timeout": "0.05"} if x < 0.2 else {})
            whole = status == 200 and a["usage"]["completion_tokens"] == body["max_tokens"]
            if status not in (200, 504) or (whole and a["choices"][0]["text"] != said[name, i]): wrong.append((name, i, status, a))
        elif what < 0.75: s.ask("/models/" + ("load", "unload")[x < 0.5], {"model": name})
        elif what < 0.85: s.ask("/api/generate", {"model": name, "prompt": "a", "options": {"num_predict": 3}, "keep_alive": (0, 0.01, "1s", -1)[i % 4], "stream": False})
        else:
            with socket.create_connection(("127.0.0.1", s.port)) as c:
                body = json.dumps(ask_ids(name, PROMPTS[i], 200, stream=x < 0.5)).encode()
                c.sendall(b"GET /models/sse HTTP/1.1\r\nHost: localhost\r\n\r\n" if what > 0.95 else
                          b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                time.sleep(x * 0.05)
    def client():
        while True:
            with lock:
                if not left[0]: return
                left[0] -= 1
                a = rnd.random(), rnd.random(), rnd.choice(NAMES), rnd.randrange(len(PROMPTS))
            act(*a)
    threads = [threading.Thread(target=client) for _ in range(16)]
    for t in threads: t.start()
    for t in threads: t.join()
    same("none is answered wrong", wrong[:2], [])
    for name in NAMES: s.ask("/api/generate", {"model": name, "keep_alive": 0})
    s.until(lambda: s.loaded() == [] and not any(s.metrics("infer_model_waiting").values()))
    same("then as alone", [text_of(s, ask_ids(name, PROMPTS[0])) for name in NAMES], [said[name, 0] for name in NAMES])
    s.stop()

def names():
    s = Fleet()
    same("listed", [m["id"] for m in s.ask("/v1/models")[2]["data"]], ["broken"] + NAMES)
    status, _, e = s.ask(TEXT, ask_ids("model-m3", [5]))
    same("no such model", (status, e["error"]["code"], e["error"]["param"]), (404, "model_not_found", "model"))
    check("near names", "'m3'" in e["error"]["message"] and "'m2'" not in e["error"]["message"], e)
    same("a model has to be named", s.ask(TEXT, {"prompt": [5]})[0], 400)
    s.until(lambda: s.state("broken").get("failed"))
    check("why it failed", "was the file cut" in s.state("broken")["error"])
    status, headers, e = s.ask(TEXT, ask_ids("broken", [5]))
    check("a broken file", status == 503 and "was the file cut" in e["error"]["message"] and headers["Retry-After"], e)
    for path, body in (("/v1/chat/completions", {"messages": []}), ("/v1/messages", {"messages": []}), ("/v1/responses", {"input": ""}), ("/api/chat", {"messages": []}), ("/v1/embeddings", {"input": [5]}),
                       ("/v1/rerank", {"query": "a", "documents": ["b"]}), ("/tokenize", {"content": "a"})):
        same(f"no such model by {path}", s.ask(path, {"model": "nobody", **body})[0], 404)
    same("tokens", s.ask("/tokenize", {"model": "m2", "content": "a"})[0], 200)
    same("a vector", len(s.ask("/v1/embeddings", {"model": "m2", "input": [5, 6]})[2]["data"][0]["embedding"]), 256)
    same("in other letters, with a tag", [s.ask("/tokenize", {"model": m, "content": "a"})[0] for m in ("M2", "m2:latest")], [200, 200])
    same("properties", (s.ask("/props?model=m2")[2]["model_alias"], s.ask("/props")[2]["role"], s.ask("/props?model=m5")[0], s.ask("/props?model=%6d2")[0], s.ask("/v1/models/%6d2")[2]["id"]), ("m2", "router", 503, 200, "m2"))
    check("slots of one", len(s.ask("/slots?model=m2")[2]) == 16 and s.ask("/slots")[0] == 400)
    same("ollama's list", [m["name"] for m in s.ask("/api/tags")[2]["models"]], ["broken"] + NAMES)
    same("and what is loaded", [m["name"] for m in s.ask("/api/ps")[2]["models"]], ["m2"])
    s.until(lambda: "llama.block_count" in s.ask("/api/show", {"model": "m4"})[2]["model_info"]) # as soon as its file was looked at
    same("shown without a load", (s.ask("/api/show", {"model": "m4"})[2]["model_info"]["llama.block_count"], s.loaded()), (2, ["m2"]))
    same("loaded alone", s.ask("/api/generate", {"model": "m4", "keep_alive": "1h"})[2]["done_reason"], "load")
    left = s.ask("/api/ps")[2]["models"][1]
    check("and stays as long as it says", left["name"] == "m4" and not left["expires_at"].startswith("9999"))
    same("let go", s.ask("/api/generate", {"model": "m4", "keep_alive": 0})[2]["done_reason"], "unload")
    s.until(lambda: s.loaded() == ["m2"])
    same("vectors, and the model goes", len(s.ask("/api/embed", {"model": "m5", "input": "a", "keep_alive": 0})[2]["embeddings"][0]), 256)
    s.until(lambda: s.loaded() == ["m2"])
    same("a bad time", s.ask("/api/generate", {"model": "m4", "prompt": "x", "keep_alive": "soon"})[0], 400)
    s.stop()

def comes_and_goes(said):
    """what runs ends as it would have, whatever happens to its model; events tell"""
    s = Fleet("--ctx", "8192", "--mem", "2G")
    events = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60)
    events.request("GET", "/models/sse")
    stream = events.getresponse()
    same("a stream of events", stream.headers["Content-Type"], "text/event-stream")
    seen = []
    def listen():
        try:
            for line in stream:
                if line.startswith(b"data: "): seen.append(json.loads(line[6:]))
        except (OSError, ValueError): pass
    listener = threading.Thread(target=listen)
    listener.start()
    long = ask_ids("m1", [5, 6], 3000)
    want = text_of(s, long)
    got = []
    t = threading.Thread(target=lambda: got.append(text_of(s, long)))
    t.start()
    s.until(lambda: gauge(s, 'vllm:num_requests_running{model_name="m1",engine="0",model="m1"}') == 1)
    same("unload", s.ask("/models/unload", {"model": "m1"})[2], {"success": True})
    same("it still answers", s.state("m1")["value"], "loaded")
    same("others are loaded meanwhile", s.ask("/models/load", {"model": "m2"})[2], {"success": True})
    same("who comes now waits for the next load", text_of(s, ask_ids("m1", PROMPTS[0])), said["m1", 0])
    t.join()
    same("its answer is whole", got, [want])
    same("it was loaded again", s.metrics("infer_model_loads_total")["m1"], 2)
    s.until(lambda: "m2" in s.loaded())
    same("no such model", [s.ask("/models/" + w, {"model": "nobody"})[0] for w in ("load", "unload")], [404, 404])
    s.ask("/models/unload", {"model": "m2"})
    s.until(lambda: s.loaded() == ["m1"])
    def told():
        of = [e["data"]["status"] for e in seen if e["model"] == "m2"]
        return [x for i, x in enumerate(of) if i == 0 or of[i - 1] != x]
    s.until(lambda: told() == ["unloaded", "loading", "loaded", "unloaded"])
    os.rename(f"{folder}/m3.gguf", f"{work}/m3.gguf")
    status, _, e = s.ask(TEXT, ask_ids("m3", [5]))
    check("a file that is gone", status == 503 and "m3.gguf" in e["error"]["message"], e)
    os.rename(f"{work}/m3.gguf", f"{folder}/m3.gguf")
    same("the others answer", text_of(s, ask_ids("m4", PROMPTS[1])), said["m4", 1])
    s.stop()
    listener.join(20)
    check("the stream of events ends", not listener.is_alive())

def waits(one):
    """a model that answers keeps its place; who waits may leave, or has no more time"""
    s = Fleet("--ctx", "8192")
    s.until(lambda: s.ask("/v1/models/m1")[2].get("meta"))
    room = int(1.5 * s.ask("/v1/models/m1")[2]["meta"]["bytes"])
    s.stop()
    s = Fleet("--ctx", "8192", "--mem", str(room))
    t = threading.Thread(target=lambda: text_of(s, ask_ids("m1", [5, 6], 6000)))
    t.start()
    s.until(lambda: s.loaded() == ["m1"])
    status, _, e = s.ask(TEXT, ask_ids("m2", [5]), {"X-Request-Timeout": "0.2"})
    same("no more time", (status, e["error"]["code"]), (504, "timeout"))
    c = http.client.HTTPConnection("127.0.0.1", s.port)
    c.request("POST", TEXT, json.dumps(ask_ids("m3", [5])))
    s.until(lambda: s.metrics("infer_model_waiting")["m3"] == 1)
    c.close()
    s.until(lambda: s.metrics("infer_model_waiting")["m3"] == 0)
    same("nothing was loaded for those", s.loaded(), ["m1"])
    got = text_of(s, ask_ids("m2", [5], 4))
    check("then it is its turn", got and s.loaded() == ["m2"], s.loaded())
    t.join()
    s.stop()
    s = Fleet("--mem", str(one // 2))
    status, _, e = s.ask(TEXT, ask_ids("m1", [5]))
    check("one that never fits", status == 503 and "--mem" in e["error"]["message"], e)
    s.stop()

def presets(said, one):
    ini = work + "/presets.ini"
    def write(text):
        with open(ini, "w") as f: f.write(text)
    store = work + "/kept"
    write(f"ctx = 256\nversion = 1\n[*]\nsleep-idle-seconds = 0.3\nc = 300\n[first]\nmodel = {folder}/m1.gguf\nmodel-name = uno,eins\npin = on\n[model second]\nmodel = {folder}/m2.gguf\nctx = 128\nsystem = Be short.\ntop-k = 1\nmin-p = 0\nrepeat-penalty = 1\n[third]\nmodel = {folder}/m3.gguf\nkv-store = {store}\n[fourth]\nmodel = hf:nobody/nothing:Q4_K_M\n")
    s = Fleet("--mem", str(int(2.5 * one)), models=ini)
    same("names", [m["id"] for m in s.ask("/v1/models")[2]["data"]], ["first", "uno", "eins", "second", "third", "fourth"])
    s.until(lambda: "first" in s.loaded())
    status, _, e = s.ask(TEXT, ask_ids("fourth", [5]))
    check("nothing is fetched", status == 503 and "'infer pull hf:nobody/nothing:Q4_K_M' fetches it" in e["error"]["message"], e)
    same("another name", text_of(s, ask_ids("eins", PROMPTS[2])), said["m1", 2])
    same("none named: the pinned one", s.ask(TEXT, {"prompt": PROMPTS[2], "max_tokens": 12, "temperature": 0, "ignore_eos": True})[2]["model"], "first")
    same("wakes", text_of(s, ask_ids("second", PROMPTS[3])), said["m2", 3])
    drawn = [text_of(s, ask_ids("second", PROMPTS[3], temperature=t)) for t in (1, 2, 2)]
    check("samplers of its section, where a request says nothing", drawn == [said["m2", 3]] * 3, drawn)
    s.until(lambda: s.loaded() == ["eins", "first", "uno"])
    same("wakes again", text_of(s, ask_ids("second", PROMPTS[4])), said["m2", 4])
    same("options of its section, below the command line", s.ask("/props?model=second")[2]["default_generation_settings"]["n_ctx"], 512)
    long = {"model": "third", "prompt": [5 + i % 300 for i in range(200)], "max_tokens": 1, "temperature": 0}
    first = s.ask(TEXT, long)[2]
    same("files of one model", re.findall(r'^infer_kv_store_\w+{model="(\w+)"}', s.ask("/metrics", text=True)[2], re.M), ["third"] * 6)
    s.until(lambda: "third" not in s.loaded())
    again = s.ask(TEXT, long)[2]
    same("what was kept in files is there after the next load", (again["choices"][0]["text"], again["usage"]["prompt_tokens_details"]["cached_tokens"] > 0), (first["choices"][0]["text"], True))
    same("a pinned one stays", s.ask("/models/unload", {"model": "first"})[0], 400)
    s.stop()
    def refused(text, why, *args):
        write(text)
        r = subprocess.run([infer, "serve", "--models", ini, "--listen", "127.0.0.1:0", *args], capture_output=True, text=True, timeout=60)
        check(f"refused: {why}", r.returncode == 2 and re.search(why, r.stderr), r)
    refused("[a]\nmodel = x\ncontext = 3\n", r"presets.ini:3: no option 'context'")
    refused("[a]\nmodel = x\nlisten = 127.0.0.1:1\n", "presets.ini:3: listen is the whole server's")
    refused("[a]\nmodel = x\nload-on-startup = true\n", "presets.ini:3: load-on-startup: here pin = on")
    refused("[a]\nmodel = x\nn-predict = 5\n", "presets.ini:3: n-predict: 'infer serve' has no such option")
    refused("[a]\nmodel = x\nhf-repo = a/b\n", r"presets.ini: \[a\] says model and hf-repo")
    refused("[a]\nmodel = x\nmodel-name = b,,c\n", "model-name of 'a': ''")
    refused("[nowhere]\nctx = 128\n", r"\[nowhere\] says no model")
    refused("# nothing\n", "no section")
    refused(f"[a]\nmodel = {folder}/m1.gguf\n[b]\nmodel = {folder}/m2.gguf\nmodel-name = a\n", "two models are called 'a'")
    refused(f"[a]\nmodel = {folder}/m1.gguf\npin = on\n[b]\nmodel = {folder}/m2.gguf\npin = on\n", "pinned models take", "--ctx", "512", "--mem", str(int(1.5 * one)))
    refused(f"[a]\nmodel = {folder}/m1.gguf\n", "none of that name", "--pin", "b")
    refused(f"[a]\nmodel = {folder}/m1.gguf\npin = maybe\n", "presets.ini:3: pin: 'maybe' is not on or off")
    refused("[a\nmodel = x\n", r"presets.ini:1: '\[a' is no section")
    refused(f"[a]\nmodel = {folder}/m1.gguf\npin = on\n[b]\nmodel = {folder}/m2.gguf\n", "pinned models take", "--ctx", "512", "--mem", str(int(1.5 * one)), "--pin", "b")
    refused(f"[a]\nmodel = {folder}/m1.gguf\n", "both given", "-m", f"{folder}/m1.gguf")
    write(f"[a]\nmodel = {folder}/m1.gguf\nkv-type = q1\n[b]\nmodel = {folder}/m2.gguf\nslot-save-path = /no/folder\n")
    s = Fleet(models=ini)
    why = [s.ask(TEXT, ask_ids(m, [5]))[2]["error"]["message"] for m in "ab"]
    check("why a model is not loaded, in the words of options", "--kv-type is 'q1'" in why[0] and "--slot-save-path /no/folder: No such" in why[1], why)
    s.stop()
    write(f"model = {folder}/m1.gguf\n[serve]\nmodels = {folder}\nidle = 5\n")
    s = Server("--config", ini, "--ctx", "512", model=None)
    same("models of the configuration", len(s.ask("/v1/models")[2]["data"]), 6)
    s.stop()
    s = Server("--config", ini, "--ctx", "512", model=f"{folder}/m2.gguf")
    same("the command line's model", [m["id"] for m in s.ask("/v1/models")[2]["data"]], ["m2"])
    s.stop()
    r = subprocess.run([infer, "serve", "-m", f"{folder}/m1.gguf", "--idle", "3"], capture_output=True, text=True)
    check("of several models", r.returncode == 2 and "--idle goes with --models" in r.stderr, r)

def ends():
    """SIGTERM and Ctrl-C at any moment of loads, and beside answers"""
    for i in range(6):
        s = Fleet("--drain", "20")
        got = []
        t = threading.Thread(target=lambda: got.append(s.ask(TEXT, ask_ids("m1", [5, 6], 400))[0]))
        t.start()
        for name in NAMES[1:]: s.ask("/models/load", {"model": name})
        if i > 2: s.until(lambda: "m1" in s.loaded())
        time.sleep(0.004 * i)
        s.stop(signal.SIGINT if i % 2 else signal.SIGTERM)
        t.join()
        check("an answer, or it is stopping", got in ([200], [503]), got)

def slow_loads():
    """loads of a second, of models that recite: who waits, who gives way, what SIGTERM does"""
    def few(*args): return Server("--several", "3", "--load", "600", "--room", "1", "--step", "5", *args, program=(fake,))
    said = lambda s, m, n=4: s.ask(CHAT, say(n, model=m))
    s = few()
    got, seen = {}, []
    stream = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60)
    stream.request("GET", "/models/sse")
    events = stream.getresponse()
    def one(i): got[i] = said(s, "f1")[0]
    threads = [threading.Thread(target=one, args=(i,)) for i in range(8)]
    for t in threads: t.start()
    for t in threads: t.join()
    same("all that wait begin with one load", (set(got.values()), gauge(s, 'infer_model_loads_total{model="f1"}')), ({200}, 1))
    while not seen or seen[-1]["data"]["status"] != "loaded":
        line = events.readline()
        if line.startswith(b"data: "): seen.append(json.loads(line[6:]))
    parts = [e["data"]["progress"]["value"] for e in seen if "progress" in e["data"]]
    check("progress of the load", len(parts) > 2 and parts == sorted(parts) and parts[0] < 0.5, parts)
    # a model that always answers gives way after its turn, and comes back
    stop = []
    def crowd():
        while not stop: got.setdefault("f1", []).append(said(s, "f1", 40)[0])
    threads = [threading.Thread(target=crowd) for _ in range(3)]
    for t in threads: t.start()
    begin = time.monotonic()
    same("another one has its turn", said(s, "f2")[0], 200)
    check("within a turn, a load and an answer", time.monotonic() - begin < 60, time.monotonic() - begin)
    before = len(got["f1"])
    while len(got["f1"]) < before + 10 and time.monotonic() - begin < 120: time.sleep(0.05)
    stop.append(1)
    for t in threads: t.join()
    same("nobody was refused", set(got["f1"]), {200})
    stream.close()
    s.stop()
    # the program ends while a model is loaded
    for how in (signal.SIGTERM, signal.SIGINT):
        s = few()
        t = threading.Thread(target=lambda: got.__setitem__(how, said(s, "f1")[0]))
        t.start()
        time.sleep(0.2)
        s.stop(how)
        t.join()
        same("who waits hears that it is stopping", got[how], 503)
    s = Server("--several", "2", "--load", "60000", program=(fake,))
    s.ask("/models/load", {"model": "f1"})
    begin = time.monotonic()
    s.stop()
    check("a load of a minute is not waited for", time.monotonic() - begin < 50)
    # a model whose numbers are none any more goes, and the server stays
    s = Server("--several", "2", "--lost", "6", program=(fake,))
    same("its answer fails", said(s, "f1", 40)[2]["error"]["code"], "device_lost")
    end = time.monotonic() + 60
    while not (gone := s.ask("/v1/models/f1")[2]["status"]).get("failed") and time.monotonic() < end: time.sleep(0.01)
    check("it says why", "no number" in gone.get("error", ""), gone)
    same("who asks for it hears that", (said(s, "f1")[0], s.ask("/health")[0]), (503, 200))
    same("the other one answers", said(s, "f2", 1)[0], 200)
    s.stop()
    s = few("--queue", "2")
    threads = [threading.Thread(target=one, args=(i,)) for i in range(3)]
    for t in threads: t.start()
    for t in threads: t.join()
    same("--queue of all that wait", sorted(got[i] for i in range(3)), [200, 200, 429])
    s.stop()

try:
    slow_loads()
    make()
    one, said = bytes_of_one(), alone()
    crowd(said, one)
    disorder(said, one)
    names()
    comes_and_goes(said)
    waits(one)
    presets(said, one)
    ends()
finally: shutil.rmtree(work)
done()
