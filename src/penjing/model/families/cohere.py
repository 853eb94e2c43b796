"""Command-R and Aya: attention and feed-forward net side by side behind one norm without bias, neighbouring
values turned together, scaled logits; the larger ones normalise each head's queries and keys."""

from typing import Any

from penjing.model.config import ModelConfig
from penjing.model.families.common import gguf_shape, read_shape, shortest
from penjing.model.families.family import Family, GGUFForm
from penjing.model.foreign import ForeignConfig

DEFAULTS = {"logit_scale": 0.0625, "rope_theta": 5e5, "tie_word_embeddings": True}
_LAYERS_OF_PLUS = 64


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


def gguf_config(metadata: ForeignConfig) -> dict[str, Any]:
    """Norms on queries and keys aren't mentioned; llama.cpp, too, knows the model by its depth."""
    shape = gguf_shared(metadata)
    return shape | {"use_qk_norm": shape["num_hidden_layers"] >= _LAYERS_OF_PLUS}


def gguf_shared(metadata: ForeignConfig) -> dict[str, Any]:
    shape = gguf_shape(metadata, epsilon="attention.layer_norm_epsilon")
    epsilon = {"rms_norm_eps": None, "layer_norm_eps": shape["rms_norm_eps"]}
    return shape | epsilon | {"logit_scale": shortest(metadata.number("logit_scale", 1.0))}


FAMILY = Family(
    ("cohere",), "CohereForCausalLM", read, gguf=GGUFForm(("command-r",), gguf_config), defaults=DEFAULTS
)
