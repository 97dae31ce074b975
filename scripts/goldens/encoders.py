"""Tiny random encoders as folders of sentence-transformers, with the vectors or scores that it computes of some texts."""
import json
import pathlib
import shutil
import string
import zlib

import numpy as np
import tokenizers
import torch
import transformers
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from tokenizers import models, normalizers, pre_tokenizers, processors

from . import encoders_own
from .folder import fill

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

EMBED = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "embed"

TEXTS = ["a", "hello world", "Hello, World!", "the thing is running and the cat sat", "Café déjà vu, naïve", "中文 text 12345",
         "a b c d e f g h i j k l m n o p q r s t u v w x y z", "unknown ☃ snow", " spaces   and more  ", "x" * 30, "",
         "one two three four five six seven eight nine ten, and so on until the text is longer than a window " * 2]
PAIRS = [["what is it?", "the thing is a cat"], ["what is it?", "running"], ["hello", "Hello, World! " * 12], ["a", ""],
         ["the cat sat " * 9, "on the mat " * 14], ["naïve", "Café"]]

WORDS = ["the", "thing", "is", "run", "and", "cat", "sat", "hello", "world", "one", "two", "on", "mat", "what", "until", "text"]
ENDS = ["ing", "ning", "s", "er", "ow", "ee"]


# ---- tokenizers ----------------------------------------------------------------------------------------------------
def around(tok, first, last, twice=False):
    ids = [(t, tok.token_to_id(t)) for t in (first, last)]
    pair = f"{first}:0 $A:0 {last}:0 " + (f"{last}:0 $B:0 {last}:0" if twice else f"$B:1 {last}:1")
    tok.post_processor = processors.TemplateProcessing(single=f"{first}:0 $A:0 {last}:0", pair=pair, special_tokens=ids)
    return tok


def wordpiece(length):
    letters = string.ascii_lowercase + string.digits + ".,!?中文é"
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *("##" + c for c in letters), *WORDS, *("##" + e for e in ENDS)]
    tok = tokenizers.Tokenizer(models.WordPiece({v: i for i, v in enumerate(vocab)}, unk_token="[UNK]"))
    tok.normalizer = normalizers.BertNormalizer(lowercase=True)
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    names = dict(unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]", mask_token="[MASK]",
                 model_input_names=["input_ids", "token_type_ids", "attention_mask"])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=around(tok, "[CLS]", "[SEP]"), model_max_length=length, **names), len(vocab)


def unigram(length):
    letters = string.ascii_letters + string.digits + ".,!?é"
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "▁", *letters, *("▁" + w for w in WORDS), *ENDS[1:2], *ENDS[3:]]
    scores = [0.0] * 4 + [-3.0 - 0.37 * (i % 7) - (2 if len(p) == 1 else 0) for i, p in enumerate(pieces[4:])]
    tok = tokenizers.Tokenizer(models.Unigram(list(zip(pieces, scores)), unk_id=3, byte_fallback=False))
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")])
    names = dict(unk_token="<unk>", bos_token="<s>", eos_token="</s>", cls_token="<s>", sep_token="</s>", pad_token="<pad>")
    return transformers.PreTrainedTokenizerFast(tokenizer_object=around(tok, "<s>", "</s>", True), model_max_length=length, **names), len(pieces)


# ---- models --------------------------------------------------------------------------------------------------------
SMALL = dict(hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=80)


def bert(**more):
    return transformers.BertConfig, {**SMALL, "max_position_embeddings": 72, **more}


def roberta(**more):
    return transformers.XLMRobertaConfig, {**SMALL, "max_position_embeddings": 74, "type_vocab_size": 1, "pad_token_id": 1, **more}


T5 = dict(d_model=40, d_kv=12, d_ff=56, num_layers=3, num_heads=4, pad_token_id=1, eos_token_id=2, decoder_start_token_id=1)
ENDS_MODERN = dict(bos_token_id=2, cls_token_id=2, eos_token_id=3, sep_token_id=3, pad_token_id=0, max_position_embeddings=128)

