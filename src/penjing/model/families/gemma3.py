"""Gemma 3's text model: Gemma 2 with norms on queries and keys instead of caps on scores, and windowed layers
with a rotation of their own."""

from penjing.model.config import ModelConfig
from penjing.model.families.family import Family
from penjing.model.families.gemma2 import read_alternating, read_cap, read_sandwich, rules
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


FAMILY = Family(("gemma3_text",), "Gemma3ForCausalLM", read, rules)
