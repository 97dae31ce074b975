#!/usr/bin/env python3
"""The dashboard for Grafana: docs/server-operations.md tells every panel of it, and a Prometheus (skipped where there is none: apt-get install prometheus) that
asks a server for its metrics has numbers for every expression. Cards are those of a made-up NVML. usage: serve_dashboard.py INFER TESTS SERVE_FAKE"""
import shutil, threading, urllib.parse, urllib.request
from serve_client import *

root = os.path.dirname(tests)
panels = json.load(open(root + "/serve/http/dist/grafana.json"))["panels"]
told = re.findall(r"^\| ([^|`]+) \| [^|]+ \|$", open(root + "/docs/server-operations.md").read().partition("| panel |")[2], re.M)
same("what docs tell of it", [p["title"] for p in panels], told[1:])
places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in panels]
check("no panel on another", len(set(places)) == len(panels), places)
check("a name for each line", all(t.get("legendFormat") for p in panels for t in p["targets"]), panels)

fake_nvml = os.path.join(os.path.dirname(infer), "tests", "fake")
if not shutil.which("prometheus") or not os.path.exists(fake_nvml + "/libnvidia-ml.so.1"):
    print("no Prometheus here: its part is left out")
    done()
    sys.exit(0)

os.chdir(tempfile.mkdtemp())
open("card", "w").write("".join(f"{k} {v:.0f}\n" for k, v in dict(cards=1, total=1e11, used=5e10, busy=40, memory_busy=30, sm=1500, memory_clock=2600, celsius=60,
     milliwatts=3e5, millijoules=5e6, throttle=0, generation=5, lanes=16, sent=1e6, received=2e6, corrected=3, uncorrected=1).items()))
s = Server("--metrics", env={"LD_LIBRARY_PATH": fake_nvml, "FAKE_NVML": os.path.abspath("card")})
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
open("p.yml", "w").write(f"global: {{scrape_interval: 250ms}}\nscrape_configs:\n - job_name: infer\n   static_configs: [{{targets: ['127.0.0.1:{s.port}']}}]\n")
p = subprocess.Popen(["prometheus", "--config.file=p.yml", "--storage.tsdb.path=db", f"--web.listen-address=127.0.0.1:{port}"], stderr=open("log", "w"))
atexit.register(p.kill)
over = threading.Event()

def load():
    while not over.wait(.02):
        s.ask(TEXT, {"prompt": "hello", "max_tokens": 8, "ignore_eos": True})
        s.ask("/nothing")
t = threading.Thread(target=load)
t.start()

def numbers(expression):
    """what Prometheus has for it, NaN left out"""
    e = expression.replace("$__rate_interval", "5s").replace("$model", ".*")
    try: got = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": e})))
    except OSError: return [] # it starts
    return [r["value"][1] for r in got["data"]["result"] if r["value"][1] != "NaN"]

for panel in panels:
    for target in panel["targets"]:
        for _ in range(600):
            if found := numbers(target["expr"]): break
            time.sleep(.2)
        check(f"{panel['title']}: numbers for {target['expr']}", found)
over.set()
t.join()
p.terminate()
p.wait()
s.stop()
done()
