#!/usr/bin/env python3
"""The transport of infer serve: descriptors, bodies, TLS, half-closed connections, what is no request, pages of other origins, abuse. Standard
library only. usage: serve_transport.py INFER TESTS SERVE_FAKE"""
import http.client, json, os, re, resource, shutil, signal, socket, ssl, subprocess, tempfile, threading, time, warnings
from serve_client import *

warnings.simplefilter("ignore", DeprecationWarning) # of old versions of TLS, which are to be refused
BODY = json.dumps(user("hello")).encode()

def head(path=CHAT, more=b"", length=None):
    return b"POST %s HTTP/1.1\r\nHost: localhost\r\n%s" % (path.encode(), more) + (b"" if length is None else b"Content-Length: %d\r\n" % length) + b"\r\n"

def connect(s): return socket.create_connection(("127.0.0.1", s.port), 20)

def rest(x):
    """what comes until the connection ends"""
    out = b""
    try:
        while more := x.recv(65536): out += more
    except (ConnectionResetError, TimeoutError): pass
    return out

def said(got):
    """status and error code of an answer as it came over the socket"""
    try: return int(got[9:12]), json.loads(got.partition(b"\r\n\r\n")[2])["error"]["code"]
    except ValueError: return got[:200]

def limited(n):
    """a program that may open n files"""
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (min(n, 256), n))

def descriptors():
    for n, want in ((4096, "4032 connections at once instead of 4096"), (300, "236 connections at once instead of 4096")):
        with tempfile.TemporaryFile("w+b") as err:
            p = subprocess.Popen([fake, "-m", MODEL], stderr=err, stdin=subprocess.DEVNULL, preexec_fn=limited(n))
            for _ in range(2000):
                log = so_far(err).decode()
                if "serving at" in log or p.poll() is not None: break
                time.sleep(0.01)
            check(f"{n} files", want in log and "serving at" in log, log)
            p.terminate()
            same("exit code", p.wait(20), 0)
    p = subprocess.run([fake, "-m", MODEL], capture_output=True, text=True, preexec_fn=limited(100), timeout=60)
    check("too few files", p.returncode == 1 and "serving needs 128" in p.stderr, p.stderr)

def bodies():
    """what half-sent bodies take is bounded, and others are told to come again"""
    s = Fake("--body-memory", "4")
    held = []
    for _ in range(3): # of 1.5 MiB each, the third does not fit
        held.append(connect(s))
        held[-1].sendall(head(length=2 << 20) + b" " * (3 << 19))
        if len(held) < 3: time.sleep(0.3)
    got = rest(held[2])
    same("bodies take all their memory", said(got), (503, "unavailable"))
    check("when to come again", b"Retry-After: 2" in got, got[:500])
    same("a small one has room", s.ask(CHAT, say(3))[0], 200)
    for x in held: x.close()
    end = time.monotonic() + 10
    while time.monotonic() < end and s.ask(CHAT, b" " * (3 << 20) + b"{}")[0] == 503: time.sleep(0.05)
    same("the memory is given back", s.ask(CHAT, b" " * (3 << 20) + b"{}")[0], 400)
    same("more than all of it", s.ask(CHAT, b" " * (5 << 20))[0], 413)
    s.stop()

def key_max():
    """a request counts for its key from its head on"""
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as f:
        f.write("anna:secret-key-anna\n")
        f.flush()
        s = Fake("--api-key-file", f.name, "--key-max", "2")
        key, held = {"x-api-key": "secret-key-anna"}, []
        for _ in range(2):
            held.append(connect(s))
            held[-1].sendall(head(more=b"x-api-key: secret-key-anna\r\nExpect: 100-continue\r\n", length=100))
            check("its head is there", held[-1].recv(100).startswith(b"HTTP/1.1 100"))
        end, r = time.monotonic() + 10, s.ask(CHAT, say(3), key)
        same("two are being sent", (r[0], r[1]["Retry-After"]), (429, "3"))
        for x in held: x.close()
        while (r := s.ask(CHAT, say(3), key))[0] == 429 and time.monotonic() < end: time.sleep(0.02)
        same("and have gone", r[0], 200)
        s.stop()

