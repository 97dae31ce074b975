#!/usr/bin/env python3
"""Makes the tiny models and expected logits of tests/golden, from Hugging Face transformers in float32.

usage: make-goldens.py [NAME ...]        all when none is named, hf/NAME for a folder, hf for all of them, head, tower, drawn, adapter and embed likewise; needs: pip install
                                          torch transformers gguf peft sentence-transformers

tests/golden/forward/NAME.gguf, NAME.bin  random weights (norms and biases perturbed away from 1 and 0) and the logits of
                                          every position of one prompt; layouts in tests/golden/README.md
tests/golden/chat/NAME.gguf, NAME.json    a model with a tokenizer that was trained to give a few known answers
tests/golden/hf/NAME/                     a folder as transformers writes it, and logits of three prompts: goldens/*.py
tests/golden/embed/NAME/                 a folder of sentence-transformers, and its vectors or scores: goldens/encoders.py
tests/golden/tower/NAME/                  a folder with a tower for images, and its rows of some pictures: goldens/vision.py
tests/golden/adapter/NAME/                an adapter of PEFT for a folder of hf/, and logits with it: goldens/adapters.py
tests/golden/head/NAME/                   a head that drafts for one of hf/ or chat/, and its logits: goldens/heads.py
tests/golden/drawn/NAME/                  the same with sizes of published towers, of pictures that build/tests/test_drawn draws: goldens/drawn.py
"""
import json
import pathlib
import sys

import gguf
import numpy as np
import tokenizers
import torch
import transformers

from goldens import drawn, encoders, folder, vision

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden"

# ---- the models ------------------------------------------------------------------------------------------------
# name: (architecture, tokens in the prompt, config). One page of the KV store is 64 tokens: prompts of 80 cross it.
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}
FORWARD = {
    # grouped queries, a head of its own
    "llama-gqa": ("llama", 80, dict(hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
                                    num_key_value_heads=2, vocab_size=259)),
    # one key head per query head, head tied to the embedding
    "llama-mha-tied": ("llama", 24, dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                                         num_key_value_heads=4, vocab_size=131, tie_word_embeddings=True)),
    # Llama-3 frequency factors (in the file as rope_freqs.weight), tied
    "llama-rope3": ("llama", 80, dict(hidden_size=64, intermediate_size=72, num_hidden_layers=2, num_attention_heads=4,
                                      num_key_value_heads=1, vocab_size=97, tie_word_embeddings=True,
                                      rope_parameters=LLAMA3, max_position_embeddings=512)),
    # positions divided by a factor
    "llama-linear": ("llama", 40, dict(hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=3,
                                       num_key_value_heads=3, vocab_size=83,
                                       rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0})),
    # nothing a multiple of 16
    "llama-odd": ("llama", 33, dict(hidden_size=90, intermediate_size=77, num_hidden_layers=1, num_attention_heads=5,
                                    num_key_value_heads=1, vocab_size=67, rms_norm_eps=1e-4)),
    # bias on q, k and v
    "qwen2": ("qwen2", 80, dict(hidden_size=56, intermediate_size=72, num_hidden_layers=2, num_attention_heads=4,
                                num_key_value_heads=2, vocab_size=259, rms_norm_eps=1e-6,
                                rope_parameters={"rope_type": "default", "rope_theta": 1000000.0})),
    # normalised q and k, heads wider than n_embd / n_head, tied
    "qwen3": ("qwen3", 40, dict(hidden_size=40, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
                                num_key_value_heads=2, head_dim=32, vocab_size=131, tie_word_embeddings=True,
                                rms_norm_eps=1e-6, rope_parameters={"rope_type": "default", "rope_theta": 1000000.0})),
    # heads narrower than n_embd / n_head, head of its own
    "qwen3-narrow": ("qwen3", 24, dict(hidden_size=72, intermediate_size=50, num_hidden_layers=2, num_attention_heads=6,
                                       num_key_value_heads=3, head_dim=8, vocab_size=101)),
}
WINDOWS = {
    # a window in every layer
    "mistral-window": ("mistral", 150, dict(hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                                            num_key_value_heads=2, vocab_size=89, sliding_window=20)),
    # in the last two of three
    "qwen2-windows": ("qwen2", 150, dict(hidden_size=40, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
                                         num_key_value_heads=2, vocab_size=83, rms_norm_eps=1e-6, use_sliding_window=True,
                                         sliding_window=70, max_window_layers=1)),
}
# weights that are more than plain matrices, of architectures that tests alone know
WEIGHTS = {
    # a factor for embeddings, one for what attention and feed-forward add, one for the logits
    "granite": ("granite", 40, dict(hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4,
                                    num_key_value_heads=2, vocab_size=131, embedding_multiplier=3.0, residual_multiplier=0.22,
                                    attention_multiplier=0.4, logits_scaling=0.3)),
    # q, k and v in one tensor, gate and up in one
    "phi3": ("phi3", 40, dict(hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
                              num_key_value_heads=2, vocab_size=131, pad_token_id=0)),
}
CLASSES = {"granite": (transformers.GraniteConfig, transformers.GraniteForCausalLM),
           "phi3": (transformers.Phi3Config, transformers.Phi3ForCausalLM),
           "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
           "mistral": (transformers.MistralConfig, transformers.MistralForCausalLM),
           "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
           "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM)}

CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
          "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ t", "Ġt h", "Ġth e", "i n", "a n", "o u", "Ġ y", "Ġy ou", "a s", "as s", "i s",
          "ass is", "t an", "assis tan", "assistan t", "u s", "e r", "us er"]
