"""Qwen2 and Qwen2.5: Llama with biases on Q, K and V, and a window in the upper layers where it is switched
on."""

from penjing.model.config import ModelConfig
from penjing.model.families.common import read_shape, read_windows
from penjing.model.families.family import Family, GGUFForm
from penjing.model.families.gguf_common import gguf_shape
from penjing.model.foreign import ForeignConfig


def read(config: ForeignConfig) -> ModelConfig:
    return ModelConfig(
        **read_shape(config),
        windows=read_upper_windows(config),
        tie_word_embeddings=config.flag("tie_word_embeddings"),
        qkv_bias=True,
    )


def read_upper_windows(config: ForeignConfig) -> tuple[int | None, ...]:
    """Layers from `max_window_layers` on are windowed, if `use_sliding_window` says so."""
    first = config.integer("max_window_layers", 28, minimum=0)
    config.ignore("sliding_window")  # without effect, and often null or 0, unless it is switched on
    reach = config.integer("sliding_window", 4096) if config.flag("use_sliding_window") else None
    return read_windows(config, reach, first)


FAMILY = Family(("qwen2",), "Qwen2ForCausalLM", read, gguf=GGUFForm(("qwen2",), gguf_shape))
