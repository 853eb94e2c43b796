"""Gemma 2: norms before and after each sublayer, soft caps on scores and logits, a window in every other
layer."""

from collections.abc import Sequence
from typing import Any

from penjing.errors import UnsupportedError
from penjing.model.config import ModelConfig
from penjing.model.families.common import NORMS_AROUND, read_alternating
from penjing.model.families.family import Family, GGUFForm
from penjing.model.families.gemma import read_gemma_shape
from penjing.model.families.gguf_common import gguf_shape, gguf_windows, shifted_norm_rules, shortest
from penjing.model.foreign import ForeignConfig
from penjing.model.names import Rule


def read(config: ForeignConfig) -> ModelConfig:
    return ModelConfig(
        **read_sandwich(config, 256),
        windows=read_alternating(config, every=2),
        attention_softcap=read_cap(config, "attn_logit_softcapping"),
        logit_softcap=read_cap(config, "final_logit_softcapping"),
    )


def read_sandwich(config: ForeignConfig, default_scalar: float) -> dict[str, Any]:
    """What Gemma 2 and 3 share: norms on both sides, and a scale of scores of their own."""
    scalar = config.number("query_pre_attn_scalar", default_scalar)
    return read_gemma_shape(config) | {"post_norm": True, "attention_scale": scalar**-0.5}


def read_cap(config: ForeignConfig, key: str) -> float | None:
    """A soft cap; null switches it off."""
    return None if config.get(key) is None else config.number(key)


def rules(config: ModelConfig) -> Sequence[Rule]:
    return NORMS_AROUND


def gguf_config(metadata: ForeignConfig) -> dict[str, Any]:
    """What the first files lack is taken as llama.cpp takes it."""
    return gguf_sandwich(metadata, layers_of_27b=46) | {
        **gguf_windows(metadata, every=2, default=4096),
        "attn_logit_softcapping": shortest(metadata.number("attn_logit_softcapping", 50.0)),
        "final_logit_softcapping": shortest(metadata.number("final_logit_softcapping", 30.0)),
    }


def gguf_sandwich(metadata: ForeignConfig, layers_of_27b: int) -> dict[str, Any]:
    """What Gemma 2 and 3 share. The scale of scores isn't in the file: it follows from the size of the model,
    as llama.cpp has it."""
    shape = gguf_shape(metadata)
    is_27b = shape["num_hidden_layers"] == layers_of_27b
    scalar = shape["hidden_size"] / shape["num_attention_heads"] if is_27b else shape["head_dim"]
    return shape | {
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": scalar,
    }


def gguf_metadata(config: ModelConfig) -> dict[str, Any]:
    if config.attention_softcap is None or config.logit_softcap is None:
        raise UnsupportedError("llama.cpp can't do without the soft caps of a Gemma 2; use --as hf")
    return {}


GGUF = GGUFForm(("gemma2",), gguf_config, shifted_norm_rules, gguf_metadata)
DEFAULTS = {"sliding_window": 4096, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
FAMILY = Family(("gemma2",), "Gemma2ForCausalLM", read, rules, gguf=GGUF, defaults=DEFAULTS)
