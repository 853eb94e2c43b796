"""Llama 1 to 3.3, and what is built like it (SmolLM, TinyLlama, Yi): no biases, optional windows in none."""

import torch

from penjing.model.config import ModelConfig
from penjing.model.families.common import gguf_shape, read_shape
from penjing.model.families.family import Family
from penjing.model.foreign import ForeignConfig


def read(config: ForeignConfig) -> ModelConfig:
    config.expect("pretraining_tp", 1)
    attention_bias = config.flag("attention_bias")
    shape = read_shape(config)
    return ModelConfig(
        **shape,
        windows=(None,) * shape["num_hidden_layers"],
        tie_word_embeddings=config.flag("tie_word_embeddings"),
        qkv_bias=attention_bias,
        o_bias=attention_bias,
        mlp_bias=config.flag("mlp_bias"),
    )


def undo_gguf(name: str, tensor: torch.Tensor, config: ModelConfig) -> torch.Tensor:
    """Under this architecture llama.cpp stores the rows of Q and K in pairs (i, i + h/2); put the halves
    back."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    leaf = name.split(".")[-2]
    if leaf not in heads:
        return tensor
    paired = tensor.unflatten(0, (heads[leaf], config.head_dim // 2, 2))
    return paired.transpose(1, 2).reshape(tensor.shape)


FAMILY = Family("llama", "LlamaForCausalLM", ("llama",), read, gguf_shape, undo_gguf)
