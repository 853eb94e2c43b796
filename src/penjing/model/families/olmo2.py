"""OLMo 2 (arXiv 2501.00656): norms only after each sublayer, and over the whole width of queries and keys."""

from collections.abc import Sequence
from typing import Any

from penjing.model.config import ModelConfig
from penjing.model.families.common import NORMS_AROUND, gguf_shape, read_shape
from penjing.model.families.family import Family, GGUFForm
from penjing.model.foreign import ForeignConfig
from penjing.model.names import Rule

DEFAULTS = {"rms_norm_eps": 1e-5}


def read(config: ForeignConfig) -> ModelConfig:
    shape = read_shared(config)
    return ModelConfig(**shape, windows=(None,) * shape["num_hidden_layers"])


def read_shared(config: ForeignConfig) -> dict[str, Any]:
    """What OLMo 2 and 3 have."""
    attention_bias = config.flag("attention_bias")
    return read_shape(config) | {
        "tie_word_embeddings": config.flag("tie_word_embeddings"),
        "qkv_bias": attention_bias,
        "o_bias": attention_bias,
        "qk_norm": "width",
        "pre_norm": False,
        "post_norm": True,
    }


def rules(config: ModelConfig) -> Sequence[Rule]:
    return NORMS_AROUND


FAMILY = Family(
    ("olmo2",), "Olmo2ForCausalLM", read, rules, gguf=GGUFForm(("olmo2",), gguf_shape), defaults=DEFAULTS
)
