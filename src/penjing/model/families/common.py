"""What the Llama-like families share when their configs are read."""

from typing import Any

from penjing.errors import InputError, UnsupportedError
from penjing.model.foreign import ForeignConfig
from penjing.model.names import rename
from penjing.model.rope_config import read_ropes

MAX_HEAD_DIM = 65_536
MAX_LAYERS = 10_000  # far above any model; what a broken config can make us build stays small
FULL, SLIDING = "full_attention", "sliding_attention"
_LAYER_KINDS = (FULL, SLIDING)
# Where Gemma 2 and OLMo 2 keep the norms around a sublayer; their first norm has the module's name.
NORMS_AROUND = tuple(
    rename(f"model.layers.{{i}}.{stored}_layernorm.weight", f"model.layers.{{i}}.{native}_layernorm.weight")
    for stored, native in (
        ("post_attention", "post_self_attn"),
        ("pre_feedforward", "post_attention"),
        ("post_feedforward", "post_mlp"),
    )
)


def read_shape(config: ForeignConfig) -> dict[str, Any]:
    """The fields of `ModelConfig` that every Llama-like config holds under the same keys."""
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    if config.get("head_dim") is None and hidden % heads:
        raise InputError(
            f"{config.source}: hidden_size {hidden} does not divide into {heads} heads; head_dim is missing"
        )
    rope, local_rope = read_ropes(config)
    return {
        "vocab_size": config.integer("vocab_size"),
        "hidden_size": hidden,
        "intermediate_size": config.integer("intermediate_size", minimum=0),
        "num_hidden_layers": config.integer("num_hidden_layers", maximum=MAX_LAYERS),
        "num_attention_heads": heads,
        "num_key_value_heads": config.integer("num_key_value_heads", heads),
        "head_dim": config.integer("head_dim", hidden // heads, maximum=MAX_HEAD_DIM),
        "max_position_embeddings": config.integer("max_position_embeddings"),
        "norm_eps": config.number("rms_norm_eps", 1e-6),
        "hidden_act": config.get("hidden_act", "silu"),
        "rope": rope,
        "local_rope": local_rope,
    }


def read_windows(
    config: ForeignConfig, window: int | None, first_windowed: int = 0
) -> tuple[int | None, ...]:
    """Each layer's window: `layer_types` decides where it is given, else layers from `first_windowed` on have
    it."""
    layers, kinds = config.integer("num_hidden_layers", maximum=MAX_LAYERS), config.get("layer_types")
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


def read_alternating_windows(config: ForeignConfig, period: int) -> tuple[int | None, ...]:
    """Each layer's window: `layer_types` decides where it is given, else all but every `period`th layer have
    it."""
    window = config.integer("sliding_window") if config.get("sliding_window") is not None else None
    if config.get("layer_types") is not None or window is None:
        return read_windows(config, window)
    layers = config.integer("num_hidden_layers", maximum=MAX_LAYERS)
    return tuple(window if kind == SLIDING else None for kind in alternating(layers, period))


def alternating(layers: int, period: int) -> list[str]:
    """Layer types in which every `period`th layer sees everything."""
    return [FULL if i % period == 0 else SLIDING for i in range(1, layers + 1)]


def gguf_windows(metadata: ForeignConfig, period: int, default: int = 0) -> dict[str, Any]:
    """`sliding_window` and `layer_types` from GGUF keys; a file that doesn't say which layers are windowed
    means all but every `period`th, and one that names no window means `default` (0: none)."""
    layers = metadata.integer("block_count", maximum=MAX_LAYERS)
    window = metadata.integer("attention.sliding_window", default, minimum=0)
    pattern = metadata.get("attention.sliding_window_pattern", period)
    if not window:
        return {"sliding_window": None, "layer_types": [FULL] * layers}
    if isinstance(pattern, list):
        kinds = [SLIDING if is_windowed else FULL for is_windowed in pattern]
    else:
        kinds = alternating(layers, metadata.integer("attention.sliding_window_pattern", period))
    return {"sliding_window": window, "layer_types": kinds}


def gguf_shape(metadata: ForeignConfig, epsilon: str = "attention.layer_norm_rms_epsilon") -> dict[str, Any]:
    """A Hugging Face config's shared keys from the architecture's own GGUF keys (without their prefix);
    `epsilon` is the one that holds the norms'."""
    heads, hidden = metadata.integer("attention.head_count"), metadata.integer("embedding_length")
    default = metadata.get("rope.dimension_count") or hidden // heads
    head_dim = metadata.integer("attention.key_length", default, maximum=MAX_HEAD_DIM)
    metadata.expect("attention.value_length", head_dim)
    metadata.expect("rope.dimension_count", head_dim)
    metadata.expect("expert_count", 0)
    metadata.expect("expert_used_count", 0)
    return {
        "vocab_size": metadata.integer("vocab_size"),
        "hidden_size": hidden,
        "intermediate_size": metadata.integer("feed_forward_length", minimum=0),
        "num_hidden_layers": metadata.integer("block_count", maximum=MAX_LAYERS),
        "num_attention_heads": heads,
        "num_key_value_heads": metadata.integer("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "max_position_embeddings": metadata.integer("context_length"),
        "rms_norm_eps": shortest(metadata.number(epsilon)),
        "hidden_act": "silu",
        "rope_parameters": _gguf_rope(metadata),
    }


def _gguf_rope(metadata: ForeignConfig) -> dict[str, Any]:
    theta = {"rope_theta": shortest(metadata.number("rope.freq_base", 10_000.0))}
    scaling = {
        "rope_type": metadata.get("rope.scaling.type"),
        "factor": metadata.get("rope.scaling.factor"),
        "original_max_position_embeddings": metadata.get("rope.scaling.original_context_length"),
        "attention_factor": metadata.get(
            "rope.scaling.yarn_attn_factor", metadata.get("rope.scaling.attn_factor")
        ),
        "beta_fast": metadata.get("rope.scaling.yarn_beta_fast"),
        "beta_slow": metadata.get("rope.scaling.yarn_beta_slow"),
    }
    if scaling["rope_type"] in (None, "none"):
        return theta | {"rope_type": "default"}
    return theta | {k: v for k, v in scaling.items() if v is not None}


def shortest(value: float) -> float:
    """GGUF keeps float32; the number that was meant is the shortest decimal that rounds to it (1e-05, not
    9.999999747378752e-06)."""
    return float(f"{value:.7g}")
