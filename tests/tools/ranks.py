#!/usr/bin/env python3
"""Ranks that are processes, as users start them: mpirun and by hand, the variables of launchers, what is refused. Text and logits have the bits of
--tp. usage: ranks.py INFER TESTS"""
from ranks_of import *

MODEL = dir.name + "/model.gguf"
run(infer, "synth", "--shape", "tiny", "--type", "q8_0", "-q", "-o", MODEL)
RUN = ["run", "-m", MODEL, "--raw", "-p", "hello there", "-n", 12, "--device", "cpu", "-q"]

def shown(text):
    """as a terminal has it, which mpirun gives rank 0"""
    return re.sub(rb"[^ -~\n]", lambda m: b"\\x%02x" % m[0][0], text) + b"\n"

def text_and_logits():
    tp = {n: run(infer, *RUN, "--tp", n).stdout for n in (2, 4)}
    check("an answer", len(tp[2]) > 12, tp)
    logits = ["logits", "-m", MODEL, "--tokens", "1,2,3,4,5,6,7", "--all", "--device", "cpu"]
    of = {}
    for n in 2, 4:
        run(infer, *logits, "--tp", n, "-o", f"{dir.name}/{n}.npy")
        of[n] = open(f"{dir.name}/{n}.npy", "rb").read()
        ranks = by_hand(n, *RUN)
        same(f"{n} ranks by hand: exit codes", [r.end() for r in ranks], [0] * n)
        same(f"{n} ranks by hand: text", ranks[0].text(), tp[n])
        same("only rank 0 prints", [r.text() for r in ranks[1:]], [b""] * (n - 1))
    out = f"{dir.name}/hand.npy"
    same("logits by hand", [r.end() for r in by_hand(2, *logits, "-o", out)], [0, 0])
    same("logits", open(out, "rb").read() == of[2], True)
    # types of the cache by layer, also those that were measured
    types = ["--kv-type", "q8_0/q4_0,1:f16/f8"]
    want = run(infer, *RUN, *types, "--tp", 2).stdout
    ranks = by_hand(2, *RUN, *types)
    same("mixed types: exit codes", [r.end() for r in ranks], [0, 0])
    same("mixed types: text", ranks[0].text(), want)
    # adapters: each process adds what is of its share
    lora, other = f"{dir.name}/lora.gguf", f"{dir.name}/other.gguf"
    run(infer, "synth", "--adapter-of", MODEL, "-o", lora, "-q")
    run(infer, "synth", "--adapter-of", MODEL, "--lora-rank", 3, "--seed", 5, "-o", other, "-q")
    adapted = run(infer, *RUN, "--lora", lora + ":30", "--tp", 2).stdout
    check("an adapter changes the text", len(adapted) > 12 and adapted != tp[2], adapted)
    ranks = by_hand(2, *RUN, "--lora", lora + ":30")
    same("adapters: exit codes", [r.end() for r in ranks], [0, 0])
    same("adapters: text", ranks[0].text(), adapted)
    ranks = [Rank(*RUN, "--lora", a, *place(r, 2, port)) for port in [free_port()] for r, a in enumerate([lora, other])]
    same("other adapters: exit codes", [r.end() for r in ranks][0], 2)
    check("other adapters: said", re.search(r"another adapter: .*other.gguf \(hash [0-9a-f]{16}\), rank 0 has [0-9a-f]{16}", ranks[0].said()), ranks[0].said())
    if not MPIRUN: return print("no mpirun: without it")
    for n in 2, 4:
        r = run(*MPIRUN, n, infer, *RUN)
        check(f"mpirun -n {n}", (r.returncode, r.stdout) == (0, shown(tp[n])), r)
    r = run(*MPIRUN, 2, infer, *RUN, "--comm", "tcp")
    check("mpirun, sums by tcp", (r.returncode, r.stdout) == (0, shown(tp[2])), r)
    r = run(*MPIRUN, 2, infer, *logits, "-o", f"{dir.name}/mpi.npy")
    check("logits by mpi", r.returncode == 0 and open(f"{dir.name}/mpi.npy", "rb").read() == of[2], r)
    r = run(*MPIRUN, 2, infer, *RUN, "--world", 1)
    alone = run(infer, *RUN).stdout
    same("replicas under mpirun", sorted(r.stdout), sorted(2 * shown(alone)))

