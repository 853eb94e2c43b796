"""Falcon 7B, 40B and 11B: both sublayers side by side behind one norm or two, and few key-value heads, each
kept together with the queries that share it. Falcon-RW has ALiBi and biases, and one sublayer after the
other."""

from collections.abc import Collection, Sequence
from typing import Any, Literal

from penjing.errors import InputError, UnsupportedError
from penjing.model.config import ModelConfig
from penjing.model.families.common import read_activation, read_layers
from penjing.model.families.family import Family, GGUFForm
from penjing.model.families.gguf_common import LAYER_EPSILON, fused_qkv_rules, gguf_shape
from penjing.model.foreign import ForeignConfig
from penjing.model.layouts import RowsByGroup
from penjing.model.names import Rule, rename
from penjing.model.rope_config import read_rope

_FIRST_NORM, _SECOND_NORM = "input_layernorm", "post_attention_layernorm"
_PARTS = {
    "self_attention.dense": "self_attn.o_proj",
    "mlp.dense_h_to_4h": "mlp.up_proj",
    "mlp.dense_4h_to_h": "mlp.down_proj",
}
_ENDS = {
    "transformer.word_embeddings.weight": "model.embed_tokens.weight",
    "transformer.ln_f.weight": "model.norm.weight",
    "transformer.ln_f.bias": "model.norm.bias",
}


def read(config: ForeignConfig) -> ModelConfig:
    config.expect("apply_residual_connection_post_layernorm", False)
    hidden_key = "hidden_size" if config.get("n_embed") is None else "n_embed"
    hidden, heads = config.integer(hidden_key), config.integer("num_attention_heads")
    layers, bias, is_alibi = read_layers(config), config.flag("bias"), config.flag("alibi")
    inner = config.integer("ffn_hidden_size", 4 * hidden)
    config.expect("ff_factor", inner // hidden)
    return ModelConfig(
        vocab_size=config.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=_read_key_value_heads(config, heads),
        head_dim=hidden // heads,
        max_position_embeddings=config.integer("max_position_embeddings", 2048),
        windows=(None,) * layers,
        positions="alibi" if is_alibi else "rotary",
        rope=read_rope(config),
        alibi_scaled=is_alibi,
        norm="layer",
        norm_bias=True,
        norm_eps=config.number("layer_norm_epsilon", 1e-5),
        parallel=_read_parallel(config),
        qkv_bias=bias,
        o_bias=bias,
        gated=False,
        hidden_act=read_activation(config, "activation", "gelu"),
        mlp_bias=bias,
        tie_word_embeddings=config.flag("tie_word_embeddings", True),
    )


def _read_key_value_heads(config: ForeignConfig, heads: int) -> int:
    is_shared = config.flag("multi_query", True)
    if config.flag("new_decoder_architecture"):
        return config.integer("num_kv_heads", heads)
    if is_shared:
        config.ignore("num_kv_heads")  # files of the 7B name all heads here
        return 1
    config.expect("num_kv_heads", heads)
    return heads


def _read_parallel(config: ForeignConfig) -> Literal["two norms", "one norm"] | None:
    if config.flag("new_decoder_architecture"):
        config.expect("parallel_attn", True)
        config.expect("num_ln_in_parallel_attn", 2, 1)
        return "two norms" if config.get("num_ln_in_parallel_attn", 2) == 2 else "one norm"
    config.expect("num_ln_in_parallel_attn", 1)
    return "one norm" if config.flag("parallel_attn", True) else None


def rules(config: ModelConfig) -> Sequence[Rule]:
    norms = {_FIRST_NORM: _FIRST_NORM, _SECOND_NORM: _SECOND_NORM}
    if config.parallel == "two norms":
        norms = {"ln_attn": _FIRST_NORM, "ln_mlp": _SECOND_NORM}
    found = [rename(theirs, ours) for theirs, ours in _ENDS.items()]
    for kind in ("weight", "bias"):
        parts = tuple(f"model.layers.{{i}}.self_attn.{leaf}_proj.{kind}" for leaf in "qkv")
        stored = f"transformer.h.{{i}}.self_attention.query_key_value.{kind}"
        found.append(Rule(stored, parts, RowsByGroup(config.num_key_value_heads)))
        found += [
            rename(f"transformer.h.{{i}}.{theirs}.{kind}", f"model.layers.{{i}}.{ours}.{kind}")
            for theirs, ours in (_PARTS | norms).items()
        ]
    return found


def gguf_config(metadata: ForeignConfig) -> dict[str, Any]:
    """All of them in the words of the newer ones, which say everything that llama.cpp computes."""
    metadata.expect("tensor_data_layout", "jploski")
    shape = gguf_shape(metadata, epsilon=LAYER_EPSILON)
    return {
        "vocab_size": shape["vocab_size"],
        "hidden_size": shape["hidden_size"],
        "ffn_hidden_size": shape["intermediate_size"],
        "num_hidden_layers": shape["num_hidden_layers"],
        "num_attention_heads": shape["num_attention_heads"],
        "num_kv_heads": shape["num_key_value_heads"],
        "max_position_embeddings": shape["max_position_embeddings"],
        "layer_norm_epsilon": shape["rms_norm_eps"],
        "rope_parameters": shape["rope_parameters"],
        "new_decoder_architecture": True,
    }


def gguf_shown(metadata: ForeignConfig, tensors: Collection[str]) -> dict[str, Any]:
    if "blk.0.attn_norm_2.weight" in tensors:
        return {"num_ln_in_parallel_attn": 2}
    if metadata.get("attention.head_count_kv") != 1 and metadata.get("rope.freq_base") is None:
        raise InputError(
            f"{metadata.source} has no rope.freq_base; this looks like Falcon 11B, whose base isn't the usual"
            " one and which llama.cpp's conversion leaves out: open the Hugging Face folder instead"
        )
    return {"num_ln_in_parallel_attn": 1}


def gguf_rules(config: ModelConfig) -> Sequence[Rule]:
    """Queries, keys and values are stored one below another; of two norms, the second is attention's."""
    if config.parallel != "two norms":
        return fused_qkv_rules()
    names = {"attn_norm_2": _FIRST_NORM, "attn_norm": _SECOND_NORM}
    return [
        *fused_qkv_rules(),
        *(
            rename(f"blk.{{i}}.{theirs}.{kind}", f"model.layers.{{i}}.{ours}.{kind}")
            for theirs, ours in names.items()
            for kind in ("weight", "bias")
        ),
    ]


def gguf_metadata(config: ModelConfig) -> dict[str, Any]:
    if config.qkv_bias:
        raise UnsupportedError("llama.cpp has no place for biases in a Falcon; use --as hf")
    return {"tensor_data_layout": "jploski"}


GGUF = GGUFForm(("falcon",), gguf_config, gguf_rules, gguf_metadata, shown=gguf_shown)
FAMILY = Family(
    ("falcon",),
    "FalconForCausalLM",
    read,
    rules,
    derived=(r".*\.rotary_emb\.inv_freq",),
    gguf=GGUF,
)
