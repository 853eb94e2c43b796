"""Granite 3 (dense): Llama with multipliers on embeddings, scores, residuals and logits."""

from dataclasses import replace
from typing import Any

from penjing.model.config import ModelConfig
from penjing.model.families import llama
from penjing.model.families.family import Family, GGUFForm
from penjing.model.families.gguf_common import gguf_shape, shortest
from penjing.model.foreign import ForeignConfig


def read(config: ForeignConfig) -> ModelConfig:
    return replace(
        llama.read(config),
        embedding_scale=config.number("embedding_multiplier", 1.0),
        attention_scale=config.number("attention_multiplier", 1.0),
        residual_scale=config.number("residual_multiplier", 1.0),
        logit_scale=1.0 / config.number("logits_scaling", 1.0),
    )


def gguf_config(metadata: ForeignConfig) -> dict[str, Any]:
    metadata.expect("rope.scaling.finetuned", True)  # llama.cpp turns nothing where it is false
    shape = gguf_shape(metadata)
    return shape | {
        "embedding_multiplier": shortest(metadata.number("embedding_scale", 1.0)),
        "attention_multiplier": shortest(metadata.number("attention.scale", shape["head_dim"] ** -0.5)),
        "residual_multiplier": shortest(metadata.number("residual_scale", 1.0)),
        "logits_scaling": shortest(metadata.number("logit_scale")),
    }


def gguf_metadata(config: ModelConfig) -> dict[str, Any]:
    return {
        "embedding_scale": config.embedding_scale,
        "attention.scale": config.attention_scale,
        "residual_scale": config.residual_scale,
        "logit_scale": 1.0 / (config.logit_scale or 1.0),
    }


GGUF = GGUFForm(("granite",), gguf_config, llama.gguf_rules, gguf_metadata)
FAMILY = Family(("granite",), "GraniteForCausalLM", read, gguf=GGUF)
