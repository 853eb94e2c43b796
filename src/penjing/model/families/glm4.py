"""GLM-4-0414 (9B and 32B): GLM with norms after the sublayers too."""

from penjing.model.config import ModelConfig
from penjing.model.families.family import Family
from penjing.model.families.glm import read_glm_shape, rules
from penjing.model.foreign import ForeignConfig


def read(config: ForeignConfig) -> ModelConfig:
    return ModelConfig(**read_glm_shape(config), post_norm=True)


FAMILY = Family(("glm4",), "Glm4ForCausalLM", read, rules)
