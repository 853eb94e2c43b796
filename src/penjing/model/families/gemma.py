"""Gemma 1 (arXiv 2403.08295): norms whose gain is one plus what is stored, and scaled embeddings."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from penjing.model.config import ModelConfig
from penjing.model.families.common import gguf_shape, read_shape
from penjing.model.families.family import Family, GGUFForm
from penjing.model.foreign import ForeignConfig
from penjing.model.gguf_names import gguf_rules
from penjing.model.layouts import Shifted
from penjing.model.names import Rule

ACTIVATION = "gelu_pytorch_tanh"
DEFAULTS = {"hidden_act": ACTIVATION, "tie_word_embeddings": True}


def read(config: ForeignConfig) -> ModelConfig:
    shape = read_shared(config)
    config.expect("hidden_activation", ACTIVATION)
    if shape["hidden_act"] == "gelu":  # the first configs say so, and mean its approximation
        shape["hidden_act"] = ACTIVATION
    return ModelConfig(**shape, windows=(None,) * shape["num_hidden_layers"])


def read_shared(config: ForeignConfig) -> dict[str, Any]:
    """What all Gemmas have."""
    config.expect("use_bidirectional_attention", False)
    shape, attention_bias = read_shape(config), config.flag("attention_bias")
    return shape | {
        "tie_word_embeddings": config.flag("tie_word_embeddings"),
        "qkv_bias": attention_bias,
        "o_bias": attention_bias,
        "norm_offset": 1.0,
        "embedding_scale": shape["hidden_size"] ** 0.5,
    }


def gguf_config(metadata: ForeignConfig) -> dict[str, Any]:
    return gguf_shape(metadata) | {"hidden_act": ACTIVATION}


def gguf_norms(config: ModelConfig) -> Sequence[Rule]:
    """llama.cpp stores the gain itself."""
    norms = (rule for rule in gguf_rules(config) if rule.native[0].endswith("norm.weight"))
    return [replace(rule, layout=Shifted(1.0)) for rule in norms]


GGUF = GGUFForm(("gemma",), gguf_config, gguf_norms)
FAMILY = Family(("gemma",), "GemmaForCausalLM", read, gguf=GGUF, defaults=DEFAULTS)
