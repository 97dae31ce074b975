#!/usr/bin/env python3
"""Ranks that are processes with a card each: logits and text have the bits of --tp, by every way there is; a rank that is killed; what is refused. Skipped
without a card, unless INFER_REQUIRE_CUDA=1; what wants two cards says so where there is one. usage: ranks_cards.py INFER TESTS [WAY ..]
WAY: only these of peer, nccl, host, tcp and auto."""
import importlib.util
from ranks_of import *

ONLY = sys.argv[3:] or ["peer", "nccl", "host", "tcp", "auto"]
MODEL = dir.name + "/model.gguf"
def made(shape, kind):
    run(infer, "synth", "--shape", shape, "--type", kind, "-q", "-o", MODEL)

def nccl_folder():
    """of pip's package, or nothing: then it lies where the loader looks"""
    try: spec = importlib.util.find_spec("nvidia.nccl")
    except ImportError: return ""
    return spec.submodule_search_locations[0] + "/lib" if spec else ""
NCCL = {"LD_LIBRARY_PATH": ":".join(p for p in (os.environ.get("LD_LIBRARY_PATH"), nccl_folder()) if p)}

def usable(card):
    r = run(infer, "run", "-m", MODEL, "--raw", "-p", "a", "-n", 1, "--device", f"cuda:{card}", "-q")
    return r.returncode == 0, r.stderr.decode(errors="replace")

def same_bits(name, cards, ways):
    """text and logits of two processes beside those of two threads"""
    text = ["run", "-m", MODEL, "--raw", "-p", "hello there", "-n", 40, "--device", "cuda", "-q", "--devices", cards]
    logits = ["logits", "-m", MODEL, "--tokens", ",".join(str(i % 50 + 1) for i in range(70)), "--all", "--device", "cuda", "--devices", cards]
    want = run(infer, *text, "--tp", 2)
    check(f"{name}: --tp 2", want.returncode == 0 and len(want.stdout) > 12, want)
    run(infer, *logits, "--tp", 2, "-o", f"{dir.name}/want.npy")
    bits = open(f"{dir.name}/want.npy", "rb").read()
    for way in (w for w in ways if w in ONLY):
        ranks = by_hand(2, *text, "--comm", way, env=NCCL)
        check(f"{name} by {way}: exit codes", [r.end(120) for r in ranks] == [0, 0], [r.said() for r in ranks])
        same(f"{name} by {way}: text", ranks[0].text(), want.stdout)
        out = f"{dir.name}/{way}.npy"
        ranks = by_hand(2, *logits, "-o", out, "--comm", way, env=NCCL)
        check(f"{name} by {way}: exit codes of logits", [r.end(120) for r in ranks] == [0, 0], [r.said() for r in ranks])
        check(f"{name} by {way}: logits", os.path.exists(out) and open(out, "rb").read() == bits)

def killed(cards, way):
    args = ["bench", "-m", MODEL, "-p", 0, "-n", 4000, "-r", 1000, "--ctx", 8192, "--device", "cuda", "-q", "--devices", cards, "--comm", way]
    ranks = by_hand(2, *args, env=NCCL)
    time.sleep(8) # decoding by then, as a rule
    check(f"both are there, {way}", [r.p.poll() for r in ranks] == [None, None], [r.said() for r in ranks])
    ranks[1].p.kill()
    since = time.time()
    code = ranks[0].end(20)
    check(f"a rank is killed, {way}", code == 70 and time.time() - since < 10, (code, time.time() - since, ranks[0].said()))
    check(f"it is named, {way}", "rank 1 of 2" in ranks[0].said() and "is gone" in ranks[0].said(), ranks[0].said())

def refused(name, said, *args, env={}):
    ranks = by_hand(2, "run", "-m", MODEL, "--raw", "-p", "a", "-n", 1, "--device", "cuda", "-q", *args, env=env)
    codes = [r.end(120) for r in ranks]
    check(name, codes[0] not in (0, 70, None) and said in ranks[0].said(), (codes, [r.said() for r in ranks]))

made("tiny", "q8_0")
there, why = usable(0)
if not there:
    print("skipped:", why.strip()[-300:])
    sys.exit(1 if os.environ.get("INFER_REQUIRE_CUDA") == "1" else 77)
two = usable(1)[0]
if not two: print("one card: what two processes say to each other by peer and nccl is not looked at")
for shape, kind in ("tiny", "q8_0"), ("tiny-moe", "q4_k"), ("tiny-delta-128", "q8_0"):
    made(shape, kind)
    same_bits(f"{shape} {kind} on one card", "0,0", ["host", "tcp", "auto"])
    if two: same_bits(f"{shape} {kind} on two cards", "0,1", ["peer", "nccl", "host", "auto"])
made("tiny", "q8_0")
refused("peer on one card", "two ranks have one card", "--devices", "0,0", "--comm", "peer")
refused("nccl on one card", "two have one card", "--devices", "0,0", "--comm", "nccl")
if "host" in ONLY: killed("0,0", "host")
if two:
    for way in (w for w in ("peer", "nccl") if w in ONLY): killed("0,1", way)
    nowhere = {"LD_LIBRARY_PATH": "/nowhere"}
    if subprocess.run([sys.executable, "-c", "import ctypes; ctypes.CDLL('libnccl.so.2')"], env={**ENV, **nowhere}, stderr=subprocess.DEVNULL).returncode:
        refused("without NCCL", "libnccl2", "--devices", "0,1", "--comm", "nccl", env=nowhere)
    else: print("NCCL is where the loader looks: not looked at without")
done()
