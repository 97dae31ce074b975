"""Heads that draft for another model (EAGLE-3), as folders and as GGUF: random weights or trained ones, and the logits that they give.

The arithmetic is written from the paper (arXiv 2503.01840) and from what SafeAILab/EAGLE (cnets.py), vLLM and SGLang (llama_eagle3.py) have in common."""
import json
import pathlib

import gguf
import numpy as np
import torch
import transformers
from safetensors.torch import save_file

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
LAYER = {"attention_bias": False, "hidden_act": "silu", "mlp_bias": False, "model_type": "llama", "num_hidden_layers": 1, "pretraining_tp": 1,
         "rms_norm_eps": 1e-3, "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "use_cache": True}
# name: target, the layers in front of which it reads, the head's sizes, how the folder says it
ROWS = {
    # SafeAILab's names, a part of the vocabulary, the target's embeddings
    "llama": dict(target="hf/llama", taps=[0, 1, 2], draft_vocab=29, style="safeailab",
                  sizes=dict(hidden_size=32, intermediate_size=40, num_attention_heads=4, num_key_value_heads=2, rope_scaling=LLAMA3)),
    # speculators' names, another width, embeddings of its own, the whole vocabulary, the layers that all take where nothing is said
    "gemma3": dict(target="hf/gemma3", taps=None, draft_vocab=None, style="speculators",
                  sizes=dict(hidden_size=24, intermediate_size=36, num_attention_heads=3, num_key_value_heads=1, head_dim=16, rope_scaling=None)),
    # of the model that answers, trained on what it says; eagle_config counts layers whose outputs are read; as GGUF, too
    "chat": dict(target="chat/chat-llama.gguf", taps=[1, 1, 2], draft_vocab=120, style="eagle_config",
                 sizes=dict(hidden_size=64, intermediate_size=96, num_attention_heads=4, num_key_value_heads=2, rope_scaling=None)),
}


class Head(torch.nn.Module):
    def __init__(self, sizes, width, n_tap, n_vocab, n_draft, own_embedding, norm_before_residual):
        super().__init__()
        config = self.config = transformers.LlamaConfig(vocab_size=n_vocab, max_position_embeddings=512, **{**LAYER, **sizes, "attn_implementation": "eager"})
        d, self.dim = config.hidden_size, getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        linear = lambda k, n: torch.nn.Linear(k, n, bias=False)
        norm = lambda: transformers.models.llama.modeling_llama.LlamaRMSNorm(d, eps=config.rms_norm_eps)
        self.fc = linear(n_tap * width, d)
        self.q, self.k, self.v = (linear(2 * d, n * self.dim) for n in (config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads))
        self.o = linear(config.num_attention_heads * self.dim, d)
        self.gate, self.up, self.down = linear(d, config.intermediate_size), linear(d, config.intermediate_size), linear(config.intermediate_size, d)
        self.norm_embedding, self.norm_hidden, self.norm_after, self.norm_last = norm(), norm(), norm(), norm()
        self.embed = torch.nn.Embedding(n_vocab, d) if own_embedding else None
        self.head = linear(d, n_draft)
        self.rotary = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(config)
        self.before = norm_before_residual

    def forward(self, embedding, h):
        """embedding[n][d] of tokens, h[n][d] fused or of the head itself -> x[n][d] in front of the last norm"""
        n, (heads, kv) = len(h), (self.config.num_attention_heads, self.config.num_key_value_heads)
        g = self.norm_hidden(h)
        both = torch.cat([self.norm_embedding(embedding), g], -1)
        split = lambda x, k: x.view(n, k, self.dim).transpose(0, 1)[None]
        q, k, v = split(self.q(both), heads), split(self.k(both), kv), split(self.v(both), kv)
        cos, sin = self.rotary(h[None], torch.arange(n)[None])
        q, k = transformers.models.llama.modeling_llama.apply_rotary_pos_emb(q, k, cos, sin)
        k, v = (x.repeat_interleave(heads // kv, 1) for x in (k, v))
        scores = q @ k.transpose(-1, -2) / self.dim ** 0.5 + torch.full((n, n), float("-inf"), dtype=h.dtype).triu(1)
        a = (scores.softmax(-1) @ v)[0].transpose(0, 1).reshape(n, -1)
        x = (g if self.before else h) + self.o(a)
        y = self.norm_after(x)
        return x + self.down(torch.nn.functional.silu(self.gate(y)) * self.up(y))

    def logits(self, x):
        return self.head(self.norm_last(x))


def chat_model(path):
    """The model of a GGUF file that make-goldens.py wrote."""
    r = gguf.GGUFReader(path)
    number = lambda key: r.fields[f"llama.{key}"].contents()
    config = transformers.LlamaConfig(hidden_size=number("embedding_length"), intermediate_size=number("feed_forward_length"), num_hidden_layers=number("block_count"),
                                      num_attention_heads=number("attention.head_count"), num_key_value_heads=number("attention.head_count_kv"), vocab_size=number("vocab_size"),
                                      rms_norm_eps=number("attention.layer_norm_rms_epsilon"), max_position_embeddings=number("context_length"), tie_word_embeddings=True,
                                      attn_implementation="eager")
    model = transformers.LlamaForCausalLM(config)
    back = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
            "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    state = {}
    for t in r.tensors:
        a = torch.tensor(np.array(t.data))
        if ".attn_q." in t.name or ".attn_k." in t.name:  # neighbours rotate together there
            n = config.num_attention_heads if ".attn_q." in t.name else config.num_key_value_heads
            a = a.view(n, -1, 2, a.shape[1]).transpose(1, 2).reshape(a.shape)
        at = t.name.split(".")
        name = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}.get(t.name) or f"model.layers.{at[1]}.{back[at[2]]}.weight"
        state[name] = a
    missing = model.load_state_dict(state, strict=False)
    assert set(missing.missing_keys) <= {"lm_head.weight"} and not missing.unexpected_keys, missing
    model.tie_weights()
    return model.float().eval()


def target_of(name):
    if name.endswith(".gguf"):
        return chat_model(GOLDEN / name)
    return transformers.AutoModelForCausalLM.from_pretrained(GOLDEN / name, dtype=torch.float32, attn_implementation="eager").eval()


def tapped(model, ids, at):
    """The residual stream in front of layers, behind the last one too: [n][taps * width]"""
    seen, layers = [], model.model.layers
    hooks = [l.register_forward_pre_hook(lambda _, args, kwargs: seen.append(args[0] if args else kwargs["hidden_states"]), with_kwargs=True) for l in layers]
    hooks.append(layers[-1].register_forward_hook(lambda _, __, out: seen.append(out[0] if isinstance(out, tuple) else out)))
    model.model(input_ids=ids[None], use_cache=False)
    for h in hooks:
        h.remove()
    return torch.cat([seen[i][0] for i in at], -1)


def draw(head):
    """Weights that BF16 holds exactly and none of which has its neutral value."""
    for name, p in head.named_parameters():
        noise = torch.randn_like(p)
        new = 1 + 0.25 * noise if p.ndim == 1 else noise if name.startswith("embed") else noise * 1.5 / p.shape[1] ** 0.5
        p.copy_(new.bfloat16().float())


def train(head, model, at, embedding, to_draft, dialogues):
    """Towards what the model says next, also of its own rows; then rounded to BF16."""
    rows = []
    for ids in dialogues:
        with torch.no_grad():
            rows.append((ids, tapped(model, ids, at), model(ids[None]).logits[0].argmax(-1)))
    optimizer = torch.optim.AdamW(head.parameters(), lr=3e-3, weight_decay=0.0)
    for _ in range(250):
        loss = 0
        for ids, taps, says in rows:
            h, near = head.fc(taps)[:-1], embedding(ids[1:])
            for step in range(2):  # the second time by what the head made itself of the row before
                x = head(near, h)
                want = to_draft[says[1:]]
                known = want >= 0
                known[:step] = False
                loss = loss + torch.nn.functional.cross_entropy(head.logits(x)[known], want[known])
                h = torch.cat([h[:1], x[:-1]])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        for p in head.parameters():
            p.copy_(p.bfloat16().float())
    return float(loss.detach())


def dialogues():
    """Of make-goldens.py: what chat-llama was trained to say."""
    return [torch.tensor(c["prompt_ids"] + c["answer_ids"]) for c in json.loads((GOLDEN / "chat" / "chat-llama.json").read_text())]


PARTS = {"q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj", "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj",
         "norm_embedding": "input_layernorm", "norm_hidden": "hidden_norm", "norm_after": "post_attention_layernorm"}
WHOLE = {"fc": "fc", "norm_last": "norm", "head": "lm_head", "embed": "embed_tokens"}


def write_folder(path, row, head, width, ids):
    layer = "layers.0" if row["style"] == "speculators" else "midlayer"
    tensors = {(f"{layer}.{PARTS[k]}" if k in PARTS else WHOLE[k]) + ".weight": p.detach().bfloat16().contiguous() for k, p in
               ((n.split(".")[0], p) for n, p in head.named_parameters())}
    n_vocab = head.config.vocab_size
    if ids is not None:
        tensors["d2t"] = torch.tensor(ids) - torch.arange(len(ids))
        tensors["t2d"] = torch.isin(torch.arange(n_vocab), torch.tensor(ids))
    own = {k: v for k, v in row["sizes"].items() if v is not None}
    config = {**LAYER, **own, "max_position_embeddings": 512, "vocab_size": n_vocab}
    if row["style"] == "speculators":
        config = {"architectures": ["Eagle3Speculator"], "draft_vocab_size": n_vocab, "norm_before_residual": True, "speculators_model_type": "eagle3", "speculators_version": "0.1.0",
                  "speculators_config": {"algorithm": "eagle3"}, "target_hidden_size": width, "transformer_layer_config": config}
    else:
        config = {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": len(ids), **config}
    if row["style"] == "safeailab":
        config["eagle_aux_hidden_state_layer_ids"] = row["taps"]
    if row["style"] == "eagle_config":
        config["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": [i - 1 for i in row["taps"]], "use_aux_hidden_state": True}
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file(tensors, path / "model.safetensors", {"format": "pt"})


def write_gguf(path, row, head, width, ids):
    """As llama.cpp's converter names it: rows of q and k in neighbours, d2t as ids."""
    config, halves = head.config, lambda w, n: np.ascontiguousarray(w.reshape(n, 2, -1, w.shape[1]).swapaxes(1, 2).reshape(w.shape))
    w = gguf.GGUFWriter(path, "eagle3")
    w.add_name(path.stem)
    w.add_block_count(1)
    w.add_context_length(512)
    w.add_embedding_length(config.hidden_size)
    w.add_feed_forward_length(config.intermediate_size)
    w.add_head_count(config.num_attention_heads)
    w.add_head_count_kv(config.num_key_value_heads)
    w.add_rope_dimension_count(head.dim)
    w.add_rope_freq_base(10000.0)
    w.add_layer_norm_rms_eps(config.rms_norm_eps)
    w.add_vocab_size(config.vocab_size)
    w.add_array("eagle3.extract_layers", row["taps"])
    w.add_uint32("eagle3.target_hidden_size", width)
    w.add_bool("eagle3.norm_before_residual", False)
    names = {"q": "blk.0.attn_q", "k": "blk.0.attn_k", "v": "blk.0.attn_v", "o": "blk.0.attn_output", "gate": "blk.0.ffn_gate", "up": "blk.0.ffn_up", "down": "blk.0.ffn_down",
             "norm_embedding": "blk.0.attn_norm", "norm_hidden": "blk.0.attn_norm_2", "norm_after": "blk.0.ffn_norm", "fc": "fc", "norm_last": "output_norm", "head": "output"}
    for name, p in head.named_parameters():
        k, a = name.split(".")[0], p.detach().numpy()
        a = halves(a, {"q": config.num_attention_heads, "k": config.num_key_value_heads}[k]) if k in ("q", "k") else a
        w.add_tensor(names[k] + ".weight", a.astype(np.float16) if a.ndim == 2 else a)
    w.add_tensor("d2t", np.array(ids, np.int64), raw_dtype=gguf.GGMLQuantizationType.I64)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def make(name):
    row = ROWS[name]
    torch.manual_seed(700 + list(ROWS).index(name))
    model = target_of(row["target"])
    n_vocab, width, n_layer = model.config.vocab_size, model.config.hidden_size, model.config.num_hidden_layers
    at = row["taps"] or [2, n_layer // 2, n_layer - 3]
    ids = row["draft_vocab"] and sorted(torch.randperm(n_vocab)[: row["draft_vocab"]].tolist())
    if name == "chat":  # what it says is among them
        said = {i for d in dialogues() for i in d.tolist()}
        ids = sorted(said | set(i for i in ids if i not in said and len(said) < 120))[: row["draft_vocab"]]
    speculator = row["style"] == "speculators"
    head = Head(row["sizes"], width, len(at), n_vocab, len(ids) if ids else n_vocab, speculator, speculator)
    with torch.no_grad():
        draw(head)
    embedding = head.embed or model.get_input_embeddings()
    to_target = torch.tensor(ids) if ids else torch.arange(n_vocab)
    to_draft = torch.full((n_vocab,), -1)
    to_draft[to_target] = torch.arange(len(to_target))
    if name == "chat":
        for p in model.parameters():
            p.requires_grad_(False)
        with torch.no_grad():
            for p in head.parameters():
                p.mul_(0.3) if p.ndim == 2 else None
        print(f"head/{name}: loss {train(head, model, at, embedding, to_draft, dialogues()):.3f}")
    path = GOLDEN / "head" / name
    write_folder(path, row, head, width, ids)
    if name == "chat":
        write_gguf(path.parent / "chat.gguf", row, head, width, ids)
    write_logits(path / "head.bin", head, model, at, embedding, to_target, dialogues() if name == "chat" else None)


@torch.no_grad()
def write_logits(path, head, model, at, embedding, to_target, texts):
    """Rows t after what is tapped of token t and the embedding of token t + 1; behind the last one some by what the head makes itself."""
    n_more, prompts = 3, texts or [torch.randint(0, model.config.vocab_size, (n,)) for n in (5, 70, 133)]
    out, all_logits = [], []
    for ids in prompts:
        h, near, more = head.fc(tapped(model, ids, at))[:-1], embedding(ids[1:]), []
        for _ in range(n_more + 1):
            x = head(near, h)
            logits = head.logits(x)
            more.append(logits[-1])
            h, near = torch.cat([h, x[-1:]]), torch.cat([near, embedding(to_target[logits[-1].argmax()])[None]])
        n = len(ids) - 1
        rows = [t for t in range(n) if t < 4 or t > n - 5 or 62 <= t <= 66 or t % 16 == 0]
        all_logits.append(logits[:n])
        out.append((ids, rows, logits[rows], torch.stack(more)))
    with open(path, "wb") as f:
        np.array([len(out), len(to_target)], "<i4").tofile(f)
        np.array([torch.cat(all_logits).std()], "<f4").tofile(f)
        for ids, rows, logits, more in out:
            np.array([len(ids), len(rows), n_more], "<i4").tofile(f)
            for x in (ids, torch.tensor(rows), to_target[more[:-1].argmax(-1)]):
                x.numpy().astype("<i4").tofile(f)
            logits.numpy().astype("<f4").tofile(f)
            more[1:].numpy().astype("<f4").tofile(f)
    print(f"{path}: {len(out)} prompts, standard deviation of the logits {float(torch.cat(all_logits).std()):.3f}")
