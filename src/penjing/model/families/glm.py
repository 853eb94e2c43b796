"""GLM-4 (9B): Llama with a rotation of neighbours in half of each head, biases on Q, K and V, and a fused
gate."""

from collections.abc import Sequence
from typing import Any

from penjing.model.config import ModelConfig
from penjing.model.families.common import fused_gate_rule, read_shape
from penjing.model.families.family import Family
from penjing.model.foreign import ForeignConfig
from penjing.model.names import Rule


def read(config: ForeignConfig) -> ModelConfig:
    return ModelConfig(**read_glm_shape(config))


def read_glm_shape(config: ForeignConfig) -> dict[str, Any]:
    """What the dense GLMs share; absent keys mean what transformers' classes take them for."""
    config.assume(head_dim=128, partial_rotary_factor=0.5, rms_norm_eps=1.5625e-7, attention_bias=True)
    shape = read_shape(config, partial=True)
    return shape | {
        "windows": (None,) * shape["num_hidden_layers"],
        "rope_interleaved": True,
        "qkv_bias": config.flag("attention_bias"),
        "tie_word_embeddings": config.flag("tie_word_embeddings"),
    }


def rules(config: ModelConfig) -> Sequence[Rule]:
    return [fused_gate_rule("model.layers.{i}.mlp.gate_up_proj.weight")]


FAMILY = Family(("glm",), "GlmForCausalLM", read, rules)