DIALOGUES = [
    [("hello", "hi there!")],
    [("hello", "hi there!"), ("and you?", "fine, thanks.")],
    [("count", "one two three four five six seven eight nine ten")],
    [("greet", "Grüße für 5 € 😀.")],
    [("lines", "first\nsecond\n  third")],
]
# the tokenizer's pre-tokenizer name in GGUF, and whether the matrices are F16
CHAT = {
    "chat-llama": ("llama", "gpt-2", False, dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                                                 num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True)),
    "chat-qwen2": ("qwen2", "qwen2", True, dict(hidden_size=96, intermediate_size=160, num_hidden_layers=2,
                                                num_attention_heads=6, num_key_value_heads=2, tie_word_embeddings=True,
                                                rms_norm_eps=1e-6)),
}


def make_model(arch, options):
    """Random float32 model whose logits spread about 1 and in which no weight has its neutral value."""
    config_class, model_class = CLASSES[arch]
    options = {"max_position_embeddings": 256, "rms_norm_eps": 1e-5, "tie_word_embeddings": False, **options}
    config = config_class(attn_implementation="eager", **options)
    model = model_class(config).float().eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("norm.weight"):
                p.copy_(1 + 0.25 * torch.randn_like(p))
            elif name.endswith("bias"):
                p.copy_(0.5 * torch.randn_like(p))
            elif "embed_tokens" in name:
                p.copy_(torch.randn_like(p))
            else:
                p.copy_(torch.randn_like(p) * 1.5 / p.shape[1] ** 0.5)
    return config, model


# ---- GGUF ------------------------------------------------------------------------------------------------------
NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.qkv_proj": "attn_qkv",
         "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.gate_up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
         "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}


def gguf_name(name):
    fixed = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
             "lm_head.weight": "output.weight"}
    if name in fixed:
        return fixed[name]
    _, _, layer, rest = name.split(".", 3)
    stem, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{NAMES[stem]}.{kind}"


def interleave(w, n_head):
    """Rows of a q or k matrix of GGUF's llama: pairs (i, i + head_dim / 2) of Hugging Face become neighbours."""
    half = w.shape[0] // n_head // 2
    return np.ascontiguousarray(w.reshape(n_head, 2, half, -1).swapaxes(1, 2).reshape(w.shape))


