"""Llama 1 to 3.3, and what is built like it (SmolLM, TinyLlama, Yi): no biases, optional windows in none."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from penjing.model.config import ModelConfig
from penjing.model.families.common import read_shape
from penjing.model.families.family import Family, GGUFForm, shown_by
from penjing.model.families.gguf_common import gguf_shape
from penjing.model.foreign import ForeignConfig
from penjing.model.layouts import PairedRows
from penjing.model.names import Rule, rename


def read(config: ForeignConfig) -> ModelConfig:
    config.expect("pretraining_tp", 1)
    attention_bias = config.flag("attention_bias")
    shape = read_shape(config)
    return ModelConfig(
        **shape,
        windows=(None,) * shape["num_hidden_layers"],
        tie_word_embeddings=config.flag("tie_word_embeddings"),
        qkv_bias=attention_bias,
        o_bias=attention_bias,
        mlp_bias=config.flag("mlp_bias"),
    )


def gguf_rules(config: ModelConfig) -> Sequence[Rule]:
    """Under this architecture llama.cpp stores the rows of Q and K in pairs."""
    heads = {"q": config.num_attention_heads, "k": config.num_key_value_heads}
    return [
        rename(
            f"blk.{{i}}.attn_{leaf}.{kind}",
            f"model.layers.{{i}}.self_attn.{leaf}_proj.{kind}",
            PairedRows(count),
        )
        for leaf, count in heads.items()
        for kind in ("weight", "bias")
    ]


def has_no_experts(metadata: Mapping[str, Any], tensors: Collection[str]) -> bool:
    """With experts it is a Mixtral under this name."""
    return not metadata.get("llama.expert_count")


GGUF = GGUFForm(
    ("llama",),
    gguf_shape,
    gguf_rules,
    applies=has_no_experts,
    shown=shown_by(("attention_bias", "blk.0.attn_q.bias"), ("mlp_bias", "blk.0.ffn_up.bias")),
)
FAMILY = Family(("llama",), "LlamaForCausalLM", read, derived=(r".*rotary_emb\.inv_freq",), gguf=GGUF)
