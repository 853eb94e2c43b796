"""Gemma 3's text model: Gemma 2 with norms on queries and keys instead of caps on scores, and windowed layers
with a rotation of their own."""

from typing import Any

from penjing.model.config import ModelConfig
from penjing.model.families.common import read_alternating
from penjing.model.families.family import Family, GGUFForm
from penjing.model.families.gemma2 import gguf_sandwich, read_cap, read_sandwich, rules
from penjing.model.families.gguf_common import gguf_parted_rope, gguf_windows, shifted_norm_rules, shortest
from penjing.model.foreign import ForeignConfig
from penjing.model.rope_config import read_local_rope, read_rope

LOCAL_THETA = 1e4
# Multimodal folders name only what differs from these.
DEFAULTS = {
    "vocab_size": 262_208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131_072,
    "hidden_activation": "gelu_pytorch_tanh",
    "sliding_window": 4096,
}


def read(config: ForeignConfig) -> ModelConfig:
    config.expect("attn_logit_softcapping", None)
    every = config.integer("sliding_window_pattern", config.values.get("_sliding_window_pattern", 6))
    shape = read_sandwich(config, 256)
    shape["rope"] = read_rope(config, 1e6)
    return ModelConfig(
        **shape,
        windows=read_alternating(config, every),
        local_rope=read_local_rope(config, "rope_local_base_freq", LOCAL_THETA),
        qk_norm="head",
        logit_softcap=read_cap(config, "final_logit_softcapping"),
    )


def gguf_config(metadata: ForeignConfig) -> dict[str, Any]:
    shape = gguf_sandwich(metadata, layers_of_27b=62)
    cap = metadata.get("final_logit_softcapping")
    return shape | {
        **gguf_windows(metadata, every=6),
        **gguf_parted_rope(metadata, shape["rope_parameters"], LOCAL_THETA),
        "final_logit_softcapping": None
        if cap is None
        else shortest(metadata.number("final_logit_softcapping")),
    }


def gguf_metadata(config: ModelConfig) -> dict[str, Any]:
    return {"rope.freq_base_swa": config.local_rope.rope_theta} if config.local_rope else {}


GGUF = GGUFForm(("gemma3",), gguf_config, shifted_norm_rules, gguf_metadata)
FAMILY = Family(("gemma3_text",), "Gemma3ForCausalLM", read, rules, gguf=GGUF, defaults=DEFAULTS)
