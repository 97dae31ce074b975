"""A tiny random Hugging Face model as a folder, and the logits that transformers computes with it."""
import inspect
import pathlib
import shutil
import warnings
import zlib

import numpy as np
import torch
import transformers

from . import draft, old

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

HF = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "hf"

# Experts whose stacks are [expert][input][output]; all others are [expert][output][input].
TRANSPOSED = ("GptOssExperts", "Llama4TextExperts")
# Biases of a router's choice, float32 in published folders.
CHOICE = ("e_score_correction_bias", "expert_bias")


# ---- weights -----------------------------------------------------------------------------------------------------
def draw_vector(name, p, zero_centred):
    """Norms around their neutral value, everything else of one dimension where leaving it out shows."""
    noise = torch.randn_like(p)
    if name.endswith("layer_scalar"):
        return 0.8 + 0.1 * noise
    if name.endswith(("router.scale", "per_expert_scale")):
        return 1 + 0.3 * noise
    if name.endswith(CHOICE):
        return 0.15 * noise
    if name.endswith("A_log"):  # from a memory of some 50 positions to none
        return 5 * torch.rand_like(p) - 4
    if name.endswith("sinks"):
        return noise
    if name.endswith(("_hc.scale", "hc_scale")):  # of what mixes streams
        return 1 + 0.3 * noise
    if name.endswith(("alpha_p", "alpha_n")):
        return 0.5 * noise
    if name.endswith("weight"):
        return (0 if zero_centred and not name.endswith("linear_attn.norm.weight") else 1) + 0.25 * noise
    return 0.5 * noise


def fan_in(module, name, p):
    if p.ndim == 3:
        return p.shape[1 if type(module).__name__ in TRANSPOSED else 2]
    return p.shape[0 if type(module).__name__ == "Conv1D" else 1]


def fill(model, zero_centred=False):
    """Draws every parameter and every stored buffer, each a value that BF16 holds exactly."""
    tied = getattr(model.config.get_text_config(), "tie_word_embeddings", False)
    stored = set(model.state_dict())
    for prefix, module in model.named_modules():
        own = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
        for short, p in own:
            name = f"{prefix}.{short}" if prefix else short
            if name not in stored or short in ("beta", "eps"):
                continue
            if short == "tid2eid":  # experts of ids
                p.copy_(torch.stack([torch.randperm(module.num_experts)[: module.top_k] for _ in p]))
                continue
            if not p.is_floating_point():  # what n-grams are hashed with
                continue
            if p.ndim <= 1 or short in CHOICE or short == "A_log":
                new = draw_vector(name, p, zero_centred)
            elif short.endswith("_bias"):  # of experts, one a row
                new = 0.5 * torch.randn_like(p)
            elif isinstance(module, torch.nn.Embedding):
                new = torch.randn_like(p) * (1.5 / p.shape[1] ** 0.5 if tied else 1)
            else:
                router = ".router." in name or name.endswith((".gate.weight", ".gate.wg.weight"))
                new = torch.randn_like(p) * (3 if router else 1.5) / fan_in(module, name, p) ** 0.5
                if name.endswith("router.proj.weight"):  # its input is divided by the root of its width
                    new *= p.shape[1] ** 0.5
            if name.endswith("self_attn.q_norm.weight") and model.config.get_text_config().model_type in ("gemma4_text", "gemma3n_text"):
                new *= 0.35  # scores have no other scale: with weights around 1 a softmax takes one position alone
            p.copy_(new.bfloat16().float())


# ---- routers -----------------------------------------------------------------------------------------------------
class Choices:
    """While it is on, the smallest difference between what a top-k takes and what it leaves, for each row."""

    def __enter__(self):
        self.gaps, self.topk, self.method = [], torch.topk, torch.Tensor.topk

        def topk(x, k, dim=-1, **more):
            if x.ndim == 1 and k == x.shape[0]:
                self.gaps.append(torch.tensor(1.0).double())
            if k < x.shape[-1]:
                best = self.topk(x.detach(), k + 1, dim=-1).values
                gap = (best[..., k - 1] - best[..., k]).double()
                gap[~torch.isfinite(gap) | (best[..., k] < -1e30)] = 1.0  # what is left is masked
                self.gaps.append(gap.movedim(1, -1) if gap.ndim == 3 else gap)  # [batch][head][row]
            return self.topk(x, k, dim=dim, **more)

        def near(scores, jitter_eps, training, top_k=2):
            s, order = self.topk(scores.detach(), 3, dim=-1)
            for j in range(2):  # the choice, and who is near it
                m = s[..., j : j + 1]
                left = scores.detach().masked_fill(scores >= m, float("inf"))
                edge = ((m - left) / left.abs().clamp(min=m) - 2 * jitter_eps).abs()
                edge[~torch.isfinite(edge)] = 1.0
                self.gaps.append(torch.minimum(s[..., j] - s[..., j + 1], edge.amin(-1)).double())
            return self.sparsemixer(scores, jitter_eps, training, top_k)

        indexer = transformers.models.qwen4_exp.modeling_qwen4_exp.Qwen4ExpTextQSAIndexer
        self.indexer, self.forward = indexer, indexer.forward

        def by_row(module, x, *args, **more):
            """Gaps of rows that choose one by one, behind those without a run that is over: [batch][row]"""
            old, self.gaps = self.gaps, []
            out = self.forward(module, x, *args, **more)
            own, early = [g for g in self.gaps if g.ndim == 0], min(module.compress_ratio - 1, x.shape[1])
            rows = torch.stack(own).reshape(x.shape[0], -1) if own else torch.ones(x.shape[0], 0).double()
            self.gaps = [*old, torch.cat([torch.ones(x.shape[0], early).double(), rows], 1)]
            return out

        indexer.forward = by_row
        phimoe = transformers.models.phimoe.modeling_phimoe
        self.sparsemixer, phimoe.sparsemixer = phimoe.sparsemixer, near
        torch.topk = torch.Tensor.topk = topk
        return self

    def __exit__(self, *_):
        torch.topk, torch.Tensor.topk = self.topk, self.method
        transformers.models.phimoe.modeling_phimoe.sparsemixer = self.sparsemixer
        self.indexer.forward = self.forward

    def of(self, batch, n):
        """[batch][n]: the smallest gap of each row over all layers"""
        if not self.gaps:
            return torch.ones(batch, n)
        return torch.stack([g.reshape(batch, n, -1).amin(-1) for g in self.gaps]).amin(0)


