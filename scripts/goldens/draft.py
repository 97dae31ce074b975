"""The layer of a folder that drafts the token after the next one: random weights, and the logits that it gives."""
import copy

import torch
from safetensors import safe_open
from safetensors.torch import save_file


class Draft(torch.nn.Module):
    """x' = join [norm(embedding of the next token), norm(last hidden state of the model)], one layer of attention, a norm, the model's head."""

    def __init__(self, model):
        super().__init__()
        base = model.get_decoder()
        self.config = copy.deepcopy(model.config.get_text_config())
        self.config._attn_implementation = self.config._experts_implementation = "eager"
        self.config.num_hidden_layers = 1
        if getattr(self.config, "layer_types", None):
            self.config.layer_types = ["full_attention"]
        if hasattr(self.config, "first_k_dense_replace"):
            self.config.first_k_dense_replace = 0
        d = self.config.hidden_size
        norm = type(base.norm)
        self.join = torch.nn.Linear(2 * d, d, bias=False)
        self.norm_embedding, self.norm_hidden, self.norm_last = (norm(d, eps=self.config.rms_norm_eps) for _ in range(3))
        self.layer = type(base.layers[-1])(self.config, 0)

    def logits(self, model, ids):
        """ids[n] -> logits[n - 1][n_vocab]: row t has read the tokens up to t + 1."""
        base = model.get_decoder()
        hidden = base(input_ids=ids[None], use_cache=False).last_hidden_state[:, :-1]
        near = model.get_input_embeddings()(ids[None, 1:])
        n = near.shape[1]
        at = torch.arange(1, n + 1)[None]
        mask = torch.full((n, n), float("-inf")).triu(1)[None, None]
        x = self.join(torch.cat([self.norm_embedding(near), self.norm_hidden(hidden)], -1))
        x = self.layer(x, position_embeddings=base.rotary_emb(x, at), attention_mask=mask, position_ids=at, past_key_values=None)
        return model.lm_head(self.norm_last(x))[0]


def names(style, n_layer):
    """What stands before a part in published folders."""
    if style == "mtp":
        return {"join": "mtp.fc", "norm_embedding": "mtp.pre_fc_norm_embedding", "norm_hidden": "mtp.pre_fc_norm_hidden",
                "norm_last": "mtp.norm", "layer": "mtp.layers.0"}
    at = f"model.layers.{n_layer}."
    return {"join": at + "eh_proj", "norm_embedding": at + "enorm", "norm_hidden": at + "hnorm", "norm_last": at + "shared_head.norm", "layer": at[:-1]}


def parts(draft, style, n_layer):
    """Its tensors as a folder has them: experts apart beside others that are apart."""
    begins = names(style, n_layer)
    for key, x in draft.state_dict().items():
        head, rest = key.split(".", 1)
        name = f"{begins[head]}.{rest}"
        if style == "mtp" or ".experts." not in name:
            yield name, x
        elif name.endswith("gate_up_proj"):
            for e, both in enumerate(x):
                for part, half in zip(("gate_proj", "up_proj"), both.chunk(2)):
                    yield name.replace("experts.gate_up_proj", f"experts.{e}.{part}.weight"), half
        else:
            for e, one in enumerate(x):
                yield name.replace("experts.down_proj", f"experts.{e}.down_proj.weight"), one


def add(path, draft, style, model):
    """Puts the tensors of a draft layer into a folder; nextn: with copies of the table and of the head, as published."""
    with safe_open(path / "model.safetensors", "pt") as f:
        tensors, about = {k: f.get_tensor(k) for k in f.keys()}, f.metadata()
    n_layer = model.config.get_text_config().num_hidden_layers
    for name, x in parts(draft, style, n_layer):
        float32 = name.endswith("e_score_correction_bias")
        tensors[name] = x.clone().float() if float32 else x.bfloat16().contiguous()
    if style == "nextn":
        tensors[f"model.layers.{n_layer}.embed_tokens.weight"] = tensors["model.embed_tokens.weight"].clone()
        tensors[f"model.layers.{n_layer}.shared_head.head.weight"] = tensors["lm_head.weight"].clone()
    save_file(tensors, path / "model.safetensors", about)
