#!/usr/bin/env python3
"""Models by name against a hub of our own: redirects to another host, cut connections, wrong hashes, refusals, no parts, slow, no room, two
at once, offline, what is taken out again. usage: hub.py INFER TESTS"""
import hashlib, http.server, json, os, pathlib, re, resource, shutil, signal, subprocess, sys, tempfile, threading, time
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from checks import check, done

infer, tests = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
dir = pathlib.Path(tempfile.mkdtemp())
COMMIT, OTHER = "a" * 40, "b" * 40

def made(name, *arguments):
    path = dir / name
    subprocess.run([infer, "synth", "-q", "-o", path, *arguments], check=True)
    return path.read_bytes()
tiny = {t: made(f"{t}.gguf", "--shape", "tiny", "--type", t.lower()) for t in ("F16", "Q8_0", "Q4_0")}
large = made("large.gguf", "--shape", "llama-135m", "--layers", "1", "--type", "q4_0") # pieces: over 16 MB
repos = {  # repo: {path: bytes}
    "org/many": {"m-F16.gguf": tiny["F16"], "m-Q8_0.gguf": tiny["Q8_0"], "sub/m-UD-Q4_0.gguf": tiny["Q4_0"], "mmproj-m-F16.gguf": b"no tower", "README.md": b"hello"},
    "org/large": {"large-Q4_0.gguf": large},
    "org/parts": {f"p-Q8_0-0000{i}-of-00002.gguf": bytes([i]) * 100 for i in (1, 2)},
    "org/wrong": {"w-Q4_0.gguf": tiny["Q4_0"]},
    "org/evil": {"../../../evil.gguf": b"x", "ok-Q4_0.gguf": tiny["Q4_0"]},
    "org/secret": {"s-Q4_0.gguf": tiny["Q4_0"]},
    "org/two": {"small-Q8_0.gguf": tiny["Q8_0"], "large-Q4_0.gguf": large},
    "org/folder": {p.name: p.read_bytes() for p in sorted((tests / "golden/hf/llama").iterdir()) if p.is_file()},
}

