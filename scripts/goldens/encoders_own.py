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
        if c["feed_forward_type"] == "geglu":
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
    a = w.linear(attend(q, k, v, n_head, bias), at + "attention.output.dense")
    x = w.norm(x + a, at + "attention.output.LayerNorm", eps)
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


def jina(**more):
    scores = more.pop("scores", False)
    name = "JinaBertForSequenceClassification" if scores else "JinaBertForMaskedLM"
    code = "jinaai/jina-bert-implementation--"
    auto = {"AutoConfig": code + "configuration_bert.JinaBertConfig", "AutoModel": code + "modeling_bert.JinaBertModel",
            "AutoModelForMaskedLM": code + "modeling_bert.JinaBertForMaskedLM",
            "AutoModelForSequenceClassification": code + "modeling_bert.JinaBertForSequenceClassification"}
    return dict(config={"_name_or_path": "jinaai/jina-bert-implementation", "architectures": [name], "auto_map": auto, **JINA, **more},
                shapes=jina_shapes, rows=jina_rows)


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
    """Writes all but weights; (weights by their published names, vectors or scores as floats)."""
    path.mkdir(parents=True)
    config = {**row["config"], "vocab_size": n_vocab}
    shapes = row["shapes"](config)
    scores = "ForSequenceClassification" in config["architectures"][0]
    if scores:
        shapes.update({"classifier.weight": (1, config["hidden_size"]), "classifier.bias": (1,)})
    w = Weights(draw(shapes))
    tok.save_pretrained(path)
    (path / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    got = []
    with torch.no_grad():
        for text in pairs if scores else texts:
            t = tok([tuple(text) if scores else text], truncation=True, max_length=length)
            ids = torch.tensor(t["input_ids"][0])
            x = row["rows"](config, w, ids, torch.tensor(t["token_type_ids"][0]) if "token_type_ids" in t else torch.zeros_like(ids))
            if scores:
                got.append(w.linear(torch.tanh(w.linear(x[:1], "pooler.dense")), "classifier").item())
            else:
                got.append(F.normalize(x.mean(0), dim=0).tolist())
    if scores:
        return {(k if k.startswith("classifier") else "bert." + k): v for k, v in w.items()}, got
    write_modules(path, config["hidden_size"], length)
    return dict(w), got
