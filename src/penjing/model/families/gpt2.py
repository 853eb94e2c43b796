"""GPT-2: learned positions, layer norms, biases everywhere, and matrices stored as (inputs, outputs)."""

from collections.abc import Sequence
from typing import Any

from penjing.model.config import ModelConfig
from penjing.model.families.common import read_activation, read_layers
from penjing.model.families.family import Family, GGUFForm
from penjing.model.families.gguf_common import fused_qkv_rules, gguf_classic_shape
from penjing.model.foreign import ForeignConfig
from penjing.model.layouts import Layout, Rows, Transposed
from penjing.model.names import Rule, rename

PARTS = {
    "ln_1": "input_layernorm",
    "attn.c_proj": "self_attn.o_proj",
    "ln_2": "post_attention_layernorm",
    "mlp.c_fc": "mlp.up_proj",
    "mlp.c_proj": "mlp.down_proj",
}
ENDS = {
    "transformer.wte.weight": "model.embed_tokens.weight",
    "transformer.wpe.weight": "model.embed_positions.weight",
    "transformer.ln_f.weight": "model.norm.weight",
    "transformer.ln_f.bias": "model.norm.bias",
}


def read(config: ForeignConfig) -> ModelConfig:
    config.expect("scale_attn_weights", True)
    config.expect("scale_attn_by_inverse_layer_idx", False)
    config.ignore("reorder_and_upcast_attn", "n_ctx")  # precision alone; a second name
    hidden, heads, layers = config.integer("n_embd"), config.integer("n_head"), read_layers(config, "n_layer")
    return ModelConfig(
        vocab_size=config.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=config.integer("n_inner", 4 * hidden),
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=hidden // heads,
        max_position_embeddings=config.integer("n_positions", 1024),
        windows=(None,) * layers,
        positions="learned",
        norm="layer",
        norm_bias=True,
        norm_eps=config.number("layer_norm_epsilon", 1e-5),
        qkv_bias=True,
        o_bias=True,
        gated=False,
        hidden_act=read_activation(config, "activation_function", "gelu_new"),
        mlp_bias=True,
        tie_word_embeddings=config.flag("tie_word_embeddings", True),
    )


def rules(config: ModelConfig) -> Sequence[Rule]:
    found = [rename(theirs, ours) for theirs, ours in ENDS.items()]
    for kind in ("weight", "bias"):
        parts = tuple(f"model.layers.{{i}}.self_attn.{leaf}_proj.{kind}" for leaf in "qkv")
        fused: Layout = Transposed(Rows()) if kind == "weight" else Rows()
        found.append(Rule(f"transformer.h.{{i}}.attn.c_attn.{kind}", parts, fused))
        for theirs, ours in PARTS.items():
            is_matrix = kind == "weight" and not theirs.startswith("ln")
            layout = Transposed() if is_matrix else None
            stored = f"transformer.h.{{i}}.{theirs}.{kind}"
            found.append(rename(stored, f"model.layers.{{i}}.{ours}.{kind}", layout))
    return found


def gguf_config(metadata: ForeignConfig) -> dict[str, Any]:
    shape = gguf_classic_shape(metadata)
    return {
        "vocab_size": shape["vocab_size"],
        "n_embd": shape["hidden_size"],
        "n_inner": shape["intermediate_size"],
        "n_layer": shape["num_hidden_layers"],
        "n_head": shape["num_attention_heads"],
        "n_positions": shape["max_position_embeddings"],
        "layer_norm_epsilon": shape["norm_eps"],
    }


def gguf_rules(config: ModelConfig) -> Sequence[Rule]:
    return fused_qkv_rules(biases=True)


FAMILY = Family(
    ("gpt2",),
    "GPT2LMHeadModel",
    read,
    rules,
    derived=(r"(transformer\.)?h\.\d+\.attn\.(masked_)?bias",),
    gguf=GGUFForm(("gpt2",), gguf_config, gguf_rules),
)