# name: a tokenizer, a configuration, the class, and how rows are pooled (scores: None) or what follows that
ROWS = {
    "bert-cls": dict(tok=wordpiece, config=bert(), model="BertModel", pooling="cls"),
    "bert-mean": dict(tok=wordpiece, config=bert(hidden_size=40, hidden_act="gelu_new"), model="BertModel", pooling="mean", length=32),
    "bert-dense": dict(tok=wordpiece, config=bert(), model="BertModel", pooling="mean", dense=(96, 24)),
    "bert-rerank": dict(tok=wordpiece, config=bert(num_labels=1), model="BertForSequenceClassification"),
    "jina-reranker": dict(tok=unigram, config=roberta(num_labels=1, num_hidden_layers=2), model="XLMRobertaForSequenceClassification", fused=True),
    "modern-bert": dict(tok=wordpiece, config=(transformers.ModernBertConfig, {**SMALL, **ENDS_MODERN, "num_hidden_layers": 4, "local_attention": 16}), model="ModernBertModel", pooling="mean", length=128),
    "modern-bert-rerank": dict(tok=wordpiece, config=(transformers.ModernBertConfig, {**SMALL, **ENDS_MODERN, "local_attention": 16, "num_labels": 1, "classifier_pooling": "mean"}), model="ModernBertForSequenceClassification"),
    "nomic-bert": dict(tok=wordpiece, config=(transformers.NomicBertConfig, {**SMALL, "max_position_embeddings": 128}), model="NomicBertModel", pooling="mean"),
    "jina-bert-v3": dict(tok=unigram, config=(transformers.JinaEmbeddingsV3Config, {**SMALL, "max_position_embeddings": 128}), model="JinaEmbeddingsV3Model", pooling="mean"),
    "eurobert": dict(tok=unigram, config=(transformers.EuroBertConfig, {**SMALL, "num_key_value_heads": 2, "max_position_embeddings": 128, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "mask_token_id": 3}), model="EuroBertModel", pooling="mean"),
    "qwen3-body": dict(tok=unigram, config=(transformers.Qwen3Config, {**SMALL, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 128, "tie_word_embeddings": False, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}), model="Qwen3Model", pooling="lasttoken", length=128),
    "gemma-embedding": dict(tok=unigram, config=(transformers.Gemma3TextConfig, {**SMALL, "num_hidden_layers": 4, "num_key_value_heads": 2, "head_dim": 16, "query_pre_attn_scalar": 20, "sliding_window": 16, "use_bidirectional_attention": True, "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"], "max_position_embeddings": 128}), model="Gemma3TextModel", pooling="mean", dense=(96, 48), zero_centred=True, length=100),
    "t5": dict(tok=unigram, config=(transformers.T5Config, {**T5, "feed_forward_proj": "relu"}), model="T5EncoderModel", pooling="mean", dense=(32,), length=140),
    "t5-gated": dict(tok=unigram, config=(transformers.T5Config, {**T5, "feed_forward_proj": "gated-gelu", "relative_attention_num_buckets": 12}), model="T5EncoderModel", pooling="mean", length=140),
    "jina-bert-v2": dict(tok=wordpiece, own=encoders_own.jina(), length=100),
    "jina-bert-v2-plain": dict(tok=wordpiece, own=encoders_own.jina(feed_forward_type="original", hidden_size=32, num_hidden_layers=2, num_attention_heads=4), length=100),
    "jina-bert-v2-code": dict(tok=wordpiece, own=encoders_own.jina("jina-bert-v2-qk-post-norm"), length=100),
    "jina-bert-v3-tasks": dict(tok=unigram, own=encoders_own.jina_3("text-matching"), length=100),
    "nomic-bert-moe": dict(tok=unigram, own=encoders_own.nomic(), length=100),
    "jina-reranker-v1": dict(tok=unigram, own=encoders_own.jina(scores=True, num_hidden_layers=2, num_attention_heads=4), length=72),
    "xlm-roberta": dict(tok=unigram, config=roberta(), model="XLMRobertaModel", pooling="cls"),
    "xlm-roberta-rerank": dict(tok=unigram, config=roberta(num_labels=1), model="XLMRobertaForSequenceClassification"),
}


def save(row, path, seed):
    torch.manual_seed(seed)
    length = row.get("length", 72)
    tok, n = row["tok"](length)
    kind, options = row["config"]
    model = getattr(transformers, row["model"])(kind(vocab_size=n, **options)).float().eval()
    with torch.no_grad():
        fill(model, row.get("zero_centred", False))
    shutil.rmtree(path, ignore_errors=True)
    model.save_pretrained(path)
    tok.save_pretrained(path)
    return model