def tls():
    if not shutil.which("openssl"): return
    with tempfile.TemporaryDirectory() as d:
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", d + "/key", "-out", d + "/cert", "-days", "2", "-subj", "/CN=localhost"], check=True, capture_output=True)
        s = Fake("--tls-cert", d + "/cert", "--tls-key", d + "/key")
        def speak(version, data=b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"):
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            context.set_ciphers("ALL:@SECLEVEL=0")
            context.minimum_version = context.maximum_version = version
            try:
                with context.wrap_socket(connect(s)) as x:
                    x.settimeout(120)
                    x.sendall(data)
                    return rest(x)
            except (ssl.SSLError, ConnectionResetError) as e: return str(e).encode()
        for version, ok in ((ssl.TLSVersion.TLSv1, False), (ssl.TLSVersion.TLSv1_1, False), (ssl.TLSVersion.TLSv1_2, True), (ssl.TLSVersion.TLSv1_3, True)):
            got = speak(version)
            same(f"{version.name}", got.startswith(b"HTTP/1.1 200"), ok)
        chunk = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
        got = speak(ssl.TLSVersion.TLSv1_3, head(more=b"Transfer-Encoding: chunked\r\n") + chunk * 33)
        same("over TLS: a body that grows too long", said(got), (413, "request_too_large"))
        s.stop()

def framing(s):
    """what is no whole request has an answer, in JSON"""
    with connect(s) as x: # chunks without an end: 413 while they come
        x.sendall(head(more=b"Transfer-Encoding: chunked\r\n"))
        chunk, got = b"100000\r\n" + b" " * (1 << 20) + b"\r\n", b""
        try:
            for _ in range(40): x.sendall(chunk)
        except (ConnectionResetError, BrokenPipeError): pass
        same("chunks above the limit", said(rest(x)), (413, "request_too_large"))
    with connect(s) as x: # who goes on sending still reads the answer
        x.sendall(head("/v1/nothing", length=8 << 20))
        time.sleep(0.2)
        try: x.sendall(b" " * (8 << 20))
        except (ConnectionResetError, BrokenPipeError): pass
        same("an answer before the body", said(rest(x)), (404, "not_found"))
    for name, data, want in (("a body that ends too soon", head(length=100) + b"{", (400, "invalid_request")),
                             ("chunks that end too soon", head(more=b"Transfer-Encoding: chunked\r\n") + b"5\r\n{", (400, "invalid_request")),
                             ("no request", b"hello\r\n\r\n", (400, "invalid_request")), ("half a head", b"GET /health HTTP/1.1\r\nHost: loc", (400, "invalid_request")),
                             ("a long head", b"GET /health HTTP/1.1\r\nHost: localhost\r\nx-long: " + b"a" * 33000 + b"\r\nConnection: close\r\n\r\n", (431, None)),
                             ("a long URL", b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", (414, "invalid_request")),
                             ("no Host", b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n", (400, "invalid_request")),
                             ("a compressed body", head(more=b"Content-Encoding: gzip\r\nConnection: close\r\n", length=len(BODY)) + BODY, (415, "unsupported_encoding"))):
        with connect(s) as x:
            x.sendall(data)
            try: x.shutdown(socket.SHUT_WR)
            except OSError: pass # it has been closed already
            same(name, said(rest(x)), want)
    ok, post = b"GET /health HTTP/1.1\r\nHost: localhost\r\n", head()[:-2] # what libmicrohttpd refuses by itself
    for name, data, want in (("a wrong version", ok.replace(b"1.1", b"9.9") + b"\r\n", 505), ("no version", b"GET /health\r\n\r\n", 400), ("a header without a colon", ok + b"bad header\r\n\r\n", 400),
                             ("a head above all memory", ok + b"x: " + b"a" * 70000 + b"\r\n\r\n", 431), ("a URL above all memory", b"GET /" + b"a" * 70000 + ok[11:] + b"\r\n", 414),
                             ("thousands of headers", ok + b"h: 1\r\n" * 3000 + b"\r\n", 431), ("a length that is none", post + b"Content-Length: abc\r\n\r\n", 400),
                             ("a length beyond numbers", post + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n", 413), ("a chunk that is none", post + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
                             ("a chunk with more than its length", post + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{xx\r\n0\r\n\r\n", 400)):
        with connect(s) as x:
            x.sendall(data)
            same(name, said(rest(x)), (want, "invalid_request"))
    for path, method, allow in ((CHAT, "GET", "POST, OPTIONS"), ("/health", "PUT", "GET, HEAD, OPTIONS"), ("/v1/models", "DELETE", "GET, HEAD, OPTIONS")):
        status, headers, e = s.ask(path, method=method)
        same(f"{method} {path}", (status, headers["Allow"], e["error"]["code"]), (405, allow, "method_not_allowed"))

def hosts(s):
    for host, want in (("host.docker.internal:8080", 200), ("host.containers.internal", 200), ("docker.internal", 403)):
        same(host, s.ask("/health", headers={"Host": host})[0], want)

def half():
    """a client that says that it sends nothing more is answered; one that is gone is not waited for"""
    s = Fake("--step", "20", "--slots", "2")
    for stream in (False, True):
        data = json.dumps(say(20, stream=stream)).encode()
        with connect(s) as x:
            x.sendall(head(length=len(data)) + data)
            x.shutdown(socket.SHUT_WR)
            got = rest(x)
        got = got.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
        check(f"half-closed, stream {stream}", got.startswith(b"HTTP/1.1 200") and (b"data: [DONE]" if stream else b'"finish_reason":"length"') in got, got[-300:])
    for stream in (False, True):
        held = []
        for _ in range(3): # the third waits
            data = json.dumps(say(8000, stream=stream)).encode()
            held.append(connect(s))
            held[-1].sendall(head(length=len(data)) + data)
        wait_for(s, "vllm:num_requests_waiting", 1)
        for x in held: x.close()
        for name in "running", "waiting": wait_for(s, "vllm:num_requests_" + name, 0, 20)
    s.stop()

def slow():
    s = Fake("--slow", "0.2")
    for name, data in (("a head", b"GET /hea"), ("a body", head(length=100) + b"{")):
        with connect(s) as x:
            x.sendall(data)
            same(f"{name} that is too slow", said(rest(x)), (408, "timeout"))
    s.stop()

# headers that programs generated for these APIs send from a browser, as they stand in public captures and copies of them
SENT = """authorization content-type openai-organization openai-project openai-beta x-stainless-arch x-stainless-helper-method x-stainless-lang x-stainless-os
 x-stainless-package-version x-stainless-poll-helper x-stainless-custom-poll-interval x-stainless-retry-count x-stainless-runtime x-stainless-runtime-version x-stainless-timeout idempotency-key
 x-api-key anthropic-version anthropic-beta anthropic-dangerous-direct-browser-access x-stainless-helper""".split()

def pages():
    """a page of a listed origin sends what clients send, and reads what they read"""
    s = Fake("--cors-origin", "https://chat.example")
    origin = {"Origin": "https://chat.example"}
    status, h, _ = s.ask(CHAT, headers={**origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": ",".join(SENT)}, method="OPTIONS")
    allowed = {x.strip().lower() for x in (h["Access-Control-Allow-Headers"] or "").split(",")}
    same("headers that may be sent", (status, h["Access-Control-Allow-Origin"], sorted(set(SENT) - allowed)), (204, origin["Origin"], []))
    _, h, _ = s.ask(CHAT, say(3), {**origin, "Content-Type": "application/json"})
    shown = {x.strip() for x in (h["Access-Control-Expose-Headers"] or "").split(",")}
    check("headers that may be read", {"x-request-id", "request-id", "x-infer-warning", "retry-after", "retry-after-ms"} <= shown, shown)
    same("an id for both", h["request-id"], h["x-request-id"])
    status, h, _ = s.ask(CHAT, headers={"Origin": "https://other.example", "Access-Control-Request-Method": "POST"}, method="OPTIONS")
    same("another origin", (status, h["Access-Control-Allow-Headers"]), (403, None))
    s.stop()

def no_reader():
    """the log's reader goes away: nothing ends"""
    r, w = os.pipe()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    p = subprocess.Popen([infer, "serve", "-m", MODEL, "--listen", f"127.0.0.1:{port}", "--device", "cpu", "--threads", "1"], stderr=w, stdin=subprocess.DEVNULL)
    os.close(w)
    os.close(r)
    status = None
    for _ in range(3000):
        if p.poll() is not None: break
        try:
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            c.request("GET", "/health")
            status = c.getresponse().status
            c.close()
            if status == 200: break
        except OSError: pass
        time.sleep(0.01)
    same("served", status, 200)
    p.terminate()
    same("exit code", p.wait(30), 0)

def unix_socket():
    with tempfile.TemporaryDirectory() as d:
        p = subprocess.Popen([fake, "-m", MODEL, "--listen", "unix:" + d + "/s"], stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        for _ in range(1000):
            if os.path.exists(d + "/s"): break
            time.sleep(0.01)
        for more in b"", b"Host: whatever\r\n":
            got = b""
            for _ in range(500):
                with socket.socket(socket.AF_UNIX) as x:
                    x.settimeout(20)
                    x.connect(d + "/s")
                    x.sendall(b"GET /health HTTP/1.1\r\nConnection: close\r\n" + more + b"\r\n")
                    got = rest(x)
                if not got.startswith(b"HTTP/1.1 503"): break
                time.sleep(0.01)
            check(f"a unix socket, {more}", got.startswith(b"HTTP/1.1 200"), got[:100])
        p.terminate()
        same("exit code", p.wait(20), 0)

def draining():
    """while it stops connections that are open get 503, or are closed between two requests, and no new ones come"""
    s = Fake("--step", "20", "--drain", "20")
    kept = http.client.HTTPConnection("127.0.0.1", s.port, timeout=20)
    kept.request("GET", "/health")
    same("health", kept.getresponse().read(), b'{"status":"ok"}\n')
    x = connect(s)
    data = json.dumps(say(8000, stream=True)).encode()
    x.sendall(head(length=len(data)) + data)
    check("an answer begins", x.recv(1000).startswith(b"HTTP/1.1 200"))
    s.p.send_signal(signal.SIGTERM)
    end, refused = time.monotonic() + 10, False
    while not refused and time.monotonic() < end:
        try: connect(s).close()
        except ConnectionResetError: pass # it waited to be accepted
        except ConnectionRefusedError: refused = True
    check("no new connection", refused)
    try:
        kept.request("GET", "/health")
        r = kept.getresponse()
        same("health while it stops", (r.status, json.loads(r.read())["error"]["message"]), (503, "The server is stopping"))
    except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError): pass # nothing was asked on it
    x.close()
    same("exit code", s.p.wait(30), 0)

def abuse():
    """the program itself, with its own engine, under all of it at once; then it answers as before, and ends without a leak where it is built to look for them"""
    s = Server("--metrics", "--slots", "3", "--queue", "6", "--body-memory", "8M", "--drain", "1")
    want = s.ask(CHAT, user("hello"))[2]["choices"][0]["message"]["content"]
    with connect(s) as x: x.sendall(head(length=1000) + b"{")
    long = json.dumps(user("count", ignore_eos=True, max_tokens=200)).encode()
    streamed = json.dumps(user("count", ignore_eos=True, max_tokens=200, stream=True)).encode()
    def send(data, then=None):
        with connect(s) as x:
            try:
                x.sendall(data)
                if then: then(x)
            except (ConnectionResetError, BrokenPipeError): pass
    def read_some(x): x.recv(200)
    def half_closed(x):
        x.shutdown(socket.SHUT_WR)
        rest(x)
    def reset(x): x.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    acts = [lambda: send(head(length=1 << 20) + b" " * 300000), lambda: send(head(length=1 << 20) + b" " * 300000, half_closed), lambda: send(head(length=len(long)) + long),
            lambda: send(head(length=len(streamed)) + streamed, read_some), lambda: send(head(length=len(streamed)) + streamed, half_closed), lambda: send(head(length=len(long)) + long, reset),
            lambda: send(head(length=len(streamed)) + streamed, reset), lambda: send(bytes(range(256)) * 8, half_closed), lambda: send(head(more=b"Transfer-Encoding: chunked\r\n") + b"zz\r\n", half_closed),
            lambda: send(head(more=b"Transfer-Encoding: chunked\r\n") + (b"100000\r\n" + b" " * (1 << 20) + b"\r\n") * 10, rest), lambda: send(head(more=b"x: " + b"a" * 70000 + b"\r\n"), rest),
            lambda: send(head("/v1/nothing", length=1 << 20) + b"x" * (1 << 20), rest), lambda: send(head(length=5) + b"{\"a\":", half_closed), lambda: send(b"GET / HTTP/9.9\r\n\r\n", rest),
            lambda: send(head(length=6 << 20) + b" " * (5 << 20)), lambda: send(head(length=3) + b"[[[", half_closed)]
    def worker(i):
        for k in range(len(acts)): acts[(k * (2 * i + 1) + i) % len(acts)]()
    threads = [threading.Thread(target=worker, args=(i,)) for i in range(4)]
    for t in threads: t.start()
    for t in threads: t.join()
    for name in "running", "waiting": wait_for(s, "vllm:num_requests_" + name, 0, 60)
    same("it answers as before", s.ask(CHAT, user("hello"))[2]["choices"][0]["message"]["content"], want)
    held = []
    for data in (streamed, long, streamed):
        held.append(connect(s))
        held[-1].sendall(head(length=len(data)) + data)
    held.append(connect(s))
    held[-1].sendall(head(length=100) + b"{")
    check("an answer begins", held[0].recv(100).startswith(b"HTTP/1.1 200"))
    log = s.stop()
    check("who goes in the middle of a body is logged as gone", re.search(" 499 .*: the connection ended after 1 of 1000 bytes", log), log[:3000])
    check("nothing of a sanitizer", "Sanitizer" not in log and "runtime error" not in log, log[-3000:])
    for x in held: x.close()

descriptors()
s = Fake()
for part in (framing, hosts): part(s)
s.stop()
for part in (bodies, key_max, tls, half, slow, pages, no_reader, unix_socket, draining, abuse): part()
done()
