"""OLMo 2: norms after the sublayers only, and over all queries and all keys at once."""

from collections.abc import Sequence
from typing import Any

from penjing.errors import UnsupportedError
from penjing.model.config import ModelConfig
from penjing.model.families.common import read_shape
from penjing.model.families.family import Family, GGUFForm
from penjing.model.families.gguf_common import gguf_shape
from penjing.model.foreign import ForeignConfig
from penjing.model.names import Rule, rename


def read(config: ForeignConfig) -> ModelConfig:
    bias, shape = config.flag("attention_bias"), read_shape(config)
    if config.get("rms_norm_eps") is None:
        shape["norm_eps"] = 1e-5
    return ModelConfig(
        **shape,
        windows=(None,) * shape["num_hidden_layers"],
        pre_norm=False,
        post_norm=True,
        qk_norm="width",
        qkv_bias=bias,
        o_bias=bias,
        tie_word_embeddings=config.flag("tie_word_embeddings"),
    )


def rules(config: ModelConfig) -> Sequence[Rule]:
    names = {
        "post_attention_layernorm": "post_self_attn_layernorm",
        "post_feedforward_layernorm": "post_mlp_layernorm",
    }
    return [
        rename(f"model.layers.{{i}}.{theirs}.weight", f"model.layers.{{i}}.{ours}.weight")
        for theirs, ours in names.items()
    ]


def gguf_metadata(config: ModelConfig) -> dict[str, Any]:
    if config.tie_word_embeddings:
        raise UnsupportedError("llama.cpp wants an OLMo 2 to have a head of its own; use --as hf")
    return {}


GGUF = GGUFForm(("olmo2",), gguf_shape, metadata=gguf_metadata)
FAMILY = Family(("olmo2",), "Olmo2ForCausalLM", read, rules, gguf=GGUF)
