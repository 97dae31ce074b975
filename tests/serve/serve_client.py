"""What tests of infer serve share: a server, requests to it, checks. Standard library only. Programs that import it are called with
INFER TESTS SERVE_FAKE."""
import atexit, http.client, json, os, re, signal, socket, subprocess, sys, tempfile, time

infer, tests, fake = (os.path.realpath(a) for a in sys.argv[1:4])
MODEL = tests + "/golden/chat/chat-llama.gguf"
sys.dont_write_bytecode = True
sys.path.insert(0, tests + "/lib")
from checks import *

class Server:
    def __init__(self, *args, program=(infer, "serve"), env={}, model=MODEL):
        e = {k: v for k, v in os.environ.items() if k not in ("INFER_API_KEY", "INFER_MODEL")}
        self.err = tempfile.TemporaryFile("w+b")
        self.p = subprocess.Popen([*program, *(["-m", model] if model else []), "--listen", "127.0.0.1:0", "--device", "cpu", "--threads", "2", *args], stderr=self.err,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env={**e, **env})
        atexit.register(self.p.kill) # when a test fails on the way
        for _ in range(18000): # a slow machine takes its time
            found = re.search(r"at https?://127\.0\.0\.1:(\d+)", self.log())
            if found or self.p.poll() is not None: break
            time.sleep(0.01)
        self.port = int(found[1]) if found else 0
        check("the server starts", found, self.log())

    def log(self): return so_far(self.err).decode(errors="replace")

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
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=240)
        data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
        c.request(method or ("GET" if body is None else "POST"), path, data, headers)
        try:
            r = c.getresponse()
            got = r.read().decode()
        except http.client.HTTPException as e:
            sys.exit(f"FAILED: {path}: {e!r}; the server said:\n{self.log()[-3000:]}")
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
        try:
            ended = self.p.wait(120)
            check("exit code", ended == code, f"{ended} is not {code}; it said:\n{self.log()[-1200:]}")
        except subprocess.TimeoutExpired:
            check("the server ends", False, self.log())
            self.p.kill()
        return self.log()

def user(text, **more): return {"messages": [{"role": "user", "content": text}], "temperature": 0, **more}
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"

def say(n, **more): return {"messages": [{"role": "user", "content": "x"}], "max_tokens": n, **more}

def Fake(*args): return Server(*args, program=(fake,))

def gauge(s, name, headers={}):
    """a metric's value; name may have labels"""
    return float(re.search(rf"^{re.escape(name)}(?:{{.*}})? (\S+)$", s.ask("/metrics", None, headers, text=True)[2], re.M)[1])

def wait_for(s, name, value, seconds=120, headers={}):
    """seconds until a metric has a value; fails when it never has"""
    begin = time.monotonic()
    while gauge(s, name, headers) != value:
        if time.monotonic() - begin > seconds:
            check(f"{name} becomes {value}", False, gauge(s, name, headers))
            break
        time.sleep(0.01)
    return time.monotonic() - begin
