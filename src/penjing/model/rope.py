"""Rotary position embedding (Su et al., arXiv 2104.09864), half-split, with every published scaling.

Shapes: B batch, L tokens, H heads, h head_dim, d the values of a head that are turned.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from penjing.model.config import ModelConfig, RopeConfig, longrope_magnitude, yarn_magnitude

Tables = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Rotation:
    """One kind of rotation: its settings, how many values of a head it turns, and the model's context."""

    rope: RopeConfig
    dim: int
    max_positions: int


def rotation_of(config: ModelConfig, layer: int) -> Rotation | None:
    """The rotation of a layer, equal for all layers that share their tables."""
    rope = config.rope_of(layer)
    return None if rope is None else Rotation(rope, config.rotated, config.max_position_embeddings)


def rotary_tables(rotation: Rotation, positions_BL: torch.Tensor) -> Tables:
    """Cosine and sine (B, L, d), float32, for int64 positions; the magnitude factor is included."""
    longest = int(positions_BL.max()) + 1 if positions_BL.numel() else 0
    frequencies, magnitude = inverse_frequencies(rotation, longest)
    angles = positions_BL.unsqueeze(-1).float() * frequencies.to(positions_BL.device)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos() * magnitude, angles.sin() * magnitude


def rotate(x_BHLh: torch.Tensor, tables: Tables, interleaved: bool = False) -> torch.Tensor:
    """Rotate the first d values of each head: the pairs (i, i + d/2), or neighbours if `interleaved`, whose
    result is in the order of halves: a dot product doesn't mind, as long as queries and keys are alike."""
    cos_BLd, sin_BLd = (table.to(x_BHLh.dtype) for table in tables)
    turned_BHLd, rest = x_BHLh.tensor_split((cos_BLd.shape[-1],), dim=-1)
    if interleaved:
        turned_BHLd = turned_BHLd.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)
    first, second = turned_BHLd.chunk(2, dim=-1)
    quarter_turn = torch.cat((-second, first), dim=-1)
    turned_BHLd = turned_BHLd * cos_BLd.unsqueeze(1) + quarter_turn * sin_BLd.unsqueeze(1)
    return torch.cat((turned_BHLd, rest), dim=-1) if rest.shape[-1] else turned_BHLd


def inverse_frequencies(rotation: Rotation, length: int) -> tuple[torch.Tensor, float]:
    """Angle per position of each pair, float32 (d/2), and the factor on cosine and sine.

    `length` is the highest position in use plus one: "dynamic" and "longrope" depend on it.
    """
    return _SCALINGS[rotation.rope.rope_type](rotation, length)


def depends_on_length(config: ModelConfig) -> bool:
    """Whether frequencies follow the longest position of a call, so that a prompt can't be split into several
    calls."""
    ropes = (config.rope, config.local_rope) if config.positions == "rotary" else ()
    return any(rope is not None and rope.rope_type in ("dynamic", "longrope") for rope in ropes)


def _base(rotation: Rotation, theta: float | None = None) -> torch.Tensor:
    exponents = torch.arange(0, rotation.dim, 2, dtype=torch.int64).float() / rotation.dim
    return 1.0 / ((theta or rotation.rope.rope_theta) ** exponents)


def _need(rope: RopeConfig, field: str) -> float:
    value = getattr(rope, field)
    assert value is not None  # `RopeConfig` has checked it
    return value


def _default(rotation: Rotation, length: int) -> tuple[torch.Tensor, float]:
    return _base(rotation), 1.0


def _linear(rotation: Rotation, length: int) -> tuple[torch.Tensor, float]:
    """Position interpolation, arXiv 2306.15595."""
    return _base(rotation) / _need(rotation.rope, "factor"), 1.0


def _dynamic(rotation: Rotation, length: int) -> tuple[torch.Tensor, float]:
    """NTK-aware scaling that grows with the text; as transformers computes it."""
    factor, trained = _need(rotation.rope, "factor"), rotation.max_positions
    stretch = factor * max(length, trained) / trained - (factor - 1)
    d = rotation.dim
    return _base(rotation, rotation.rope.rope_theta * stretch ** (d / (d - 2))), 1.0


def _llama3(rotation: Rotation, length: int) -> tuple[torch.Tensor, float]:
    """Llama 3.1: long wavelengths are slowed by `factor`, short ones kept, those between blended."""
    rope, base = rotation.rope, _base(rotation)
    factor, trained = _need(rope, "factor"), _need(rope, "original_max_position_embeddings")
    low, high = _need(rope, "low_freq_factor"), _need(rope, "high_freq_factor")
    turns = trained * base / (2 * math.pi)  # full turns within the trained context
    blend = (turns - low) / (high - low)
    blended = (1 - blend) * base / factor + blend * base
    return torch.where(turns < low, base / factor, torch.where(turns > high, base, blended)), 1.0


def _yarn(rotation: Rotation, length: int) -> tuple[torch.Tensor, float]:
    """YaRN, arXiv 2309.00071: interpolate slow pairs, keep fast ones, ramp between; scale the magnitude."""
    rope, d = rotation.rope, rotation.dim
    trained = _need(rope, "original_max_position_embeddings")
    factor = rope.factor if rope.factor is not None else rotation.max_positions / trained

    def pair_turning(turns: float) -> float:
        return d * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(rope.rope_theta))

    low, high = pair_turning(rope.beta_fast), pair_turning(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, d - 1)
    span = high - low or 0.001
    slow = ((torch.arange(d // 2, dtype=torch.float32) - low) / span).clamp(0, 1)
    base = _base(rotation)
    return base / factor * slow + base * (1 - slow), _yarn_factor(rope, factor)


def _yarn_factor(rope: RopeConfig, factor: float) -> float:
    if rope.attention_factor is not None:
        return rope.attention_factor
    if rope.mscale and rope.mscale_all_dim:
        return yarn_magnitude(factor, rope.mscale) / yarn_magnitude(factor, rope.mscale_all_dim)
    return yarn_magnitude(factor)


def _longrope(rotation: Rotation, length: int) -> tuple[torch.Tensor, float]:
    """LongRoPE, arXiv 2402.13753: one factor a pair, a short set and a long set for texts past the trained
    length."""
    rope = rotation.rope
    trained = _need(rope, "original_max_position_embeddings")
    name = "long_factor" if length > trained else "short_factor"
    factors = getattr(rope, name)
    magnitude = longrope_magnitude(rope, rotation.max_positions)
    return _base(rotation) / torch.tensor(factors, dtype=torch.float32), magnitude


_SCALINGS: dict[str, Callable[[Rotation, int], tuple[torch.Tensor, float]]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}