def vectors(row, path):
    """Beside the model its modules, as sentence-transformers writes them; the vectors of the texts, each of length 1."""
    kept = path.with_suffix(".model")
    shutil.rmtree(kept, ignore_errors=True)
    path.rename(kept)
    width = row["config"][1].get("hidden_size") or row["config"][1]["d_model"]
    parts = [modules.Transformer(str(kept)), modules.Pooling(width, pooling_mode=row["pooling"])]
    for out in row.get("dense", ()):
        parts.append(modules.Dense(width, out, bias=False, activation_function=torch.nn.Identity()))
        with torch.no_grad():
            parts[-1].linear.weight.copy_(parts[-1].linear.weight.bfloat16().float())
        width = out
    SentenceTransformer(modules=[*parts, modules.Normalize()], device="cpu").save(str(path))
    shutil.rmtree(kept)
    return SentenceTransformer(str(path), device="cpu").encode(TEXTS, convert_to_numpy=True, batch_size=1)


def scores(path):
    """Of each pair what the head gives, without a function behind it."""
    return CrossEncoder(str(path), device="cpu").predict(PAIRS, activation_fn=torch.nn.Identity(), batch_size=1)


def halve(path):
    """Weights as BF16, which holds all of them exactly."""
    for file in path.rglob("*.safetensors"):
        weights = load_file(file)
        assert all(torch.equal(w, w.bfloat16().float()) for w in weights.values()), file
        save_file({k: w.bfloat16() for k, w in weights.items()}, file, metadata={"format": "pt"})


def fuse(path):
    """As Jina's code has RoBERTa's layers: queries, keys and values in one matrix."""
    names = {"attention.output.dense": "mixer.out_proj", "attention.output.LayerNorm": "norm1", "intermediate.dense": "mlp.fc1", "output.dense": "mlp.fc2",
             "output.LayerNorm": "norm2"}
    weights, out = load_file(path / "model.safetensors"), {}
    for key, w in weights.items():
        if ".self." in key:
            if ".query." in key:
                parts = [weights[key.replace("query", p)] for p in ("query", "key", "value")]
                out[key.replace("encoder.layer.", "encoder.layers.").replace("attention.self.query", "mixer.Wqkv")] = torch.cat(parts)
            continue
        new = key.replace("encoder.layer.", "encoder.layers.").replace("embeddings.LayerNorm", "emb_ln")
        for a, b in names.items():
            new = new.replace(a, b) if "layers." in new else new
        out[new] = w
    save_file(out, path / "model.safetensors", metadata={"format": "pt"})


def own(path, row):
    """Of models that are not in transformers: the weights, and vectors or scores."""
    tok, n = row["tok"](row["length"])
    shutil.rmtree(path, ignore_errors=True)
    weights, got, more = encoders_own.make(path, row["own"], tok, n, TEXTS, PAIRS, row["length"])
    save_file({k: w.bfloat16().contiguous() for k, w in weights.items()}, path / "model.safetensors", metadata={"format": "pt"})
    return np.array(got), more


def make(name, row):
    path = EMBED / name
    EMBED.mkdir(parents=True, exist_ok=True)
    seed = zlib.crc32(name.encode()) + row.get("seed", 0)
    torch.manual_seed(seed)
    if "own" not in row:
        save(row, path, seed)
    more = {}
    if "own" in row:
        got, more = own(path, row)
    else:
        got = vectors(row, path) if "pooling" in row else scores(path)
    if got.ndim > 1:
        expected = {"texts": TEXTS, "vectors": [[float(f"{x:.9g}") for x in v] for v in got.astype(np.float64)]}
        spread = np.abs(got @ got.T - np.eye(len(got))).max()
    else:
        expected = {"pairs": PAIRS, "scores": [float(f"{x:.9g}") for x in got.astype(np.float64)]}
        spread = float(got.std())
    expected.update(more)
    if "own" not in row:
        halve(path)
    if row.get("fused"):
        fuse(path)
    for extra in path.rglob("README.md"):
        extra.unlink()
    (path / "expected.json").write_text(json.dumps(expected, ensure_ascii=False) + "\n")
    size = sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
    print(f"{name}: {size / 1024:.0f} KiB, {'largest cosine of two texts' if got.ndim > 1 else 'standard deviation'} {spread:.3f}", flush=True)
