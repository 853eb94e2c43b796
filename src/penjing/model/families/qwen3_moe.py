"""Qwen3-MoE: Qwen3 with experts, none of them shared."""

from typing import Any

from penjing.model.config import ModelConfig
from penjing.model.families.common import read_experts, read_shape, read_windows
from penjing.model.families.family import Family, GGUFForm
from penjing.model.families.gguf_common import gguf_experts, gguf_shape
from penjing.model.families.qwen2_moe import read_sparse_layers
from penjing.model.foreign import ForeignConfig


def read(config: ForeignConfig) -> ModelConfig:
    bias, shape = config.flag("attention_bias"), read_shape(config)
    config.ignore("max_window_layers", "sliding_window")  # a window is in all layers or in none
    window = config.integer("sliding_window", 4096) if config.flag("use_sliding_window") else None
    count = "num_local_experts" if config.get("num_experts") is None else "num_experts"
    return ModelConfig(
        **shape,
        windows=read_windows(config, window),
        qkv_bias=bias,
        o_bias=bias,
        qk_norm="head",
        experts=read_experts(
            config,
            count,
            read_sparse_layers(config, shape["num_hidden_layers"]),
            normalize=config.flag("norm_topk_prob"),
        ),
        tie_word_embeddings=config.flag("tie_word_embeddings"),
    )


def gguf_config(metadata: ForeignConfig) -> dict[str, Any]:
    experts = gguf_experts(metadata, "num_experts")
    return {**gguf_shape(metadata, experts=True), **experts, "norm_topk_prob": True}


FAMILY = Family(
    ("qwen3_moe",),
    "Qwen3MoeForCausalLM",
    read,
    gguf=GGUFForm(("qwen3moe",), gguf_config),
)
