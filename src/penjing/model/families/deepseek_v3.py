"""DeepSeek-V3, R1, Moonlight and Kimi-K2: DeepSeek-V2's attention, and experts chosen by sigmoids with a
correction that balances them."""

from collections.abc import Collection, Mapping
from typing import Any

from penjing.model.config import ExpertsConfig, ModelConfig
from penjing.model.families.common import read_experts
from penjing.model.families.deepseek_v2 import (
    gguf_latent_config,
    latent_metadata,
    latent_parts,
    latent_rules,
    read_expert_layers,
    read_latent_shape,
    read_shared_size,
)
from penjing.model.families.family import Family, GGUFForm
from penjing.model.families.gguf_common import GATING, gguf_routed_experts, routed_metadata
from penjing.model.foreign import ForeignConfig


def read(config: ForeignConfig) -> ModelConfig:
    # What transformers' class takes absent keys for; nothing else would show that they were meant.
    config.assume(first_k_dense_replace=3, n_group=8, topk_group=4, routed_scaling_factor=2.5)
    shape = read_latent_shape(config)
    return ModelConfig(**shape, experts=read_routed_experts(config, shape["num_hidden_layers"]))


def read_routed_experts(config: ForeignConfig, layers: int) -> ExpertsConfig:
    """Routing without an auxiliary loss, arXiv 2408.15664. Experts outside of the best groups are never
    chosen, however far their correction lowers the others: so do the authors' code and transformers 5, where
    earlier versions of the latter gave them a score of zero."""
    config.expect("topk_method", "noaux_tc")
    config.expect("scoring_func", "sigmoid")
    return read_experts(
        config,
        "n_routed_experts",
        read_expert_layers(config, layers),
        scoring="sigmoid",
        normalize=config.flag("norm_topk_prob", True),
        scale=config.number("routed_scaling_factor", 1.0),
        groups=config.integer("n_group", 1),
        groups_per_token=config.integer("topk_group", 1),
        group_top=2,
        correction_bias=True,
        shared_size=read_shared_size(config),
    )


def gguf_config(metadata: ForeignConfig) -> dict[str, Any]:
    return gguf_latent_config(metadata) | gguf_routed_experts(metadata, "sigmoid")


def gguf_metadata(config: ModelConfig) -> dict[str, Any]:
    return latent_metadata(config) | routed_metadata(config)


def has_sigmoids(metadata: Mapping[str, Any], tensors: Collection[str]) -> bool:
    """What tells these models from DeepSeek-V2."""
    return metadata.get("deepseek2.expert_gating_func") == GATING["sigmoid"]


GGUF = GGUFForm(
    ("deepseek2",), gguf_config, latent_rules, gguf_metadata, applies=has_sigmoids, parts=latent_parts
)
FAMILY = Family(("deepseek_v3", "kimi_k2"), "DeepseekV3ForCausalLM", read, gguf=GGUF)
