"""DeepSeek-V2: latent attention, a rotation of neighbours, and experts beside shared ones."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from penjing.errors import UnsupportedError
from penjing.model.config import ExpertsConfig, LatentConfig, ModelConfig, RopeConfig, yarn_magnitude
from penjing.model.families.common import read_experts, read_shape
from penjing.model.families.family import Family, GGUFForm
from penjing.model.families.gguf_common import (
    GATING,
    gguf_layers,
    gguf_rope,
    gguf_routed_experts,
    gguf_sizes,
    routed_metadata,
    shortest,
)
from penjing.model.foreign import ForeignConfig
from penjing.model.gguf_parts import KeysAndValues
from penjing.model.layouts import Same
from penjing.model.names import Rule, rename

WHOLE = "blk.{i}.attn_kv_b.weight"


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


def gguf_latent_config(metadata: ForeignConfig) -> dict[str, Any]:
    """What DeepSeek-V2 and V3 share. Files that keep the matrix of keys and values in parts describe
    attention over the latents by the usual keys, and that of the heads by keys of their own."""
    rank, turned = metadata.integer("attention.kv_lora_rank"), metadata.integer("rope.dimension_count")
    heads, in_parts = metadata.integer("attention.head_count"), metadata.get("attention.key_length_mla")
    suffix = "" if in_parts is None else "_mla"
    metadata.expect("attention.head_count_kv", heads if in_parts is None else 1)
    if in_parts is not None:
        metadata.expect("attention.key_length", rank + turned)
        metadata.expect("attention.value_length", rank)
    return (
        gguf_sizes(metadata, experts=True)
        | gguf_layers(metadata)
        | {
            "hidden_size": metadata.integer("embedding_length"),
            "num_attention_heads": heads,
            "q_lora_rank": metadata.get("attention.q_lora_rank"),
            "kv_lora_rank": rank,
            "qk_nope_head_dim": metadata.integer(f"attention.key_length{suffix}") - turned,
            "qk_rope_head_dim": turned,
            "v_head_dim": metadata.integer(f"attention.value_length{suffix}"),
            "rms_norm_eps": shortest(metadata.number("attention.layer_norm_rms_epsilon")),
            "rope_parameters": gguf_rope(metadata) | _gguf_magnitude(metadata),
        }
    )


def _gguf_magnitude(metadata: ForeignConfig) -> dict[str, float]:
    """A tenth of the weight of YaRN's magnitude. llama.cpp takes the one on cosine and sine to be that on the
    scores, as it is in all published models."""
    if metadata.get("rope.scaling.yarn_log_multiplier") is None:
        return {}
    weight = shortest(10 * metadata.number("rope.scaling.yarn_log_multiplier"))
    return {"mscale": weight, "mscale_all_dim": weight}


def latent_metadata(config: ModelConfig) -> dict[str, Any]:
    """The keys that `gguf_latent_config` reads beside the usual ones, as of a file in parts."""
    assert config.latent
    latent, weight = config.latent, config.rope.mscale_all_dim
    magnitude = {} if weight is None else {"rope.scaling.yarn_log_multiplier": 0.1 * weight}
    return magnitude | {
        "attention.head_count_kv": 1,
        "attention.key_length": latent.kv_rank + latent.rope_dim,
        "attention.value_length": latent.kv_rank,
        "attention.key_length_mla": config.head_dim,
        "attention.value_length_mla": latent.value_dim,
    }


def latent_rules(config: ModelConfig) -> Sequence[Rule]:
    native = "model.layers.{i}.self_attn.kv_b_proj.weight"
    return [rename(WHOLE, native, Same(keeps_rows=False))]


def latent_parts(config: ModelConfig) -> Sequence[KeysAndValues]:
    """The matrix of keys and values, which older files have whole."""
    assert config.latent
    latent, heads = config.latent, config.num_attention_heads
    dims = heads, latent.kv_rank, latent.nope_dim, latent.value_dim
    return [KeysAndValues(WHOLE, ("blk.{i}.attn_k_b.weight", "blk.{i}.attn_v_b.weight"), *dims)]


def gguf_metadata(config: ModelConfig) -> dict[str, Any]:
    return latent_metadata(config) | routed_metadata(config)


def has_no_sigmoids(metadata: Mapping[str, Any], tensors: Collection[str]) -> bool:
    """What tells these models from DeepSeek-V3; the first files didn't say how their routers score."""
    return metadata.get("deepseek2.expert_gating_func") != GATING["sigmoid"]


GGUF = GGUFForm(("deepseek2",), gguf_config, latent_rules, gguf_metadata, has_no_sigmoids, parts=latent_parts)
FAMILY = Family(("deepseek_v2",), "DeepseekV2ForCausalLM", read, gguf=GGUF)
