"""dots.llm1: Qwen3's attention, and experts routed as in DeepSeek-V3."""

from typing import Any

from penjing.model.config import ModelConfig
from penjing.model.families.common import read_shape, read_windows
from penjing.model.families.deepseek_v3 import read_routed_experts
from penjing.model.families.family import Family, GGUFForm
from penjing.model.families.gguf_common import gguf_routed_experts, gguf_shape, routed_metadata
from penjing.model.foreign import ForeignConfig


def read(config: ForeignConfig) -> ModelConfig:
    config.expect("pretraining_tp", 1)
    config.ignore("use_sliding_window")  # transformers goes by the two below
    window = config.integer("sliding_window") if config.get("sliding_window") is not None else None
    first, bias = config.integer("max_window_layers", 62, minimum=0), config.flag("attention_bias")
    shape = read_shape(config)
    return ModelConfig(
        **shape,
        windows=read_windows(config, window, first),
        qkv_bias=bias,
        o_bias=bias,
        qk_norm="head",
        experts=read_routed_experts(config, shape["num_hidden_layers"]),
        tie_word_embeddings=config.flag("tie_word_embeddings"),
    )


def gguf_config(metadata: ForeignConfig) -> dict[str, Any]:
    routed = gguf_routed_experts(metadata, "sigmoid")
    return gguf_shape(metadata, experts=True) | routed | {"sliding_window": None}


GGUF = GGUFForm(("dots1",), gguf_config, metadata=routed_metadata)
DEFAULTS = {"sliding_window": 4096, "norm_topk_prob": False}
FAMILY = Family(("dots1",), "Dots1ForCausalLM", read, gguf=GGUF, defaults=DEFAULTS)