class Hub(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    sent, asked, tokens, mode = {}, [], [], {}
    lock = threading.Lock()
    def log_message(self, *a): pass
    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for k, v in headers.items(): self.send_header(k.replace("_", "-"), v)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def listing(self, repo, commit):
        rows = []
        for path, data in repos[repo].items():
            sha = hashlib.sha256(data).hexdigest() if repo != "org/wrong" else "0" * 64
            row = {"rfilename": path, "size": len(data), "blobId": hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()}
            if path.endswith((".gguf", ".safetensors")): row["lfs"] = {"sha256": sha, "size": len(data), "pointerSize": 130}
            rows.append(row)
        self.answer(200, json.dumps({"id": repo, "sha": commit, "siblings": rows}).encode(), Content_Type="application/json")
    def do_GET(self):
        with Hub.lock: Hub.asked.append(self.requestline.split(" ")[1]) # a path that begins with // is another one here
        api = re.match(r"/api/models/([^/]+/[^/]+)/revision/([^?]+)", self.path)
        file = re.match(r"/([^/]+/[^/]+)/resolve/(\w+)/(.+)", self.path)
        if self.path.startswith("/api/models?search="):
            return self.answer(200, json.dumps([{"id": "org/many"}, {"id": "org/more"}]).encode())
        if api and api[1] == "org/gated": return self.answer(403, b"{}", X_Error_Code="GatedRepo", X_Error_Message="ask")
        if api and api[1] == "org/secret" and self.headers.get("Authorization") != "Bearer right": return self.answer(401, b"{}", X_Error_Code="RepoNotFound")
        if api and api[1] not in repos: return self.answer(404, b"{}", X_Error_Code="RepoNotFound")
        if api:
            with Hub.lock: held = Hub.mode.get("held", [])[:1]; del Hub.mode.get("held", [])[:1]
            if held: return self.answer(held[0][0], b"", Retry_After=held[0][1])
        if api and api[2] == "gone": return self.answer(404, b"{}", X_Error_Code="RevisionNotFound")
        if api: return self.listing(api[1], OTHER if api[2] in (OTHER, "old") else COMMIT)
        if file:
            with Hub.lock:
                busy = Hub.mode.get("busy", 0)
                Hub.mode["busy"] = busy - 1
            if busy > 0: return self.answer(429, b"", Retry_After="1")
            return self.answer(302, b"", Location=f"http://localhost:{self.server.server_port}/cdn/{file[1]}/{file[3]}?signed=1")
        cdn = re.match(r"/cdn/([^/]+/[^/]+)/([^?]+)", self.path)
        if not cdn: return self.answer(404)
        with Hub.lock: Hub.tokens.append(self.headers.get("Authorization"))
        self.give(repos[cdn[1]][cdn[2].replace("%2F", "/")], cdn[1])
    def give(self, data, repo):
        ranged = re.match(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        first, last = 0, len(data) - 1
        if ranged and not Hub.mode.get("whole"): first, last = int(ranged[1]), min(int(ranged[2]), last)
        self.send_response(206 if ranged and not Hub.mode.get("whole") else 200)
        if ranged and not Hub.mode.get("whole"): self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        self.send_header("Content-Length", str(last + 1 - first))
        self.end_headers()
        with Hub.lock:
            cut = Hub.mode.get("cut", 0)
            Hub.mode["cut"] = cut - 1
        if cut > 0: last = (first + last) // 2
        for at in range(first, last + 1, 1 << 16):
            try: self.wfile.write(data[at:min(at + (1 << 16), last + 1)])
            except OSError: return
            with Hub.lock: Hub.sent[repo] = Hub.sent.get(repo, 0) + min(1 << 16, last + 1 - at)
            if Hub.mode.get("slow"): time.sleep(Hub.mode["slow"])
        if cut > 0:
            self.close_connection = True
            self.connection.close()

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
threading.Thread(target=server.serve_forever, daemon=True).start()
ENV = {k: v for k, v in os.environ.items() if not k.startswith("HF_") and not k.endswith("_proxy")}
ENV |= {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_HOME": str(dir / "hf"), "HOME": str(dir / "home"), "XDG_CACHE_HOME": str(dir / "xdg")}
def run(*a, env={}, **k):
    return subprocess.run([str(infer), *map(str, a)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=ENV | env, timeout=120, text=True, **k)
def fresh(**mode):
    Hub.sent.clear(); Hub.asked.clear(); Hub.tokens.clear(); Hub.mode.clear(); Hub.mode.update(mode)
    shutil.rmtree(dir / "hf", ignore_errors=True)
def good(name, r): check(name, r.returncode == 0, r)
def refused(name, r, code, *words):
    check(name, r.returncode == code and all(w in r.stderr for w in words), r)
hub = dir / "hf/hub"

# ---- a type, the cache's layout, the second time
fresh()
r = run("pull", "hf:org/many:Q8_0", env={"HF_TOKEN": "right"})
good("pull", r)
path = pathlib.Path(r.stdout.strip())
check("layout", path == hub / f"models--org--many/snapshots/{COMMIT}/m-Q8_0.gguf" and path.is_symlink() and path.read_bytes() == tiny["Q8_0"], path)
check("blob", os.readlink(path) == "../../blobs/" + hashlib.sha256(tiny["Q8_0"]).hexdigest(), os.readlink(path))
check("ref", (hub / "models--org--many/refs/main").read_text() == COMMIT)
check("its tower, and nothing else", sorted(p.name for p in path.parent.iterdir()) == ["m-Q8_0.gguf", "mmproj-m-F16.gguf"], list(path.parent.iterdir()))
check("nothing is left over", not [p for p in (hub / "models--org--many/blobs").iterdir() if "infer" in p.name])
check("a token goes to the hub alone", Hub.tokens and not any(Hub.tokens), Hub.tokens)
Hub.asked.clear()
for how in (["-m", "hf:org/many:q8_0"], ["-hf", "org/many:Q8_0"], ["--hf-repo", "org/many:m-Q8_0.gguf"]):
    good(f"plan {how}", run("plan", *how))
check("what is there is not asked for", not Hub.asked, Hub.asked)
good("offline", run("plan", "-m", "hf:org/many:Q8_0", env={"HF_HUB_OFFLINE": "1"}))
refused("offline, not there", run("plan", "-m", "hf:org/many:Q4_0", env={"HF_HUB_OFFLINE": "1"}), 2, "HF_HUB_OFFLINE")
good("a type behind UD-", run("plan", "-m", "hf:org/many:Q4_0"))
check("a link out of a folder", (path.parent / "sub/m-UD-Q4_0.gguf").read_bytes() == tiny["Q4_0"])

# ---- no type: what fits; other revisions
fresh()
r = run("pull", "org/many")
check("the best that fits", r.returncode == 0 and r.stdout.strip().endswith("m-Q8_0.gguf") and "one up F16" in r.stderr and "one down" in r.stderr, r)
check("heads are gone", not list((hub / "models--org--many/blobs").glob("*head")))
r = run("pull", "hf:org/many:F16@old")
check("a revision", r.returncode == 0 and OTHER in r.stdout and (hub / "models--org--many/refs/old").read_text() == OTHER, r)
r = run("pull", "hf:org/parts:Q8_0")
check("parts", r.returncode == 0 and r.stdout.strip().endswith("00001-of-00002.gguf") and len(list(pathlib.Path(r.stdout.strip()).parent.iterdir())) == 2, r)
r = run("pull", "hf:org/folder")
good("a folder", r)
good("a folder is a model", run("plan", "-m", "hf:org/folder"))
good("a path out of the folder is passed over", run("pull", "hf:org/evil"))
check("nothing outside", not list(dir.rglob("evil.gguf")))

# ---- refusals
refused("no such type", run("pull", "hf:org/many:Q5_K_M"), 2, "Q5_K_M", "Q8_0 (", "UD-Q4_0 (")
refused("no such repository", run("pull", "hf:org/menny"), 2, "org/many", "org/more")
refused("no such revision", run("pull", "hf:org/many@gone"), 2, "revision")
refused("gated", run("pull", "hf:org/gated"), 2, "/org/gated", "HF_TOKEN")
refused("not public", run("pull", "hf:org/secret"), 2, "HF_TOKEN is not set")
for name in ("hf:one", "hf:a/b/c", "hf:../x:Q4", "hf:org/x:../y", "hf:org/x@../y", "hf:org/", "hf:/x", "hf:org/x y"):
    refused(f"no name: {name}", run("pull", name), 2, "hf:ORG/REPO")
refused("a hash that differs", run("pull", "hf:org/wrong"), 2, "SHA-256", "thrown away")
check("and no name for it", not list((hub / "models--org--wrong").glob("snapshots/*/*")) and not list((hub / "models--org--wrong/blobs").iterdir()))
refused("nobody answers", run("pull", "hf:org/many:F16", env={"HF_ENDPOINT": "http://127.0.0.1:9"}), 2, "no answer")

# ---- what is in the environment
fresh()
for name, env in (("a new folder, from where one is", {"HF_HUB_CACHE": "relative/hub"}), ("~ that no shell has seen", {"HF_HOME": "~/own"}), ("false is not offline", {"HF_HUB_OFFLINE": "False"})):
    good(name, run("pull", "hf:org/many:Q8_0", env=env, cwd=dir))
check("in those folders", all((dir / p / "models--org--many/refs/main").exists() for p in ("relative/hub", "home/own/hub")))
Hub.asked.clear()
good("an endpoint with a slash, a token with a newline", run("pull", "hf:org/secret", env={"HF_ENDPOINT": ENV["HF_ENDPOINT"] + "/", "HF_TOKEN": " right\n"}))
check("one slash", Hub.asked and not [p for p in Hub.asked if "//" in p], Hub.asked)

# ---- bad connections
sum = hashlib.sha256(large).hexdigest()
blob = hub / "models--org--large/blobs" / sum
fresh(cut=5)
good("cut five times", run("pull", "hf:org/large"))
check("every byte once", blob.read_bytes() == large and Hub.sent["org/large"] < len(large) * 1.5, Hub.sent)
fresh(busy=2)
good("asked too often", run("pull", "hf:org/large"))
fresh(held=[(429, "1"), (503, "")])
r = run("pull", "hf:org/many:Q8_0")
check("asked too often for the list", r.returncode == 0 and "429: asked again in 1.0 s" in r.stderr and "503: asked again" in r.stderr, r)
fresh(held=[(429, "300")])
refused("in five minutes", run("pull", "hf:org/many:Q8_0"), 2, "in 300 s", "HF_TOKEN")
fresh(whole=1)
good("a server without parts", run("pull", "hf:org/large"))
check("whole", blob.read_bytes() == large)
fresh(whole=1, cut=2)
good("neither parts nor patience", run("pull", "hf:org/many:F16"))
fresh(slow=0.02)
p = subprocess.Popen([infer, "pull", "hf:org/large"], env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
q = subprocess.Popen([infer, "pull", "hf:org/large"], env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
both = p.communicate(timeout=100), q.communicate(timeout=100)
check("two at once", p.returncode == 0 and q.returncode == 0 and both[0][0] == both[1][0] and Hub.sent["org/large"] < len(large) * 1.2, (both, Hub.sent, len(large)))
fresh(slow=0.03)
p = subprocess.Popen([infer, "pull", "hf:org/large"], env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
pieces = blob.with_name(sum + ".infer-pieces")
end = time.monotonic() + 60
while time.monotonic() < end and not (pieces.exists() and b"\1" in pieces.read_bytes()): time.sleep(0.05)
p.send_signal(signal.SIGINT)
p.communicate(timeout=20)
check("interrupted", p.returncode == 130 and not blob.exists(), p.returncode)
Hub.mode.clear(); Hub.sent.clear()
refused("rm of a type that has not come whole", run("rm", "hf:org/large:Q4_0"), 2, "not in the cache")
check("leaves what has come", pieces.exists())
good("goes on", run("pull", "hf:org/large"))
check("what had come is not fetched again", blob.read_bytes() == large and Hub.sent["org/large"] < len(large), Hub.sent)
fresh()
good("one that is small", run("pull", "hf:org/two:Q8_0"))
Hub.mode["slow"] = 0.03
p = subprocess.Popen([infer, "pull", "hf:org/two:Q4_0"], env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
blobs = hub / "models--org--two/blobs"
while time.monotonic() < end and not list(blobs.glob("*.infer-pieces")): time.sleep(0.02)
refused("rm beside a fetch", run("rm", "hf:org/two:Q8_0"), 1, "being fetched")
p.send_signal(signal.SIGINT)
p.communicate(timeout=20)
good("rm of a type", run("rm", "hf:org/two:Q8_0"))
check("leaves what is to be gone on with", len(list(blobs.glob("*.infer-p*"))) == 2, list(blobs.iterdir()))
good("rm of what broke off", run("rm", "hf:org/two"))
check("nothing of it is left", not blobs.parent.exists(), list(hub.rglob("*")))
fresh()
def small():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
refused("a file that cannot grow", run("pull", "hf:org/large", preexec_fn=small), 1, "File too large")
if os.geteuid() == 0 and shutil.which("mount"):
    (dir / "disk").mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", dir / "disk"], stderr=subprocess.DEVNULL).returncode == 0:
        Hub.sent.clear()
        refused("no room", run("pull", "hf:org/large", env={"HF_HUB_CACHE": str(dir / "disk")}), 1, "GB left", "HF_HUB_CACHE")
        check("known before anything came", not Hub.sent, Hub.sent)
        subprocess.run(["umount", dir / "disk"])

# ---- list, show, rm; models of other programs
fresh()
good("two types", run("pull", "hf:org/many:F16")), good("two types", run("pull", "hf:org/many:Q8_0"))
manifests = dir / "home/.ollama/models/manifests/registry.ollama.ai/library/tiny"
manifests.mkdir(parents=True), (dir / "home/.ollama/models/blobs").mkdir(), (dir / "home/.lmstudio/models/a/b").mkdir(parents=True)
digest = hashlib.sha256(tiny["Q4_0"]).hexdigest()
(dir / f"home/.ollama/models/blobs/sha256-{digest}").write_bytes(tiny["Q4_0"])
(manifests / "latest").write_text(json.dumps({"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:" + digest, "size": len(tiny["Q4_0"])}]}))
(dir / "home/.lmstudio/models/a/b/x.gguf").write_bytes(tiny["Q4_0"])
r = run("list", "--json")
rows = json.loads(r.stdout)
check("list", sorted(m["of"] for m in rows) == ["hf", "hf", "lm-studio", "ollama"] and {"hf:org/many:F16", "hf:org/many:Q8_0"} <= {m["name"] for m in rows}, rows)
for m in rows: good(f"plan of {m['name']}", run("plan", "-m", m["name"]))
check("list for people", "ollama" in run("list").stdout)
odd = [os.fsencode(dir / "home/.lmstudio/models/a/b") + b"/" + n for n in (b"no \xff utf-8.gguf", b"two\nlines.gguf")]
for n in odd: shutil.copy(dir / "Q4_0.gguf", n)
check("odd names are in both lists", len(json.loads(run("list", "--json").stdout)) == 6 and [len(run("list").stdout.splitlines()), "two\\x0alines" in run("list").stdout] == [6, True], (run("list"), run("list", "--json")))
for n in odd: os.remove(n)
check("show", "m-F16.gguf" in run("show", "hf:org/many:F16").stdout)
for part in ("q8_0", "m-Q8_0.gguf", "Q8_0@main", f"Q8_0@{COMMIT}"):
    r = run("show", "hf:org/many:" + part)
    check(f"show {part}", r.returncode == 0 and "m-Q8_0.gguf" in r.stdout and "m-F16.gguf" not in r.stdout, r)
good("a revision, a type behind UD-", run("pull", "hf:org/many:Q4_0@old"))
check("show of both", all("hf:org/many:UD-Q4_0@" + OTHER in run("show", "hf:org/many" + n).stdout for n in (":q4_0", "@old", ":Q4_0@" + OTHER)))
refused("show of another revision", run("show", "hf:org/many:F16@old"), 2, "infer list")
good("rm of a revision", run("rm", "hf:org/many@old"))
refused("show what is not there", run("show", "hf:org/none"), 2, "infer list")
good("rm", run("rm", "hf:org/many:F16"))
left = sorted(p.name for p in (hub / f"models--org--many/snapshots/{COMMIT}").iterdir())
check("the other type and the tower stay", left == ["m-Q8_0.gguf", "mmproj-m-F16.gguf"] and len(list((hub / "models--org--many/blobs").iterdir())) == 2, left)
good("rm of all", run("rm", "hf:org/many"))
check("nothing is left", not (hub / "models--org--many").exists(), list(hub.rglob("*")))
refused("rm what is not there", run("rm", "hf:org/many"), 2, "not in the cache")

server.shutdown()
shutil.rmtree(dir, ignore_errors=True)
done()
