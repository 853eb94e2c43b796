"""Command-R and Aya: attention and feed-forward net side by side behind one norm without bias, neighbouring
values turned together, scaled logits; the larger ones normalise each head's queries and keys."""

from collections.abc import Sequence
from typing import Any

from penjing.model.config import ModelConfig
from penjing.model.families.common import read_shape
from penjing.model.families.family import Family, GGUFForm, shown_by
from penjing.model.families.gguf_common import LAYER_EPSILON, gguf_shape, shortest
from penjing.model.foreign import ForeignConfig
from penjing.model.layouts import Stacked
from penjing.model.names import Rule, rename

SHARED_DEFAULTS = {"logit_scale": 0.0625, "tie_word_embeddings": True}


def read(config: ForeignConfig) -> ModelConfig:
    shape = read_shared(config)
    return ModelConfig(
        **shape,
        windows=(None,) * shape["num_hidden_layers"],
        qk_norm="each head" if config.flag("use_qk_norm") else None,
    )


def read_shared(config: ForeignConfig) -> dict[str, Any]:
    """What all generations have."""
    shape, attention_bias = read_shape(config), config.flag("attention_bias")
    # Command-R's own limit is far above the one that its config names for batches.
    longest = config.integer("model_max_length", shape["max_position_embeddings"])
    return shape | {
        "max_position_embeddings": longest,
        "tie_word_embeddings": config.flag("tie_word_embeddings"),
        "qkv_bias": attention_bias,
        "o_bias": attention_bias,
        "norm": "layer",
        "norm_eps": config.number("layer_norm_eps", 1e-5),
        "parallel": "one norm",
        "rope_interleaved": True,
        "logit_scale": config.number("logit_scale"),
    }


def rules(config: ModelConfig) -> Sequence[Rule]:
    """Gains of norms are stored as (heads, head_dim)."""
    return _gain_rules(config, "model.layers.{i}.self_attn.q_norm", "model.layers.{i}.self_attn.k_norm")


def gguf_rules(config: ModelConfig) -> Sequence[Rule]:
    return _gain_rules(config, "blk.{i}.attn_q_norm", "blk.{i}.attn_k_norm")


def _gain_rules(config: ModelConfig, query_norm: str, key_norm: str) -> Sequence[Rule]:
    native = "model.layers.{i}.self_attn"
    return [
        rename(f"{query_norm}.weight", f"{native}.q_norm.{{e}}.weight", Stacked(config.num_attention_heads)),
        rename(f"{key_norm}.weight", f"{native}.k_norm.{{e}}.weight", Stacked(config.num_key_value_heads)),
    ]


def gguf_config(metadata: ForeignConfig) -> dict[str, Any]:
    shape = gguf_shape(metadata, epsilon=LAYER_EPSILON)
    epsilon = {"rms_norm_eps": None, "layer_norm_eps": shape["rms_norm_eps"]}
    return shape | epsilon | {"logit_scale": shortest(metadata.number("logit_scale", 1.0))}


def gguf_metadata(config: ModelConfig) -> dict[str, Any]:
    return {"logit_scale": config.logit_scale, "rope.scaling.type": "none"}


GGUF = GGUFForm(
    ("command-r",),
    gguf_config,
    gguf_rules,
    gguf_metadata,
    shown=shown_by(("use_qk_norm", "blk.0.attn_q_norm.weight")),
)
FAMILY = Family(
    ("cohere",), "CohereForCausalLM", read, rules, gguf=GGUF, defaults={**SHARED_DEFAULTS, "rope_theta": 5e5}
)
