"""GLM-4.5 and its like: half of each head turned, and experts routed as in DeepSeek-V3."""

from collections.abc import Sequence
from typing import Any

from penjing.model.config import ModelConfig
from penjing.model.families.common import read_shape
from penjing.model.families.deepseek_v3 import read_routed_experts
from penjing.model.families.family import Family, GGUFForm, shown_by
from penjing.model.families.gguf_common import (
    gguf_layers,
    gguf_routed_experts,
    gguf_shape,
    routed_metadata,
    second_norm_rule,
)
from penjing.model.foreign import ForeignConfig
from penjing.model.names import Rule


def read(config: ForeignConfig) -> ModelConfig:
    shape = read_shape(config, partial=True)
    return ModelConfig(
        **shape,
        windows=(None,) * shape["num_hidden_layers"],
        qkv_bias=config.flag("attention_bias"),
        qk_norm="head" if config.flag("use_qk_norm") else None,
        experts=read_routed_experts(config, shape["num_hidden_layers"]),
        tie_word_embeddings=config.flag("tie_word_embeddings"),
    )


def gguf_config(metadata: ForeignConfig) -> dict[str, Any]:
    shape = gguf_shape(metadata, partial=True, experts=True)
    return shape | gguf_layers(metadata) | gguf_routed_experts(metadata, "sigmoid")


def gguf_rules(config: ModelConfig) -> Sequence[Rule]:
    return [second_norm_rule()]


GGUF = GGUFForm(
    ("glm4moe",),
    gguf_config,
    gguf_rules,
    routed_metadata,
    shown=shown_by(("attention_bias", "blk.0.attn_q.bias"), ("use_qk_norm", "blk.0.attn_q_norm.weight")),
)
DEFAULTS = {
    "first_k_dense_replace": 1,
    "n_shared_experts": 1,
    "num_key_value_heads": 8,
    "partial_rotary_factor": 0.5,
    "rms_norm_eps": 1e-5,
}
FAMILY = Family(("glm4_moe",), "Glm4MoeForCausalLM", read, gguf=GGUF, defaults=DEFAULTS)
