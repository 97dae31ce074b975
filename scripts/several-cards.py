#!/usr/bin/env python3
"""Prints the tables of docs/several-cards.md: what ranks on several cards would say to each other, and how fast they would be. Nothing here
is measured but engine/plan/measured.def and ONE_CARD_PROMPT; every other figure follows from these, the shapes and what links are taken to do
(engine/plan/links_between.def).

A step is the bytes of the slowest rank at the card's read rate, what a layer takes beside its bytes (as measured on one card, the same for
any width), and a reduce behind each half of a layer. --check: ends with 1 if a table of the page is not one of these."""
import contextlib, io, math, re, sys
from dataclasses import dataclass

READ = 4540e9                      # bytes a second of an H200 (engine/plan/card.def)
ROOM = 0.9 * 143771 * 2**20        # of its memory
CHUNK = 2048                       # prompt rows of a step


@dataclass
class Link:
    rate: float                    # bytes a second and direction that are reached
    own: float                     # one exchange by a kernel of our own, seconds


def rows(table):
    """(macro, arguments) of each line of a table of engine/plan"""
    for line in open(__file__.rsplit("/", 2)[0] + "/engine/plan/" + table, encoding="utf-8"):
        if m := re.match(r"([A-Z]+)\((.*?)\)", line): yield m[1], [x.strip(' "') for x in m[2].split(",")]


between = list(rows("links_between.def"))
LINKS = {r[1]: Link(float(r[2]) * 1e9, float(r[3]) * 1e-6) for kind, r in between if kind == "LINK"}
NVLINK = LINKS["NVLink"]
PCIE = {name: LINKS[name] for name in ("PCIe 5", "PCIe 4")}
NET = {name: LINKS[name] for name in ("400 Gbit/s", "100 Gbit/s")}
NCCL = {int(r[0]): float(r[1]) * 1e-6 for kind, r in between if kind == "NCCL"}
HANDOVER = next(float(r[0]) * 1e-6 for kind, r in between if kind == "HANDOVER")

measured = {}                      # (model, card): GB, tok/s
for kind, r in rows("measured.def"):
    if kind == "MEASURED" and r[0] == "CARD": measured[r[2], r[3]] = float(r[5]) * 1e9, float(r[8])


def beside(model, layers):
    """seconds of a layer beside its bytes"""
    size, rate = measured[model, "H200"]
    return (1 / rate - size / READ) / layers


HEAD_8B, BODY_8B = 128256 * 4096, 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
Q6_K = 210 / 256
F8 = measured["8B F8_128", "H200"][0] / (HEAD_8B + BODY_8B)
TYPES = {  # bytes a weight of layers and of the head, columns of a block
    "F16": (2, 2, 1),
    "Q4_K_M": ((measured["8B Q4_K_M", "H200"][0] - HEAD_8B * Q6_K) / BODY_8B, Q6_K, 256),
    "FP8": (F8, F8, 128),
}


