"""GLM-4.5 and its like: half of each head turned, and experts routed as in DeepSeek-V3."""

from penjing.model.config import ModelConfig
from penjing.model.families.common import read_shape
from penjing.model.families.deepseek_v3 import read_routed_experts
from penjing.model.families.family import Family
from penjing.model.foreign import ForeignConfig


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


FAMILY = Family(("glm4_moe",), "Glm4MoeForCausalLM", read)
