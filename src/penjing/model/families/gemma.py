"""Gemma 1: Llama with a scaled embedding, norms that store the distance of their gain from one, and a tied
head."""

from typing import Any

from penjing.model.config import ModelConfig
from penjing.model.families.common import read_activation, read_shape
from penjing.model.families.family import Family, GGUFForm
from penjing.model.families.gguf_common import gguf_shape, shifted_norm_rules
from penjing.model.foreign import ForeignConfig


def read(config: ForeignConfig) -> ModelConfig:
    shape = read_gemma_shape(config)
    return ModelConfig(**shape, windows=(None,) * shape["num_hidden_layers"])


def read_gemma_shape(config: ForeignConfig) -> dict[str, Any]:
    """What all Gemmas share."""
    config.expect("use_bidirectional_attention", False)
    shape = read_shape(config)
    bias = config.flag("attention_bias")
    activation = read_activation(config, "hidden_activation", config.get("hidden_act", "gelu"))
    if activation == "gelu":  # what the first releases said; they meant the approximation
        activation = "gelu_pytorch_tanh"
    return shape | {
        "hidden_act": activation,
        "norm_offset": 1.0,
        "embedding_scale": shape["hidden_size"] ** 0.5,
        "tie_word_embeddings": config.flag("tie_word_embeddings", True),
        "qkv_bias": bias,
        "o_bias": bias,
    }


def gguf_config(metadata: ForeignConfig) -> dict[str, Any]:
    return gguf_shape(metadata) | {"hidden_act": "gelu_pytorch_tanh"}


FAMILY = Family(
    ("gemma",), "GemmaForCausalLM", read, gguf=GGUFForm(("gemma",), gguf_config, shifted_norm_rules)
)
