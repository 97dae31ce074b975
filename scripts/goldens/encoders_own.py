"""Tiny random encoders whose published code is not in transformers: their arithmetic in float64 from the formulas, folders in the published names."""
import json
import math

import torch
import torch.nn.functional as F

DTYPE = torch.float64


def draw(shapes):
    """{name: values that BF16 holds}: matrices by their columns, norms around 1, biases where leaving one out shows."""
    out = {}
    for name, shape in shapes.items():
        noise = torch.randn(shape)
        if len(shape) > 1:
            table = "embeddings" in name
            noise = noise if table else noise * shape[-1] ** -0.5
        else:
            noise = 1 + 0.25 * noise if name.endswith("weight") else 0.5 * noise
        out[name] = noise.bfloat16().to(DTYPE)
    return out


class Weights(dict):
    def linear(self, x, name):
        return F.linear(x, self[name + ".weight"], self.get(name + ".bias"))

    def norm(self, x, name, eps):
        return F.layer_norm(x, x.shape[-1:], self[name + ".weight"], self[name + ".bias"], eps)


def heads(x, n):
    return x.view(x.shape[0], n, -1).transpose(0, 1)


def attend(q, k, v, n_head, bias=0):
    """[rows][n_head * d] of each, without a mask; bias [n_head][rows][rows]"""
    q, k, v = (heads(x, n_head) for x in (q, k, v))
    scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1]) + bias
    return (torch.softmax(scores, -1) @ v).transpose(0, 1).flatten(1)


# ---- Jina BERT v2: arXiv 2310.19923; slopes of ALiBi: arXiv 2108.12409, for heads that are no power of two those between ----
def slopes(n):
    whole = 2 ** math.floor(math.log2(n))
    return [2 ** (-8 * (i + 1) / whole) if i < whole else 2 ** (-4 * (2 * (i - whole) + 1) / whole) for i in range(n)]


def is_code(c):
    """Of code: queries and keys have norms, the residual stream is added and normalised once more, the gate is the second half."""
    return "qk-post-norm" in c["_name_or_path"]


def jina_shapes(c):
    n, ff = c["hidden_size"], c["intermediate_size"]
    shapes = {"embeddings.word_embeddings.weight": (c["vocab_size"], n), "embeddings.token_type_embeddings.weight": (c["type_vocab_size"], n)}

    def both(name, *shape):
        shapes.update({name + ".weight": shape, name + ".bias": shape[:1]})

    both("embeddings.LayerNorm", n)
    for i in range(c["num_hidden_layers"]):
        at = f"encoder.layer.{i}."
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            both(f"{at}attention.{part}", n, n)
        both(at + "attention.output.LayerNorm", n)
        if is_code(c):
            for part in ("attention.self.layer_norm_q", "attention.self.layer_norm_k", "layer_norm_1", "layer_norm_2"):
                both(at + part, n)
            shapes[at + "mlp.up_gated_layer.weight"] = (2 * ff, n)
            both(at + "mlp.down_layer", n, ff)
        elif c["feed_forward_type"] == "geglu":
            shapes[at + "mlp.gated_layers.weight"] = (2 * ff, n)
            both(at + "mlp.wo", n, ff)
            both(at + "mlp.layernorm", n)
        else:
            both(at + "intermediate.dense", ff, n)
            both(at + "output.dense", n, ff)
            both(at + "output.LayerNorm", n)
    both("pooler.dense", n, n)
    return shapes


def jina_layer(c, w, at, x, bias):
    n_head, eps = c["num_attention_heads"], c["layer_norm_eps"]
    q, k, v = (w.linear(x, f"{at}attention.self.{part}") for part in ("query", "key", "value"))
    if is_code(c):
        q, k = (w.norm(y, f"{at}attention.self.layer_norm_{part}", eps) for y, part in ((q, "q"), (k, "k")))
    a = w.linear(attend(q, k, v, n_head, bias), at + "attention.output.dense")
    before, x = x, w.norm(x + a, at + "attention.output.LayerNorm", eps)
    if is_code(c):
        x = w.norm(before + x, at + "layer_norm_1", eps)
        up, gate = w.linear(x, at + "mlp.up_gated_layer").chunk(2, -1)
        return w.norm(x + w.linear(up * F.gelu(gate), at + "mlp.down_layer"), at + "layer_norm_2", eps)
    if c["feed_forward_type"] == "geglu":
        gate, up = w.linear(x, at + "mlp.gated_layers").chunk(2, -1)
        return w.norm(x + w.linear(F.gelu(gate) * up, at + "mlp.wo"), at + "mlp.layernorm", eps)
    return w.norm(x + w.linear(F.gelu(w.linear(x, at + "intermediate.dense")), at + "output.dense"), at + "output.LayerNorm", eps)


