"""What tests of ranks that are processes share: programs with their place, by hand or by variables of a launcher. Standard library only. Programs that
import it are called with INFER TESTS."""
import os, re, shutil, signal, socket, subprocess, sys, tempfile, time
from concurrent.futures import ThreadPoolExecutor

infer, tests = (os.path.realpath(a) for a in sys.argv[1:3])
sys.dont_write_bytecode = True
sys.path.insert(0, tests + "/lib")
from checks import *
dir = tempfile.TemporaryDirectory()
MPIRUN = shutil.which("mpirun") and ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n"]
OURS = re.compile("OMPI_|PMI|SLURM_|RANK$|LOCAL_|WORLD_SIZE|MASTER_|TORCHELASTIC|INFER_|MPI_LOCAL")
# (a library that is not ours leaves memory behind when it is told to end)
ENV = {**{k: v for k, v in os.environ.items() if not OURS.match(k)}, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0",
       "HOME": dir.name, "OMP_WAIT_POLICY": "passive"}

def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s: return s.getsockname()[1]

class Rank:
    def __init__(self, *args, program=infer, env={}):
        self.out, self.err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self.p = subprocess.Popen([program, *map(str, args)], stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.err, env={**ENV, **env})
    def end(self, seconds=60):
        """exit code; None: it does not end"""
        try: return self.p.wait(seconds)
        except subprocess.TimeoutExpired: self.p.kill()
    def text(self, of=None): return so_far(of or self.out)
    def said(self): return self.text(self.err).decode(errors="replace")

def place(rank, world, port): return ["--rank", rank, "--world", world, "--rendezvous", f"127.0.0.1:{port}"]

def by_hand(n, *args, port=None, other=[], env={}):
    """ranks 0 .. n - 1, of which the last has other arguments, too"""
    port = port or free_port()
    return [Rank(*args, *place(r, n, port), *(other if r == n - 1 else []), env=env) for r in range(n)]

def run(*command, env={}): return subprocess.run([str(c) for c in command], stdin=subprocess.DEVNULL, capture_output=True, env={**ENV, **env}, timeout=120)

def all_at_once(parts, at_most=None):
    """at_most: so many beside each other"""
    with ThreadPoolExecutor(at_most or len(parts)) as pool:
        for f in [pool.submit(p) for p in parts]: f.result()
