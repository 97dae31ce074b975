#!/usr/bin/env python3
"""What infer serve does beside answers: how much of a core it takes while nobody asks (idle), and how long /health takes while the CPU computes a
long prompt (health), how soon pages are free when clients hang up (gone), and how far apart tokens come while pictures are computed (pictures;
MODEL has its tower beside it: tower_shapes.py makes such). Starts a server of its own. Standard library only, Linux.
usage: serve_aside.py idle INFER MODEL [CONNECTIONS [SECONDS]] | serve_aside.py health INFER MODEL [TOKENS] | serve_aside.py gone INFER MODEL [STREAMS [THAT LEAVE]]
| serve_aside.py pictures INFER MODEL [PICTURES [SIDE]]"""
import base64, http.client, json, os, re, socket, struct, subprocess, sys, tempfile, threading, time, zlib


class Server:
    def __init__(self, infer, model, *args):
        self.err = tempfile.TemporaryFile("w+")
        self.p = subprocess.Popen([infer, "serve", "-m", model, "--device", "cpu", "--listen", "127.0.0.1:0", "--log", "off", *args], stderr=self.err)
        while True:
            said = os.pread(self.err.fileno(), 1 << 20, 0).decode()
            if found := re.search(r"127\.0\.0\.1:(\d+)", said): break
            if self.p.poll() is not None: sys.exit(said)
            time.sleep(0.05)
        self.port = int(found[1])

    def connect(self): return http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)

    def end(self):
        self.p.terminate()
        self.p.wait()


def ask(c, path="/health", body=None):
    c.request("POST" if body else "GET", path, body and json.dumps(body))
    return c.getresponse().read()


