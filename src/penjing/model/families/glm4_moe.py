"""GLM-4.5 and its like: half of each head turned, and experts routed as in DeepSeek-V3."""

from collections.abc import Sequence
from typing import Any

from penjing.model.config import ModelConfig
from penjing.model.families.common import read_shape
from penjing.model.families.deepseek_v3 import read_routed_experts
from penjing.model.families.family import Family, GGUFForm
from penjing.model.families.gguf_common import gguf_experts, gguf_shape, second_norm_rule
from penjing.model.foreign import ForeignConfig
from penjing.model.names import Rule


def read(config: ForeignConfig) -> ModelConfig:
    shape = read_shape(config, partial=True)
    return ModelConfig(
        **shape,
        windows=(None,) * shape["num_hidden_layers"],
        qkv_bias=config.flag("attention_bias"),
        qk_norm="head" if config.flag("use_qk_norm") else None,
        experts=read_routed_experts(config, shape["num_hidden_layers"]),
        tie_word_embeddings=config.flag("tie_word_embeddings"),
    )


def gguf_config(metadata: ForeignConfig) -> dict[str, Any]:
    metadata.expect("expert_gating_func", 2)  # sigmoids
    metadata.ignore("expert_shared_feed_forward_length")  # follows from the count
    shape = gguf_shape(metadata, partial=True, experts=True)
    further = metadata.integer("nextn_predict_layers", 0, minimum=0)
    return {
        **shape,
        **gguf_experts(metadata, "n_routed_experts"),
        "num_hidden_layers": shape["num_hidden_layers"] - further,
        "num_nextn_predict_layers": further,
        "n_shared_experts": metadata.integer("expert_shared_count", 0, minimum=0),
        "first_k_dense_replace": metadata.integer("leading_dense_block_count", 0, minimum=0),
        "n_group": metadata.integer("expert_group_count", 1),
        "topk_group": metadata.integer("expert_group_used_count", 1),
        "routed_scaling_factor": metadata.number("expert_weights_scale", 1.0),
        "norm_topk_prob": metadata.flag("expert_weights_norm", True),
    }


def gguf_rules(config: ModelConfig) -> Sequence[Rule]:
    return [second_norm_rule()]


def gguf_metadata(config: ModelConfig) -> dict[str, Any]:
    assert config.experts
    experts = config.experts
    return {
        "expert_gating_func": 2,
        "expert_shared_count": experts.shared_size // experts.intermediate_size,
        "leading_dense_block_count": experts.layers.index(True),
        "expert_group_count": experts.groups,
        "expert_group_used_count": experts.groups_per_token,
        "expert_weights_scale": experts.scale,
        "expert_weights_norm": experts.normalize,
    }


GGUF = GGUFForm(
    ("glm4moe",),
    gguf_config,
    gguf_rules,
    gguf_metadata,
    flags=(("attention_bias", "blk.0.attn_q.bias"), ("use_qk_norm", "blk.0.attn_q_norm.weight")),
)
FAMILY = Family(("glm4_moe",), "Glm4MoeForCausalLM", read, gguf=GGUF)
