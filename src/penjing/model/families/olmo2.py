"""OLMo 2 (arXiv 2501.00656): norms only after each sublayer, and over the whole width of queries and keys. OLMo 3
adds a window in three of four layers, and scales the rotation only in the fourth."""

from collections.abc import Sequence
from typing import Any

from penjing.model.config import ModelConfig, RopeConfig
from penjing.model.families.common import (
    NORMS_AROUND,
    gguf_shape,
    gguf_windows,
    read_alternating_windows,
    read_shape,
    shortest,
)
from penjing.model.families.family import Family, GGUFForm
from penjing.model.foreign import ForeignConfig
from penjing.model.names import Rule

OLMO3 = "olmo3"
PERIOD = 4


def read(config: ForeignConfig) -> ModelConfig:
    shape, attention_bias = read_shape(config), config.flag("attention_bias")
    windows: tuple[int | None, ...] = (None,) * shape["num_hidden_layers"]
    if config.get("model_type") == OLMO3:
        windows = read_alternating_windows(config, PERIOD)
        shape["local_rope"] = shape["local_rope"] or RopeConfig(rope_theta=shape["rope"].rope_theta)
    return ModelConfig(
        **shape,
        windows=windows,
        tie_word_embeddings=config.flag("tie_word_embeddings"),
        qkv_bias=attention_bias,
        o_bias=attention_bias,
        qk_norm="width",
        pre_norm=False,
        post_norm=True,
    )


def rules(config: ModelConfig) -> Sequence[Rule]:
    return NORMS_AROUND


def gguf_config(metadata: ForeignConfig) -> dict[str, Any]:
    """Both go by one name; only OLMo 3 has a window."""
    shape = gguf_shape(metadata)
    if metadata.get("attention.sliding_window") is None:
        return shape
    rope = shape["rope_parameters"]
    local_theta = shortest(metadata.number("rope.freq_base_swa", rope["rope_theta"]))
    local_rope = {"rope_type": "default", "rope_theta": local_theta}
    return shape | {
        "model_type": OLMO3,
        "architectures": ["Olmo3ForCausalLM"],
        "rope_parameters": {"full_attention": rope, "sliding_attention": local_rope},
        **gguf_windows(metadata, PERIOD),
    }


GGUF = GGUFForm(("olmo2",), gguf_config)
DEFAULTS = {"rms_norm_eps": 1e-5}
FAMILY = Family(("olmo2", OLMO3), "Olmo2ForCausalLM", read, rules, gguf=GGUF, defaults=DEFAULTS)
