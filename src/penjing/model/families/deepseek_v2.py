"""DeepSeek-V2: latent attention, a rotation of neighbours, and experts beside shared ones."""

from collections.abc import Collection, Mapping
from typing import Any

from penjing.errors import UnsupportedError
from penjing.model.config import ExpertsConfig, ModelConfig
from penjing.model.families.common import read_experts
from penjing.model.families.family import Family, GGUFForm
from penjing.model.families.gguf_common import GATING, gguf_routed_experts, routed_metadata
from penjing.model.families.latent import (
    gguf_latent_config,
    latent_metadata,
    latent_parts,
    latent_rules,
    read_latent_shape,
)
from penjing.model.foreign import ForeignConfig


def read(config: ForeignConfig) -> ModelConfig:
    shape = read_latent_shape(config)
    return ModelConfig(**shape, experts=_experts(config, shape["num_hidden_layers"]))


def _experts(config: ForeignConfig, layers: int) -> ExpertsConfig:
    method = config.get("topk_method", "greedy")
    if method not in ("greedy", "group_limited_greedy"):
        raise UnsupportedError(f"{config.source}: topk_method {method!r} is not supported")
    config.expect("scoring_func", "softmax")
    # No published model normalises: the authors' code would, and leave out the scale; transformers wouldn't.
    config.expect("norm_topk_prob", False)
    groups, chosen = config.get("n_group"), config.get("topk_group")
    grouped = {"groups": groups, "groups_per_token": chosen} if method != "greedy" else {}
    return read_experts(
        config,
        "n_routed_experts",
        read_expert_layers(config, layers),
        normalize=False,
        scale=config.number("routed_scaling_factor", 1.0),
        shared_size=read_shared_size(config),
        **grouped,
    )


def read_expert_layers(config: ForeignConfig, layers: int) -> tuple[bool, ...]:
    """The first few layers are dense."""
    config.ignore("aux_loss_alpha", "seq_aux", "ep_size")  # of training and deployment
    config.ignore("num_nextn_predict_layers")  # such layers are passed over
    first, step = config.integer("first_k_dense_replace", 0, minimum=0), config.integer("moe_layer_freq", 1)
    return tuple(i >= first and i % step == 0 for i in range(layers))


def read_shared_size(config: ForeignConfig) -> int:
    """Width of the shared experts, which act as one."""
    return config.integer("n_shared_experts", 0, minimum=0) * config.integer("moe_intermediate_size")


def gguf_config(metadata: ForeignConfig) -> dict[str, Any]:
    routed = gguf_routed_experts(metadata, "softmax")
    method = "group_limited_greedy" if routed["n_group"] > 1 else "greedy"
    return gguf_latent_config(metadata) | routed | {"topk_method": method}


def gguf_metadata(config: ModelConfig) -> dict[str, Any]:
    return latent_metadata(config) | routed_metadata(config)


def has_corrections(metadata: Mapping[str, Any], tensors: Collection[str]) -> bool:
    """Whether a GGUF file has experts of DeepSeek-V3's kind: its routers score by sigmoids, or it doesn't say
    how but holds the corrections that come with them (llama.cpp knows GLM-4.7-Flash by its size)."""
    scoring = metadata.get("deepseek2.expert_gating_func")
    if not metadata.get("deepseek2.expert_count"):
        return False
    return scoring == GATING["sigmoid"] or (
        scoring is None and any(".exp_probs_b." in name for name in tensors)
    )


def has_plain_experts(metadata: Mapping[str, Any], tensors: Collection[str]) -> bool:
    """Whether a GGUF file has experts, of DeepSeek-V2's kind."""
    return bool(metadata.get("deepseek2.expert_count")) and not has_corrections(metadata, tensors)


GGUF = GGUFForm(
    ("deepseek2",), gguf_config, latent_rules, gguf_metadata, has_plain_experts, parts=latent_parts
)
DEFAULTS = {"n_shared_experts": 2, "q_lora_rank": 1536}
FAMILY = Family(("deepseek_v2",), "DeepseekV2ForCausalLM", read, gguf=GGUF, defaults=DEFAULTS)
