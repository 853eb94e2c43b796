"""The keys under which a GGUF file describes an architecture, from the one config.

Keys are those of ggml's `gguf-py/gguf/constants.py`. What the file format can't say is refused, so that
nothing is lost on the way.
"""

from typing import Any

from penjing.errors import UnsupportedError
from penjing.model.config import (
    ExpertsConfig,
    LatentConfig,
    ModelConfig,
    RopeConfig,
    longrope_magnitude,
    yarn_magnitude,
)


def architecture_metadata(config: ModelConfig) -> dict[str, Any]:
    """The architecture's own keys, without its prefix."""
    keys: dict[str, Any] = {
        "vocab_size": config.vocab_size,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        _NORM_EPS[config.norm]: config.norm_eps,
    }
    if config.latent is None:
        keys |= {"attention.key_length": config.head_dim, "attention.value_length": config.head_dim}
    else:
        keys |= _latent(config.latent)
    if config.positions == "rotary":
        keys |= {"rope.dimension_count": config.rotated} | _rope(config)
    keys |= _optional("attention.sliding_window", _window(config))
    keys |= _optional("attn_logit_softcapping", config.attention_softcap)
    keys |= _optional("final_logit_softcapping", config.logit_softcap)
    if config.experts is not None:
        keys |= _experts(config.experts)
    return keys


_NORM_EPS = {"rms": "attention.layer_norm_rms_epsilon", "layer": "attention.layer_norm_epsilon"}


def _window(config: ModelConfig) -> int | None:
    windows = {window for window in config.windows if window is not None}
    if len(windows) > 1:
        raise UnsupportedError(f"a GGUF file can't hold windows of different sizes ({sorted(windows)})")
    return next(iter(windows), None)


def _latent(latent: LatentConfig) -> dict[str, Any]:
    return _optional("attention.q_lora_rank", latent.q_rank) | {"attention.kv_lora_rank": latent.kv_rank}


def is_division(rope: RopeConfig) -> bool:
    """Whether the scaling divides each frequency by a constant, which GGUF keeps as a tensor: Llama 3's, and
    what such a tensor was read as."""
    if rope.rope_type == "longrope":
        return rope.short_factor == rope.long_factor and rope.attention_factor == 1.0
    return rope.rope_type == "llama3"


def _rope(config: ModelConfig) -> dict[str, Any]:
    rope = config.rope
    keys: dict[str, Any] = {"rope.freq_base": rope.rope_theta}
    if rope.rope_type == "default" or is_division(rope):
        return keys
    if rope.rope_type == "longrope":  # the factors are tensors
        return keys | {
            "rope.scaling.original_context_length": rope.original_max_position_embeddings,
            "rope.scaling.attn_factor": longrope_magnitude(rope, config.max_position_embeddings),
        }
    if rope.rope_type not in ("linear", "yarn"):
        raise UnsupportedError(f"rope type {rope.rope_type!r} can't be saved as GGUF yet; use --as hf")
    keys |= {"rope.scaling.type": rope.rope_type, "rope.scaling.factor": rope.factor}
    if rope.rope_type == "yarn":
        keys |= {
            "rope.scaling.original_context_length": rope.original_max_position_embeddings,
            "rope.scaling.yarn_beta_fast": rope.beta_fast,
            "rope.scaling.yarn_beta_slow": rope.beta_slow,
        }
        if rope.attention_factor is not None and rope.factor is not None:  # in units of the usual one
            keys["rope.scaling.attn_factor"] = rope.attention_factor / yarn_magnitude(rope.factor)
    return keys


def _experts(experts: ExpertsConfig) -> dict[str, Any]:
    keys: dict[str, Any] = {
        "expert_count": experts.count,
        "expert_used_count": experts.per_token,
        "expert_feed_forward_length": experts.intermediate_size,
    }
    if experts.shared_size:
        keys["expert_shared_feed_forward_length"] = experts.shared_size
    return keys


def _optional(key: str, value: Any) -> dict[str, Any]:
    return {} if value is None else {key: value}
