"""Command R7B and Command A: Command-R with windows and positions in three of four layers, and neither in the
fourth."""

from typing import Any

from penjing.model.config import ModelConfig
from penjing.model.families import cohere
from penjing.model.families.common import read_alternating
from penjing.model.families.family import Family, GGUFForm
from penjing.model.families.gguf_common import gguf_windows
from penjing.model.foreign import ForeignConfig

PERIOD = 4
# Keys of the authors' own software, and the only values that their models have.
_AS_PUBLISHED = {
    "order_of_interleaved_layers": "local_attn_first",
    "position_embedding_type": "rope_gptj",
    "rotary_pct": 1.0,
    "use_embedding_sharing": True,
    "use_gated_activation": True,
    "use_parallel_block": True,
    "use_qk_norm": False,
}


def read(config: ForeignConfig) -> ModelConfig:
    config.assume(sliding_window=4096)
    for key, value in _AS_PUBLISHED.items():
        config.expect(key, value)
    shape = cohere.read_shared(config)
    period = config.integer("sliding_window_pattern", PERIOD)
    config.expect("layer_switch", period)
    config.expect("head_dim", shape["hidden_size"] // shape["num_attention_heads"])
    windows = read_alternating(config, period)
    return ModelConfig(
        **shape, windows=windows, rotary_layers=tuple(window is not None for window in windows)
    )


def gguf_config(metadata: ForeignConfig) -> dict[str, Any]:
    return cohere.gguf_config(metadata) | gguf_windows(metadata, PERIOD)


GGUF = GGUFForm(("cohere2",), gguf_config, metadata=cohere.gguf_metadata)
FAMILY = Family(("cohere2",), "Cohere2ForCausalLM", read, gguf=GGUF)
