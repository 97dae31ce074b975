#!/usr/bin/env python3
"""infer serve as a service manager starts it, and the page that it gives to browsers. Standard library only.
usage: serve_service.py INFER TESTS"""
import gzip, http.client, os, re, signal, socket, subprocess, sys, tempfile, time

infer, tests = (os.path.realpath(a) for a in sys.argv[1:3])
sys.dont_write_bytecode = True
sys.path.insert(0, tests + "/lib")
from checks import so_far
SERVE = [infer, "serve", "-m", tests + "/golden/chat/chat-llama.gguf", "--device", "cpu", "--threads", "2", "--log", "off"]


def ask(port, path, headers={}, method="GET", body=None):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    c.request(method, path, body, headers)
    r = c.getresponse()
    got = r.read()
    c.close()
    return r.status, r.headers, got


def until(read, pattern):
    for _ in range(600):
        found = re.search(pattern, read())
        if found: return found
        time.sleep(0.05)
    raise AssertionError(pattern + " never came: " + read())


def page(port):
    status, headers, html = ask(port, "/")
    assert status == 200 and headers["Content-Type"].startswith("text/html") and b"<title>infer" in html, (status, html[:80])
    csp = headers["Content-Security-Policy"]
    for part in "default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "trusted-types 'none'": assert part in csp, csp
    assert headers["X-Content-Type-Options"] == "nosniff" and headers["Referrer-Policy"] == "no-referrer"
    for path in re.findall(rb'(?:src|href)="([a-z]+\.(?:js|css))"', html):
        plain = ask(port, "/" + path.decode())
        packed = ask(port, "/" + path.decode(), {"Accept-Encoding": "br, gzip"})
        assert packed[1]["Content-Encoding"] == "gzip" and gzip.decompress(packed[2]) == plain[2] and len(plain[2]) > 1000
        again = ask(port, "/" + path.decode(), {"If-None-Match": plain[1]["ETag"]})
        assert (again[0], again[2]) == (304, b""), again
    assert ask(port, "/", method="HEAD")[2] == b"" and ask(port, "/", method="POST", body=b"{}")[0] == 405
    assert ask(port, "/nothing.html")[0] == 404 and ask(port, "/../etc/passwd")[0] == 404
    # a page may ask the server that it came from, and no other
    for origin, status in ("http://127.0.0.1:%d" % port, 200), ("https://evil.example", 403), ("null", 403):
        got = ask(port, "/v1/chat/completions", {"Origin": origin, "Content-Type": "application/json"}, "POST", b'{"messages":[{"role":"user","content":"hello"}]}')
        assert got[0] == status, (origin, got)


def service():
    with tempfile.TemporaryDirectory() as dir, socket.socket() as given, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        given.bind(("127.0.0.1", 0))
        given.listen(16)
        port = given.getsockname()[1]
        heard.bind(dir + "/notify")
        heard.settimeout(60)

        def take():
            os.dup2(given.fileno(), 3)
            os.set_inheritable(3, True)
            os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", NOTIFY_SOCKET=dir + "/notify", WATCHDOG_USEC="400000")
            os.execv(infer, SERVE)

        pid = os.fork()
        if pid == 0: take()
        try: follow(pid, port, heard)
        except BaseException:
            os.kill(pid, signal.SIGKILL)
            raise


def follow(pid, port, heard):
    assert heard.recv(100).startswith(b"READY=1")
    assert heard.recv(100) == b"WATCHDOG=1" and heard.recv(100) == b"WATCHDOG=1"
    assert ask(port, "/health")[0] == 200
    page(port)
    os.kill(pid, signal.SIGTERM)
    said = b""
    while said != b"STOPPING=1": said = heard.recv(100)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def taken(pid):
    """whether SIGTERM does not end a process by default any more; what comes before is the system's"""
    with open(f"/proc/{pid}/status") as f: return bool(int(re.search(r"SigCgt:\s*(\S+)", f.read())[1], 16) & 1 << signal.SIGTERM - 1)


def start_and_end():
    """SIGTERM at thirty moments of the first 300 ms, of which the first come before the sockets are there"""
    with tempfile.TemporaryDirectory() as dir:
        name, left = dir + "/socket", 0
        for i in range(30):
            p = subprocess.Popen([*SERVE, "--listen", "unix:" + name], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                while not taken(p.pid): pass
                time.sleep(i * 1e-4 if i < 10 else 0.005 * (i - 9) if i < 20 else 0.3 * (i - 9) / 20)
                p.terminate()
                assert p.wait(30) == 0, (i, p.returncode)
                left += os.path.exists(name)
            finally: p.kill()
        assert not left, left


def credentials():
    """keys that systemd gives the service's user by an access list, which a mode shows as the group's; elsewhere such a file is refused"""
    with tempfile.TemporaryDirectory() as dir:
        with open(dir + "/keys", "w") as f: f.write("me:some-long-secret\n")
        for mode, folder, code in (0o440, dir, None), (0o444, dir, 2), (0o440, dir + "x", 2), (0o440, None, 2):
            os.chmod(dir + "/keys", mode)
            env = {k: v for k, v in os.environ.items() if k != "CREDENTIALS_DIRECTORY"} | ({"CREDENTIALS_DIRECTORY": folder} if folder else {})
            p = subprocess.Popen([*SERVE, "--listen", "unix:" + dir + "/socket", "--api-key-file", dir + "/keys"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env)
            try:
                said = next((line for line in p.stderr if "serving" in line), "") if code is None else p.stderr.read()
                assert said if code is None else ("can be read by others" in said), (oct(mode), folder, said)
                p.terminate()
                assert p.wait(30) == (code or 0), (oct(mode), folder)
            finally:
                p.kill()
                p.stderr.close()


service()
credentials()
start_and_end()
with tempfile.TemporaryFile() as err:
    p = subprocess.Popen([*SERVE, "--listen", "127.0.0.1:0", "--no-page"], stderr=err, stdin=subprocess.DEVNULL)
    try:
        port = int(until(lambda: so_far(err).decode(), r"127\.0\.0\.1:(\d+)")[1])
        assert ask(port, "/")[0] == 404 and ask(port, "/health")[0] == 200
    finally:
        p.terminate()
        assert p.wait(30) == 0
print("all well")
