#!/usr/bin/env python3
"""Three servers behind nginx and HAProxy, with the configurations of serve/http/dist: under load one is killed, one told to end, one taken out, and each
comes back; no request is lost of whose answer nothing had come. Whether conversations come back to what is kept of them. Skipped without either program.
usage: serve_balancers.py INFER TESTS SERVE_FAKE [REQUESTS OF EACH LOAD]"""
import collections, http.client, json, os, random, re, shutil, signal, socket, statistics, subprocess, sys, tempfile, threading, time
os.environ["PATH"] += ":/usr/sbin:/sbin"
from serve_client import *

DIST = os.path.dirname(tests) + "/serve/http/dist/"
REQUESTS = int(sys.argv[4]) if len(sys.argv) > 4 else 500
CLIENTS, SLOTS = 64, 16

def free_ports(n):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [s.getsockname()[1] for s in held]
    for s in held: s.close()
    return ports

def get(port, path="/health"):
    """status; 0: there is no answer"""
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        c.request("GET", path)
        return c.getresponse().status
    except (OSError, http.client.HTTPException): return 0
    finally: c.close()

def until(what, is_so):
    end = time.monotonic() + 60
    while not is_so() and time.monotonic() < end: time.sleep(0.02)
    check(what, is_so())

class Three:
    """servers at ports of their own, where each can be begun again"""
    def __init__(self, *command):
        self.command, self.ports, self.p = command, free_ports(3), [None] * 3
        for i in range(3): self.begin(i)

    def begin(self, i):
        self.p[i] = subprocess.Popen([*self.command, "-m", MODEL, "--listen", f"127.0.0.1:{self.ports[i]}", "--log", "off"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        atexit.register(self.p[i].kill)
        until("a server begins", lambda: get(self.ports[i]) == 200)

    def signal(self, i, how):
        self.p[i].send_signal(how)
        return self.p[i].wait(60)

    def metric(self, i, name):
        c = http.client.HTTPConnection("127.0.0.1", self.ports[i], timeout=20)
        c.request("GET", "/metrics")
        return float(re.search(rf"^{name}(?:{{.*}})? (\S+)$", c.getresponse().read().decode(), re.M)[1])

    def end(self):
        for p in self.p:
            p.terminate()
            same("exit code", p.wait(60), 0)

class Balancer:
    def __init__(self, kind, ports):
        self.kind, self.dir, self.port = kind, tempfile.TemporaryDirectory(), free_ports(1)[0]
        d, mine = self.dir.name, {"127.0.0.1:8080": f"127.0.0.1:{self.port}", "/run/haproxy": self.dir.name}
        mine.update({f"127.0.0.1:{8081 + i}": f"127.0.0.1:{p}" for i, p in enumerate(ports)})
        text = open(DIST + {"nginx": "nginx.conf", "haproxy": "haproxy.cfg"}[kind]).read()
        text = re.sub("|".join(map(re.escape, mine)), lambda m: mine[m[0]], text)
        if kind == "nginx":
            temp = "".join(f"{x}_temp_path {d}/{x};\n" for x in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
            text = ("user root;\n" if os.geteuid() == 0 else "") + f"worker_processes 2;\npid {d}/pid;\nevents {{ worker_connections 1024; }}\nhttp {{\naccess_log off;\n{temp}{text}}}\n"
        with open(d + "/conf", "w") as f: f.write(text)
        command = ["nginx", "-p", d, "-e", d + "/log", "-c", d + "/conf", "-g", "daemon off;"] if kind == "nginx" else ["haproxy", "-db", "-f", d + "/conf"]
        with open(d + "/said", "w") as said: self.p = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        atexit.register(self.p.terminate)
        until(f"{kind} begins", lambda: get(self.port) == 200)
        same(f"{kind}: metrics are of one server", get(self.port, "/metrics"), 404)

    def tell(self, line):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(self.dir.name + "/admin.sock")
            s.sendall(line.encode() + b"\n")
            return s.recv(4096)

    def end(self):
        self.p.terminate()
        self.p.wait(60)
        self.dir.cleanup()

# ---- load ----

def body_of(r, n):
    """path and body of a request with n tokens; some are long, in JSON if not in tokens"""
    path = r.choice((CHAT, CHAT, TEXT, "/v1/messages"))
    text = {"prompt": "x"} if path == TEXT else {"messages": [{"role": "user", "content": "x"}]}
    return path, json.dumps({**text, "max_tokens": n, "stream": r.random() < 0.5}) + " " * (100000 if r.random() < 0.1 else 0)

def one(port, path, body, session):
    """how a request ended: well, cut (something of its answer came) or lost, and why"""
    c, begun = http.client.HTTPConnection("127.0.0.1", port, timeout=60), ""
    try:
        c.request("POST", path, body, {"X-Session": session} if session else {})
        r = c.getresponse()
        if r.status != 200: return "lost", f"{r.status} {r.read()[:200]}"
        begun = r.read(1)
        text = (begun + r.read()).decode()
        if '"stream": true' in body: whole = text.endswith("data: [DONE]\n\n") or '"message_stop"' in text
        else: whole = isinstance(json.loads(text), dict)
        return ("well", "") if whole else ("cut", text[-200:])
    except (OSError, http.client.HTTPException) as e: return ("cut" if begun else "lost"), repr(e)
    finally: c.close()

class Load:
    """clients that ask on and on, until so many requests are done"""
    def __init__(self, port, n):
        self.port, self.left, self.ends, self.lock, self.why = port, n, collections.Counter(), threading.Lock(), []
        self.threads = [threading.Thread(target=self.client, args=(i,), daemon=True) for i in range(CLIENTS)]
        for t in self.threads: t.start()

    def client(self, i):
        r = random.Random(i)
        while True:
            with self.lock:
                if self.left <= 0: return
                self.left -= 1
            how, why = one(self.port, *body_of(r, r.randint(5, 60)), f"client {i}" if i % 2 else None)
            with self.lock:
                self.ends[how] += 1
                if how != "well": self.why.append((how, why))

    def done(self): return sum(self.ends.values())

    def until(self, share): until("the load goes on", lambda: self.done() >= share * REQUESTS)

    def wait(self):
        for t in self.threads: t.join(120)
        return self.ends

def take_out(three, b, i):
    """HAProxy: a server gets no more requests, and ends when it has answered"""
    b.tell(f"set server infer/{'abc'[i]} state maint")
    until("nothing runs there", lambda: three.metric(i, "vllm:num_requests_running") + three.metric(i, "vllm:num_requests_waiting") == 0)
    same("exit code", three.signal(i, signal.SIGTERM), 0)
    three.begin(i)
    b.tell(f"set server infer/{'abc'[i]} state ready")

def load(kind):
    three = Three(fake, "--step", "10", "--slots", str(SLOTS), "--drain", "20")
    b = Balancer(kind, three.ports)
    began = time.monotonic()
    l = Load(b.port, REQUESTS)
    l.until(0.15)
    three.signal(0, signal.SIGKILL)
    l.until(0.3)
    three.begin(0)
    l.until(0.45)
    cut = l.ends["cut"]
    same("exit code", three.signal(1, signal.SIGTERM), 0)
    l.until(0.6)
    three.begin(1)
    l.until(0.7)
    if kind == "haproxy": take_out(three, b, 2)
    ends = l.wait()
    same(f"{kind}: all are done", l.done(), REQUESTS)
    same(f"{kind}: lost", [w for w in l.why if w[0] == "lost"][:3], [])
    check(f"{kind}: cut by the kill alone, {cut} at most what ran there", cut <= SLOTS and ends["cut"] == cut, l.why[-3:])
    for i in range(3): until(f"{kind}: server {i} is asked again", lambda: one(b.port, TEXT, '{"prompt": "x", "max_tokens": 1}', None) and three.metric(i, "vllm:generation_tokens_total") > 0)
    print(f"{kind}: {REQUESTS} requests of {CLIENTS} clients in {time.monotonic() - began:.1f} s: {ends['well']} whole, {ends['cut']} cut, {ends['lost']} lost")
    b.end()
    three.end()

# ---- what is kept ----

def turns(port, headers, more):
    """12 conversations of 6 turns, side by side; the share of tokens that were kept"""
    r, kept, all = random.Random(1), 0, 0
    talks = [f"{r.random()} " * 6 for _ in range(12)]
    for turn in range(6):
        r.shuffle(order := list(range(12)))
        for i in order:
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            c.request("POST", CHAT, json.dumps({**user(talks[i], max_tokens=2), **more(i)}), headers(i))
            u = json.loads(c.getresponse().read())["usage"]
            c.close()
            kept, all = kept + u["prompt_tokens_details"]["cached_tokens"], all + u["prompt_tokens"]
            talks[i] += "hello "
    return kept / all

def kept(kind):
    share = {}
    ways = {"no": (lambda i: {}, lambda i: {}), "X-Session": (lambda i: {"X-Session": f"talk {i}"}, lambda i: {})}
    if kind == "haproxy": ways["prompt_cache_key"] = (lambda i: {}, lambda i: {"prompt_cache_key": f"talk {i}"})
    for name, (headers, more) in ways.items():
        three = Three(infer, "serve", "--device", "cpu", "--threads", "1", "--kv-tokens", "4096") # all that is said fits
        b = Balancer(kind, three.ports)
        share[name] = turns(b.port, headers, more)
        b.end()
        three.end()
    for name in list(ways)[1:]: check(f"{kind}: more is kept with {name}", share[name] > share["no"] + 0.1, share)
    print(f"{kind}: tokens of prompts that were kept: " + ", ".join(f"{s:.0%} with {n} session" if n == "no" else f"{s:.0%} with {n}" for n, s in share.items()))

# ---- what it costs ----

def cost(kind):
    three = Three(fake, "--step", "0")
    b = Balancer(kind, three.ports)
    took = {three.ports[0]: [], b.port: []}
    lines = {port: http.client.HTTPConnection("127.0.0.1", port, timeout=60) for port in took}
    for _ in range(300):
        for port, c in lines.items():
            begin = time.perf_counter()
            c.request("POST", CHAT, json.dumps(say(3)))
            c.getresponse().read()
            took[port].append(time.perf_counter() - begin)
    direct, through = (1e3 * statistics.median(x) for x in took.values())
    print(f"{kind}: median of a request {direct:.2f} ms without, {through:.2f} ms with it")
    for c in lines.values(): c.close()
    b.end()
    three.end()

kinds = [k for k in ("nginx", "haproxy") if shutil.which(k)]
if not kinds:
    print("skipped: neither nginx nor haproxy is here (apt-get install nginx haproxy)")
    sys.exit(77)
for kind in kinds:
    for part in load, kept, cost: part(kind)
done()
