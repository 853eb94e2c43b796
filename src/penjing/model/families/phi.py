"""Phi-1, Phi-1.5 and Phi-2: attention and feed-forward net side by side behind one norm, a part of each head
turned, and biases everywhere, also on the logits."""

from collections.abc import Sequence
from typing import Any

from penjing.model.config import ModelConfig
from penjing.model.families.common import read_shape
from penjing.model.families.family import Family, GGUFForm
from penjing.model.families.gguf_common import LAYER_EPSILON, fused_qkv_rules, gguf_shape
from penjing.model.foreign import ForeignConfig
from penjing.model.names import Rule, rename

_PARTS = {
    "self_attn.dense": "self_attn.o_proj",
    "self_attn.q_layernorm": "self_attn.q_norm",
    "self_attn.k_layernorm": "self_attn.k_norm",
    "mlp.fc1": "mlp.up_proj",
    "mlp.fc2": "mlp.down_proj",
}


def read(config: ForeignConfig) -> ModelConfig:
    shape = read_shape(config, partial=True)
    shape["norm_eps"] = config.number("layer_norm_eps", 1e-5)
    return ModelConfig(
        **shape,
        windows=(None,) * shape["num_hidden_layers"],
        norm="layer",
        norm_bias=True,
        parallel="one norm",
        qkv_bias=True,
        o_bias=True,
        qk_norm="head" if config.flag("qk_layernorm") else None,
        gated=False,
        mlp_bias=True,
        tie_word_embeddings=config.flag("tie_word_embeddings"),
        head_bias=True,
    )


def rules(config: ModelConfig) -> Sequence[Rule]:
    found = []
    for kind in ("weight", "bias"):
        found.append(rename(f"model.final_layernorm.{kind}", f"model.norm.{kind}"))
        found += [
            rename(f"model.layers.{{i}}.{theirs}.{kind}", f"model.layers.{{i}}.{ours}.{kind}")
            for theirs, ours in _PARTS.items()
        ]
    return found


def gguf_config(metadata: ForeignConfig) -> dict[str, Any]:
    shape = gguf_shape(metadata, partial=True, epsilon=LAYER_EPSILON)
    epsilon = {"rms_norm_eps": None, "layer_norm_eps": shape["rms_norm_eps"]}
    return shape | epsilon | {"hidden_act": "gelu_new"}


def gguf_rules(config: ModelConfig) -> Sequence[Rule]:
    """Older files hold queries, keys and values fused, others hold them apart."""
    return fused_qkv_rules(biases=True)


GGUF = GGUFForm(("phi2",), gguf_config, gguf_rules)
DEFAULTS = {"hidden_act": "gelu_new", "partial_rotary_factor": 0.5}
FAMILY = Family(("phi",), "PhiForCausalLM", read, rules, gguf=GGUF, defaults=DEFAULTS)
