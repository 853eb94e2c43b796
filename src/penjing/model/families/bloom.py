"""BLOOM: scores that fall with the distance instead of positions, a norm on the embedding, and queries, keys
and values kept together head by head."""

from collections.abc import Sequence
from typing import Any

from penjing.model.config import ModelConfig
from penjing.model.families.common import read_layers
from penjing.model.families.family import Family, GGUFForm
from penjing.model.families.gguf_common import fused_qkv_rules, gguf_classic_shape
from penjing.model.foreign import ForeignConfig
from penjing.model.layouts import RowsByGroup
from penjing.model.names import Rule, rename

_CONTEXT = 2048  # what these models were trained on; the config doesn't say
_PARTS = {
    "input_layernorm": "input_layernorm",
    "post_attention_layernorm": "post_attention_layernorm",
    "self_attention.dense": "self_attn.o_proj",
    "mlp.dense_h_to_4h": "mlp.up_proj",
    "mlp.dense_4h_to_h": "mlp.down_proj",
}
_ENDS = {
    "word_embeddings": "model.embed_tokens",
    "word_embeddings_layernorm": "model.embed_norm",
    "ln_f": "model.norm",
}


def read(config: ForeignConfig) -> ModelConfig:
    config.expect("apply_residual_connection_post_layernorm", False)
    # How products are carried out, not what they are.
    config.ignore("slow_but_exact", "pretraining_tp", "skip_bias_add", "skip_bias_add_qkv", "offset_alibi")
    hidden_key = "hidden_size" if config.get("n_embed") is None else "n_embed"
    heads_key = "n_head" if config.get("num_attention_heads") is None else "num_attention_heads"
    hidden, heads = config.integer(hidden_key), config.integer(heads_key)
    layers = read_layers(config, "n_layer")
    return ModelConfig(
        vocab_size=config.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=4 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=hidden // heads,
        max_position_embeddings=config.integer("seq_length", _CONTEXT),
        windows=(None,) * layers,
        positions="alibi",
        norm="layer",
        norm_bias=True,
        norm_eps=config.number("layer_norm_epsilon", 1e-5),
        qkv_bias=True,
        o_bias=True,
        gated=False,
        hidden_act="gelu_pytorch_tanh",
        mlp_bias=True,
        embedding_norm=True,
        tie_word_embeddings=config.flag("tie_word_embeddings", True),
    )


def rules(config: ModelConfig) -> Sequence[Rule]:
    found = []
    for kind in ("weight", "bias"):
        found += [rename(f"transformer.{theirs}.{kind}", f"{ours}.{kind}") for theirs, ours in _ENDS.items()]
        parts = tuple(f"model.layers.{{i}}.self_attn.{leaf}_proj.{kind}" for leaf in "qkv")
        stored = f"transformer.h.{{i}}.self_attention.query_key_value.{kind}"
        found.append(Rule(stored, parts, RowsByGroup(config.num_attention_heads)))
        found += [
            rename(f"transformer.h.{{i}}.{theirs}.{kind}", f"model.layers.{{i}}.{ours}.{kind}")
            for theirs, ours in _PARTS.items()
        ]
    return found


def gguf_config(metadata: ForeignConfig) -> dict[str, Any]:
    shape = gguf_classic_shape(metadata)
    return {
        "vocab_size": shape["vocab_size"],
        "hidden_size": shape["hidden_size"],
        "n_layer": shape["num_hidden_layers"],
        "n_head": shape["num_attention_heads"],
        "seq_length": shape["max_position_embeddings"],
        "layer_norm_epsilon": shape["norm_eps"],
    }


def gguf_rules(config: ModelConfig) -> Sequence[Rule]:
    return fused_qkv_rules(biases=True)


GGUF = GGUFForm(("bloom",), gguf_config, gguf_rules)
FAMILY = Family(("bloom",), "BloomForCausalLM", read, rules, gguf=GGUF)
