"""Gemma 3 (arXiv 2503.19786), the language model: Gemma 2 with norms on each head's queries and keys, no
caps, a window in five of six layers, and a rotation of their own in these."""

from collections.abc import Sequence
from typing import Any

from penjing.model.config import ModelConfig
from penjing.model.families.common import NORMS_AROUND, gguf_windows, read_alternating_windows, shortest
from penjing.model.families.family import Family, GGUFForm
from penjing.model.families.gemma import ACTIVATION, gguf_norms
from penjing.model.families.gemma2 import gguf_sandwiched, read_sandwiched
from penjing.model.foreign import ForeignConfig
from penjing.model.names import Rule

LOCAL_THETA = 1e4
PERIOD = 6
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
    "hidden_activation": ACTIVATION,
    "tie_word_embeddings": True,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "rope_theta": 1e6,
    "rope_local_base_freq": LOCAL_THETA,
}
_LAYERS_OF_27B = 62


def read(config: ForeignConfig) -> ModelConfig:
    config.expect("attn_logit_softcapping", None)
    windows = read_alternating_windows(config, config.integer("sliding_window_pattern", PERIOD))
    return ModelConfig(**read_sandwiched(config), windows=windows, qk_norm="head")


def rules(config: ModelConfig) -> Sequence[Rule]:
    return NORMS_AROUND


def gguf_config(metadata: ForeignConfig) -> dict[str, Any]:
    shape = gguf_sandwiched(metadata, _LAYERS_OF_27B)
    local_theta = shortest(metadata.number("rope.freq_base_swa", LOCAL_THETA))
    ropes = {
        "full_attention": shape["rope_parameters"],
        "sliding_attention": {"rope_type": "default", "rope_theta": local_theta},
    }
    cap = metadata.get("final_logit_softcapping")
    return shape | gguf_windows(metadata, PERIOD) | {"rope_parameters": ropes, "final_logit_softcapping": cap}


GGUF = GGUFForm(("gemma3",), gguf_config, gguf_norms)
FAMILY = Family(("gemma3_text",), "Gemma3ForCausalLM", read, rules, gguf=GGUF, defaults=DEFAULTS)
