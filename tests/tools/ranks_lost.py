#!/usr/bin/env python3
"""A rank that is killed, or stands still, in any phase: the job ends within 10 s, with exit code 70 and the rank's name on every other rank.
INFER_SLOW: a program with sanitizers has 30 s, and begins later. usage: ranks_lost.py INFER TESTS"""
import http.client, json
from ranks_of import *

MODEL = dir.name + "/model.gguf"
run(infer, "synth", "--shape", "tiny", "--type", "q8_0", "-q", "-o", MODEL)
BENCH = ["bench", "-m", MODEL, "--device", "cpu", "--ctx", 8192, "-q", "-r", 1000, "-t", 1]
PHASES = {"prompt": [*BENCH, "-p", 2048, "-n", 0], "decode": [*BENCH, "-p", 0, "-n", 4000],
          "server": ["serve", "-m", MODEL, "--device", "cpu", "--listen", "127.0.0.1:0", "--log", "off"]}

SLOW = 3 if os.environ.get("INFER_SLOW") else 1

def connections(port):
    """of the listener at a port, established"""
    return sum(int(l.split()[1].split(":")[1], 16) == port and l.split()[3] == "01" for l in open("/proc/net/tcp").readlines()[1:])
def until(name, is_so):
    end = time.monotonic() + 60
    so = is_so()
    while not so and time.monotonic() < end:
        time.sleep(0.01)
        so = is_so()
    check(f"{name}: begins", so)

def lost(name, ranks, victim, how, meeting=False):
    """meeting: the others may still wait for it to come, and then name whoever waits"""
    pid, begin = ranks[victim].p.pid, time.monotonic()
    ranks[victim].p.send_signal(how)
    for i, r in enumerate(ranks):
        if i == victim: continue
        same(f"{name}: exit code of rank {i}", r.end(15 * SLOW), 70)
        if meeting and re.search("does not get ready|not let in|is gone", r.said()): continue
        check(f"{name}: who is gone, by rank {i}", re.search(rf"rank {victim} of {len(ranks)} \(\S+, process {pid}\) is gone", r.said()), r.said())
    took = time.monotonic() - begin
    check(f"{name}: within 10 s", took < 10 * SLOW, took)
    ranks[victim].p.kill()

def one(phase, victim, how):
    name, port = f"{phase}, rank {victim}, {how.name}", free_port()
    ranks = by_hand(3, *PHASES[phase], port=port)
    if phase == "server":
        until(name, lambda: b" at http" in ranks[0].text(ranks[0].err))
    else:
        until(name, lambda: connections(port) == 6) # control, watch and sums of two ranks
        time.sleep(0.7 * SLOW)
    lost(name, ranks, victim, how)

def while_loading(victim, how):
    name, port = f"loading, rank {victim}, {how.name}", free_port()
    ranks = by_hand(3, *PHASES["decode"], port=port)
    until(name, lambda: connections(port) == 6)
    time.sleep(0.2)
    lost(name, ranks, victim, how, meeting=True)

def while_meeting(how):
    """rank 1 is there, rank 2 has not come"""
    name, port = f"meeting, {how.name}", free_port()
    ranks = [Rank(*PHASES["decode"], *place(r, 3, port)) for r in range(2)]
    until(name, lambda: connections(port) == 1)
    time.sleep(0.2)
    begin, pid = time.monotonic(), ranks[1].p.pid
    ranks[1].p.send_signal(how)
    check(f"{name}: exit code", ranks[0].end(15 * SLOW) == 70, ranks[0].said())
    check(name, f"process {pid}) is gone" in ranks[0].said() and time.monotonic() - begin < 10 * SLOW, ranks[0].said())

def under_mpirun(how):
    """mpirun ends the job itself when a rank was killed"""
    err = tempfile.TemporaryFile()
    p = subprocess.Popen([*MPIRUN, "2", infer, *map(str, PHASES["server"])], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err, env=ENV)
    def said(): return so_far(err).decode()
    until("mpirun", lambda: " at http" in said())
    begin = time.monotonic()
    os.kill(max(int(k) for k in open(f"/proc/{p.pid}/task/{p.pid}/children").read().split()), how)
    code = p.wait(30 * SLOW)
    check(f"mpirun, {how.name}", code and time.monotonic() - begin < 10 * SLOW, code)
    if how == signal.SIGSTOP: check("mpirun: exit code and name", code == 70 and "is gone" in said(), said())

def interrupted():
    """rank 0 hears Ctrl-C, as all in a terminal get it; a rank that is alone in one is ended by two"""
    name, port = "Ctrl-C", free_port()
    ranks = by_hand(2, *PHASES["decode"], port=port)
    until(name, lambda: connections(port) == 3)
    time.sleep(0.7 * SLOW)
    ranks[1].p.send_signal(signal.SIGINT)
    time.sleep(1.5)
    same(f"{name}: one is passed over", [r.p.poll() for r in ranks], [None, None])
    for _ in range(2):
        ranks[1].p.send_signal(signal.SIGINT)
        time.sleep(0.2)
    same(f"{name}: two end it", [r.end(15 * SLOW) for r in ranks], [70, 130])
    check(f"{name}: both say so", "is gone" in ranks[0].said() and "infer: interrupted" in ranks[1].said(), [r.said() for r in ranks])

def stopped():
    """SIGTERM to all ranks of a server, as launchers and systemd send it: what runs is answered"""
    ranks, got = by_hand(2, *PHASES["server"], "--drain", 60), []
    until("SIGTERM", lambda: b" at http" in ranks[0].text(ranks[0].err))
    c = http.client.HTTPConnection("127.0.0.1", int(re.search(rb" at http://127.0.0.1:(\d+)", ranks[0].text(ranks[0].err))[1]), timeout=100)
    c.request("POST", "/v1/completions", json.dumps({"prompt": "hello", "max_tokens": 300, "ignore_eos": True, "loop_stop": False, "stream": True}))
    r = c.getresponse()
    r.read(10)
    for rank in ranks: rank.p.send_signal(signal.SIGTERM)
    text = r.read()
    check("SIGTERM: the answer is whole", b'"finish_reason":"length"' in text and b"[DONE]" in text, text[-300:])
    same("SIGTERM: exit codes", [rank.end(60 * SLOW) for rank in ranks], [0, 0])

parts = [lambda p=p, v=v, h=h: one(p, v, h) for p in PHASES for v, h in ((0, signal.SIGKILL), (1, signal.SIGKILL), (2, signal.SIGSTOP))]
parts += [interrupted, stopped, lambda: one("decode", 0, signal.SIGSTOP), lambda: while_loading(1, signal.SIGKILL), lambda: while_loading(2, signal.SIGSTOP), lambda: while_meeting(signal.SIGKILL)]
if MPIRUN: parts += [lambda: under_mpirun(signal.SIGKILL), lambda: under_mpirun(signal.SIGSTOP)]
all_at_once(parts, 6)
done()
