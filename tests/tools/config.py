#!/usr/bin/env python3
"""What an option is without being named: presets, files, the environment, the command line, each above the one before. usage: config.py INFER TESTS"""
import os, pathlib, re, shutil, subprocess, sys, tempfile
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from checks import check, done, same

infer, tests = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
dir = pathlib.Path(tempfile.mkdtemp())
(dir / "xdg/infer").mkdir(parents=True)
default = dir / "xdg/infer/config.ini"
ENV = {k: v for k, v in os.environ.items() if not k.startswith("INFER_")} | {"XDG_CONFIG_HOME": str(dir / "xdg"), "HOME": str(dir)}

def run(*a, **env):
    return subprocess.run([str(infer), *map(str, a)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=ENV | env, timeout=60, text=True)
def said(*a, **env):
    """what --print-config says that somebody said: {name: (value, by whom)}"""
    r = run(*a, "--print-config", **env)
    check(f"{a} prints", r.returncode == 0, r)
    found = {}
    for line in r.stdout.splitlines():
        m = re.fullmatch(r"([\w-]+) = (.*?)    ; ([\w ]+)", line)
        if m: found.setdefault(m[1], []).append((m[2], m[3]))
    return {k: v[0] if len(v) == 1 else v for k, v in found.items()}
def refused(name, text, *words, command="run", **env):
    file = dir / "bad.ini"
    file.write_text(text)
    r = run(command, "--config", file, "-p", "a", **env)
    check(name, r.returncode == 2 and all(w in r.stderr for w in words) and r.stderr.count("\n") == 1, r)

same("nothing", said("run"), {})
default.write_text("""\
# of all
ctx = 2048
kv_type = Q8_0
stop = a
stop = " b\\n\\"c\\\\"
no-repack = on
metrics = on
[serve] ; of one command
slots = 3
ctx = 1024    ; a comment
[ model *tiny* ]
ctx = 512
temp=0.5
[model other.gguf]
temp = 0.9
[model third]
temp = 0.7
""")
file = {"ctx": ("2048", "file"), "kv-type": ("q8_0", "file"), "no-repack": ("on", "file")}
same("a file", said("run"), file | {"stop": [("a", "file"), ('" b\\n\\"c\\\\"', "file")]})
same("a command's section", said("serve"), file | {"ctx": ("1024", "file"), "slots": ("3", "file"), "metrics": ("on", "file")})
same("a model's section is above it", said("serve", "-m", "/x/tiny.gguf")["ctx"], ("512", "file"))
same("by the whole name", said("run", "-m", "hf:a/tiny:Q4_0")["temp"], ("0.5", "file"))
same("by the file's name", [said("run", "-m", m)["temp"] for m in ("/y/other.gguf", "/y/third.gguf")], [("0.9", "file"), ("0.7", "file")])
same("by $INFER_MODEL", said("run", INFER_MODEL="a/other.gguf")["temp"], ("0.9", "file"))
same("the environment is above", said("run", INFER_CTX="100", INFER_NO_REPACK="off") | {"stop": 0}, {k: v for k, v in file.items() if k != "no-repack"} | {"ctx": ("100", "environment"), "stop": 0})
same("the command line is above all, and takes the place of a list", said("run", "-c", 7, "--stop", "z", INFER_CTX="100") | {"stop": said("run", "--stop", "z")["stop"]},
     file | {"ctx": ("7", "command line"), "stop": ("z", "command line")})
again = dir / "again.ini"
for text, quoted in (('a ; "b"', '"a ; \\"b\\""'), ("a ; b", '"a ; b"')):
    again.write_text(run("run", "--print-config", "--system", text).stdout)
    same("what is printed is read", said("run", "--config", again)["system"], (quoted, "file"))
same("no file", said("run", "--config", "none"), {})
same("no file by the environment", said("run", INFER_CONFIG="none"), {})
same("a preset", said("serve", "--config", "none", "--preset", "latency") | {"preset": 0}, {"batch": ("512", "preset"), "slots": ("4", "preset"), "itl-goal": ("50", "preset"), "preset": 0})
same("a preset of a file is below it", said("serve", INFER_PRESET="long-context")["kv-type"], ("q8_0", "file"))
same("a preset that is named is above it", said("run", "--preset", "low-memory")["ctx"], ("4096", "preset"))
same("a flag is above a preset", said("run", "--preset", "low-memory", "-c", 9)["ctx"], ("9", "command line"))
again = dir / "again.ini"
again.write_text(run("serve", "--print-config").stdout.replace("    ; file", ""))
same("what is printed is a file", said("serve", "--config", again), said("serve"))
same("other commands read none", run("version").returncode, 0)

refused("an unknown name", "ctxx = 1\n", "bad.ini:1:", "'ctxx'", "'ctx'")
refused("a value that is none", "\n\nctx = many\n", "bad.ini:3:", "many")
refused("an unknown section", "[sever]\n", "bad.ini:1:", "[sever]")
refused("no setting", "ctx 5\n", "bad.ini:1:", "NAME = VALUE")
refused("neither on nor off", "no-repack = maybe\n", "bad.ini:1:", "maybe")
refused("a long line", "system = " + "x" * 5000 + "\n", "bad.ini:1:", "bytes")
refused("bytes that are no text", "ctx = 1\0\n", "bad.ini", "no text")
refused("--config in a file", "config = x\n", "bad.ini:1:", "no file says it")
(dir / "mark.ini").write_text("\ufeffctx = 77\r\n", newline="")
same("a file with the mark of UTF-8", said("run", "--config", dir / "mark.ini"), {"ctx": ("77", "file")})
same("a flag as vLLM calls it", {k: v[0] for k, v in said("run", "--config", "none", "--tensor-parallel-size", "3").items()}, {"tp": "3"})
r = run("run", "--config", dir / "none.ini", "-p", "a")
check("no such file", r.returncode == 2 and "none.ini" in r.stderr, r)
r = run("run", "-p", "a", INFER_CTX="x")
check("the environment's mistake", r.returncode == 2 and "INFER_CTX" in r.stderr, r)
r = run("run", "--preset", "fast")
check("no such preset", r.returncode == 2 and "low-memory" in r.stderr, r)
# which model: as any option, and of -m and -hf the one that is said nearer
which = dir / "which.ini"
which.write_text(f"model = {dir}/x-tiny.gguf\n[model *tiny*]\ntemp = 0.5\n[model *other*]\ntemp = 0.9\n")
same("a file's model has its section", said("run", "--config", which), {"model": (f"{dir}/x-tiny.gguf", "file"), "temp": ("0.5", "file")})
same("$INFER_MODEL is above the file", said("run", "--config", which, INFER_MODEL="other.gguf"), {"model": ("other.gguf", "environment"), "temp": ("0.9", "file")})
same("$INFER_HF_REPO, too", said("run", "--config", which, INFER_HF_REPO="a/other:Q4_0"), {"hf-repo": ("a/other:Q4_0", "environment"), "temp": ("0.9", "file")})
which.write_text("hf-repo = a/other\n")
same("-m is above a file's name of the hub", said("run", "--config", which, "-m", "b.gguf"), {"model": ("b.gguf", "command line")})
same("and the name above a file", said("run", "--config", which, "-hf", "c/d", INFER_MODEL="b.gguf"), {"hf-repo": ("c/d", "command line")})
r = run("run", "--config", which, "-m", "b.gguf", "-hf", "c/d", "-p", "a")
check("not both", r.returncode == 2 and "one is the model" in r.stderr, r)
# tune: a section that the next command reads
tiny = dir / "tiny.gguf"
run("synth", "--shape", "tiny", "--type", "q8_0", "-o", tiny)
tuned = dir / "tuned.ini"
tuned.write_text("ctx = 300\n[model tiny*]\ntemp = 0.5\n[serve]\nslots = 3")
tune = ("tune", "-m", tiny, "-o", tuned, "--config", "none", "--device", "cpu", "--seconds", "1")
r = run(*tune)
check("tune", r.returncode == 0 and not r.stderr, r)
check("it says what it measured", all(re.search(p, r.stdout, re.M) for p in (r"^plan +\d+ positions", r"^threads +\d+: [\d.]+ tok/s of an answer", r"^batch +128: \d+ tok/s of a prompt", r"^\[model tiny.gguf\] is in .*tuned.ini")), r.stdout)
text = tuned.read_text()
check("what was there stays", text.startswith("ctx = 300\n[model tiny*]\ntemp = 0.5\n[serve]\nslots = 3\n[model tiny.gguf]\n# infer tune, 20"), text)
got = said("serve", "-m", tiny, "--config", tuned)
check("a server has it", got["slots"] == ("3", "file") and got["kv-type"] == ("f16", "file") and int(got["threads"][0]) >= 1 and int(got["batch"][0]) >= 128, got)
r = run(*tune)
check("once", r.returncode == 2 and "has a section [model tiny.gguf] already: --force replaces it" in r.stderr and r.stderr.count("\n") == 1 and tuned.read_text() == text, r)
tuned.write_text(text + "[model other]\ntemp = 0.1\n")
r = run(*tune, "--force", "--threads", "1", "--batch", "256", "--lookup")
after = tuned.read_text()
check("--force", r.returncode == 0 and after.startswith(text[:text.index("[model tiny.gguf]")]) and after.endswith("threads = 1\nbatch = 256\nlookup = on\n\n[model other]\ntemp = 0.1\n") and after.count("[model tiny.gguf]") == 1, after)
check("what is said is not measured", "tok/s" not in r.stdout, r.stdout)
r = run("tune", "-m", tiny, "-o", "-", "--config", "none", "--device", "cpu", "--threads", "1", "--batch", "128", "--lookup")
check("on stdout", r.returncode == 0 and r.stdout.startswith("[model tiny.gguf]\n# infer tune") and r.stdout.endswith("lookup = on\n") and r.stderr.startswith("plan "), r)
quick = ("--config", "none", "--device", "cpu", "--threads", "1", "--batch", "128", "--lookup")
shutil.copytree(tests / "golden/hf/llama", dir / "a folder")
for name, head in ((" odd ;[name].gguf", "?odd ??name?.gguf"), ("two\nlines.gguf", "two?lines.gguf"), ("a folder/", "a folder")):
    if not name.endswith("/"): shutil.copy(tiny, dir / name)
    named = f"{dir}/{name}"
    r = run("tune", "-m", named, "-o", dir / "odd.ini", *quick)
    check(f"a section for {name!r}", r.returncode == 0 and f"[model {head}]" in (dir / "odd.ini").read_text(), r)
    same(f"and it is read for {name!r}", said("run", "-m", named, "--config", dir / "odd.ini").get("batch"), ("128", "file"))
(dir / "odd.ini").write_text("[ model   tiny.gguf ]\ntemp = 1\n")
r = run("tune", "-m", tiny, "-o", dir / "odd.ini", *quick)
check("a section in other spaces is that one", r.returncode == 2 and "--force" in r.stderr, r)
r = run("tune", "-m", tiny, "--device", "cpu", "--seconds", "1", "--threads", "1", XDG_CONFIG_HOME=str(dir / "none"))
check("no such folder", r.returncode != 0 and r.stderr.count("\n") == 1 and not r.stdout, r)
r = run("verify", tiny, "--record", "-o", "/dev/null", "--device", "cpu", "--config", which, INFER_MODEL="b.gguf")
check("of verify the argument is the model", "one of them is the model" not in r.stderr and "one is the model" not in r.stderr, r)
check("a file and the command line may name two who draft", run("run", "-m", tests / "golden/chat/chat-llama.gguf", "-p", "count", "--draft", tests / "golden/chat/chat-llama.gguf", "-q", "--device", "cpu", "--config", tuned, INFER_LOOKUP="on").returncode == 0)
done()
