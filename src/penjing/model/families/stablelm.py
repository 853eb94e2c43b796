"""StableLM: Llama with layer norms and a part of each head turned; the 12B model has both sublayers side by
side behind one norm, and normalises each head's queries and keys."""

from collections.abc import Collection, Sequence
from typing import Any

from penjing.errors import UnsupportedError
from penjing.model.config import ModelConfig
from penjing.model.families.common import read_shape
from penjing.model.families.family import Family, GGUFForm
from penjing.model.families.gguf_common import LAYER_EPSILON, gguf_shape
from penjing.model.foreign import ForeignConfig
from penjing.model.layouts import Stacked
from penjing.model.names import Rule, rename


def read(config: ForeignConfig) -> ModelConfig:
    config.expect("rotary_scaling_factor", 1.0)
    shape = read_shape(config, partial=True)
    config.expect("head_dim", shape["hidden_size"] // shape["num_attention_heads"])
    shape["norm_eps"] = config.number("layer_norm_eps", 1e-5)
    return ModelConfig(
        **shape,
        windows=(None,) * shape["num_hidden_layers"],
        norm="layer",
        norm_bias=True,
        parallel="one norm" if config.flag("use_parallel_residual") else None,
        qkv_bias=config.flag("use_qkv_bias"),
        qk_norm="each head" if config.flag("qk_layernorm") else None,
        tie_word_embeddings=config.flag("tie_word_embeddings"),
    )


def rules(config: ModelConfig) -> Sequence[Rule]:
    """Each head's norm is a module of its own."""
    attention = "model.layers.{i}.self_attn"
    return [
        rename(f"{attention}.{leaf}_layernorm.norms.{{e}}.weight", f"{attention}.{leaf}_norm.{{e}}.weight")
        for leaf in "qk"
    ]


def gguf_config(metadata: ForeignConfig) -> dict[str, Any]:
    metadata.ignore("use_parallel_residual")  # wrong in older files; llama.cpp goes by the norms, as we do
    shape = gguf_shape(metadata, partial=True, epsilon=LAYER_EPSILON)
    return shape | {"rms_norm_eps": None, "layer_norm_eps": shape["rms_norm_eps"]}


def gguf_shown(metadata: ForeignConfig, tensors: Collection[str]) -> dict[str, Any]:
    return {
        "use_parallel_residual": "blk.0.ffn_norm.weight" not in tensors,
        "use_qkv_bias": "blk.0.attn_q.bias" in tensors,
        "qk_layernorm": "blk.0.attn_q_norm.weight" in tensors,
    }


def gguf_rules(config: ModelConfig) -> Sequence[Rule]:
    heads = {"q": config.num_attention_heads, "k": config.num_key_value_heads}
    return [
        rename(
            f"blk.{{i}}.attn_{leaf}_norm.weight",
            f"model.layers.{{i}}.self_attn.{leaf}_norm.{{e}}.weight",
            Stacked(count),
        )
        for leaf, count in heads.items()
    ]


def gguf_metadata(config: ModelConfig) -> dict[str, Any]:
    if config.tie_word_embeddings:
        raise UnsupportedError("llama.cpp wants a StableLM to have a head of its own; use --as hf")
    return {"use_parallel_residual": config.parallel is not None}


GGUF = GGUFForm(("stablelm",), gguf_config, gguf_rules, gguf_metadata, shown=gguf_shown)
DEFAULTS = {"partial_rotary_factor": 0.25, "num_key_value_heads": 32}
FAMILY = Family(("stablelm",), "StableLmForCausalLM", read, rules, gguf=GGUF, defaults=DEFAULTS)