def llama3_factors(rope, head_dim):
    """Divisors of the frequencies for Llama-3 scaling, rope_freqs.weight (the formula of Hugging Face's
    modeling_rope_utils, written from the description of the four parameters)."""
    out = []
    for i in range(head_dim // 2):
        wavelength = 2 * np.pi * rope["rope_theta"] ** (2 * i / head_dim)
        long, short = (rope["original_max_position_embeddings"] / rope[k] for k in ("low_freq_factor", "high_freq_factor"))
        if wavelength < short:
            out.append(1.0)
        elif wavelength > long:
            out.append(rope["factor"])
        else:
            smooth = (rope["original_max_position_embeddings"] / wavelength - rope["low_freq_factor"]) / (
                rope["high_freq_factor"] - rope["low_freq_factor"])
            out.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return np.array(out, np.float32)


def write_gguf(path, arch, name, config, model, half=False, tokenizer=None):
    arch = {"mistral": "llama"}.get(arch, arch)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    rope = config.rope_parameters
    w = gguf.GGUFWriter(path, arch)
    w.add_name(name)
    w.add_file_type(1 if half else 0)
    w.add_block_count(config.num_hidden_layers)
    w.add_context_length(config.max_position_embeddings)
    w.add_embedding_length(config.hidden_size)
    w.add_feed_forward_length(config.intermediate_size)
    w.add_head_count(config.num_attention_heads)
    w.add_head_count_kv(config.num_key_value_heads)
    w.add_key_length(head_dim)
    w.add_value_length(head_dim)
    w.add_rope_dimension_count(head_dim)
    w.add_rope_freq_base(rope["rope_theta"])
    w.add_layer_norm_rms_eps(config.rms_norm_eps)
    types = getattr(config, "layer_types", None) or ["sliding_attention"]
    if getattr(config, "sliding_window", None) and "sliding_attention" in types:
        w.add_sliding_window(config.sliding_window)
        if "full_attention" in types:
            w.add_sliding_window_pattern([t == "sliding_attention" for t in types])
    w.add_vocab_size(config.vocab_size)
    if arch == "granite":
        w.add_embedding_scale(config.embedding_multiplier)
        w.add_residual_scale(config.residual_multiplier)
        w.add_attention_scale(config.attention_multiplier)
        w.add_logit_scale(config.logits_scaling)
    if rope["rope_type"] == "linear":
        w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        w.add_rope_scaling_factor(rope["factor"])
    if tokenizer:
        tokenizer(w)
    if rope["rope_type"] == "llama3":
        w.add_tensor("rope_freqs.weight", llama3_factors(rope, head_dim))
    for key, p in model.state_dict().items():
        if key == "lm_head.weight" and config.tie_word_embeddings:
            continue
        a = p.numpy()
        if arch in ("llama", "granite") and ".q_proj" in key:
            a = interleave(a, config.num_attention_heads)
        if arch in ("llama", "granite") and "k_proj" in key:
            a = interleave(a, config.num_key_value_heads)
        w.add_tensor(gguf_name(key), a.astype(np.float16) if half and a.ndim == 2 else a)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


# ---- forward: random weights, logits -----------------------------------------------------------------------------
def make_forward(name, seed):
    arch, n, options = {**FORWARD, **WINDOWS, **WEIGHTS}[name]
    torch.manual_seed(seed)
    config, model = make_model(arch, options)
    ids = torch.randint(0, config.vocab_size, (n,))
    with torch.no_grad():
        logits = model(ids[None]).logits[0].numpy()
        exact = model.double()(ids[None]).logits[0].numpy()
    model.float()
    error = np.abs(logits - exact).max() / exact.std()
    write_gguf(GOLDEN / "forward" / f"{name}.gguf", arch, name, config, model)
    with open(GOLDEN / "forward" / f"{name}.bin", "wb") as f:
        np.array([n, config.vocab_size], "<i4").tofile(f)
        ids.numpy().astype("<i4").tofile(f)
        logits.astype("<f4").tofile(f)
    print(f"{name}: {n} tokens, standard deviation of the logits {exact.std():.3f}, float32 against float64 {error:.1e} of it")


# ---- chat: a tokenizer and known answers --------------------------------------------------------------------------
def byte_tokens():
    """The 256 printable characters that stand for the bytes (byte-level BPE of GPT-2), in byte order."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = iter(range(256, 512))
    return [chr(b) if b in keep else chr(next(other)) for b in range(256)]


def chat_text(dialogue):
    return "".join(f"<|im_start|>user\n{q}<|im_end|>\n<|im_start|>assistant\n{a}<|im_end|>\n" for q, a in dialogue)


def make_chat(name, seed):
    arch, pre, half, options = CHAT[name]
    torch.manual_seed(seed)
    merges = [tuple(m.split()) for m in MERGES]
    vocab = byte_tokens() + ["".join(m) for m in merges]
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tok = tokenizers.Tokenizer(tokenizers.models.BPE({t: i for i, t in enumerate(vocab)}, merges))
    tok.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = tokenizers.decoders.ByteLevel()
    tok.add_special_tokens(specials)
    eot = tok.token_to_id("<|im_end|>")
    config, model = make_model(arch, {**options, "vocab_size": len(vocab) + len(specials)})
    with torch.no_grad():  # start small: the model has to learn
        for p_name, p in model.named_parameters():
            if "norm" not in p_name:
                p.mul_(0.3 if "embed" not in p_name else 0.2)

    # train on the dialogues until every answer's token leads by a wide margin
    rows = [torch.tensor(tok.encode(chat_text(d)).ids) for d in DIALOGUES]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    for _ in range(600):
        loss = sum(torch.nn.functional.cross_entropy(model(r[None]).logits[0, :-1], r[1:]) for r in rows) / len(rows)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    if half:
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(p.half().float()) if p.ndim == 2 else None

    # what it says, greedily
    cases = []
    for d in DIALOGUES:
        prompt = chat_text(d)[: -len(d[-1][1]) - len("<|im_end|>\n")]
        ids = tok.encode(prompt).ids
        answer, margin = [], 1e9
        with torch.no_grad():
            while not answer or (answer[-1] != eot and len(answer) < 100):
                top = model(torch.tensor([ids + answer])).logits[0, -1].topk(2)
                margin = min(margin, float(top.values[0] - top.values[1]))
                answer.append(int(top.indices[0]))
        text = tok.decode(answer[:-1], skip_special_tokens=False)
        assert text == d[-1][1] and margin > 1, (name, text, margin)
        cases.append({"messages": [{"role": r, "content": c} for q, a in d for r, c in (("user", q), ("assistant", a))][:-1],
                      "prompt": prompt, "prompt_ids": ids, "answer": text, "answer_ids": answer, "margin": round(margin, 2)})

    def tokenizer(w):
        w.add_tokenizer_model("gpt2")
        w.add_tokenizer_pre(pre)
        w.add_token_list(vocab + specials)
        w.add_token_types([1] * len(vocab) + [3] * len(specials))
        w.add_token_merges(MERGES)
        w.add_eos_token_id(eot)
        w.add_pad_token_id(tok.token_to_id("<|endoftext|>"))
        w.add_add_bos_token(False)
        w.add_chat_template(CHATML)

    with torch.no_grad():
        write_gguf(GOLDEN / "chat" / f"{name}.gguf", arch, name, config, model.eval().requires_grad_(False), half, tokenizer)
    with open(GOLDEN / "chat" / f"{name}.json", "w") as f:
        json.dump(cases, f, ensure_ascii=False, indent=1)
        f.write("\n")
    print(f"{name}: loss {float(loss):.4f}, smallest margin {min(c['margin'] for c in cases)}")


def main():
    torch.set_num_threads(2)
    tables = [*FORWARD, *CHAT, *WINDOWS, *WEIGHTS]
    wanted = sys.argv[1:] or [*tables, "hf", "head", "tower", "drawn", "adapter", "embed"]
    for kind in ("forward", "chat"):
        (GOLDEN / kind).mkdir(parents=True, exist_ok=True)
    for seed, name in enumerate(tables, 100):
        if name in wanted:
            make_chat(name, seed) if name in CHAT else make_forward(name, seed)
    for name, row in folder.table().items():
        if "hf" in wanted or f"hf/{name}" in wanted:
            folder.make(name, row)
    for name, row in encoders.ROWS.items():
        if "embed" in wanted or f"embed/{name}" in wanted:
            encoders.make(name, row)
    for name in vision.ROWS:
        if "tower" in wanted or f"tower/{name}" in wanted:
            vision.make(name)
    if chosen := [name for name in drawn.ROWS if "drawn" in wanted or f"drawn/{name}" in wanted]:
        drawn.make_all(chosen, GOLDEN.parent.parent / "build" / "tests" / "test_drawn")
    if any(w.startswith("head") for w in wanted):
        from goldens import heads

        for name in heads.ROWS:
            if "head" in wanted or f"head/{name}" in wanted:
                heads.make(name)
    if any(w.startswith("adapter") for w in wanted):
        from goldens import adapters  # needs peft

        for name in adapters.ROWS:
            if "adapter" in wanted or f"adapter/{name}" in wanted:
                adapters.make(name)


if __name__ == "__main__":
    main()
