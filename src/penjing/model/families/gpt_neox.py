"""GPT-NeoX and Pythia: both sublayers side by side, a part of each head turned, and queries, keys and values
kept together head by head."""

from collections.abc import Sequence
from typing import Any

from penjing.errors import UnsupportedError
from penjing.model.config import ModelConfig
from penjing.model.families.common import read_activation, read_layers
from penjing.model.families.family import Family, GGUFForm, shown_by
from penjing.model.families.gguf_common import fused_qkv_rules, gguf_classic_shape
from penjing.model.foreign import ForeignConfig
from penjing.model.layouts import RowsByGroup
from penjing.model.names import Rule, rename
from penjing.model.rope_config import read_rope, read_rotary_dim

_PARTS = {
    "input_layernorm": "input_layernorm",
    "post_attention_layernorm": "post_attention_layernorm",
    "attention.dense": "self_attn.o_proj",
    "mlp.dense_h_to_4h": "mlp.up_proj",
    "mlp.dense_4h_to_h": "mlp.down_proj",
}
_ENDS = {
    "gpt_neox.embed_in.weight": "model.embed_tokens.weight",
    "gpt_neox.final_layer_norm.weight": "model.norm.weight",
    "gpt_neox.final_layer_norm.bias": "model.norm.bias",
    "embed_out.weight": "lm_head.weight",
}


def read(config: ForeignConfig) -> ModelConfig:
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    layers, bias = read_layers(config), config.flag("attention_bias", True)
    share = config.number("rotary_pct", 0.25)
    return ModelConfig(
        vocab_size=config.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=config.integer("intermediate_size"),
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=hidden // heads,
        max_position_embeddings=config.integer("max_position_embeddings", 2048),
        windows=(None,) * layers,
        rope=read_rope(config, config.number("rotary_emb_base", 10_000.0), partial=True),
        rotary_dim=read_rotary_dim(config, hidden // heads, share),
        norm="layer",
        norm_bias=True,
        norm_eps=config.number("layer_norm_eps", 1e-5),
        parallel="two norms" if config.flag("use_parallel_residual", True) else None,
        qkv_bias=bias,
        o_bias=bias,
        gated=False,
        hidden_act=read_activation(config, "hidden_act", "gelu"),
        mlp_bias=True,
        tie_word_embeddings=config.flag("tie_word_embeddings"),
    )


def rules(config: ModelConfig) -> Sequence[Rule]:
    found = [rename(theirs, ours) for theirs, ours in _ENDS.items()]
    for kind in ("weight", "bias"):
        parts = tuple(f"model.layers.{{i}}.self_attn.{leaf}_proj.{kind}" for leaf in "qkv")
        stored = f"gpt_neox.layers.{{i}}.attention.query_key_value.{kind}"
        found.append(Rule(stored, parts, RowsByGroup(config.num_attention_heads)))
        found += [
            rename(f"gpt_neox.layers.{{i}}.{theirs}.{kind}", f"model.layers.{{i}}.{ours}.{kind}")
            for theirs, ours in _PARTS.items()
        ]
    return found


def gguf_config(metadata: ForeignConfig) -> dict[str, Any]:
    shape = gguf_classic_shape(metadata)
    head_dim = shape["hidden_size"] // shape["num_attention_heads"]
    return shape | {
        "layer_norm_eps": shape.pop("norm_eps"),
        "rotary_pct": metadata.integer("rope.dimension_count") / head_dim,
        "rotary_emb_base": metadata.number("rope.freq_base", 10_000.0),
        "use_parallel_residual": metadata.flag("use_parallel_residual", True),
    }


def gguf_rules(config: ModelConfig) -> Sequence[Rule]:
    return fused_qkv_rules(biases=True)


def gguf_metadata(config: ModelConfig) -> dict[str, Any]:
    if not config.qkv_bias:
        raise UnsupportedError("llama.cpp wants biases in a GPT-NeoX; use --as hf")
    return {"use_parallel_residual": config.parallel is not None}


FAMILY = Family(
    ("gpt_neox",),
    "GPTNeoXForCausalLM",
    read,
    rules,
    derived=(r".*\.attention\.((masked_)?bias|rotary_emb\.inv_freq)",),
    gguf=GGUFForm(
        ("gptneox",),
        gguf_config,
        gguf_rules,
        gguf_metadata,
        shown=shown_by(("attention_bias", "blk.0.attn_qkv.bias")),
    ),
)
