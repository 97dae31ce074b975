#!/usr/bin/env python3
"""infer monitor, energy and --watts, with an NVML that a test drives and a made-up /sys/class/powercap.
usage: monitor.py INFER TESTS"""
import json, os, pty, subprocess, sys, tempfile, threading, time

infer, tests = os.path.realpath(sys.argv[1]), os.path.realpath(sys.argv[2])
sys.path.insert(0, os.path.join(tests, "lib"))
from checks import check, same, done

library = os.path.join(os.path.dirname(infer), "tests", "fake")
if not os.path.exists(f"{library}/libnvidia-ml.so.1"):
    print("skipped: no fake NVML was built")
    sys.exit(77)
os.chdir(tempfile.mkdtemp())
env = {**os.environ, "LD_LIBRARY_PATH": library, "FAKE_NVML": os.path.abspath("card"), "INFER_SYSFS": os.path.abspath("sys"), "INFER_MODEL": f"{tests}/golden/chat/chat-llama.gguf"}
cool = dict(cards=1, total=100e9, used=50e9, busy=40, memory_busy=30, sm=1500, memory_clock=2600, celsius=60, milliwatts=300000, millijoules=5e6, throttle=0,
            generation=5, lanes=16, sent=1e6, received=2e6, corrected=3, uncorrected=1, pid=4711)

def put(name, text):
    with open(name + ".new", "w") as f: f.write(text)
    os.rename(name + ".new", name)

def card(**changed): put("card", "".join(f"{k} {v:.0f}\n" for k, v in {**cool, **changed}.items() if v is not None))

def zone(number, name, uj, most=262143328850):
    os.makedirs(f"sys/class/powercap/{number}", exist_ok=True)
    for f, x in (("name", name), ("energy_uj", uj), ("max_energy_range_uj", most)): put(f"sys/class/powercap/{number}/{f}", f"{x}\n")

def run(*args, code=0, **more):
    p = subprocess.run([infer, *args], capture_output=True, text=True, timeout=100, env={**env, **more})
    check(f"exit code of {args}", p.returncode == code, (p.returncode, p.stdout, p.stderr))
    return p.stdout, p.stderr

def lines(text): return [json.loads(l) for l in text.splitlines()]

# ---- a sample
card()
os.mkdir("sys")
out, err = run("monitor", "-n", "1")
got, host = lines(out)
same("a card", [got[k] for k in ("device", "name", "celsius", "watts", "busy", "sm_mhz", "pcie_generation", "pcie_lanes", "pcie_sent", "pcie_received", "ecc_corrected", "ecc_uncorrected", "joules")],
     [0, "Fake 9000", 60, 300, .4, 1500, 5, 16, 1e9, 2e9, 3, 1, 5000])
same("its processes", got["processes"], [{"pid": 4711, "memory_used": 1 << 30}])
check("processors", host["device"] == "processors" and host["memory_total"] > host["memory_used"] > 0 and host["watts"] is None, host)
check("no alert", not err and not got["throttled"], err)
check("when, and whole numbers", abs(got["time"] - time.time()) < 60 and type(got["memory_used"]) is int and 0 <= host["busy"] <= 1, (got, host))
card(celsius=None, lanes=None, throttle=None, pid=None)
got = lines(run("monitor", "-n", "1")[0])[0]
check("what a card has not is null", got["celsius"] is None and got["pcie_lanes"] is None and got["processes"] == [], got)

# ---- events: each is told when it begins
for changed, text in (dict(celsius=85), "85 degrees"), (dict(used=91e9), "84.8 of 93.1 GiB"), (dict(throttle=0x20), "held back by heat"), (dict(throttle=0x40), "held back by heat"), (dict(throttle=0x08), "held back by hardware"), (dict(throttle=0x84), "held back by power, power brake"):
    card(**changed)
    out, err = run("monitor", "-n", "3", "--interval", "0.01", "--alert", "echo $INFER_ALERT_EVENT $INFER_ALERT_CARD >>log", code=3)
    check("once an event", err.count(text) == 1 and err.count("\n") == 1, err)
