"""ERNIE 4.5 (0.3B): Llama with a rotation of neighbours, and biases everywhere or nowhere."""

from typing import Any

from penjing.model.config import ModelConfig
from penjing.model.families.common import read_shape
from penjing.model.families.family import Family, GGUFForm
from penjing.model.families.gguf_common import gguf_shape
from penjing.model.foreign import ForeignConfig

SHARED_DEFAULTS = {"rms_norm_eps": 1e-5, "rope_theta": 5e5, "tie_word_embeddings": True}


def read(config: ForeignConfig) -> ModelConfig:
    bias = config.flag("use_bias")
    return ModelConfig(**read_ernie_shape(config), qkv_bias=bias, o_bias=bias, mlp_bias=bias)


def read_ernie_shape(config: ForeignConfig) -> dict[str, Any]:
    """What the models with and without experts share."""
    config.expect("compression_ratio", 1, 1.0)  # of positions
    config.expect("use_rmsnorm", True)
    shape = read_shape(config)
    return shape | {
        "windows": (None,) * shape["num_hidden_layers"],
        "rope_interleaved": True,
        "tie_word_embeddings": config.flag("tie_word_embeddings"),
    }


GGUF = GGUFForm(("ernie4_5",), gguf_shape)
DEFAULTS = {**SHARED_DEFAULTS, "head_dim": 128, "num_key_value_heads": 2}
FAMILY = Family(("ernie4_5",), "Ernie4_5ForCausalLM", read, gguf=GGUF, defaults=DEFAULTS)
