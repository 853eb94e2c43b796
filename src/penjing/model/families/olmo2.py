"""OLMo 2: norms after the sublayers only, and over all queries and all keys at once. OLMo 3 adds a window
in three of four layers, whose rotation isn't scaled."""

from collections.abc import Sequence
from typing import Any

from penjing.errors import UnsupportedError
from penjing.model.config import ModelConfig, RopeConfig
from penjing.model.families.common import NORMS_AROUND, read_alternating, read_shape
from penjing.model.families.family import Family, GGUFForm
from penjing.model.families.gguf_common import gguf_parted_rope, gguf_shape, gguf_windows
from penjing.model.foreign import ForeignConfig
from penjing.model.names import Rule
from penjing.model.rope_config import read_local_rope

OLMO3 = "olmo3"


def read(config: ForeignConfig) -> ModelConfig:
    config.assume(rms_norm_eps=1e-5)
    bias, shape = config.flag("attention_bias"), read_shape(config)
    is_olmo3 = config.get("model_type") == OLMO3
    layers = _read_olmo3_layers(config) if is_olmo3 else {"windows": (None,) * shape["num_hidden_layers"]}
    return ModelConfig(
        **shape,
        **layers,
        pre_norm=False,
        post_norm=True,
        qk_norm="width",
        qkv_bias=bias,
        o_bias=bias,
        tie_word_embeddings=config.flag("tie_word_embeddings"),
    )


def _read_olmo3_layers(config: ForeignConfig) -> dict[str, Any]:
    config.assume(sliding_window=4096)
    return {
        "windows": read_alternating(config, every=4),
        "local_rope": read_local_rope(config, "rope_theta", 1e4),
    }


def rules(config: ModelConfig) -> Sequence[Rule]:
    return NORMS_AROUND


def gguf_config(metadata: ForeignConfig) -> dict[str, Any]:
    """Both go by one name; only OLMo 3 has a window."""
    shape = gguf_shape(metadata)
    if metadata.get("attention.sliding_window") is None:
        return shape
    rope = shape["rope_parameters"]
    return shape | {
        "model_type": OLMO3,
        "architectures": ["Olmo3ForCausalLM"],
        **gguf_windows(metadata, every=4),
        **gguf_parted_rope(metadata, rope, rope["rope_theta"]),
    }


def gguf_metadata(config: ModelConfig) -> dict[str, Any]:
    if config.tie_word_embeddings:
        raise UnsupportedError("llama.cpp wants an OLMo to have a head of its own; use --as hf")
    if config.local_rope is None:
        return {}
    if config.local_rope != RopeConfig(rope_theta=config.rope.rope_theta):
        raise UnsupportedError("llama.cpp turns all layers of an OLMo 3 by one base; use --as hf")
    return {
        "attention.sliding_window_pattern": [window is not None for window in config.windows],
        "rope.freq_base_swa": config.local_rope.rope_theta,
    }


GGUF = GGUFForm(("olmo2",), gguf_config, metadata=gguf_metadata)
FAMILY = Family(("olmo2", OLMO3), "Olmo2ForCausalLM", read, rules, gguf=GGUF)
