"""Qwen1.5-MoE and Qwen2-MoE: Qwen2 with experts, and one that every token sees, weighed by a gate."""

from collections.abc import Sequence
from typing import Any

from penjing.model.config import ModelConfig
from penjing.model.families.common import read_experts, read_shape
from penjing.model.families.family import Family, GGUFForm
from penjing.model.families.gguf_common import gguf_experts, gguf_shape
from penjing.model.families.qwen2 import read_upper_windows
from penjing.model.foreign import ForeignConfig
from penjing.model.names import Rule, rename


def read(config: ForeignConfig) -> ModelConfig:
    shape = read_shape(config)
    return ModelConfig(
        **shape,
        windows=read_upper_windows(config),
        qkv_bias=config.flag("qkv_bias", True),
        experts=read_experts(
            config,
            "num_experts",
            read_sparse_layers(config, shape["num_hidden_layers"]),
            normalize=config.flag("norm_topk_prob"),
            shared_size=config.integer("shared_expert_intermediate_size"),
            shared_gate=True,
        ),
        tie_word_embeddings=config.flag("tie_word_embeddings"),
    )


def read_sparse_layers(config: ForeignConfig, layers: int) -> tuple[bool, ...]:
    """Every `decoder_sparse_step`-th layer has experts, less those listed as `mlp_only_layers`."""
    step, dense = config.integer("decoder_sparse_step", 1), config.get("mlp_only_layers", [])
    return tuple(i not in dense and (i + 1) % step == 0 for i in range(layers))


def rules(config: ModelConfig) -> Sequence[Rule]:
    return [
        rename(
            f"model.layers.{{i}}.mlp.shared_expert.{leaf}.weight",
            f"model.layers.{{i}}.mlp.shared_experts.{leaf}.weight",
        )
        for leaf in ("gate_proj", "up_proj", "down_proj")
    ]


def gguf_config(metadata: ForeignConfig) -> dict[str, Any]:
    return {
        **gguf_shape(metadata, experts=True),
        **gguf_experts(metadata, "num_experts"),
        "shared_expert_intermediate_size": metadata.integer("expert_shared_feed_forward_length"),
        "norm_topk_prob": False,
    }


GGUF = GGUFForm(("qwen2moe",), gguf_config)
FAMILY = Family(("qwen2_moe",), "Qwen2MoeForCausalLM", read, rules, gguf=GGUF)
