"""GLM-4 (9B): Llama with a rotation of neighbours in half of each head, biases on Q, K and V, and a fused
gate."""

from collections.abc import Sequence
from typing import Any

from penjing.model.config import ModelConfig
from penjing.model.families.common import fused_gate_rule, read_shape
from penjing.model.families.family import Family, GGUFForm, shown_by
from penjing.model.families.gguf_common import fused_gate_rules, fused_qkv_rules, gguf_shape
from penjing.model.foreign import ForeignConfig
from penjing.model.names import Rule


def read(config: ForeignConfig) -> ModelConfig:
    return ModelConfig(**read_glm_shape(config))


def read_glm_shape(config: ForeignConfig) -> dict[str, Any]:
    """What the dense GLMs share."""
    shape = read_shape(config, partial=True)
    return shape | {
        "windows": (None,) * shape["num_hidden_layers"],
        "rope_interleaved": True,
        "qkv_bias": config.flag("attention_bias"),
        "tie_word_embeddings": config.flag("tie_word_embeddings"),
    }


def rules(config: ModelConfig) -> Sequence[Rule]:
    return [fused_gate_rule("model.layers.{i}.mlp.gate_up_proj.weight")]


def gguf_config(metadata: ForeignConfig) -> dict[str, Any]:
    return gguf_shape(metadata, partial=True)


def gguf_rules(config: ModelConfig) -> Sequence[Rule]:
    """Files made from ChatGLM's own folders hold queries, keys and values fused, others hold them apart."""
    return [*fused_qkv_rules(biases=True), *fused_gate_rules()]


# ChatGLM3 and GLM-4, whose own code computes the same.
GGUF = GGUFForm(
    ("chatglm",),
    gguf_config,
    gguf_rules,
    shown=shown_by(("attention_bias", "blk.0.attn_q.bias"), ("attention_bias", "blk.0.attn_qkv.bias")),
)
DEFAULTS = {
    "attention_bias": True,
    "head_dim": 128,
    "num_key_value_heads": 2,
    "partial_rotary_factor": 0.5,
    "rms_norm_eps": 1.5625e-7,
}
FAMILY = Family(("glm",), "GlmForCausalLM", read, rules, gguf=GGUF, defaults=DEFAULTS)