def jina_rows(c, w, ids, types):
    x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.token_type_embeddings.weight"][types]
    x = w.norm(x, "embeddings.LayerNorm", c["layer_norm_eps"])
    at = torch.arange(len(ids), dtype=DTYPE)
    bias = -torch.tensor(slopes(c["num_attention_heads"]), dtype=DTYPE)[:, None, None] * (at[:, None] - at[None, :]).abs()
    for i in range(c["num_hidden_layers"]):
        x = jina_layer(c, w, f"encoder.layer.{i}.", x, bias)
    return x


JINA = dict(model_type="bert", model_max_length=8192, attention_probs_dropout_prob=0.0, classifier_dropout=None, gradient_checkpointing=False,
            hidden_act="gelu", hidden_dropout_prob=0.1, initializer_range=0.02, layer_norm_eps=1e-12, pad_token_id=0, position_embedding_type="alibi",
            torch_dtype="float32", transformers_version="4.26.0", type_vocab_size=2, use_cache=True, feed_forward_type="geglu", emb_pooler="mean",
            hidden_size=48, num_hidden_layers=3, num_attention_heads=6, intermediate_size=72, max_position_embeddings=128)


def jina(code="jina-bert-implementation", **more):
    scores = more.pop("scores", False)
    name = "JinaBertForSequenceClassification" if scores else "JinaBertForMaskedLM"
    code = f"jinaai/{code}--"
    auto = {"AutoConfig": code + "configuration_bert.JinaBertConfig", "AutoModel": code + "modeling_bert.JinaBertModel",
            "AutoModelForMaskedLM": code + "modeling_bert.JinaBertForMaskedLM",
            "AutoModelForSequenceClassification": code + "modeling_bert.JinaBertForSequenceClassification"}
    return dict(config={"_name_or_path": code[:-2], "architectures": [name], "auto_map": auto, **JINA, **more},
                shapes=jina_shapes, rows=jina_rows)


# ---- Nomic BERT with experts: arXiv 2502.07972; nomic-bert-2048's modeling_hf_nomic_bert ----
NOMIC = dict(model_type="nomic_bert", architectures=["NomicBertModel"], activation_function="gelu", add_pooling_layer=False, attn_pdrop=0.0,
             bos_token_id=None, causal=False, dense_seq_output=True, embd_pdrop=0.0, eos_token_id=None, expert_choice_router=False, ffn_div=1,
             fused_bias_fc=True, fused_dropout_add_ln=True, initializer_range=0.02, layer_norm_epsilon=1e-5, max_trained_positions=2048,
             mlp_fc1_bias=True, mlp_fc2_bias=True, moe_every_n_layers=2, moe_impl="megablocks", moe_normalize_expert_weights=False,
             moe_resid_pdrop=0.0, moe_top_k=2, n_embd=48, n_head=4, n_inner=80, n_layer=4, n_positions=128, num_experts=5,
             num_shared_experts=0, pad_token_id=1, pad_vocab_size_multiple=1, parallel_block=False, parallel_block_tied_norm=False, prenorm=False,
             qkv_proj_bias=True, reorder_and_upcast_attn=False, resid_pdrop=0.0, rotary_emb_base=10000, rotary_emb_fraction=1.0,
             rotary_emb_interleaved=False, rotary_emb_scale_base=None, rotary_scaling_factor=None, router_aux_loss_coef=0.1,
             scale_attn_by_inverse_layer_idx=False, scale_attn_weights=True, torch_dtype="float32", type_vocab_size=1, use_cache=True,
             use_flash_attn=True, use_rms_norm=False, use_xentropy=True)


def nomic_shapes(c):
    n, ff, experts = c["n_embd"], c["n_inner"], c["num_experts"]
    shapes = {"embeddings.word_embeddings.weight": (c["vocab_size"], n), "embeddings.token_type_embeddings.weight": (1, n)}

    def both(name, *shape):
        shapes.update({name + ".weight": shape, name + ".bias": shape[:1]})

    both("emb_ln", n)
    for i in range(c["n_layer"]):
        at = f"encoder.layers.{i}."
        both(at + "attn.Wqkv", 3 * n, n)
        both(at + "attn.out_proj", n, n)
        both(at + "norm1", n)
        both(at + "norm2", n)
        if i % c["moe_every_n_layers"] == 1:
            shapes[at + "mlp.router.layer.weight"] = (experts, n)
            shapes[at + "mlp.experts.mlp.w1"] = shapes[at + "mlp.experts.mlp.w2"] = (experts * ff, n)
            shapes[at + "mlp.experts.bias"] = (n,)
        else:
            both(at + "mlp.fc1", ff, n)
            both(at + "mlp.fc2", n, ff)
    return shapes


