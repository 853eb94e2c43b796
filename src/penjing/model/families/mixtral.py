"""Mixtral: Mistral with a mixture of experts in every layer."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from penjing.model.config import ModelConfig
from penjing.model.families.common import read_experts, read_shape, read_windows
from penjing.model.families.family import Family, GGUFForm
from penjing.model.families.gguf_common import gguf_experts, gguf_shape
from penjing.model.families.llama import gguf_rules
from penjing.model.foreign import ForeignConfig
from penjing.model.names import Rule, rename


def read(config: ForeignConfig) -> ModelConfig:
    config.ignore("router_jitter_noise")
    window = config.integer("sliding_window") if config.get("sliding_window") is not None else None
    shape = read_shape(config)
    every_layer = (True,) * shape["num_hidden_layers"]
    inner = shape["intermediate_size"]
    return ModelConfig(
        **shape,
        windows=read_windows(config, window),
        experts=read_experts(config, "num_local_experts", every_layer, intermediate_size=inner),
        tie_word_embeddings=config.flag("tie_word_embeddings"),
    )


def rules(config: ModelConfig) -> Sequence[Rule]:
    there, here = "model.layers.{i}.block_sparse_moe", "model.layers.{i}.mlp"
    return [
        rename(f"{there}.gate.weight", f"{here}.gate.weight"),
        rename(f"{there}.experts.{{e}}.w1.weight", f"{here}.experts.{{e}}.gate_proj.weight"),
        rename(f"{there}.experts.{{e}}.w2.weight", f"{here}.experts.{{e}}.down_proj.weight"),
        rename(f"{there}.experts.{{e}}.w3.weight", f"{here}.experts.{{e}}.up_proj.weight"),
    ]


def gguf_config(metadata: ForeignConfig) -> dict[str, Any]:
    shape = gguf_shape(metadata, experts=True)
    experts = gguf_experts(metadata, "num_local_experts")
    shape["intermediate_size"] = experts.pop("moe_intermediate_size")
    return shape | experts | {"sliding_window": None}


def has_experts(metadata: Mapping[str, Any], tensors: Collection[str]) -> bool:
    """llama.cpp writes Mixtral under Llama's name."""
    return bool(metadata.get("llama.expert_count"))


GGUF = GGUFForm(("llama",), gguf_config, gguf_rules, applies=has_experts)
FAMILY = Family(("mixtral",), "MixtralForCausalLM", read, rules, gguf=GGUF)
