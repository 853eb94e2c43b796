"""Gemma 2: norms before and after each sublayer, soft caps on scores and logits, a window in every other
layer."""

from collections.abc import Sequence
from typing import Any

from penjing.model.config import ModelConfig
from penjing.model.families.common import read_windows
from penjing.model.families.family import Family
from penjing.model.families.gemma import read_gemma_shape
from penjing.model.foreign import ForeignConfig
from penjing.model.names import Rule, rename


def read(config: ForeignConfig) -> ModelConfig:
    return ModelConfig(
        **read_sandwich(config, 256),
        windows=read_alternating(config, every=2),
        attention_softcap=read_cap(config, "attn_logit_softcapping", 50.0),
        logit_softcap=read_cap(config, "final_logit_softcapping", 30.0),
    )


def read_sandwich(config: ForeignConfig, default_scalar: float) -> dict[str, Any]:
    """What Gemma 2 and 3 share: norms on both sides, and a scale of scores of their own."""
    scalar = config.number("query_pre_attn_scalar", default_scalar)
    return read_gemma_shape(config) | {"post_norm": True, "attention_scale": scalar**-0.5}


def read_alternating(config: ForeignConfig, every: int) -> tuple[int | None, ...]:
    """Windows in all layers but each `every`-th, unless the config lists the layers."""
    window = config.integer("sliding_window", 4096)
    windows = read_windows(config, window)
    if config.get("layer_types") is not None:
        return windows
    return tuple(None if (i + 1) % every == 0 else window for i in range(len(windows)))


def read_cap(config: ForeignConfig, key: str, default: float | None) -> float | None:
    """A soft cap; null switches it off."""
    if key in config.values and config.get(key) is None:
        return None
    return config.number(key, default) if default is not None or key in config.values else None


def rules(config: ModelConfig) -> Sequence[Rule]:
    names = {
        "post_attention_layernorm": "post_self_attn_layernorm",
        "pre_feedforward_layernorm": "post_attention_layernorm",
        "post_feedforward_layernorm": "post_mlp_layernorm",
    }
    return [
        rename(f"model.layers.{{i}}.{theirs}.weight", f"model.layers.{{i}}.{ours}.weight")
        for theirs, ours in names.items()
    ]


FAMILY = Family(("gemma2",), "Gemma2ForCausalLM", read, rules)