def logits_of(model, ids):
    return model(input_ids=ids, use_cache=False).logits


def draw_prompt(model, n, n_vocab, gap):
    """Token by token, each one at which every router is sure of its choice."""
    if not gap:
        return torch.randint(0, n_vocab, (n,))
    ids = torch.empty(1, 0, dtype=torch.long)
    while ids.shape[1] < n:
        width = min(16, n - ids.shape[1])  # this many at once, then cut back to the first that is unsure
        for _ in range(400):
            tries = torch.cat([ids.expand(12, -1), torch.randint(0, n_vocab, (12, width))], 1)
            with Choices() as c:
                logits_of(model, tries)
            sure = (c.of(12, tries.shape[1])[:, ids.shape[1]:] > gap).long().cumprod(1).sum(1)
            best = int(sure.argmax())
            if sure[best]:
                ids = tries[best : best + 1, : ids.shape[1] + int(sure[best])]
                break
        else:
            raise SystemExit("no token at which the routers are sure")
    return ids[0]


# ---- what is written ---------------------------------------------------------------------------------------------
def rows_of(n, marks):
    """The positions whose logits are kept: the ends, around pages and chunks, around windows and steps."""
    keep = {*range(4), *range(n - 4, n), 63, 64, 65, 127, 128, 129}
    for m in marks:
        keep |= {m - 2, m - 1, m, m + 1}
    return sorted(r for r in keep if 0 <= r < n)


def write_logits(path, prompts, all_logits, all_rows):
    sd = float(np.concatenate(all_logits).std())
    with open(path, "wb") as f:
        np.array([len(prompts), all_logits[0].shape[1]], "<i4").tofile(f)
        np.array([sd], "<f4").tofile(f)
        for ids, logits, rows in zip(prompts, all_logits, all_rows):
            np.array([len(ids), len(rows), *ids, *rows], "<i4").tofile(f)
            logits[rows].astype("<f4").tofile(f)
    return sd


def difference(a, b):
    return max(float(np.abs(x - y).max()) for x, y in zip(a, b))


def compute(model, prompts):
    return [logits_of(model, p[None])[0].double().numpy() for p in prompts]


def step_by_step(model, prompt):
    """The logits of a prompt fed one token at a time, from the states and stores that each one leaves."""
    past, out = None, []
    known = inspect.signature(model.forward).parameters
    name = next(n for n in ("cache_params", "cache", "past_key_values") if n in known)
    for i, token in enumerate(prompt):
        at = {"position_ids": torch.tensor([[i]])} if "position_ids" in known else {}  # which Bamba counts from 0 in every step
        got = model(input_ids=token.reshape(1, 1), use_cache=True, **{name: past}, **at)
        past = getattr(got, name)
        out.append(got.logits[0, 0].double().numpy())
    return np.stack(out)


def draft_of(layer, model, prompt, gap):
    """The logits of a draft layer for all tokens but the last, and the rows at which its router is sure."""
    with Choices() as c:
        logits = layer.logits(model, prompt).double().numpy()
    n = len(logits)
    own = [g.reshape(n, -1).amin(-1) for g in c.gaps if g.shape[0] == n]
    return logits, {t for t in range(n) if all(g[t] > gap for g in own)}


def unseen(model, prompt, want, marks):
    """The tensors and experts of which another value changes no logit of a prompt that is kept."""
    kept, stored, out = rows_of(len(prompt), marks), set(model.state_dict()), []
    for name, p in [*model.named_parameters(), *model.named_buffers()]:
        if name not in stored or name.endswith("act_fn.eps") or ".visual." in name or "vision_tower" in name or "vision_model" in name or "vision_adapter" in name or "vision_projection" in name or "projector" in name or "embed_vision" in name or "embed_audio" in name:
            continue
        for x in p if p.ndim == 3 and p.shape[1] > 1 else [p]:  # experts one by one, not the channels of a convolution
            old = x.clone()
            x.copy_(old.roll(1) if len(old.unique()) > 1 else old * 1.2)
            got = compute(model, [prompt])[0]
            x.copy_(old)
            if np.abs(got[kept] - want[kept]).max() < 5e-4:
                out.append(name)
    return out


