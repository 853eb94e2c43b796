"""SmolLM3: Llama in which every fourth layer has no positions."""

from penjing.errors import InputError
from penjing.model.config import ModelConfig
from penjing.model.families.common import read_shape, read_windows
from penjing.model.families.family import Family, GGUFForm
from penjing.model.families.gguf_common import gguf_shape
from penjing.model.families.llama import gguf_rules
from penjing.model.foreign import ForeignConfig


def read(config: ForeignConfig) -> ModelConfig:
    config.assume(num_key_value_heads=4, rope_theta=2e6)
    bias, shape = config.flag("attention_bias"), read_shape(config)
    config.ignore("max_window_layers", "pretraining_tp")  # published, and read by nobody
    rotary_layers = _rotary_layers(config, shape["num_hidden_layers"])
    return ModelConfig(
        **shape,
        windows=_windows(config, rotary_layers),
        rotary_layers=rotary_layers,
        qkv_bias=bias,
        o_bias=bias,
        mlp_bias=config.flag("mlp_bias"),
        tie_word_embeddings=config.flag("tie_word_embeddings", True),
    )


def _rotary_layers(config: ForeignConfig, layers: int) -> tuple[bool, ...]:
    """A list with 1 for layers that are turned, or an interval between those that aren't."""
    listed, interval = config.get("no_rope_layers"), config.integer("no_rope_layer_interval", 4)
    if listed is None:
        return tuple((i + 1) % interval != 0 for i in range(layers))
    if not isinstance(listed, list) or not all(turned in (0, 1) for turned in listed):
        raise InputError(f"{config.source}: no_rope_layers must be a list of 0 and 1, not {listed!r}")
    return tuple(bool(turned) for turned in listed[:layers])


def _windows(config: ForeignConfig, rotary_layers: tuple[bool, ...]) -> tuple[int | None, ...]:
    """Where they are switched on, and the config doesn't list layers, those without positions have them."""
    is_on = config.flag("use_sliding_window") and config.get("sliding_window") is not None
    config.ignore("sliding_window")  # without effect unless it is switched on
    window = config.integer("sliding_window") if is_on else None
    if config.get("layer_types") is not None:
        return read_windows(config, window)
    return tuple(None if is_turned else window for is_turned in rotary_layers)


FAMILY = Family(
    ("smollm3",),
    "SmolLM3ForCausalLM",
    read,
    gguf=GGUFForm(("smollm3",), gguf_shape, gguf_rules),
)
