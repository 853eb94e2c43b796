"""GLM-4.7-Flash: DeepSeek-V3, in which each layer is listed as dense or as one of experts."""

from dataclasses import replace

from penjing.errors import InputError
from penjing.model.config import ModelConfig
from penjing.model.families import deepseek_v3
from penjing.model.families.deepseek_v3 import read_routed_experts
from penjing.model.families.family import Family, never
from penjing.model.families.latent import read_latent_shape
from penjing.model.foreign import ForeignConfig


def read(config: ForeignConfig) -> ModelConfig:
    shape, kinds = read_latent_shape(config), config.get("mlp_layer_types")
    experts = read_routed_experts(config, shape["num_hidden_layers"])
    if kinds is not None:
        experts = replace(experts, layers=_read_kinds(config, kinds))
    return ModelConfig(**shape, experts=experts)


def _read_kinds(config: ForeignConfig, kinds: object) -> tuple[bool, ...]:
    if not isinstance(kinds, list) or not all(kind in ("dense", "sparse") for kind in kinds):
        raise InputError(
            f"{config.source}: mlp_layer_types must be a list of 'dense' and 'sparse', not {kinds!r}"
        )
    return tuple(kind == "sparse" for kind in kinds)


GGUF = replace(deepseek_v3.GGUF, applies=never)
DEFAULTS = {
    "first_k_dense_replace": 1,
    "n_shared_experts": 1,
    "q_lora_rank": 768,
    "rms_norm_eps": 1e-5,
    "routed_scaling_factor": 1.8,
}
FAMILY = Family(("glm4_moe_lite",), "Glm4MoeLiteForCausalLM", read, gguf=GGUF, defaults=DEFAULTS)
