"""The dense models: one row each. Prompts have 12, 80 and 113 to 126 tokens, so windows and steps lie well below that."""
import json
import types

import torch
import transformers as t
from safetensors import safe_open
from safetensors.torch import save_file

SMALL = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=67,
             max_position_embeddings=256, tie_word_embeddings=False, pad_token_id=None, bos_token_id=None, eos_token_id=None,
             rms_norm_eps=0.01)  # so large that another one shows


def row(stem, about, marks=(), config=None, model=None, base=SMALL, **options):
    if any(k in options for k in ("layer_norm_eps", "norm_eps", "norm_epsilon")):
        base = {k: v for k, v in base.items() if k != "rms_norm_eps"}
    extra = {k: options.pop(k) for k in ("zero_centred", "prepare", "after", "gap", "save", "read", "unread", "seed", "states", "draft") if k in options}
    return dict(config=getattr(t, config or f"{stem}Config"), model=getattr(t, model or f"{stem}ForCausalLM"), about=about, marks=marks,
                options={**base, **options}, **extra)


def layers(*windowed):
    return ["sliding_attention" if w else "full_attention" for w in windowed]


GEMMA = dict(hidden_size=24, intermediate_size=40, num_attention_heads=2, num_key_value_heads=1, head_dim=16, vocab_size=71,
             tie_word_embeddings=True, sliding_window=24)
YARN = dict(rope_type="yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=32, beta_fast=2.0, beta_slow=0.5)
LLAMA3 = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64)
FALCON = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, vocab_size=67, ffn_hidden_size=56, max_position_embeddings=256,
              bos_token_id=None, eos_token_id=None, layer_norm_epsilon=0.01)


def longrope(n, original, **more):
    return dict(rope_type="longrope", rope_theta=10000.0, original_max_position_embeddings=original,
                long_factor=[1 + 0.9 * i for i in range(n)], short_factor=[1 + 0.15 * i for i in range(n)], **more)


def tower(stem, about, text, marks=(), model=None, config=None, **more):
    """A model of text inside one that sees images, as most folders of its kind have it; the tower is small and unused here."""
    extra = {k: more.pop(k) for k in ("zero_centred", "prepare", "after", "gap", "save", "states", "draft", "seed") if k in more}
    return dict(config=getattr(t, config or f"{stem}Config"), model=getattr(t, f"{stem}ForConditionalGeneration"), about=about, marks=marks,
                options=dict(text_config=text, bos_token_id=None, eos_token_id=None, pad_token_id=None, **more), **extra)