def build(row):
    """The model of a row with its random weights, in float32."""
    config = row["config"](**row["options"])
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    model = row["model"](config).float().eval()
    fill(model, row.get("zero_centred", False))
    if "prepare" in row:
        row["prepare"](model)
    return model


def check_folder(row, path, prompts, want):
    """Reads the folder as a user of transformers does: the same logits."""
    again = row["model"].from_pretrained(path, dtype=torch.float32, attn_implementation="eager", **row.get("read", {})).eval()
    again.config._experts_implementation = "eager"
    diff = difference(compute(again, prompts), want)
    assert diff < 1e-4, (path.name, "read again", diff)


def save(model, path, **how):
    shutil.rmtree(path, ignore_errors=True)
    model.save_pretrained(path, **how)
    for extra in path.iterdir():
        if extra.name not in ("config.json", "model.safetensors"):
            extra.unlink()


def table():
    from . import dense, latent, moe, state

    return {**dense.DENSE, **moe.MOE, **latent.LATENT, **state.STATE}


@torch.no_grad()
def make(name, row):
    seed = zlib.crc32(name.encode()) + row.get("seed", 0)
    torch.manual_seed(seed)
    model = build(row)
    n_vocab = row["options"].get("vocab_size") or model.config.get_text_config().vocab_size
    gap = row.get("gap", 0)
    prompts = [draw_prompt(model, n, n_vocab, gap) for n in (12, 80, (130 if row.get("states") else 113) + seed % 14)]
    with Choices() as c:
        single = compute(model, prompts)
        smallest = min([float(g.min()) for g in c.gaps], default=None)
    if drafting := "draft" in row:
        layer = draft.Draft(model).float().eval()
        fill(layer, row.get("zero_centred", False))
        drafted, certain = zip(*(draft_of(layer, model, p, gap) for p in prompts))
    sd = np.concatenate(single).std()
    if row.get("states"):  # what runs over a prompt in chunks is what runs step by step
        steps = difference([step_by_step(model, prompts[-1])], [single[-1]]) / sd
        assert steps < 2e-4, (name, "step by step", steps)
    blind = unseen(model, prompts[-1], single[-1], row.get("marks", ()))
    assert not blind, (name, blind)
    try:
        double = compute(model.double(), prompts)
        error = f"{difference(single, double) / np.concatenate(double).std():.0e}"
    except RuntimeError:  # its code mixes float32 with the weights' type
        error = "-"
    model.float()
    path = HF / name
    model.bfloat16()  # exact: fill() rounded
    for key, p in [*model.named_parameters(), *model.named_buffers()]:
        if key.endswith(CHOICE):
            p.data = p.data.float()
    model.config.dtype = torch.bfloat16
    save(model, path, **row.get("save", {}))
    if drafting:
        draft.add(path, layer, row["draft"], model)
    if "after" in row:
        row["after"](path)
    if not row.get("unread"):
        check_folder(row, path, prompts, single)
        old.write(path, lambda folder: check_folder(row, folder, prompts, single))
    rows = [rows_of(len(p), row.get("marks", ())) for p in prompts]
    sd = write_logits(path / "logits.bin", prompts, single, rows)
    if drafting:
        write_logits(path / "draft.bin", prompts, drafted, [sorted(sure.intersection(r)) for sure, r in zip(certain, rows)])
    size = sum(f.stat().st_size for f in path.iterdir())
    gap_text = "-" if smallest is None else f"{smallest:.3f}"
    note(name, [type(model).__name__, f"{size / 1024:.0f}", " ".join(str(len(p)) for p in prompts), f"{sd:.2f}", error,
                gap_text, row["about"]])


HEAD = """# Folders of Hugging Face

Tiny models with random weights, written by `scripts/make-goldens.py`; [../README.md](../README.md) has the layout of `logits.bin`.
`config-4.json` says the same as `config.json` with the keys of transformers 4, which most published folders have.
The script writes this table: KiB of the folder, tokens of the three prompts, the standard deviation of the logits, float32 against
float64 in torch as a part of it, and the smallest difference between an expert that a router took and one that it left.

| name | class | KiB | tokens | sd | error | gap | what it holds down |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""


def note(name, cells):
    """Puts the row of a model into the table."""
    path = HF / "README.md"
    rows = {}
    if path.exists():
        for line in path.read_text().splitlines():
            if line.startswith("| ") and not line.startswith(("| name |", "| --- |")):
                rows[line.split(" | ")[0][2:]] = line
    rows[name] = "| " + " | ".join([name, *cells]) + " |"
    path.write_text(HEAD + "".join(rows[k] + "\n" for k in sorted(rows)))
    print(rows[name], flush=True)
