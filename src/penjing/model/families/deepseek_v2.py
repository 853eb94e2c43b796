"""DeepSeek-V2: latent attention, a rotation of neighbours, and experts beside shared ones."""

from typing import Any

from penjing.errors import UnsupportedError
from penjing.model.config import ExpertsConfig, LatentConfig, ModelConfig, RopeConfig, yarn_magnitude
from penjing.model.families.common import read_experts, read_shape
from penjing.model.families.family import Family
from penjing.model.foreign import ForeignConfig


def read(config: ForeignConfig) -> ModelConfig:
    shape = read_latent_shape(config)
    return ModelConfig(**shape, experts=_experts(config, shape["num_hidden_layers"]))


def read_latent_shape(config: ForeignConfig) -> dict[str, Any]:
    """What DeepSeek-V2 and V3 share."""
    config.expect("pretraining_tp", 1)
    config.expect("mlp_bias", False)
    config.ignore("head_dim", "qk_head_dim")  # they follow from the others
    latent = LatentConfig(
        kv_rank=config.integer("kv_lora_rank"),
        nope_dim=config.integer("qk_nope_head_dim"),
        rope_dim=config.integer("qk_rope_head_dim"),
        value_dim=config.integer("v_head_dim"),
        q_rank=config.integer("q_lora_rank") if config.get("q_lora_rank") is not None else None,
    )
    shape, bias = read_shape(config), config.flag("attention_bias")
    width = latent.nope_dim + latent.rope_dim
    return shape | {
        "head_dim": width,
        "num_key_value_heads": shape["num_attention_heads"],
        "windows": (None,) * shape["num_hidden_layers"],
        "latent": latent,
        "rope_interleaved": config.flag("rope_interleave", True),
        "attention_scale": width**-0.5 * _score_factor(shape["rope"]),
        "qkv_bias": bias,
        "o_bias": bias,
        "tie_word_embeddings": config.flag("tie_word_embeddings"),
    }


def _score_factor(rope: RopeConfig) -> float:
    """YaRN's magnitude, which these models apply to the scores."""
    if rope.rope_type == "default" or not rope.mscale_all_dim or rope.factor is None:
        return 1.0
    return yarn_magnitude(rope.factor, rope.mscale_all_dim) ** 2


def _experts(config: ForeignConfig, layers: int) -> ExpertsConfig:
    method = config.get("topk_method", "greedy")
    if method not in ("greedy", "group_limited_greedy"):
        raise UnsupportedError(f"{config.source}: topk_method {method!r} is not supported")
    config.expect("scoring_func", "softmax")
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
    first, step = config.integer("first_k_dense_replace", 0, minimum=0), config.integer("moe_layer_freq", 1)
    return tuple(i >= first and i % step == 0 for i in range(layers))


def read_shared_size(config: ForeignConfig) -> int:
    """Width of the shared experts, which act as one."""
    return config.integer("n_shared_experts", 0, minimum=0) * config.integer("moe_intermediate_size")


FAMILY = Family(("deepseek_v2",), "DeepseekV2ForCausalLM", read)
