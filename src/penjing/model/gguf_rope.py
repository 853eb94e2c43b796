"""Rotations whose factors a GGUF file keeps as tensors."""

from collections.abc import Mapping
from typing import Any

from penjing.errors import InputError
from penjing.formats.checkpoint import Checkpoint
from penjing.model.foreign import ForeignConfig

ROPE_FACTORS = "rope_freqs.weight"
SHORT_FACTORS, LONG_FACTORS = "rope_factors_short.weight", "rope_factors_long.weight"
ROPE_TENSORS = (ROPE_FACTORS, SHORT_FACTORS, LONG_FACTORS)


def rope_from_tensors(
    checkpoint: Checkpoint, hf_config: Mapping[str, Any], metadata: ForeignConfig
) -> dict[str, Any] | None:
    """The `rope_parameters` of a config, completed by the file's factors; None if it has none.

    Llama 3's scaling is one divisor a frequency. LongRoPE with equal short and long factors and a magnitude
    of one is the same function.
    """
    rope, context = hf_config.get("rope_parameters", {}), hf_config.get("max_position_embeddings")
    if ROPE_FACTORS in checkpoint.tensors:
        factors = _factors(checkpoint, ROPE_FACTORS, rope)
        return _long(rope, factors, factors, context, 1.0)
    if SHORT_FACTORS not in checkpoint.tensors or LONG_FACTORS not in checkpoint.tensors:
        metadata.ignore("rope.scaling.original_context_length", "rope.scaling.attn_factor")
        return None
    short, long = (_factors(checkpoint, name, rope) for name in (SHORT_FACTORS, LONG_FACTORS))
    trained = metadata.integer("rope.scaling.original_context_length")
    return _long(rope, short, long, trained, metadata.get("rope.scaling.attn_factor"))


def _long(
    rope: Mapping[str, Any], short: list[float], long: list[float], trained: Any, magnitude: Any
) -> dict[str, Any]:
    found = {
        "rope_type": "longrope",
        "short_factor": short,
        "long_factor": long,
        "original_max_position_embeddings": trained,
    }
    kept = {key: rope[key] for key in ("rope_theta", "partial_rotary_factor") if key in rope}
    return kept | found | ({} if magnitude is None else {"attention_factor": magnitude})


def _factors(checkpoint: Checkpoint, name: str, rope: Mapping[str, Any]) -> list[float]:
    factors = checkpoint.read(name)
    if rope.get("rope_type") != "default" or factors.dim() != 1 or not bool((factors > 0).all()):
        raise InputError(
            f"{checkpoint.path}: {name} contradicts the file's rope settings ({rope.get('rope_type')})"
        )
    return factors.tolist()
