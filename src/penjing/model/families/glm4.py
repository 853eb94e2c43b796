"""GLM-4-0414 (9B and 32B): GLM with norms after the sublayers too."""

from collections.abc import Sequence
from typing import Any

from penjing.model.config import ModelConfig
from penjing.model.families.family import Family, GGUFForm, shown_by
from penjing.model.families.gguf_common import fused_gate_rules, gguf_shape
from penjing.model.families.glm import DEFAULTS, read_glm_shape, rules
from penjing.model.foreign import ForeignConfig
from penjing.model.names import Rule


def read(config: ForeignConfig) -> ModelConfig:
    return ModelConfig(**read_glm_shape(config), post_norm=True)


def gguf_config(metadata: ForeignConfig) -> dict[str, Any]:
    return gguf_shape(metadata, partial=True)


def gguf_rules(config: ModelConfig) -> Sequence[Rule]:
    return fused_gate_rules()


GGUF = GGUFForm(("glm4",), gguf_config, gguf_rules, shown=shown_by(("attention_bias", "blk.0.attn_q.bias")))
FAMILY = Family(("glm4",), "Glm4ForCausalLM", read, rules, gguf=GGUF, defaults=DEFAULTS)
