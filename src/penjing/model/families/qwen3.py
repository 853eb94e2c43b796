"""Qwen3: no biases by default, and a norm on each head's queries and keys."""

from penjing.model.config import ModelConfig
from penjing.model.families.common import read_shape
from penjing.model.families.family import Family, GGUFForm
from penjing.model.families.gguf_common import gguf_shape
from penjing.model.families.qwen2 import read_upper_windows
from penjing.model.foreign import ForeignConfig


def read(config: ForeignConfig) -> ModelConfig:
    attention_bias = config.flag("attention_bias")
    return ModelConfig(
        **read_shape(config),
        windows=read_upper_windows(config),
        tie_word_embeddings=config.flag("tie_word_embeddings"),
        qkv_bias=attention_bias,
        o_bias=attention_bias,
        qk_norm="head",
    )


FAMILY = Family(
    ("qwen3",),
    "Qwen3ForCausalLM",
    read,
    gguf=GGUFForm(("qwen3",), gguf_shape),
)