def rotate(x, n_head, base):
    """Halves of each head, against each other."""
    d = x.shape[-1] // n_head
    angle = torch.arange(len(x), dtype=DTYPE)[:, None] * base ** (-torch.arange(0, d, 2, dtype=DTYPE) / d)
    a, b = x.view(len(x), n_head, d).chunk(2, -1)
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).flatten(1)


def rotary_attention(w, x, qkv, out, n_head, base):
    q, k, v = w.linear(x, qkv).chunk(3, -1)
    return w.linear(attend(rotate(q, n_head, base), rotate(k, n_head, base), v, n_head), out)


def nomic_experts(c, w, at, x):
    """Weights of the chosen as the softmax over all has them; w1 [ff][n] of each expert, w2 [ff][n] the other way round; one bias behind the sum."""
    n, ff = c["n_embd"], c["n_inner"]
    scores, ids = torch.softmax(w.linear(x, at + "mlp.router.layer"), -1).sort(-1, descending=True)
    k = c["moe_top_k"]
    gap = (scores[:, k - 1] - scores[:, k]).min().item()
    assert gap > 1e-4, f"a choice by {gap:.1e}"
    w1, w2 = (w[f"{at}mlp.experts.mlp.w{i}"].view(-1, ff, n) for i in (1, 2))
    rows = [sum(scores[r, j] * (F.gelu(x[r] @ w1[ids[r, j]].T) @ w2[ids[r, j]]) for j in range(k)) for r in range(len(x))]
    return torch.stack(rows) + w[at + "mlp.experts.bias"]


def nomic_rows(c, w, ids, _):
    eps = c["layer_norm_epsilon"]
    x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.token_type_embeddings.weight"][0]
    x = w.norm(x, "emb_ln", eps)
    for i in range(c["n_layer"]):
        at = f"encoder.layers.{i}."
        x = w.norm(x + rotary_attention(w, x, at + "attn.Wqkv", at + "attn.out_proj", c["n_head"], c["rotary_emb_base"]), at + "norm1", eps)
        if i % c["moe_every_n_layers"] == 1:
            y = nomic_experts(c, w, at, x)
        else:
            y = w.linear(F.gelu(w.linear(x, at + "mlp.fc1")), at + "mlp.fc2")
        x = w.norm(x + y, at + "norm2", eps)
    return x


def nomic(**more):
    code = "nomic-ai/nomic-bert-2048--"
    auto = {"AutoConfig": code + "configuration_hf_nomic_bert.NomicBertConfig", "AutoModel": code + "modeling_hf_nomic_bert.NomicBertModel"}
    return dict(config={**NOMIC, "auto_map": auto, **more}, shapes=nomic_shapes, rows=nomic_rows)


# ---- Jina's embeddings v3 with adapters for tasks: arXiv 2409.10173; xlm-roberta-flash-implementation's modeling_lora ----
TASKS = ["retrieval.query", "separation", "text-matching"]
JINA_3 = dict(architectures=["XLMRobertaModel"], attention_probs_dropout_prob=0.1, bos_token_id=0, classifier_dropout=None, emb_pooler=None, eos_token_id=2,
              hidden_act="gelu", hidden_dropout_prob=0.1, hidden_size=48, initializer_range=0.02, intermediate_size=80, layer_norm_eps=1e-5,
              load_trained_adapters=True, lora_adaptations=TASKS, lora_alpha=2, lora_dropout_p=0.0, lora_main_params_trainable=False, lora_rank=3,
              matryoshka_dimensions=[16, 48], max_position_embeddings=130, model_type="xlm-roberta", num_attention_heads=4, num_hidden_layers=3,
              output_past=True, pad_token_id=1, position_embedding_type="rotary", rotary_emb_base=20000.0, task_instructions={t: "" for t in TASKS},
              torch_dtype="bfloat16", truncate_dim=None, type_vocab_size=1, use_cache=True, use_flash_attn=True, use_reentrant=False)
OWN, HALF = ".parametrizations.weight.original", ".parametrizations.weight.0.lora_"


def jina_3_shapes(c):
    n, ff, r, tasks = c["hidden_size"], c["intermediate_size"], c["lora_rank"], len(c["lora_adaptations"])
    shapes = {}

    def adapted(name, rows, cols, table=False):
        name = "roberta." + name
        shapes.update({name + OWN: (rows, cols), f"{name}{HALF}A": (tasks, rows, r) if table else (tasks, r, cols),
                       f"{name}{HALF}B": (tasks, r, cols) if table else (tasks, rows, r)})
        if not table:
            shapes[name + ".bias"] = (rows,)

    def norm(name):
        shapes.update({f"roberta.{name}.weight": (n,), f"roberta.{name}.bias": (n,)})

    adapted("embeddings.word_embeddings", c["vocab_size"], n, True)
    adapted("embeddings.token_type_embeddings", c["type_vocab_size"], n, True)
    norm("emb_ln")
    for i in range(c["num_hidden_layers"]):
        at = f"encoder.layers.{i}."
        for part, rows, cols in (("mixer.Wqkv", 3 * n, n), ("mixer.out_proj", n, n), ("mlp.fc1", ff, n), ("mlp.fc2", n, ff)):
            adapted(at + part, rows, cols)
        norm(at + "norm1")
        norm(at + "norm2")
    adapted("pooler.dense", n, n)
    return shapes


