"""Youtu-LLM: DeepSeek-V3's attention without experts."""

from collections.abc import Collection, Mapping
from typing import Any

from penjing.model.config import ModelConfig
from penjing.model.families.family import Family, GGUFForm
from penjing.model.families.latent import (
    gguf_latent_config,
    latent_metadata,
    latent_parts,
    latent_rules,
    read_latent_shape,
)
from penjing.model.foreign import ForeignConfig


def read(config: ForeignConfig) -> ModelConfig:
    config.ignore("embedding_initializer_range", "num_nextn_predict_layers")
    return ModelConfig(**read_latent_shape(config))


def gguf_config(metadata: ForeignConfig) -> dict[str, Any]:
    metadata.ignore("expert_feed_forward_length", "leading_dense_block_count")  # all layers are dense
    for key in ("expert_count", "expert_used_count", "expert_shared_count"):
        metadata.expect(key, 0)
    return gguf_latent_config(metadata)


def gguf_metadata(config: ModelConfig) -> dict[str, Any]:
    dense = {
        "leading_dense_block_count": config.num_hidden_layers,
        "expert_feed_forward_length": config.intermediate_size,
        "expert_shared_count": 0,
    }
    return latent_metadata(config) | dense


def has_no_experts(metadata: Mapping[str, Any], tensors: Collection[str]) -> bool:
    """What tells it from DeepSeek's models in GGUF files."""
    return not metadata.get("deepseek2.expert_count")


GGUF = GGUFForm(("deepseek2",), gguf_config, latent_rules, gguf_metadata, has_no_experts, parts=latent_parts)
DEFAULTS = {"q_lora_rank": 1536, "tie_word_embeddings": True}
FAMILY = Family(("youtu",), "YoutuForCausalLM", read, gguf=GGUF, defaults=DEFAULTS)
