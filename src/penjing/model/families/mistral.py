"""Mistral 7B and its successors: Llama with a window in every layer, none in later releases; Ministral's
config may name the layers."""

from penjing.model.config import ModelConfig
from penjing.model.families.common import read_shape, read_windows
from penjing.model.families.family import Family
from penjing.model.foreign import ForeignConfig


def read(config: ForeignConfig) -> ModelConfig:
    window = config.integer("sliding_window") if config.get("sliding_window") is not None else None
    return ModelConfig(
        **read_shape(config),
        windows=read_windows(config, window),
        tie_word_embeddings=config.flag("tie_word_embeddings"),
    )


# llama.cpp writes Mistral models under the llama architecture, so no GGUF file names this family.
FAMILY = Family(("mistral", "ministral"), "MistralForCausalLM", read, defaults={"sliding_window": 4096})