def launchers():
    want, port = run(infer, *RUN, "--tp", 2).stdout, free_port()
    job = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NODELIST": "n[07-08]"}
    torch = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "somewhere", "MASTER_PORT": str(port)}
    hydra = {"PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"}
    for name, env, rank in ("srun", job, "SLURM_PROCID"), ("torchrun", torch, "RANK"), ("hydra", hydra, "PMI_RANK"):
        ranks = [Rank(*RUN, env={**env, rank: str(i)}) for i in range(2)]
        same(f"{name}: exit codes", [r.end() for r in ranks], [0, 0])
        same(f"{name}: text", ranks[0].text(), want)
    alone = run(infer, *RUN)
    for name, env in ("a batch script", {k: v for k, v in job.items() if k != "SLURM_STEP_ID"}), ("no MASTER_PORT", {**torch, "MASTER_PORT": "", "RANK": "0"}):
        r = run(infer, *RUN, env={**env, "SLURM_PROCID": "0"})
        same(f"{name}: alone", (r.returncode, r.stdout), (0, alone.stdout))
    r = run(infer, *RUN, "--world", 1, env={**job, "SLURM_PROCID": "1"})
    same("--world 1: alone", (r.returncode, r.stdout), (0, alone.stdout))
    r = run(infer, *RUN, env={**job, "SLURM_PROCID": "0", "SLURM_STEP_NUM_NODES": "2"})
    check("several machines want a secret", r.returncode == 2 and b"INFER_RANK_SECRET" in r.stderr and b"n07:2" in r.stderr, r)
    r = run(infer, *RUN, env={"PMI_SIZE": "4", "PMI_RANK": "1"})
    check("mpiexec on several machines", r.returncode == 2 and b"--rendezvous" in r.stderr, r)
    for args, said in (["--rank", 1], b"go together"), (["--rank", 2, "--world", 2, "--rendezvous", "x:1"], b"--rank 2: ranks of --world 2 are 0 to 1"), \
            (place(0, 2, "x"), b"not HOST:PORT"), (["--rendezvous", "x:1"], b"no launcher"):
        r = run(infer, *RUN, *args)
        check(f"{args}", r.returncode == 2 and said in r.stderr, r)

def refused(name, ranks, codes, *said):
    same(f"{name}: exit codes", [r.end() for r in ranks], codes)
    for s in said: check(name, all(s in r.said() for r in ranks), f"{s!r}: {[r.said() for r in ranks]}")

def refusals():
    other = dir.name + "/other.gguf"
    run(infer, "synth", "--shape", "tiny", "--type", "q8_0", "--seed", 2, "-q", "-o", other)
    refused("another option", by_hand(2, *RUN, other=["--ctx", 77]), [2, 2], "has --ctx 77, rank 0 has --ctx 0")
    ranks = by_hand(2, *RUN, "--comm", "nccl")
    refused("nccl of processors", ranks[:1], [2], "by nccl are cards; no card is used")
    ranks[1].end()
    ranks = by_hand(2, *RUN, other=["-m", other])
    refused("another file", ranks, [2, 0])
    check("both files", all(f in ranks[0].said() for f in (MODEL + " (", other + " (")), ranks[0].said())
    port = free_port()
    copy = shutil.copy(infer, dir.name + "/copy")
    with open(copy, "ab") as f: f.write(b"x")
    ranks = [Rank(*RUN, *place(0, 2, port)), Rank(*RUN, *place(1, 2, port), program=copy)]
    refused("another program", ranks, [2, 2], "has the build 0.1.0", "rank 0 has 0.1.0")
    check("both hashes", len(set(re.findall("program ([0-9a-f]{12})", ranks[0].said()))) == 2, ranks[0].said())
    ranks = by_hand(2, *RUN, other=["-m", dir.name + "/none.gguf"])
    refused("no file", ranks, [2, 2], "none.gguf: No such file")
    port, own, another = free_port(), dir.name + "/own", dir.name + "/another"
    open(own, "w").write("abc\n"), open(another, "w").write("abd")
    ranks = [Rank(*RUN, *place(0, 2, port), "--rank-secret-file", own)]
    ranks += [Rank(*RUN, *place(1, 2, port), "--rank-secret-file", another)]
    same("another secret", ranks[1].end(), 2)
    check("another secret", "rank 1: rank 0 at 127.0.0.1" in ranks[1].said() and "another secret" in ranks[1].said(), ranks[1].said())
    time.sleep(0.1)
    with socket.create_connection(("127.0.0.1", port)) as s: s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + bytes(200))
    ranks[1] = Rank(*RUN, *place(1, 2, port), env={"INFER_RANK_SECRET": "abc"}) # those two did not take its place
    same("the right one", [r.end() for r in ranks], [0, 0])
    check("both are named", ranks[0].said().count("somebody at 127.0.0.1 is not let in") == 2, ranks[0].said())
    if MPIRUN:
        r = run(infer, *RUN, "--comm", "mpi", *place(0, 2, port))
        check("mpi without mpirun", r.returncode == 2 and b"MPI says rank 0 of 1" in r.stderr, r)

all_at_once([text_and_logits, launchers, refusals])
done()