def with_task(c, w, task):
    """The weights under their usual names, of a task with its adapters; None: without."""
    out = Weights()
    for name, x in w.items():
        if name.endswith(OWN):
            a, b = (w[name.removesuffix(OWN) + HALF + half] for half in "AB")
            if task is not None:
                k, table = c["lora_adaptations"].index(task), "embeddings" in name
                x = x + c["lora_alpha"] / c["lora_rank"] * (a[k] @ b[k] if table else b[k] @ a[k])
            name = name.removesuffix(OWN) + ".weight"
        out[name.removeprefix("roberta.")] = x
    return out


def jina_3_rows(task):
    def rows(c, w, ids, _):
        eps, w = c["layer_norm_eps"], with_task(c, w, task)
        x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.token_type_embeddings.weight"][0]
        x = w.norm(x, "emb_ln", eps)
        for i in range(c["num_hidden_layers"]):
            at = f"encoder.layers.{i}."
            a = rotary_attention(w, x, at + "mixer.Wqkv", at + "mixer.out_proj", c["num_attention_heads"], c["rotary_emb_base"])
            x = w.norm(x + a, at + "norm1", eps)
            x = w.norm(x + w.linear(F.gelu(w.linear(x, at + "mlp.fc1")), at + "mlp.fc2"), at + "norm2", eps)
        return x

    return rows


def jina_3(task):
    code = "jinaai/xlm-roberta-flash-implementation--"
    auto = {"AutoConfig": code + "configuration_xlm_roberta.XLMRobertaFlashConfig", "AutoModel": code + "modeling_lora.XLMRobertaLoRA"}
    return dict(config={**JINA_3, "auto_map": auto}, shapes=jina_3_shapes, rows=jina_3_rows(task), task=task, without=jina_3_rows(None))


# ---- folders ---------------------------------------------------------------------------------------------------------
KINDS = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}


def write_modules(path, width, length):
    """As sentence-transformers 2 and 3 write them: the mean of all rows, of length 1."""
    modules = [{"idx": i, "name": str(i), "path": at, "type": f"sentence_transformers.models.{kind}"} for i, (at, kind) in enumerate(KINDS.items())]
    (path / "modules.json").write_text(json.dumps(modules, indent=2) + "\n")
    (path / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": length, "do_lower_case": False}) + "\n")
    pooling = {"word_embedding_dimension": width, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True,
               "pooling_mode_max_tokens": False, "pooling_mode_mean_sqrt_len_tokens": False}
    (path / "1_Pooling").mkdir()
    (path / "1_Pooling" / "config.json").write_text(json.dumps(pooling) + "\n")


def make(path, row, tok, n_vocab, texts, pairs, length):
    """Writes all but weights; (weights by their published names, vectors or scores as floats, what expected.json has beside them)."""
    path.mkdir(parents=True)
    config = {**row["config"], "vocab_size": n_vocab}
    shapes = row["shapes"](config)
    scores = "ForSequenceClassification" in config["architectures"][0]
    if scores:
        shapes.update({"classifier.weight": (1, config["hidden_size"]), "classifier.bias": (1,)})
    w = Weights(draw(shapes))
    tok.save_pretrained(path)
    (path / "config.json").write_text(json.dumps(config, indent=2) + "\n")

    def made(rows):
        got = []
        for text in pairs if scores else texts:
            t = tok([tuple(text) if scores else text], truncation=True, max_length=length)
            ids = torch.tensor(t["input_ids"][0])
            x = rows(config, w, ids, torch.tensor(t["token_type_ids"][0]) if "token_type_ids" in t else torch.zeros_like(ids))
            if scores:
                got.append(w.linear(torch.tanh(w.linear(x[:1], "pooler.dense")), "classifier").item())
            else:
                got.append(F.normalize(x.mean(0), dim=0).tolist())
        return got

    with torch.no_grad():
        got = made(row["rows"])
        more = {"task": row["task"], "without": made(row["without"])} if "task" in row else {}
    if scores:
        return {(k if k.startswith("classifier") else "bert." + k): v for k, v in w.items()}, got, more
    write_modules(path, config.get("hidden_size") or config["n_embd"], length)
    return dict(w), got, more
