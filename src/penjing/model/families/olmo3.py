"""OLMo 3: OLMo 2 with a window in three of four layers; only the fourth kind has its rotation scaled."""

from penjing.model.config import ModelConfig, RopeConfig
from penjing.model.families.common import read_alternating_windows
from penjing.model.families.family import Family
from penjing.model.families.olmo2 import DEFAULTS, read_shared, rules
from penjing.model.foreign import ForeignConfig


def read(config: ForeignConfig) -> ModelConfig:
    shape = read_shared(config)
    if shape["local_rope"] is None:
        shape["local_rope"] = RopeConfig(rope_theta=shape["rope"].rope_theta)
    return ModelConfig(**shape, windows=read_alternating_windows(config, period=4))


FAMILY = Family(("olmo3",), "Olmo3ForCausalLM", read, rules, defaults={**DEFAULTS, "sliding_window": 4096})