@dataclass
class Model:
    name: str
    type: str
    layers: int
    embd: int
    vocab: int
    heads: int
    kv: int                        # key heads; 0: latents
    dim: int
    ff: int                        # of a dense layer, or of an expert
    beside: float
    prompt: float                  # tok/s of one card
    experts: int = 0
    used: int = 0
    shared: int = 0
    dense: tuple = (0, 0)          # layers without experts, their width
    latent: tuple = ()             # ranks of queries and of keys; rotated, key and value of a head

    def attention(self, n):
        """weights of a layer's attention: all, of the slowest rank"""
        d, h, block = self.embd, self.heads, TYPES[self.type][2]
        if self.latent:
            q, r, rot, key, value = self.latent
            whole, cut = d * (q + r + rot), h * (q * (key + rot) + r * (key + value) + value * d)
            return whole + cut, whole + cut * largest(h, n)
        each, unit = h // self.kv, 1
        while unit * each * self.dim % block: unit += 1
        q, k = 2 * d * h * self.dim, 2 * d * self.kv * self.dim
        if self.kv / unit >= n: return q + k, (q + k) * largest(self.kv // unit, n)
        queries = max(1, block // self.dim)
        ranks = n // self.kv
        if each // queries < ranks: return q + k, q + k
        return q + k, q * largest(each // queries, ranks) / self.kv + k / self.kv

    def parts(self, n, by_expert=False, many=False):
        """weights that a token reads and that a card holds, of layers, of the slowest of n ranks; many: of many rows whole experts are divided evenly"""
        block, wide = TYPES[self.type][2], 3 * self.embd
        attn, n_dense = self.attention(n)[1] * self.layers, self.dense[0]
        if not self.experts: return [attn + self.layers * wide * self.ff * largest(self.ff // block, n)] * 2
        dense = n_dense * wide * self.dense[1] * largest(max(1, self.dense[1] // block), n)
        share = 1 if n == 1 else largest(self.ff // block, n)
        by_expert |= self.ff // block < n
        few, all_ = self.used * share, self.experts * share
        if by_expert: few, all_ = self.used / n if many else most_used(self.experts, self.used, n), self.experts / n
        few, all_ = few + self.shared * share, all_ + self.shared * share  # of a shared part that cannot be cut rank 0 has all
        return [attn + dense + (self.layers - n_dense) * (wide * self.ff * e + 2 * self.embd * self.experts) for e in (few, all_)]

    def held(self, n, stages=1, by_expert=False):
        body, head, _ = TYPES[self.type]
        return self.parts(n, by_expert)[1] * body / stages + self.vocab * self.embd * (head / n + body)

    def bytes(self, n, by_expert=False):
        body, head, _ = TYPES[self.type]
        return self.parts(n, by_expert)[0] * body + self.vocab * self.embd * head / n


def largest(units, n):
    """of so many units, the share of the rank that has most; 1: too few, every rank has all"""
    return math.ceil(units / n) / units if units >= n else 1


def most_used(experts, used, n):
    """experts that the busiest of n cards computes, of `used` drawn evenly: the mean"""
    each, mean, below = experts // n, 0, 0
    for most in range(used + 1):
        ways = [1]
        for _ in range(n):
            ways = [sum(ways[i - j] * math.comb(each, j) for j in range(min(most, i) + 1) if i - j < len(ways)) for i in range(used + 1)]
        p = ways[used] / math.comb(experts, used)
        mean, below = mean + most * (p - below), p
    return mean


DENSE_Q4, DENSE_F16 = beside("8B Q4_K_M", 32), beside("8B F16", 32)
EXPERTS, LATENT = beside("Qwen3-30B-A3B Q4_K_M", 8), beside("GLM-4.7-Flash Q4_K_M", 8)
ONE_CARD_PROMPT = {"8B F16": 36700, "8B Q4_K_M": 35600, "70B Q4_K_M": 3990, "30B-A3B": 268800 * 8 / 48}
# bench/results/cuda-decode.csv, moe.csv (8 layers)
PER_WEIGHT = ONE_CARD_PROMPT["30B-A3B"] * 48 * (2 * 2048 * 4096 + 2 * 2048 * 512 + 8 * 3 * 2048 * 768)  # of a mixture, weights a second
L8 = dict(layers=32, embd=4096, vocab=128256, heads=32, kv=8, dim=128, ff=14336)
L70 = dict(layers=80, embd=8192, vocab=128256, heads=64, kv=8, dim=128, ff=28672)
MODELS = [
    Model("8B", "F16", **L8, beside=DENSE_F16, prompt=ONE_CARD_PROMPT["8B F16"]),
    Model("8B", "Q4_K_M", **L8, beside=DENSE_Q4, prompt=ONE_CARD_PROMPT["8B Q4_K_M"]),
    Model("70B", "F16", **L70, beside=DENSE_F16, prompt=ONE_CARD_PROMPT["70B Q4_K_M"] * 367 / 356),
    Model("70B", "Q4_K_M", **L70, beside=DENSE_Q4, prompt=ONE_CARD_PROMPT["70B Q4_K_M"]),
    Model("Qwen3-235B-A22B", "Q4_K_M", 94, 4096, 151936, 64, 4, 128, 1536, EXPERTS, 0, experts=128, used=8),
    Model("DeepSeek-V3", "FP8", 61, 7168, 129280, 128, 0, 0, 2048, LATENT, 0, experts=256, used=8, shared=1, dense=(3, 18432),
          latent=(1536, 512, 64, 128, 128)),
]
for m in MODELS: m.prompt = m.prompt or PER_WEIGHT / m.parts(1)[0]


# ---- collectives ------------------------------------------------------------------------------------------------

def one_shot(link, n, size): return link.own + (n - 1) * size / link.rate
def ring(link, n, size): return 2 * (n - 1) * link.own + 2 * (n - 1) / n * size / link.rate
def two_shot(link, n, size): return 2 * link.own + 2 * (n - 1) / n * size / link.rate
def gather(link, n, size): return link.own + (n - 1) / n * size / link.rate
def best(link, n, size): return min(one_shot(link, n, size), two_shot(link, n, size))


@dataclass
class Way:
    """ranks, and what of so many bytes takes so long: a sum of all, parts of all to all"""
    n: int
    reduce: object
    gather: object


def cards(link, how=best): return [Way(n, lambda s, n=n: how(link, n, s), lambda s, n=n: gather(link, n, s)) for n in (2, 4, 8)]
def by_nccl(n):
    def of(passes): return lambda s: NCCL[n] + passes * (n - 1) / n * s / NVLINK.rate
    return Way(n, of(2), of(1))
def machines(net, m):
    """two machines of m cards with NVLink and one network card each: sums inside, across, then to all inside"""
    def across(s): return net.own + s / net.rate
    def reduce(s): return across(s) + (two_shot(NVLINK, m, s) if m > 1 else 0)
    return Way(2 * m, reduce, lambda s: across(s / 2) + (NVLINK.own + s / NVLINK.rate if m > 1 else 0))


def step(m, way, by_expert=False):
    reduces = m.layers * 2 * (way.reduce(m.embd * 4) + HANDOVER) + way.gather(m.vocab * 4) if way.n > 1 else 0
    return m.bytes(way.n, by_expert) / READ + m.layers * m.beside + reduces
def prompt(m, way):
    return CHUNK / (CHUNK / m.prompt * m.parts(way.n, many=True)[0] / m.parts(1)[0] + 2 * m.layers * way.reduce(CHUNK * m.embd * 4))


# ---- tables -----------------------------------------------------------------------------------------------------

ONE = Way(1, None, None)
def short(x): return f"{x:,.0f}" if x >= 100 else f"{x:.1f}"
def table(head, rows):
    print("| " + " | ".join(head) + " |\n|" + " --- |" * len(head))
    for r in rows: print("| " + " | ".join(r) + " |")
    print()
def speeds(m, ways, by_expert=False):
    """"-": the weights do not fit"""
    return " / ".join(short(1 / step(m, w, by_expert)) if m.held(w.n, 1, by_expert) <= ROOM else "-" for w in ways)
def called(m): return f"{m.name} {m.type}"


def collectives():
    size, rows, logits = 8192 * 4, [], 128256 * 4
    for name, link in [("NVLink", NVLINK), *PCIE.items()]:
        for n in (2, 4, 8):
            three = [" / ".join(short(f(link, n, size * r) * 1e6) for f in (one_shot, two_shot, ring)) for r in (1, 32, CHUNK)]
            rows.append([f"{name}, {n} cards", *three, short(gather(link, n, logits) * 1e6)])
    for name, net in NET.items():
        for m in (1, 8):
            w = machines(net, m)
            rows.append([f"{name}, 2 x {m} cards"] + [short(w.reduce(size * r) * 1e6) for r in (1, 32, CHUNK)] + [short(w.gather(logits) * 1e6)])
    table(["link", "reduce, 1 row, 32 KiB", "32 rows, 1 MiB", f"{CHUNK:,} rows, 64 MiB", "gather, 1 row, 501 KiB"], rows)


def sizes():
    table(["model", "GB a token reads", "of it the slowest of 2 / 4 / 8", "GB on each of 1 / 2 / 4 / 8", "reduces a token", "KiB of one"],
          [[called(m), short(m.bytes(1) / 1e9), " / ".join(f"{m.bytes(n) / m.bytes(1):.1%}" for n in (2, 4, 8)),
            " / ".join(short(m.held(n) / 1e9) for n in (1, 2, 4, 8)), str(2 * m.layers), f"{m.embd * 4 // 1024}"] for m in MODELS])


def decode():
    rows = []
    links = [cards(NVLINK), [by_nccl(n) for n in (2, 4, 8)], *[cards(link) for link in PCIE.values()]]
    for m in MODELS:
        one = measured.get((called(m), "H200"), (0, 94.3))[1]
        rows.append([called(m), f"**{one:.0f}**" if called(m) in ONE_CARD_PROMPT else speeds(m, [ONE]), *[speeds(m, ways) for ways in links]])
        if m.experts: rows.append(["expert parallel", "", *[speeds(m, ways, True) for ways in links]])
    table(["one row, tok/s", "1 card", "NVLink, 2 / 4 / 8", "the same by NCCL", "PCIe 5, 2 / 4 / 8", "PCIe 4, 2 / 4 / 8"], rows)


def reduce_costs():
    costs = (1, 2, 3, 4.5, 10, 20)
    def way(n, us): return Way(n, lambda s: us * 1e-6 - HANDOVER, lambda s: us * 1e-6)
    table(["us a reduce with its hand-over", *[f"{us:g}" for us in costs]],
          [[f"{called(m)}, 2 / 4 / 8"] + [" / ".join(short(1 / step(m, way(n, us))) for n in (2, 4, 8)) for us in costs]
           for m in (MODELS[1], MODELS[3])])


def two_machines():
    rows, slow = [], NET["100 Gbit/s"]
    for m in MODELS:
        def stages(w): return short(1 / (step(m, w) + slow.own + m.embd * 4 / slow.rate)) if m.held(w.n, 2) <= ROOM else "-"
        rows.append([called(m), *[speeds(m, [machines(net, k) for k in (1, 4, 8)]) for net in NET.values()],
                     " / ".join(stages(w) for w in [ONE, *cards(NVLINK)[1:]])])
    table(["one row, tok/s, 2 x 1 / 2 x 4 / 2 x 8", *[f"tensor parallel, {n}" for n in NET], "two stages, 100 Gbit/s"], rows)


def prompts():
    rows = []
    def fit(m, w): return short(prompt(m, w) / 1000) if m.held(w.n) <= ROOM else "-"
    nothing = Way(1, lambda s: 0, None)
    for m in MODELS:
        one = f"**{m.prompt / 1000:.1f}**" if called(m) in ONE_CARD_PROMPT else fit(m, nothing)
        rows.append([called(m), one] + [" / ".join(fit(m, w) for w in cards(link, two_shot)) for link in (NVLINK, *PCIE.values())]
                    + [" / ".join(fit(m, machines(NET["400 Gbit/s"], k)) for k in (1, 4, 8))])
    table(["thousand tok/s", "1 card", "NVLink, 2 / 4 / 8", "PCIe 5, 2 / 4 / 8", "PCIe 4, 2 / 4 / 8", "400 Gbit/s, 2 x 1 / 2 x 4 / 2 x 8"], rows)


def everything():
    print(f"us a layer beside its bytes: F16 {DENSE_F16 * 1e6:.1f} (1B {beside('1B F16', 16) * 1e6:.1f}), "
          f"Q4_K_M {DENSE_Q4 * 1e6:.1f} (1B {beside('1B Q4_K_M', 16) * 1e6:.1f}), experts {EXPERTS * 1e6:.1f}, experts and latents "
          f"{LATENT * 1e6:.1f}; 70B Q4_K_M on one card so {1 / step(MODELS[3], ONE):.1f} tok/s, measured 94.3\n")
    for part in (collectives, sizes, decode, reduce_costs, two_machines, prompts): part()


def check():
    """tables that the page has not as they are printed: the first line of each"""
    with contextlib.redirect_stdout(io.StringIO()) as out: everything()
    page = open(__file__.rsplit("/", 2)[0] + "/docs/several-cards.md", encoding="utf-8").read()
    tables = [t for t in out.getvalue().split("\n\n") if t.startswith("|")]
    return [t.split("\n")[0] for t in tables if t.strip() + "\n\n" not in page + "\n"]


if sys.argv[1:] == ["--check"]:
    for head in check(): print(f"docs/several-cards.md: another table than scripts/several-cards.py prints: {head}")
    sys.exit(bool(check()))
everything()
