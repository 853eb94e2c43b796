"""Gemma 3's text model: Gemma 2 with norms on queries and keys instead of caps on scores, and windowed layers
with a rotation of their own."""

from typing import Any

from penjing.model.config import ModelConfig
from penjing.model.families.family import Family, GGUFForm
from penjing.model.families.gemma2 import gguf_sandwich, read_alternating, read_cap, read_sandwich, rules
from penjing.model.families.gguf_common import shifted_norm_rules, shortest
from penjing.model.foreign import ForeignConfig
from penjing.model.rope_config import read_local_rope, read_rope


def read(config: ForeignConfig) -> ModelConfig:
    every = config.integer("sliding_window_pattern", config.values.get("_sliding_window_pattern", 6))
    shape = read_sandwich(config, 256)
    shape["rope"] = read_rope(config, 1e6)
    return ModelConfig(
        **shape,
        windows=read_alternating(config, every),
        local_rope=read_local_rope(config, "rope_local_base_freq", 1e4),
        qk_norm="head",
        attention_softcap=read_cap(config, "attn_logit_softcapping", None),
        logit_softcap=read_cap(config, "final_logit_softcapping", None),
    )


def gguf_config(metadata: ForeignConfig) -> dict[str, Any]:
    local = metadata.number("rope.freq_base_swa", 1e4)
    return gguf_sandwich(metadata, layers_of_27b=62) | {"rope_local_base_freq": shortest(local)}


def gguf_metadata(config: ModelConfig) -> dict[str, Any]:
    return {"rope.freq_base_swa": config.local_rope.rope_theta} if config.local_rope else {}


GGUF = GGUFForm(("gemma3",), gguf_config, shifted_norm_rules, gguf_metadata)
FAMILY = Family(("gemma3_text",), "Gemma3ForCausalLM", read, rules, gguf=GGUF)
