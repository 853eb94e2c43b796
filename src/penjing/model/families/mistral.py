"""Mistral 7B and its successors: Llama with a window in every layer, none in later releases; Ministral
names the layers that have one."""

from collections.abc import Collection, Mapping
from typing import Any

from penjing.model.config import ModelConfig
from penjing.model.families.common import read_shape, read_windows
from penjing.model.families.family import Family, GGUFForm
from penjing.model.families.gguf_common import gguf_shape
from penjing.model.families.llama import gguf_rules
from penjing.model.foreign import ForeignConfig


def read(config: ForeignConfig) -> ModelConfig:
    config.assume(sliding_window=4096)
    window = config.integer("sliding_window") if config.get("sliding_window") is not None else None
    return ModelConfig(
        **read_shape(config),
        windows=read_windows(config, window),
        tie_word_embeddings=config.flag("tie_word_embeddings"),
    )


def never(metadata: Mapping[str, Any], tensors: Collection[str]) -> bool:
    """llama.cpp knows Mistral as Llama, so no file is read as this family."""
    return False


GGUF = GGUFForm(("llama",), gguf_shape, gguf_rules, applies=never)
FAMILY = Family(("mistral", "ministral"), "MistralForCausalLM", read, gguf=GGUF)
