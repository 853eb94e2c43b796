"""Phi-3, Phi-3.5, Phi-4 and Phi-4-mini: Llama with fused matrices, LongRoPE, and a part of each head turned
in the last."""

from collections.abc import Sequence
from typing import Any

from penjing.model.config import ModelConfig
from penjing.model.families.common import fused_gate_rule, read_shape, read_windows
from penjing.model.families.family import Family, GGUFForm
from penjing.model.families.gguf_common import fused_gate_rules, fused_qkv_rules, gguf_shape
from penjing.model.foreign import ForeignConfig
from penjing.model.layouts import Rows
from penjing.model.names import Rule


def read(config: ForeignConfig) -> ModelConfig:
    config.expect("attention_bias", False)
    window = config.integer("sliding_window") if config.get("sliding_window") is not None else None
    config.ignore("original_max_position_embeddings")  # LongRoPE alone makes use of it
    return ModelConfig(
        **read_shape(config, partial=True),
        windows=read_windows(config, window),
        tie_word_embeddings=config.flag("tie_word_embeddings"),
    )


def rules(config: ModelConfig) -> Sequence[Rule]:
    projections = tuple(f"model.layers.{{i}}.self_attn.{leaf}_proj.weight" for leaf in "qkv")
    return [
        Rule("model.layers.{i}.self_attn.qkv_proj.weight", projections, Rows()),
        fused_gate_rule("model.layers.{i}.mlp.gate_up_proj.weight"),
    ]


def gguf_config(metadata: ForeignConfig) -> dict[str, Any]:
    window = metadata.integer("attention.sliding_window", 0, minimum=0)
    return gguf_shape(metadata, partial=True) | {"sliding_window": window or None}


def gguf_rules(config: ModelConfig) -> Sequence[Rule]:
    return [*fused_qkv_rules(), *fused_gate_rules()]


GGUF = GGUFForm(("phi3",), gguf_config, gguf_rules)
DEFAULTS = {"rms_norm_eps": 1e-5}
FAMILY = Family(("phi3",), "Phi3ForCausalLM", read, rules, gguf=GGUF, defaults=DEFAULTS)
