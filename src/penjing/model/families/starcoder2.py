"""StarCoder2: grouped queries, layer norms and biases everywhere, and a window in every layer of the smaller
models."""

from collections.abc import Sequence
from typing import Any

from penjing.errors import UnsupportedError
from penjing.model.config import ModelConfig
from penjing.model.families.common import read_shape
from penjing.model.families.family import Family, GGUFForm, shown_by
from penjing.model.families.gguf_common import LAYER_EPSILON, gguf_shape
from penjing.model.foreign import ForeignConfig
from penjing.model.names import Rule, rename

_PARTS = {"mlp.c_fc": "mlp.up_proj", "mlp.c_proj": "mlp.down_proj"}


def read(config: ForeignConfig) -> ModelConfig:
    config.expect("mlp_type", "default")
    config.expect("norm_type", "layer_norm")
    config.expect("scale_attn_weights", True)
    # Precision alone, and what happens in training.
    config.ignore("attention_softmax_in_fp32", "scale_attention_softmax_in_fp32")
    config.ignore("embedding_dropout", "residual_dropout")
    epsilon, bias = config.number("norm_epsilon", 1e-5), config.flag("use_bias", True)
    config.expect("layer_norm_epsilon", epsilon)
    window = config.integer("sliding_window") if config.get("sliding_window") is not None else None
    shape = read_shape(config)
    shape["norm_eps"] = epsilon
    return ModelConfig(
        **shape,
        windows=(window,) * shape["num_hidden_layers"],
        norm="layer",
        norm_bias=True,
        qkv_bias=bias,
        o_bias=bias,
        gated=False,
        mlp_bias=bias,
        tie_word_embeddings=config.flag("tie_word_embeddings", True),
    )


def rules(config: ModelConfig) -> Sequence[Rule]:
    return [
        rename(f"model.layers.{{i}}.{theirs}.{kind}", f"model.layers.{{i}}.{ours}.{kind}")
        for theirs, ours in _PARTS.items()
        for kind in ("weight", "bias")
    ]


def gguf_config(metadata: ForeignConfig) -> dict[str, Any]:
    shape = gguf_shape(metadata, epsilon=LAYER_EPSILON)
    epsilon = {"rms_norm_eps": None, "norm_epsilon": shape["rms_norm_eps"]}
    return shape | epsilon | {"hidden_act": "gelu_pytorch_tanh"}


def gguf_metadata(config: ModelConfig) -> dict[str, Any]:
    if not config.qkv_bias:
        raise UnsupportedError("llama.cpp wants biases in a StarCoder2; use --as hf")
    if any(config.windows):
        raise UnsupportedError("llama.cpp leaves out the window of a StarCoder2; use --as hf")
    return {}


GGUF = GGUFForm(
    ("starcoder2",),
    gguf_config,
    metadata=gguf_metadata,
    shown=shown_by(("use_bias", "blk.0.attn_q.bias")),
)
DEFAULTS = {"hidden_act": "gelu_pytorch_tanh", "num_key_value_heads": 2}
FAMILY = Family(("starcoder2",), "Starcoder2ForCausalLM", read, rules, gguf=GGUF, defaults=DEFAULTS)
