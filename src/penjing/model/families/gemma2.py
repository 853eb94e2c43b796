"""Gemma 2 (arXiv 2408.00118): norms before and after each sublayer, a window in every other layer, capped
scores and logits, and a scale of queries of its own."""

from collections.abc import Sequence
from typing import Any

from penjing.model.config import ModelConfig
from penjing.model.families.common import NORMS_AROUND, gguf_shape, gguf_windows, read_alternating_windows
from penjing.model.families.family import Family, GGUFForm
from penjing.model.families.gemma import ACTIVATION, gguf_norms, read_shared
from penjing.model.foreign import ForeignConfig
from penjing.model.names import Rule

DEFAULTS = {
    "hidden_activation": ACTIVATION,
    "tie_word_embeddings": True,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
}
_LAYERS_OF_27B = 46


def read(config: ForeignConfig) -> ModelConfig:
    return ModelConfig(
        **read_sandwiched(config),
        windows=read_alternating_windows(config, period=2),
        attention_softcap=_read_cap(config, "attn_logit_softcapping"),
    )


def read_sandwiched(config: ForeignConfig) -> dict[str, Any]:
    """What Gemma 2 and 3 have."""
    shape, activation = read_shared(config), config.get("hidden_activation", ACTIVATION)
    config.expect("hidden_act", activation)
    return shape | {
        "hidden_act": activation,
        "post_norm": True,
        "attention_scale": config.number("query_pre_attn_scalar") ** -0.5,
        "logit_softcap": _read_cap(config, "final_logit_softcapping"),
    }


def _read_cap(config: ForeignConfig, key: str) -> float | None:
    return None if config.get(key) is None else config.number(key)


def rules(config: ModelConfig) -> Sequence[Rule]:
    return NORMS_AROUND


def gguf_config(metadata: ForeignConfig) -> dict[str, Any]:
    """What the first files lack is taken as llama.cpp takes it."""
    return gguf_sandwiched(metadata, _LAYERS_OF_27B) | {
        **gguf_windows(metadata, period=2, default=4096),
        "attn_logit_softcapping": metadata.number("attn_logit_softcapping", 50.0),
        "final_logit_softcapping": metadata.number("final_logit_softcapping", 30.0),
    }


def gguf_sandwiched(metadata: ForeignConfig, layers_of_27b: int) -> dict[str, Any]:
    """Shape and scale of queries: it isn't stored, and only the 27B model's isn't that of its heads."""
    shape = gguf_shape(metadata)
    activation = {"hidden_activation": ACTIVATION, "hidden_act": None}
    scalar = shape["head_dim"]
    if shape["num_hidden_layers"] == layers_of_27b:
        scalar = shape["hidden_size"] // shape["num_attention_heads"]
    return shape | activation | {"query_pre_attn_scalar": scalar}


GGUF = GGUFForm(("gemma2",), gguf_config, gguf_norms)
FAMILY = Family(("gemma2",), "Gemma2ForCausalLM", read, rules, gguf=GGUF, defaults=DEFAULTS)
