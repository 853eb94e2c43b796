"""What the Llama-like families share when their configs are read."""

from typing import Any

from penjing.errors import InputError, UnsupportedError
from penjing.model.config import ExpertsConfig
from penjing.model.foreign import ForeignConfig
from penjing.model.layouts import Rows
from penjing.model.names import Rule, rename
from penjing.model.rope_config import read_rope, read_rotary_dim

MAX_HEAD_DIM = 65_536
MAX_LAYERS = 10_000  # far above any model; what a broken config can make us build stays small
# Several names are in use for the approximation by a tanh.
_ACTIVATIONS = {"gelu_new": "gelu_pytorch_tanh", "gelu_fast": "gelu_pytorch_tanh", "swish": "silu"}
FULL, SLIDING = "full_attention", "sliding_attention"
_LAYER_KINDS = (FULL, SLIDING)
# Where Gemma 2 and OLMo 2 keep the norms around a sublayer; a norm before the first has the module's name.
NORMS_AROUND = tuple(
    rename(f"model.layers.{{i}}.{stored}_layernorm.weight", f"model.layers.{{i}}.{native}_layernorm.weight")
    for stored, native in (
        ("post_attention", "post_self_attn"),
        ("pre_feedforward", "post_attention"),
        ("post_feedforward", "post_mlp"),
    )
)


def read_shape(config: ForeignConfig, partial: bool = False, head_dim: int | None = None) -> dict[str, Any]:
    """The fields of `ModelConfig` that every Llama-like config holds under the same keys; `partial`: its
    rotation may turn a part of each head only; `head_dim` is given where it follows from other keys."""
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    head_dim = _read_head_dim(config, hidden, heads) if head_dim is None else head_dim
    turned = {"rotary_dim": read_rotary_dim(config, head_dim)} if partial else {}
    return turned | {
        "vocab_size": config.integer("vocab_size"),
        "hidden_size": hidden,
        "intermediate_size": config.integer("intermediate_size", minimum=0),
        "num_hidden_layers": read_layers(config),
        "num_attention_heads": heads,
        "num_key_value_heads": config.integer("num_key_value_heads", heads),
        "head_dim": head_dim,
        "max_position_embeddings": config.integer("max_position_embeddings"),
        "norm_eps": config.number("rms_norm_eps", 1e-6),
        "hidden_act": read_activation(config, "hidden_act", "silu"),
        "rope": read_rope(config, partial=partial),
    }


def _read_head_dim(config: ForeignConfig, hidden: int, heads: int) -> int:
    if config.get("head_dim") is None and hidden % heads:
        raise InputError(
            f"{config.source}: hidden_size {hidden} does not divide into {heads} heads; head_dim is missing"
        )
    return config.integer("head_dim", hidden // heads, maximum=MAX_HEAD_DIM)


def read_layers(config: ForeignConfig, key: str = "num_hidden_layers") -> int:
    """The number of layers."""
    return config.integer(key, maximum=MAX_LAYERS)


def read_activation(config: ForeignConfig, key: str, default: str) -> str:
    """The activation, under one name for each function."""
    name = config.get(key, default)
    return _ACTIVATIONS.get(name, name) if isinstance(name, str) else name


def read_experts(
    config: ForeignConfig,
    count_key: str,
    layers: tuple[bool, ...],
    intermediate_size: int | None = None,
    per_token_key: str = "num_experts_per_tok",
    **fields: Any,
) -> ExpertsConfig:
    """A mixture of experts; `fields` are those that the families name in their own ways."""
    config.ignore("router_aux_loss_coef", "output_router_logits")
    return ExpertsConfig(
        count=config.integer(count_key),
        per_token=config.integer(per_token_key),
        layers=layers,
        intermediate_size=intermediate_size or config.integer("moe_intermediate_size"),
        **fields,
    )


def fused_gate_rule(stored: str) -> Rule:
    """A gated net whose gate and up projection are one matrix."""
    native = tuple(f"model.layers.{{i}}.mlp.{leaf}.weight" for leaf in ("gate_proj", "up_proj"))
    return Rule(stored, native, Rows())


def read_windows(
    config: ForeignConfig, window: int | None, first_windowed: int = 0
) -> tuple[int | None, ...]:
    """Each layer's window: `layer_types` decides where it is given, else layers from `first_windowed` on have
    it."""
    layers, kinds = read_layers(config), config.get("layer_types")
    if kinds is not None and not isinstance(kinds, list):
        raise InputError(f"{config.source}: layer_types must be a list, not {kinds!r}")
    if kinds is None:
        return tuple(window if i >= first_windowed else None for i in range(layers))
    unknown = sorted({str(k) for k in kinds} - set(_LAYER_KINDS))
    if unknown:
        raise UnsupportedError(f"{config.source}: layer type {unknown[0]!r} is not supported")
    if window is None and SLIDING in kinds:
        raise InputError(
            f"{config.source}: layer_types asks for sliding attention, but no sliding_window is set"
        )
    return tuple(window if kind == SLIDING else None for kind in kinds)


def read_alternating(config: ForeignConfig, every: int) -> tuple[int | None, ...]:
    """Windows in all layers but each `every`-th, unless the config lists the layers."""
    window = config.integer("sliding_window") if config.get("sliding_window") is not None else None
    windows = read_windows(config, window)
    if config.get("layer_types") is not None:
        return windows
    return tuple(window if kind == SLIDING else None for kind in alternating(len(windows), every))


def alternating(layers: int, every: int) -> list[str]:
    """Layer types in which each `every`-th layer sees everything."""
    return [FULL if i % every == 0 else SLIDING for i in range(1, layers + 1)]
