"""Adapters of PEFT for the tiny models of tests/golden/hf, and the logits that PEFT computes with them."""
import pathlib

import peft
import safetensors.torch
import torch
import transformers

from . import folder

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "adapter"
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
# name: the folder, what PEFT's configuration says, how sure routers are of the prompts' tokens, experts that have pairs of their own
ROWS = {
    # every matrix, ranks and alphas of their own, the head
    "llama": ("llama", dict(r=4, lora_alpha=6, target_modules=[*ALL, "lm_head"], rank_pattern={"v_proj": 7},
                            alpha_pattern={"layers.1.self_attn.o_proj": 2}), 0, False),
    # another one of the same model, by alpha / sqrt(r)
    "llama-second": ("llama", dict(r=9, lora_alpha=3, target_modules=["q_proj", "down_proj"], use_rslora=True), 0, False),
    # a head that is the embedding
    "qwen3": ("qwen3", dict(r=4, lora_alpha=8, target_modules=ALL), 0, False),
    # q, k and v in one matrix, gate and up in one
    "phi3": ("phi3", dict(r=5, lora_alpha=5, target_modules=["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]), 0, False),
    # factors of matrices, which hold for what is added, too
    "falcon_h1": ("falcon_h1", dict(r=3, lora_alpha=5, target_modules=ALL), 0, False),
    # each head's query in front of its gate
    "qwen3_next": ("qwen3_next", dict(r=3, lora_alpha=5, target_modules=ALL[:4]), 0.02, False),
    # pairs of every expert, which PEFT writes where experts are modules, and here are added to what transformers has
    "mixtral": ("mixtral", dict(r=3, lora_alpha=6, target_modules=["q_proj", "v_proj"]), 0.02, True),
}


def rounded(shape, size):
    return (torch.randn(shape) * size).bfloat16().float()


def draw_pairs(model):
    for name, p in model.named_parameters():
        if ".lora_A." in name:
            p.copy_(rounded(p.shape, p.shape[1] ** -0.5))
        if ".lora_B." in name:
            p.copy_(rounded(p.shape, 0.5 * p.shape[1] ** -0.5))


def draw_experts(model, config):
    """Pairs of each expert's three matrices, added to the stacks that transformers has."""
    out, scale = {}, config.lora_alpha / config.r
    for layer, block in enumerate(model.base_model.model.model.layers):
        experts = block.mlp.experts
        for e in range(experts.gate_up_proj.shape[0]):
            n = experts.gate_up_proj.shape[1] // 2
            for part, w in (("w1", experts.gate_up_proj[e, :n]), ("w3", experts.gate_up_proj[e, n:]), ("w2", experts.down_proj[e])):
                a, b = rounded((config.r, w.shape[1]), w.shape[1] ** -0.5), rounded((w.shape[0], config.r), 0.5 * config.r ** -0.5)
                w += scale * b @ a
                front = f"base_model.model.model.layers.{layer}.block_sparse_moe.experts.{e}.{part}"
                out |= {f"{front}.lora_A.weight": a, f"{front}.lora_B.weight": b}
    return out


@torch.no_grad()
def make(name):
    base, options, gap, experts = ROWS[name]
    torch.manual_seed(len(name) * 1000 + sum(map(ord, name)))
    model = transformers.AutoModelForCausalLM.from_pretrained(folder.HF / base, dtype=torch.float32, attn_implementation="eager")
    config = peft.LoraConfig(task_type="CAUSAL_LM", **options)
    model = peft.get_peft_model(model, config).eval()
    draw_pairs(model)
    tensors = peft.get_peft_model_state_dict(model, save_embedding_layers=False)
    if experts:
        tensors |= draw_experts(model, config)
    path = GOLDEN / name
    path.mkdir(parents=True, exist_ok=True)
    config.inference_mode, config.base_model_name_or_path = True, base
    config.save_pretrained(path)
    safetensors.torch.save_file({k: v.bfloat16().contiguous() for k, v in tensors.items()}, path / "adapter_model.safetensors")
    n_vocab = model.config.vocab_size
    prompts = [folder.draw_prompt(model, n, n_vocab, gap) for n in (5, 70, 100)]
    logits = [folder.logits_of(model, p[None])[0].numpy() for p in prompts]
    sd = folder.write_logits(path / "logits.bin", prompts, logits, [folder.rows_of(len(p), ()) for p in prompts])
    with model.disable_adapter():
        without = folder.logits_of(model, prompts[1][None])[0].numpy()
    print(f"adapter/{name}: sd {sd:.2f}, changed by {float((logits[1] - without).std()):.2f}, {len(tensors)} tensors")