def published(path):
    """config.json with the two keys of published folders in place of those by layer."""
    config = json.loads((path / "config.json").read_text())
    text = config.get("text_config", config)
    del text["per_layer_config"]
    text.update(global_head_dim=32, num_global_key_value_heads=1 if text["attention_k_eq_v"] else None)
    (path / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def without_rope(path):
    config = json.loads((path / "config.json").read_text())
    del config["text_config"]["rope_parameters"]
    (path / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def keyed(**keys):
    """config.json with other keys; None: without it"""
    def change(path):
        config = json.loads((path / "config.json").read_text())
        config.update({k: v for k, v in keys.items() if v is not None})
        for k in [k for k, v in keys.items() if v is None]:
            del config[k]
        (path / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    return change


class NanbeigeForCausalLM(t.LlamaForCausalLM):
    """Nanbeige 4.2: a Llama whose layers are computed several times, with the last norm in between; transformers has no class of its own for it. source: mlx-lm, nanbeige.py"""
    loops, bare = 2, False

    def forward(self, input_ids, **_):
        x, norm = self.model.embed_tokens(input_ids), self.model.norm
        for i in range(self.loops):
            self.model.norm = torch.nn.Identity() if self.bare and i + 1 < self.loops else norm
            x = self.model(inputs_embeds=x, use_cache=False).last_hidden_state
        return types.SimpleNamespace(logits=self.lm_head(x))


def looped(about, loops, bare, **options):
    """config.json as published"""
    after = keyed(architectures=["NanbeigeForCausalLM"], model_type="nanbeige", num_loops=loops, skip_loop_final_norm=bare, loop_loss_weights=[], kv_channels=12, rope_parameters=None, rope_theta=10000.0)
    of = row("Llama", about, head_dim=12, after=after, unread=True, **options)
    return {**of, "model": type("NanbeigeForCausalLM", (NanbeigeForCausalLM,), dict(loops=loops, bare=bare))}


INTERNLM2 = {"self_attn.o_proj": "attention.wo", "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "feed_forward.w1",
             "mlp.up_proj": "feed_forward.w3", "mlp.down_proj": "feed_forward.w2", "model.embed_tokens": "model.tok_embeddings", "lm_head": "output"}


def as_internlm2(path):
    """InternLM 2 computes what Llama does; transformers has no class of its own for it. Names and keys as in its published folders."""
    with safe_open(path / "model.safetensors", "pt") as f:
        tensors, out = {k: f.get_tensor(k) for k in f.keys()}, {}
    c = json.loads((path / "config.json").read_text())
    heads, kv, width = c["num_attention_heads"], c["num_key_value_heads"], c["hidden_size"]
    for k, x in tensors.items():
        if "q_proj" in k:
            parts = [tensors[k.replace("q_proj", part)].reshape(kv, -1, width // heads, width) for part in ("q_proj", "k_proj", "v_proj")]
            k, x = k.replace("self_attn.q_proj", "attention.wqkv"), torch.cat(parts, 1).reshape(-1, width)
        for old, new in INTERNLM2.items():
            k = k.replace(old, new)
        if "k_proj" not in k and "v_proj" not in k:
            out[k] = x.contiguous()
    save_file(out, path / "model.safetensors", {"format": "pt"})
    same = "hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads hidden_act rms_norm_eps tie_word_embeddings max_position_embeddings vocab_size"
    (path / "config.json").write_text(json.dumps({"architectures": ["InternLM2ForCausalLM"], "attn_implementation": "eager", "bias": False, "initializer_range": 0.02, "model_type": "internlm2",
                                                  "pretraining_tp": 1, "rope_theta": c["rope_parameters"]["rope_theta"], "use_cache": True, **{k: c[k] for k in same.split()}}, indent=2, sort_keys=True) + "\n")


def steady(model):
    """Branches add less: the norms behind them magnify what a nearly closed gate leaves, and with it what rounding loses."""
    for name, p in model.named_parameters():
        if name.endswith(("post_attention_layernorm.weight", "post_feedforward_layernorm.weight", "post_per_layer_input_norm.weight")):
            p.copy_((0.3 * p).bfloat16().float())


def around_one(model):
    """The last norm's weights are what they are, those of layers are 1 less."""
    w = model.model.language_model.norm.weight
    w.copy_((w + 1).bfloat16().float())


EYE = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4)

DENSE = {
    "llama": row("Llama", "grouped queries, frequency factors of Llama 3",
                 rope_parameters=LLAMA3, head_dim=16),
    "llama-bias": row("Llama", "biases of every matrix", attention_bias=True, mlp_bias=True),
    "llama-longrope": row("Llama", "long factors from 33 positions on (two prompts), short ones below (one)", (32,),
                          original_max_position_embeddings=32, rope_parameters=longrope(4, 32)),
    "llama-dynamic": row("Llama", "dynamic scaling, which is none within the first 160 positions", max_position_embeddings=160,
                         rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, factor=4.0)),
    "qwen2-llama3": row("Qwen2", "frequency factors of Llama 3", rope_parameters=LLAMA3),
    "qwen3-bias": row("Qwen3", "biases of q, k, v and out, long factors and short ones", (32,), attention_bias=True, head_dim=12,
                      original_max_position_embeddings=32, rope_parameters=longrope(6, 32)),
    "qwen2": row("Qwen2", "a window of 24 in the last two of three layers", (24,), num_hidden_layers=3, use_sliding_window=True,
                 sliding_window=24, max_window_layers=1),
    "qwen3": row("Qwen3", "heads wider than n_embd / n_head, tied", head_dim=12, tie_word_embeddings=True),
    "muse_glimmer": tower("MuseGlimmer", "embeddings and heads normalised without weights, a gate of each number, window of 16 and rotation in three of four layers, beside a tower for images", {
        **SMALL, "model_type": "muse_glimmer_text", "hidden_size": 24, "head_dim": 8, "num_hidden_layers": 4, "sliding_window": 16, "final_logit_softcapping": 3.0, "output_multiplier": 0.7,
        "qk_scale_factor": 2.5, "bos_token_id": 1, "eos_token_id": 2}, (16,), zero_centred=True, prepare=around_one, out_hidden_size=8, projector_hidden_size=8, vision_config=dict(
        hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, pos_emb_height=2, pos_emb_width=2, patch_size=2, head_dim=4)),
    "mistral": row("Mistral", "a window of 20 in every layer, heads of their own width", (20,), head_dim=10, sliding_window=20),
    "gemma": row("Gemma", "embeddings by the root of the width, heads wider than n_embd / n_head", base={**SMALL, **{k: v for k, v in GEMMA.items() if k != "sliding_window"}},
                 zero_centred=True, after=keyed(hidden_act="gelu")),
    "olmo": row("Olmo", "LayerNorms without weights", base={k: v for k, v in SMALL.items() if k != "rms_norm_eps"}),
    "olmo-clip": row("Olmo", "q, k and v between -1 and 1", base={k: v for k, v in SMALL.items() if k != "rms_norm_eps"}, clip_qkv=1.0),
    "cohere": row("Cohere", "one LayerNorm for both branches, neighbours rotate, logits by 0.3", hidden_size=24, logit_scale=0.3, tie_word_embeddings=True, layer_norm_eps=0.01),
    "cohere-norm": row("Cohere", "a LayerNorm for each head of q and k", logit_scale=0.5, use_qk_norm=True, layer_norm_eps=0.01),
    "glm": row("Glm", "half of a head rotated by neighbours, bias on q, k and v, gate and up in one tensor", head_dim=12),
    "ministral": row("Ministral", "a window of 20 in every second layer", (20,), head_dim=10, sliding_window=20, layer_types=layers(1, 0)),
    "cwm": row("Cwm", "a window of 16 in all but the first of four layers, frequency factors of Llama 3", (16,), num_hidden_layers=4, hidden_size=24, sliding_window=16, head_dim=8, bos_token_id=1, eos_token_id=2,
               rope_parameters=LLAMA3, after=keyed(layer_types=None)),
    "granite_swa": row("GraniteSWA", "sinks, a window of 16 in all but the first of four layers, one layer without rotation, granite's factors", (16,), num_hidden_layers=4, hidden_size=24,
                       sliding_window=16, layer_rope_theta=[500.0, 500.0, 0, 500.0], embedding_multiplier=3.0, residual_multiplier=0.4,
                       attention_multiplier=0.4, logits_scaling=0.3, tie_word_embeddings=True),
    "nanbeige": looped("two layers computed three times, the last norm in between", 3, False, rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
    "nanbeige-bare": looped("one layer computed twice without a norm in between, biases", 2, True, num_hidden_layers=1, attention_bias=True, mlp_bias=True, rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
    "exaone": row("Exaone", "a Llama block under other names", model="LlamaForCausalLM", head_dim=None, after=keyed(architectures=["ExaoneForCausalLM"]), rope_parameters=LLAMA3),
    "internlm2": row("Llama", "a Llama block with each key head's queries, key and value together, under names of its own", after=as_internlm2, unread=True, hidden_size=40, num_attention_heads=4),
    "internlm3": row("InternLM3", "a Llama block under another name", model="LlamaForCausalLM", head_dim=12, after=keyed(architectures=["InternLM3ForCausalLM"])),
    "gemma2": row("Gemma2", "window of 24 in even layers, scale of its own, scores capped at 5, logits at 3", (24,), base={**SMALL, **GEMMA},
                  num_hidden_layers=4, query_pre_attn_scalar=20, attn_logit_softcapping=5.0, final_logit_softcapping=3.0,
                  zero_centred=True),
    "gemma3": row("Gemma3", "window of 24 in six of seven layers with a base of its own, linear factor on the full layer", (24,),
                  config="Gemma3TextConfig", base={**SMALL, **GEMMA}, num_hidden_layers=7, query_pre_attn_scalar=20, zero_centred=True,
                  rope_parameters=dict(full_attention=dict(rope_type="linear", rope_theta=1000000.0, factor=4.0),
                                       sliding_attention=dict(rope_type="default", rope_theta=10000.0))),
    "gemma3-bias": row("Gemma3", "biases of q, k, v and out", (24,), config="Gemma3TextConfig", base={**SMALL, **GEMMA}, layer_types=layers(1, 0),
                       query_pre_attn_scalar=20, zero_centred=True, attention_bias=True),
    "gemma4": row("Gemma4", "window of 24 in five of six layers, full layer with wider heads, fewer of keys and no matrix of values", (24,),
                  config="Gemma4TextConfig", base={**SMALL, **GEMMA}, num_hidden_layers=6, num_attention_heads=4, num_key_value_heads=2,
                  global_head_dim=32, num_global_key_value_heads=1, attention_k_eq_v=True, hidden_size_per_layer_input=0,
                  vocab_size_per_layer_input=71, final_logit_softcapping=3.0),
    "gemma4-values": row("Gemma4", "as gemma4, but with a matrix of values and as many key heads on full layers", (24,),
                         config="Gemma4TextConfig", base={**SMALL, **GEMMA}, num_hidden_layers=4, num_attention_heads=4,
                         num_key_value_heads=2, global_head_dim=32, hidden_size_per_layer_input=0, vocab_size_per_layer_input=71,
                         layer_types=layers(1, 0, 1, 0)),
    "ministral3": row("Ministral3", "YaRN by 4 from 32 positions on, queries grow at 32, 64 and 96", (32, 96), head_dim=16,
                      rope_parameters={**YARN, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.3}),
    "granite": row("Granite", "factors of embeddings, branches, scores and logits", num_hidden_layers=3, embedding_multiplier=3.0,
                   residual_multiplier=0.22, attention_multiplier=0.4, logits_scaling=0.3),
    "minicpm": row("Granite", "factors by the number of layers and by the width; transformers has no class of its own for it", unread=True, num_hidden_layers=3, tie_word_embeddings=True,
                   embedding_multiplier=3.0, residual_multiplier=1.4 / 3 ** 0.5, attention_multiplier=8 ** -0.5, logits_scaling=32 / 20,
                   after=keyed(architectures=["MiniCPMForCausalLM"], model_type="minicpm", scale_emb=3, scale_depth=1.4, dim_model_base=20, embedding_multiplier=None,
                               residual_multiplier=None, attention_multiplier=None, logits_scaling=None)),
    "smollm3": row("SmolLM3", "no rotation in the fourth of five layers", num_hidden_layers=5, hidden_size=24, tie_word_embeddings=True),
    "seed_oss": row("SeedOss", "bias on q, k and v, none on the output, heads wider than n_embd / n_head", head_dim=12,
                    attention_bias=True, attention_out_bias=False),
    "olmo2": row("Olmo2", "norms behind the branches, q and k normalised over the whole row"),
    "olmo3": row("Olmo3", "window of 16 in four of five layers, YaRN on the full one alone", (16,), num_hidden_layers=5, num_attention_heads=2,
                 intermediate_size=32, sliding_window=16, rope_parameters=dict(full_attention=YARN, sliding_attention=dict(rope_type="default", rope_theta=10000.0))),
    "exaone4": row("Exaone4", "window of 16 and rotation in four of five layers, neither in the other", (16,), num_hidden_layers=5,
                   hidden_size=24, sliding_window=16, sliding_window_pattern=4),
    "exaone4-full": row("Exaone4", "no window: rotation in every layer", sliding_window=None, sliding_window_pattern=None,
                        layer_types=layers(0, 0)),
    "cohere2": row("Cohere2", "one norm for both branches, window of 16 and rotation in four of five layers, logits by 0.3", (16,),
                   num_hidden_layers=5, hidden_size=24, sliding_window=16, logit_scale=0.3, tie_word_embeddings=True, layer_norm_eps=0.01),
    "glm4": row("Glm4", "four norms, half of a head rotated, bias on q, k and v, gate and up in one tensor", head_dim=12,
                attention_bias=True, num_hidden_layers=3),
    "phi3": row("Phi3", "q, k and v in one tensor, gate and up in one, window of 20", (20,), sliding_window=20),
    "phi3-long": row("Phi3", "long factors from 33 positions on (two prompts), short ones below (one)", (32,),
                     original_max_position_embeddings=32, rope_parameters=longrope(4, 32)),
    "phi3-short": row("Phi3", "short factors: no prompt is longer than the first 200 positions", original_max_position_embeddings=200,
                      rope_parameters=longrope(4, 200)),
    "phi3-partial": row("Phi3", "three quarters of a head rotated, long factors", num_attention_heads=2, num_key_value_heads=1,
                        original_max_position_embeddings=32, rope_parameters=longrope(6, 32, partial_rotary_factor=0.75)),
    "starcoder2": row("Starcoder2", "LayerNorm and biases everywhere, window of 20, plain feed-forward", (20,), sliding_window=20,
                      tie_word_embeddings=True, norm_epsilon=0.01),
    "phi": row("Phi", "both branches from one LayerNorm, biases everywhere, half of a head rotated", num_attention_heads=4, num_key_value_heads=2, layer_norm_eps=0.01, rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)),
    "stablelm": row("StableLm", "one branch after the other, a quarter of a head rotated", num_attention_heads=2, num_key_value_heads=1, layer_norm_eps=0.01),
    "stablelm-parallel": row("StableLm", "both branches from one norm, bias on q, k and v, a norm for each head", num_attention_heads=4,
                             use_parallel_residual=True, qk_layernorm=True, use_qkv_bias=True,
                             rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5), layer_norm_eps=0.01),
    "gpt2": row("GPT2", "learned positions, matrices stored transposed, q, k and v in one", model="GPT2LMHeadModel", n_embd=32, n_layer=2,
                n_head=4, n_positions=160, base=dict(vocab_size=67, bos_token_id=None, eos_token_id=None, layer_norm_epsilon=0.01)),
    "gpt2-erf": row("GPT2", "the other GELU", model="GPT2LMHeadModel", n_embd=32, n_layer=2, n_head=4, n_positions=160, activation_function="gelu",
                    base=dict(vocab_size=67, bos_token_id=None, eos_token_id=None, layer_norm_epsilon=0.01)),
    "gpt_neox-tanh": row("GPTNeoX", "the other GELU", num_attention_heads=2, layer_norm_eps=0.01, hidden_act="gelu_fast"),
    "granite-bias": row("Granite", "biases of every matrix", attention_bias=True, mlp_bias=True, embedding_multiplier=6.0, attention_multiplier=0.25,
                        residual_multiplier=0.5, logits_scaling=2.0),
    "nemotron-bias": row("Nemotron", "biases of every matrix", head_dim=12, zero_centred=True, norm_eps=0.01, attention_bias=True, mlp_bias=True),
    "gpt_neox": row("GPTNeoX", "branches from two norms of one input, q, k and v by heads in one tensor, a quarter of a head rotated",
                    num_attention_heads=2, layer_norm_eps=0.01),
    "gpt_neox-serial": row("GPTNeoX", "one branch after the other", num_attention_heads=2, use_parallel_residual=False, layer_norm_eps=0.01),
    "falcon": row("Falcon", "one key head, one norm for both branches", base=FALCON),
    "falcon-new": row("Falcon", "two key heads, q, k and v by key head in one tensor, a norm for each branch", base=FALCON, new_decoder_architecture=True, num_kv_heads=2),
    "falcon-one-norm": row("Falcon", "as falcon-new with one norm for both branches, and biases", base=FALCON, new_decoder_architecture=True, num_kv_heads=2, num_ln_in_parallel_attn=1, bias=True),
    "hunyuan_v1_dense": row("HunYuanDenseV1", "q and k normalised after their rotation, base by alpha", head_dim=12,
                            rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, alpha=50.0, factor=1.0, beta_fast=32, beta_slow=1,
                                                 mscale=1.0, mscale_all_dim=0.0)),
    "ernie4_5": row("Ernie4_5", "rotation of neighbours, heads wider than n_embd / n_head", head_dim=12, tie_word_embeddings=True),
    "ernie4_5-bias": row("Ernie4_5", "with use_bias", use_bias=True, head_dim=8),
    "arcee": row("Arcee", "squared ReLU without a gate", head_dim=8),
    "nemotron": row("Nemotron", "LayerNorm with weights around 0, squared ReLU without a gate, half of a head rotated", head_dim=12,
                    zero_centred=True, norm_eps=0.01),
    "apertus": row("Apertus", "xIELU without a gate, q and k normalised", rope_parameters=LLAMA3, num_attention_heads=2),
    "qwen3_vl": tower("Qwen3VL", "the text part of a model with a tower for images", {**SMALL, "head_dim": 12, "rope_parameters": dict(
        rope_type="default", rope_theta=500000.0, mrope_section=[2, 2, 2], mrope_interleaved=True)}, vision_config=dict(
        depth=1, hidden_size=8, intermediate_size=8, num_heads=2, out_hidden_size=32, patch_size=2, deepstack_visual_indexes=[0],
        num_position_embeddings=4)),
    "qwen2_5_vl": tower("Qwen2_5_VL", "the text part of a model with a tower for images, sections one after the other", {**SMALL, "rope_parameters": dict(
        rope_type="default", rope_theta=500000.0, mrope_section=[1, 1, 2])}, vision_config=dict(
        depth=1, hidden_size=8, intermediate_size=8, num_heads=2, out_hidden_size=32, patch_size=2, window_size=8, fullatt_block_indexes=[0])),
    "qwen2_vl": tower("Qwen2VL", "the same under another name, tied", {**SMALL, "tie_word_embeddings": True, "rope_parameters": dict(
        rope_type="default", rope_theta=10000.0, mrope_section=[2, 1, 1])}, tie_word_embeddings=True, vision_config=dict(
        depth=1, embed_dim=8, mlp_ratio=1, num_heads=2, hidden_size=32, patch_size=2)),
    "glm4v": tower("Glm4v", "glm4 with sections of positions beside a tower for images", {**SMALL, "num_attention_heads": 2, "num_key_value_heads": 1, "rope_parameters": dict(
        rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5, mrope_section=[1, 1, 2])}, vision_config=dict(
        depth=1, hidden_size=8, intermediate_size=8, num_heads=2, out_hidden_size=32, patch_size=2, image_size=4)),
    "gemma3-image": tower("Gemma3", "gemma3 beside a tower for images", {**SMALL, **GEMMA, "model_type": "gemma3_text", "num_hidden_layers": 3,
        "query_pre_attn_scalar": 20, "layer_types": layers(1, 0, 1)}, (24,), zero_centred=True, vision_config=dict(
        **EYE, model_type="siglip_vision_model"), mm_tokens_per_image=1),
    "gemma3-image-few": tower("Gemma3", "as gemma3-image, but the bases of rotation are left to the class, as published folders leave them", {
        **SMALL, **GEMMA, "model_type": "gemma3_text", "num_hidden_layers": 3, "query_pre_attn_scalar": 20, "layer_types": layers(1, 0, 1)}, (24,),
        zero_centred=True, after=without_rope, vision_config=dict(**EYE, model_type="siglip_vision_model"), mm_tokens_per_image=1),
    "gemma4_unified": tower("Gemma4Unified", "gemma4 under another name, whose images have an embedder alone", {
        **SMALL, **GEMMA, "model_type": "gemma4_unified_text", "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
        "global_head_dim": 32, "num_global_key_value_heads": 1, "attention_k_eq_v": True, "layer_types": layers(1, 1, 0), "pad_token_id": 0}, (24,),
        after=published, audio_config=None, vision_config=dict(patch_size=4, pooling_kernel_size=1, mm_embed_dim=8, mm_posemb_size=4, output_proj_dims=24)),
    "gemma4-image": tower("Gemma4", "gemma4 beside a tower for images, with the keys that its published folders have", {
        **SMALL, **GEMMA, "model_type": "gemma4_text", "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
        "global_head_dim": 32, "num_global_key_value_heads": 1, "attention_k_eq_v": True, "hidden_size_per_layer_input": 0,
        "vocab_size_per_layer_input": 71, "layer_types": layers(1, 1, 0), "pad_token_id": 0}, (24,), after=published, audio_config=None, vision_config=dict(
        hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, head_dim=4, patch_size=4,
        position_embedding_size=16)),
    "gemma4-e2b": row("Gemma4", "embeddings of every layer, the last three of six layers on the keys and values of earlier ones and twice as wide", (24,),
                      config="Gemma4TextConfig", base={**SMALL, **GEMMA}, prepare=steady, seed=5, after=published, states=True, num_hidden_layers=6, num_attention_heads=4, num_key_value_heads=1,
                      rms_norm_eps=0.3, global_head_dim=32, attention_k_eq_v=False, hidden_size_per_layer_input=16, vocab_size_per_layer_input=71,
                      num_kv_shared_layers=3, use_double_wide_mlp=True, intermediate_size=20, layer_types=layers(1, 1, 0, 1, 1, 0)),
    "gemma3n": row("Gemma3n", "four residual streams, something of low rank beside attention, half of the gates left out in two layers, inputs of every layer with a smaller table, the last two of six layers on the keys and values of earlier ones", (16,),
                   config="Gemma3nTextConfig", base={**SMALL, **GEMMA}, num_hidden_layers=6, num_attention_heads=4, num_key_value_heads=2, sliding_window=16,
                   hidden_size_per_layer_input=8, vocab_size_per_layer_input=69, num_kv_shared_layers=2, laurel_rank=6, final_logit_softcapping=3.0,
                   activation_sparsity_pattern=[0.5, 0.8, 0.0, 0.0, 0.0, 0.0], layer_types=layers(1, 1, 0, 1, 1, 0)),
    "gemma4-e4b": tower("Gemma4", "embeddings of every layer, two shared ones of five, beside a tower for images", {
        **SMALL, **GEMMA, "model_type": "gemma4_text", "num_hidden_layers": 5, "num_attention_heads": 4, "num_key_value_heads": 2,
        "global_head_dim": 32, "attention_k_eq_v": False, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 71,
        "num_kv_shared_layers": 2, "use_double_wide_mlp": False, "layer_types": layers(1, 0, 1, 1, 0), "pad_token_id": 0}, (24,), after=published,
        audio_config=None, vision_config=dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, head_dim=4, patch_size=4, position_embedding_size=16)),
    "mistral3-mistral": tower("Mistral3", "mistral beside a tower for images", {**SMALL, "model_type": "mistral", "head_dim": 16, "sliding_window": None}, (),
                              vision_config=dict(**EYE, model_type="pixtral", head_dim=4)),
    "mistral3": tower("Mistral3", "ministral3 beside a tower for images", {**SMALL, "model_type": "ministral3", "head_dim": 16,
        "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.3}}, (32, 96), vision_config=dict(
        **EYE, model_type="pixtral", head_dim=4)),
}