def ticks(pid):
    """seconds of the processor by /proc/PID/stat, which counts hundredths, and by the scheduler; how often its threads have waited"""
    stat = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    tasks = [f"/proc/{pid}/task/{t}/" for t in os.listdir(f"/proc/{pid}/task")]
    return ((int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK"), sum(int(open(t + "schedstat").read().split()[0]) for t in tasks) / 1e9,
            sum(int(re.search(r"\nvoluntary_ctxt_switches:\s*(\d+)", open(t + "status").read())[1]) for t in tasks))


def idle(s, n=1000, seconds=60):
    kept = [s.connect() for _ in range(n)]
    for c in kept: ask(c)
    time.sleep(1)
    before = ticks(s.p.pid)
    time.sleep(seconds)
    stat, ran, waits = (b - a for a, b in zip(before, ticks(s.p.pid)))
    print(f"{n} connections, {seconds} s: {100 * stat / seconds:.3f}% of a core (stat), {100 * ran / seconds:.4f}% (schedstat), {waits / seconds:.2f} wake-ups a second")


def timed(c):
    begin = time.monotonic()
    assert b"ok" in ask(c)
    took = time.monotonic() - begin
    time.sleep(0.01)
    return took


def health(s, tokens=8000):
    c, took, busy = s.connect(), [], threading.Event()
    text = ("The quick brown fox jumps over the lazy dog. " * (tokens // 8))[:int(4.1 * tokens)]
    n = json.loads(ask(c, "/tokenize", {"content": text}))["count"]

    control = sorted(1e3 * timed(c) for _ in range(100))
    print(f"/health, 100 times beside nothing: p50 {control[50]:.2f}, greatest {control[-1]:.2f} ms")

    def prompt():
        begin = time.monotonic()
        ask(s.connect(), "/v1/completions", {"prompt": text, "max_tokens": 1})
        print(f"a prompt of {n} tokens took {time.monotonic() - begin:.1f} s")
        busy.set()
    t = threading.Thread(target=prompt, daemon=True)
    t.start()
    try: os.nice(-15) # what is measured is the server, not this program's waiting for a core
    except PermissionError: pass
    time.sleep(0.5)
    while len(took) < 100 and not busy.is_set():
        took.append(1e3 * timed(c if len(took) % 2 else s.connect()))
        time.sleep(0.05)
    took.sort()
    print(f"/health, {len(took)} times beside it, every other on a new connection: p50 {took[len(took) // 2]:.2f}, p95 {took[len(took) * 95 // 100]:.2f}, greatest {took[-1]:.2f} ms")


def gone(s, n=32, leave=20):
    """of n streams some hang up at once: how soon nobody holds their pages"""
    c = s.connect()
    def metric(name): return float(re.search(rf"^{name}{{?.*? (\S+)$", ask(c, "/metrics").decode(), re.M)[1])
    streams = [s.connect() for _ in range(n)]
    for i, x in enumerate(streams): x.request("POST", "/v1/completions", json.dumps({"prompt": f"{i} is a number, and", "max_tokens": 2000, "ignore_eos": True, "stream": True}))
    for x in streams: x.getresponse().read(10)
    while metric("vllm:num_requests_running") < n: time.sleep(0.01)
    time.sleep(1)
    used, steps, begin = metric("vllm:kv_cache_usage_perc"), metric("llamacpp:n_decode_total"), time.monotonic()
    for x in streams[:leave]: x.sock.shutdown(socket.SHUT_RDWR)
    while metric("vllm:kv_cache_usage_perc") > used * (n - leave + 1) / n: pass
    print(f"{leave} of {n} streams hung up: {metric('llamacpp:n_decode_total') - steps:.0f} steps begun and {1e3 * (time.monotonic() - begin):.0f} ms later their pages are free")


def png(side, seed):
    def chunk(name, data): return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    rows = b"".join(b"\0" + bytes((x * seed * 7 + y * 3 + c * 50) % 256 for x in range(side) for c in range(3)) for y in range(side))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def pictures(s, n=3, side=512):
    """gaps between tokens of one answer, alone and beside requests of a picture each, one after the other"""
    came, over = [], threading.Event()
    def answer():
        c = s.connect()
        c.request("POST", "/v1/completions", json.dumps({"prompt": "a", "max_tokens": 7000, "ignore_eos": True, "stream": True, "return_token_ids": True}))
        r = c.getresponse()
        while not over.is_set() and (line := r.readline()):
            if line.startswith(b"data: {"): came.append(time.monotonic())
        c.sock.close() if c.sock else None
    t = threading.Thread(target=answer, daemon=True)
    t.start()
    def look(what, begin, end):
        at = [x for x in came if begin <= x <= end]
        gaps = sorted(1e3 * (b - a) for a, b in zip(at, at[1:]))
        print(f"{what}: {len(at) / (end - begin):.1f} tok/s, gaps p50 {gaps[len(gaps) // 2]:.0f}, p99 {gaps[len(gaps) * 99 // 100]:.0f}, longest {gaps[-1]:.0f} ms")
    time.sleep(3)
    begin = time.monotonic()
    time.sleep(5)
    look("alone", begin, time.monotonic())
    begin, c = time.monotonic(), s.connect()
    for i in range(n):
        content = [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(png(side, i + 1)).decode()}}, {"type": "text", "text": "a"}]
        got = json.loads(ask(c, "/v1/chat/completions", {"messages": [{"role": "user", "content": content}], "max_tokens": 1}))
        rows = got["usage"]["prompt_tokens"]
    end = time.monotonic()
    look(f"beside {n} pictures of {side} x {side} ({rows} tokens with text, {(end - begin) / n:.1f} s each)", begin, end)
    over.set()


mode, infer, model = sys.argv[1:4]
if mode not in ("idle", "health", "gone", "pictures"): sys.exit(__doc__)
server = Server(infer, model, *{"idle": [], "health": ["--ctx", str(int((sys.argv[4:] or ["8000"])[0]) + 192)], "gone": ["--slots", "32", "--kv-tokens", "40000", "--metrics"],
                               "pictures": ["--slots", "2", "--ctx", "8192"]}[mode])
try: {"idle": idle, "health": health, "gone": gone, "pictures": pictures}[mode](server, *map(int, sys.argv[4:]))
finally: server.end()
