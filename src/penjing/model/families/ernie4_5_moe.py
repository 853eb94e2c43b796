"""ERNIE 4.5 with experts (21B-A3B, 300B-A47B): chosen with a correction that balances them, beside shared
ones."""

from collections.abc import Sequence
from typing import Any

from penjing.model.config import ExpertsConfig, ModelConfig
from penjing.model.families.common import read_experts
from penjing.model.families.ernie4_5 import SHARED_DEFAULTS, read_ernie_shape
from penjing.model.families.family import Family, GGUFForm
from penjing.model.families.gguf_common import gguf_experts, gguf_shape
from penjing.model.foreign import ForeignConfig
from penjing.model.layouts import Stacked
from penjing.model.names import Rule, rename

# Of training alone, or what other keys say too.
_WITHOUT_EFFECT = (
    *("moe_aux_loss_lambda", "moe_orthogonal_loss_lambda", "moe_z_loss_lambda", "moe_capacity", "moe_group"),
    *("moe_dropout_prob", "moe_use_aux_free", "moe_norm_min", "num_nextn_predict_layers"),
)


def read(config: ForeignConfig) -> ModelConfig:
    config.expect("use_bias", False)
    config.expect("moe_gate", "topk")
    config.expect("moe_gate_act", "softmax")
    shape = read_ernie_shape(config)
    return ModelConfig(**shape, experts=_experts(config, shape["num_hidden_layers"]))


def _experts(config: ForeignConfig, layers: int) -> ExpertsConfig:
    config.ignore(*_WITHOUT_EFFECT)
    shared = config.integer("moe_num_shared_experts", 2, minimum=0)
    return read_experts(
        config,
        "moe_num_experts",
        _read_layers(config, layers),
        per_token_key="moe_k",
        correction_bias=True,
        shared_size=shared * config.integer("moe_intermediate_size"),
    )


def _read_layers(config: ForeignConfig, layers: int) -> tuple[bool, ...]:
    """Every so many layers, from a first to a last one (-1: of the model) that counts too."""
    first = config.integer("moe_layer_start_index", 1, minimum=0)
    last, step = (
        config.integer("moe_layer_end_index", -1, minimum=-1),
        config.integer("moe_layer_interval", 1),
    )
    last = layers if last == -1 else last
    return tuple((i + 1) % step == 0 and first <= i <= last for i in range(layers))


def rules(config: ModelConfig) -> Sequence[Rule]:
    return [
        rename(
            "model.layers.{i}.mlp.moe_statics.e_score_correction_bias",
            "model.layers.{i}.mlp.gate.e_score_correction_bias",
            Stacked(1),
        )
    ]


def gguf_config(metadata: ForeignConfig) -> dict[str, Any]:
    metadata.ignore("expert_shared_feed_forward_length")  # follows from the count
    experts = gguf_experts(metadata, "moe_num_experts")
    return gguf_shape(metadata, experts=True) | {
        "moe_num_experts": experts["moe_num_experts"],
        "moe_k": experts["num_experts_per_tok"],
        "moe_intermediate_size": experts["moe_intermediate_size"],
        "moe_num_shared_experts": metadata.integer("expert_shared_count", 0, minimum=0),
        "moe_layer_start_index": metadata.integer("leading_dense_block_count", 0, minimum=0),
        "moe_layer_interval": metadata.integer("interleave_moe_layer_step", 1),
    }


def gguf_metadata(config: ModelConfig) -> dict[str, Any]:
    assert config.experts
    experts = config.experts
    return {
        "expert_shared_count": experts.shared_size // experts.intermediate_size,
        "leading_dense_block_count": experts.layers.index(True),
        "interleave_moe_layer_step": 1,
    }


GGUF = GGUFForm(("ernie4_5-moe",), gguf_config, metadata=gguf_metadata)
DEFAULTS = {**SHARED_DEFAULTS, "num_key_value_heads": 4}
FAMILY = Family(("ernie4_5_moe",), "Ernie4_5_MoeForCausalLM", read, rules, gguf=GGUF, defaults=DEFAULTS)
