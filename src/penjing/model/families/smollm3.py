"""SmolLM3: Llama without positions in every fourth layer."""

from typing import Any

from penjing.errors import InputError
from penjing.model.config import ModelConfig
from penjing.model.families import llama
from penjing.model.families.common import gguf_shape, read_shape, read_windows
from penjing.model.families.family import Family, GGUFForm
from penjing.model.foreign import ForeignConfig

DEFAULTS = {"num_key_value_heads": 4, "rope_theta": 2e6, "tie_word_embeddings": True}
INTERVAL = 4


def read(config: ForeignConfig) -> ModelConfig:
    for key in ("pretraining_tp", "max_window_layers"):  # published, and read by nobody
        config.get(key)
    shape, attention_bias = read_shape(config), config.flag("attention_bias")
    rotary_layers = _read_rotary_layers(config, shape["num_hidden_layers"])
    return ModelConfig(
        **shape,
        windows=_read_windows(config, rotary_layers),
        rotary_layers=rotary_layers,
        tie_word_embeddings=config.flag("tie_word_embeddings"),
        qkv_bias=attention_bias,
        o_bias=attention_bias,
        mlp_bias=config.flag("mlp_bias"),
    )


def _read_rotary_layers(config: ForeignConfig, layers: int) -> tuple[bool, ...]:
    """`no_rope_layers` holds, in spite of its name, a 1 for every layer with positions."""
    interval = config.integer("no_rope_layer_interval", INTERVAL)
    turned = config.get("no_rope_layers", rotary_pattern(layers, interval))
    if not isinstance(turned, list) or any(entry not in (0, 1) for entry in turned):
        raise InputError(f"{config.source}: no_rope_layers must be a list of 0 and 1, not {turned!r}")
    return tuple(bool(entry) for entry in turned[:layers])


def rotary_pattern(layers: int, interval: int) -> list[int]:
    """A 0 for every `interval`th layer."""
    return [int(i % interval != 0) for i in range(1, layers + 1)]


def _read_windows(config: ForeignConfig, rotary_layers: tuple[bool, ...]) -> tuple[int | None, ...]:
    """Where windows are switched on and no `layer_types` are given, layers without positions have them."""
    is_windowed = config.flag("use_sliding_window") and config.get("sliding_window") is not None
    window = config.integer("sliding_window") if is_windowed else None
    if config.get("layer_types") is not None:
        return read_windows(config, window)
    return tuple(None if is_turned else window for is_turned in rotary_layers)


def gguf_config(metadata: ForeignConfig) -> dict[str, Any]:
    """Which layers have no positions isn't stored: llama.cpp knows only every fourth."""
    shape = gguf_shape(metadata)
    return shape | {"no_rope_layers": rotary_pattern(shape["num_hidden_layers"], INTERVAL)}


GGUF = GGUFForm(("smollm3",), gguf_config, llama.gguf_rules)
FAMILY = Family(("smollm3",), "SmolLM3ForCausalLM", read, gguf=GGUF, defaults=DEFAULTS)