time.sleep(.2)
same("commands", sorted(open("log").read().split("\n")), sorted(["", "heat 0", "memory 0"] + ["throttled 0"] * 4))
for changed in dict(celsius=84), dict(used=89e9), dict(throttle=0x03):
    card(**changed)
    same(f"not by {changed}", run("monitor", "-n", "1")[1], "")
card(celsius=70)
check("another threshold", "70 degrees" in run("monitor", "-n", "1", "--max-celsius", "70", code=3)[1])
card(celsius=90)
p = subprocess.Popen([infer, "monitor", "--interval", "0.02"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
for celsius in 60, 90:
    seen = 0
    while seen < 3: seen += f'"celsius":{90 if celsius == 60 else 60}.0' in p.stdout.readline()
    card(celsius=celsius)
seen = 0
while seen < 3: seen += '"celsius":90.0' in p.stdout.readline()
p.terminate()
same("again when it had ended", p.communicate()[1].count("90 degrees"), 2)
p = subprocess.Popen([infer, "monitor", "--interval", "0.02"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
for celsius, throttle in (84, 0), (85, 0x20), (84, 0), (85, 0x20), (82, 0):
    card(celsius=celsius, throttle=throttle)
    while f'"celsius":{celsius}.0' not in p.stdout.readline(): pass
p.terminate()
err = p.communicate()[1]
check("one event at its threshold", err.count("85 degrees") == 1 and err.count("held back") == 1, err)

# ---- a terminal; no driver
card()
try: master, slave = pty.openpty()
except OSError: master = None
if master is not None:
    def view(*more, code=0, stderr=None):
        master, slave = pty.openpty()
        p = subprocess.Popen([infer, "monitor", "-n", "2", "--interval", "0.05", *more], stdout=slave, stderr=slave if stderr else None, env={**env, "TERM": "xterm"})
        os.close(slave)
        out = b""
        try:
            while part := os.read(master, 65536): out += part
        except OSError: pass
        os.close(master)
        same("its exit code", p.wait(), code)
        return out
    out = view()
    check("a view", out.count(b"\033[H\033[J") == 2 and b"process 4711: 1.00 GiB" in out and b"x16" in out and b"processors " in out, out)
    card(celsius=88)
    out = view("--url", "http://127.0.0.1:1/", code=3, stderr=True)
    last = out.rsplit(b"\033[H\033[J", 1)[1]
    check("what was told stays", b"card 0 is 88 degrees hot" in last and b"serve: not there" in last and b"127.0.0.1:1/metrics" in last and b"infer: card" not in out and b"nan" not in out, out)
    p = subprocess.Popen([infer, "monitor", "--interval", "0.05"], stdout=slave, stderr=subprocess.DEVNULL, env={**env, "TERM": "xterm"})
    os.close(slave), os.read(master, 4096), os.close(master)
    same("the terminal is gone", p.wait(60), 1)
out, err = run("monitor", "-n", "1", code=1, LD_LIBRARY_PATH="/none")
check("no driver", "libnvidia-ml.so.1" in err and err.count("\n") == 1 and lines(out)[0]["device"] == "processors", (out, err))
card(cards=0)
check("no card", "knows no card" in run("monitor", "-n", "1", code=1)[1])
for url in "nonsense", "ftp://x", "http://": check(f"no address: {url}", "must be http://HOST:PORT" in run("monitor", "-n", "1", "--url", url, code=2)[1])

# ---- energy: a counter that goes on by itself
def counting(watts, seconds=1e9, count=False, every=.002):
    """a package's counter and, count, how often it was too hot, until stop() is called"""
    end, begin = threading.Event(), time.monotonic()
    os.makedirs("sys/devices/system/cpu/cpu0/thermal_throttle", exist_ok=True)
    def write():
        t = time.monotonic() - begin
        zone("intel-rapl:0", "package-0", int(1e6 * watts * min(t, seconds)) + 10**9)
        put("sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", f"{int(t / every) if count else 7}\n")
    write()
    def go():
        while not end.wait(every): write()
    t = threading.Thread(target=go)
    t.start()
    def stop(): end.set(), t.join()
    return stop

bench = ["bench", "--device", "cpu", "-t", "1", "-p", "0", "-n", "64", "-r", "2", "--json"]
stop = counting(1000)
zone("intel-rapl:0:0", "core", 0), zone("psys", "psys", 0)
whole = {"INFER_PROBE_MIB": ""} # a run that is long enough for counters to move
r = json.loads(run(*bench, "-n", "200", "-r", "8", **whole)[0])["results"][0]
check("joules a token", 0 < r["joules"] < 1e3 and r["throttled"] == 0 and len(r["rates"]) == 8, r)
stop()
r = json.loads(run(*bench, INFER_SYSFS="/none")[0])["results"][0]
check("not counted, not told", r["joules"] is None and r["throttled"] is None, r)
run(*bench, "--save", "good")
stop = counting(1000, count=True)
out, err = run(*bench, "--save", "hot", code=3, **whole)
check("held back: not kept", "held back in" in err and not os.path.exists("hot"), err)
check("held back: not compared", "nothing is kept or compared" in run(*bench, "--compare", "good", code=3, **whole)[1])
check("held back: said", "held back in" in run(*bench, **whole)[1])
stop()
old = json.load(open("good"))
old["results"][0]["throttled"] = .5
put("hot", json.dumps(old))
check("a base that was held back", "no base to compare with" in run(*bench, "--compare", "hot", code=2)[1])
for key in ("rates", "joules", "celsius", "mhz", "throttled"): del old["results"][0][key]
put("old", json.dumps(old))
p = subprocess.run([infer, *bench, "--compare", "old"], capture_output=True, text=True, env=env)
check("results of earlier versions", p.returncode in (0, 3) and " tok/s, " in p.stderr, p)

# ---- drawings and tables
import xml.etree.ElementTree
p = subprocess.run([infer, *bench, "-d", "0,32", "--plot", "plot.svg", "--compare", "good"], capture_output=True, text=True, env=env)
svg = open("plot.svg").read()
root = xml.etree.ElementTree.fromstring(svg)
check("a drawing", p.returncode in (0, 3) and root.tag.endswith("svg") and svg.count("<circle") == 3 and "tg64 saved" in svg and "positions already" in svg, (p, svg))
run(*bench[:-1], "-t", "2", "--save", "two"), put("wide", json.dumps({**json.load(open("good")), "model": {**json.load(open("good"))["model"], "token_bytes": 10**9}}))
run(*bench, "--plot", "plot.svg", "--plot-with", "two,wide")
svg = open("plot.svg").read()
check("over threads and bits", svg.count("<g ") == 2 and ">threads<" in svg and ">bits of a weight<" in svg and svg.count("<circle") == 6
      and ">tg64, 2 threads<" in svg and ">1<" in svg and ">2<" in svg and xml.etree.ElementTree.fromstring(svg) is not None, svg)
many = json.load(open("good"))
many["results"] = [{**many["results"][0], "test": f"tg{1 + i % 25}@d{i}"} for i in range(300)]
put("many", json.dumps(many))
out, err = run(*bench, "--plot", "plot.svg", "--plot-with", "many")
root = xml.etree.ElementTree.parse("plot.svg").getroot()
names = [(int(g.get("transform").split()[1][:-1]) + int(t.get("y")), int(t.get("x")) + 7 * len(t.text)) for g in root.iter("{http://www.w3.org/2000/svg}g") for t in g if t.get("fill") and t.text]
check("more than a drawing has", "plot.svg: 45 of 301 results are not drawn: 256 is the most" in err and err.count("\n") == 1, err)
check("all names are in the picture", len(names) > 25 and max(y for y, x in names) < int(root.get("height")) and max(x for y, x in names) < int(root.get("width")), (names, root.attrib))
check("without a drawing", "--plot" in run(*bench, "--plot-with", "two", code=2)[1])
check("not over the model", "--plot" in run(*bench, "--ablate", "--plot", "x", code=2)[1])
out, err = run("bench", "--device", "cpu", "-t", "2", "-p", "0", "-n", "4", "-r", "1", "--ablate")
check("a table", [l.split("  ")[0] for l in out.splitlines()[1:]][:3] == ["as asked", "--no-fuse", "--no-repack"] and out.count("%") > 6, out)

# ---- a server: gauges, and the energy of an answer
import re, urllib.request
card(celsius=61, millijoules=7e6)
stop = counting(1000)
with open("serve.log", "w+b") as log:
    p = subprocess.Popen([infer, "serve", "--listen", "127.0.0.1:0", "--device", "cpu", "-t", "2", "--metrics", "--no-page"], stderr=log, env=env)
    while not (found := re.search(rb"at http://127.0.0.1:(\d+)", open("serve.log", "rb").read())) and p.poll() is None: time.sleep(.02)
    url = f"http://127.0.0.1:{int(found[1])}"
    def ask(path, body=None):
        with urllib.request.urlopen(urllib.request.Request(url + path, json.dumps(body).encode() if body else None)) as f: return f.read().decode()
    usage = lambda **more: json.loads(ask("/v1/completions", dict(prompt="hello", max_tokens=100, ignore_eos=True, **more)))["usage"]
    check("asked for", 0 <= usage(include_energy=True)["energy_joules"] < 1e4)
    check("not asked for", "energy_joules" not in usage())
    talk, said = dict(model="m", messages=[dict(role="user", content="hello")], ignore_eos=True), lambda text: [json.loads(l.split("data: ")[-1]) for l in text.splitlines() if "{" in l]
    ways = (("/v1/responses", dict(model="m", input="hello", max_output_tokens=30, ignore_eos=True), lambda a: a.get("response", a)["usage"], -1),
            ("/v1/messages", dict(talk, max_tokens=30), lambda a: a["usage"], -2), ("/api/chat", dict(talk, options=dict(num_predict=30)), lambda a: a, -1))
    for path, body, of, last in ways:
        for stream in False, True:
            answer = lambda **more: of(said(ask(path, dict(body, stream=stream, **more)))[last if stream else 0])
            check(f"{path}, stream {stream}: asked for", 0 <= answer(include_energy=True)["energy_joules"] < 1e4)
            check(f"{path}, stream {stream}: not asked for", "energy_joules" not in answer())
    text = ask("/metrics")
    for line in 'infer_card_temperature_celsius{card="0"} 61', 'infer_card_throttled{card="0"} 0', 'infer_card_ecc_uncorrected_total{card="0"} 1', '# TYPE infer_card_energy_joules_total counter':
        check(line, f"\n{line}\n" in text, text[-3000:])
    energy = re.search(r'infer_energy_joules_total{of="processors"} (\S+)', text)
    check("energy", energy and float(energy[1]) > 0, (energy, os.listdir("sys/class/powercap"), open("sys/class/powercap/intel-rapl:0/energy_uj").read()))
    out, err = run("monitor", "-n", "2", "--interval", "0.1", "--url", url)
    serve = [l for l in lines(out) if l["device"] == "serve"]
    check("its metrics", [l["there"] for l in serve] == [True, True] and serve[0]["answer_tok_s"] is None and serve[1]["answer_tok_s"] == 0 and serve[1]["running"] == 0, serve)
    check("the way", lines(run("monitor", "-n", "1", "--url", url + "/")[0])[2]["there"])
    got = lines(run("monitor", "-n", "1", "--url", url + "/nothing")[0])[2]
    check("why it is not there", not got["there"] and "404" in got["error"] and got["running"] is None, got)
    p.terminate()
    same("the server ends", p.wait(), 0)
stop()

# ---- a pace, where it takes 100 W whatever is done (test_energy has the waiting)
stop = counting(100)
check("more than that anyway", run(*bench, "-n", "200", "-r", "8", "--watts", "40")[1].count("it takes more than that already") == 1)
check("within", "already" not in run(*bench, "--watts", "4000")[1])
stop()
check("not counted: refused", "energy is not counted here" in run("run", "-p", "x", "-n", "1", "--watts", "50", code=2, INFER_SYSFS="/none")[1])
done()
