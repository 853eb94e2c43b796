"""Tiny random models of architectures without a family file, as transformers saves them."""

from pathlib import Path

import torch
from tests.unit.text_samples import CHAT_TEMPLATE, byte_level_backend, write_folder
from transformers import AutoConfig, AutoModelForCausalLM

_COMMON = {
    "vocab_size": 640,
    "initializer_range": 0.1,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 1,
}
_WITHOUT_LIMIT = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
}
_TRANSFORMER = _WITHOUT_LIMIT | {"max_position_embeddings": 256}
_GPT = {"n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 256, "n_ctx": 256}

# What each stands for is in the key; the model type comes first.
BRIDGED = {
    "mpt: ALiBi, tied": ("mpt", {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 256}),
    "codegen: untied, biased head": ("codegen", _GPT | {"rotary_dim": 4}),
    "ctrl: scaled embedding, tied weight with a bias": ("ctrl", _GPT | {"dff": 48}),
    "openai-gpt: no cache": ("openai-gpt", _GPT),
    "mamba: a state": ("mamba", {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4}),
    "rwkv: a state of single rows": (
        "rwkv",
        {"hidden_size": 32, "attention_hidden_size": 32, "num_hidden_layers": 8, "context_length": 256},
    ),
    "recurrent_gemma: soft cap, windows": (
        "recurrent_gemma",
        _WITHOUT_LIMIT | {"num_hidden_layers": 3, "lru_width": 32, "attention_window_size": 8, "head_dim": 8},
    ),
    "jamba: states beside keys, experts": (
        "jamba",
        _TRANSFORMER
        | {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1}
        | {"num_experts": 4, "mamba_d_state": 4, "mamba_dt_rank": 4, "use_mamba_kernels": False},
    ),
    "bamba: another state beside keys": (
        "bamba",
        _TRANSFORMER
        | {"attn_layer_indices": [1], "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 2}
        | {"mamba_d_state": 4},
    ),
    "olmoe: experts, fused as they are loaded": (
        "olmoe",
        _TRANSFORMER | {"num_experts": 4, "num_experts_per_tok": 2},
    ),
    "granitemoe: scaled logits": (
        "granitemoe",
        _TRANSFORMER | {"num_local_experts": 4, "num_experts_per_tok": 2, "logits_scaling": 3.0},
    ),
}


def make_reference(name: str, **changes):
    """The model of that name in `BRIDGED`, the same each time; `changes` go to its config."""
    model_type, settings = BRIDGED[name]
    config = AutoConfig.for_model(model_type, **(_COMMON | settings | changes))
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return AutoModelForCausalLM.from_config(config).eval()


def write_bridged(name: str, folder: Path, **changes) -> Path:
    """That model and a tokenizer in a folder, as they are published."""
    make_reference(name, **changes).bfloat16().save_pretrained(folder)
    write_folder(folder, byte_level_backend(), {"chat_template": CHAT_TEMPLATE})
    return folder


def open_reference(folder: Path):
    """What transformers makes of a folder, whose tensors must be all that it wants and no more."""
    reference, info = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True
    )
    assert not any(info.values()), info
    if reference.config.model_type == "rwkv":
        reference.config.rescale_every = 0  # what float16 needs, at the price of a few hundred-thousandths
    return reference.eval()
