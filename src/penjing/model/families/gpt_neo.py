"""GPT-Neo: GPT-2 with windows in some layers, scores that aren't scaled, and plain matrices."""

from collections.abc import Sequence

from penjing.errors import InputError
from penjing.model.config import ModelConfig
from penjing.model.families.common import read_activation, read_layers
from penjing.model.families.family import Family
from penjing.model.families.gpt2 import ENDS, PARTS
from penjing.model.foreign import ForeignConfig
from penjing.model.names import Rule, rename


def read(config: ForeignConfig) -> ModelConfig:
    hidden, heads = config.integer("hidden_size"), config.integer("num_heads")
    layers = read_layers(config, "num_layers")
    return ModelConfig(
        vocab_size=config.integer("vocab_size"),
        hidden_size=hidden,
        intermediate_size=config.integer("intermediate_size", 4 * hidden),
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=hidden // heads,
        max_position_embeddings=config.integer("max_position_embeddings", 2048),
        windows=_windows(config, layers),
        positions="learned",
        norm="layer",
        norm_bias=True,
        norm_eps=config.number("layer_norm_epsilon", 1e-5),
        attention_scale=1.0,
        o_bias=True,
        gated=False,
        hidden_act=read_activation(config, "activation_function", "gelu_new"),
        mlp_bias=True,
        tie_word_embeddings=config.flag("tie_word_embeddings", True),
    )


def _windows(config: ForeignConfig, layers: int) -> tuple[int | None, ...]:
    """`attention_types` holds kinds and how often they follow one another; `attention_layers` the result."""
    window, types = config.integer("window_size", 256), config.get("attention_types")
    kinds = config.get("attention_layers")
    if kinds is None:
        try:
            kinds = [kind for group, times in types or [] for _ in range(times) for kind in group]
        except (TypeError, ValueError):
            raise InputError(f"{config.source}: attention_types can't be read: {types!r}") from None
    if not set(kinds) <= {"global", "local"} or len(kinds) != layers:
        raise InputError(f"{config.source}: attention kinds {kinds!r} don't name {layers} layers")
    return tuple(window if kind == "local" else None for kind in kinds)


def rules(config: ModelConfig) -> Sequence[Rule]:
    found = [rename(theirs, ours) for theirs, ours in ENDS.items()]
    parts = PARTS | {"attn.attention.out_proj": "self_attn.o_proj"}
    parts |= {f"attn.attention.{leaf}_proj": f"self_attn.{leaf}_proj" for leaf in "qkv"}
    del parts["attn.c_proj"]
    return found + [
        rename(f"transformer.h.{{i}}.{theirs}.{kind}", f"model.layers.{{i}}.{ours}.{kind}")
        for theirs, ours in parts.items()
        for kind in ("weight", "bias")
    ]


FAMILY = Family(
    ("gpt_neo",),
    "GPTNeoForCausalLM",
    read,
    rules,
    derived=(r"(transformer\.)?h\.\d+\.attn\.attention\.(masked_)?bias",),
)
