"""Rotary position embedding (Su et al., arXiv 2104.09864), half-split, with every published scaling.

Shapes: B batch, L tokens, H heads, h head_dim.
"""

import math
from collections.abc import Callable

import torch

from penjing.model.config import ModelConfig, RopeConfig


def rotary_tables(config: ModelConfig, positions_BL: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine (B, L, h), float32, for int64 positions; the magnitude factor is included."""
    longest = int(positions_BL.max()) + 1 if positions_BL.numel() else 0
    frequencies, magnitude = inverse_frequencies(config, longest)
    angles = positions_BL.unsqueeze(-1).float() * frequencies.to(positions_BL.device)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos() * magnitude, angles.sin() * magnitude


def rotate(x_BHLh: torch.Tensor, cos_BLh: torch.Tensor, sin_BLh: torch.Tensor) -> torch.Tensor:
    """Rotate each pair (i, i + h/2) of `x_BHLh` by its angle."""
    first, second = x_BHLh.chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    return x_BHLh * cos_BLh.unsqueeze(1) + turned * sin_BLh.unsqueeze(1)


def inverse_frequencies(config: ModelConfig, length: int) -> tuple[torch.Tensor, float]:
    """Angle per position of each pair, float32 (h/2), and the factor on cosine and sine.

    `length` is the highest position in use plus one: "dynamic" and "longrope" depend on it.
    """
    return _SCALINGS[config.rope.rope_type](config, length)


def _base(config: ModelConfig, theta: float | None = None) -> torch.Tensor:
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
    return 1.0 / ((theta or config.rope.rope_theta) ** exponents)


def _need(rope: RopeConfig, field: str) -> float:
    value = getattr(rope, field)
    assert value is not None  # `RopeConfig` has checked it
    return value


def _default(config: ModelConfig, length: int) -> tuple[torch.Tensor, float]:
    return _base(config), 1.0


def _linear(config: ModelConfig, length: int) -> tuple[torch.Tensor, float]:
    """Position interpolation, arXiv 2306.15595."""
    return _base(config) / _need(config.rope, "factor"), 1.0


def _dynamic(config: ModelConfig, length: int) -> tuple[torch.Tensor, float]:
    """NTK-aware scaling that grows with the text; as transformers computes it."""
    factor, trained = _need(config.rope, "factor"), config.max_position_embeddings
    stretch = factor * max(length, trained) / trained - (factor - 1)
    h = config.head_dim
    return _base(config, config.rope.rope_theta * stretch ** (h / (h - 2))), 1.0


def _llama3(config: ModelConfig, length: int) -> tuple[torch.Tensor, float]:
    """Llama 3.1: long wavelengths are slowed by `factor`, short ones kept, those between blended."""
    rope, base = config.rope, _base(config)
    factor, trained = _need(rope, "factor"), _need(rope, "original_max_position_embeddings")
    low, high = _need(rope, "low_freq_factor"), _need(rope, "high_freq_factor")
    turns = trained * base / (2 * math.pi)  # full turns within the trained context
    blend = (turns - low) / (high - low)
    blended = (1 - blend) * base / factor + blend * base
    return torch.where(turns < low, base / factor, torch.where(turns > high, base, blended)), 1.0


def _yarn(config: ModelConfig, length: int) -> tuple[torch.Tensor, float]:
    """YaRN, arXiv 2309.00071: interpolate slow pairs, keep fast ones, ramp between; scale the magnitude."""
    rope, h = config.rope, config.head_dim
    trained = _need(rope, "original_max_position_embeddings")
    factor = rope.factor if rope.factor is not None else config.max_position_embeddings / trained

    def pair_turning(turns: float) -> float:
        return h * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(rope.rope_theta))

    low, high = pair_turning(rope.beta_fast), pair_turning(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, h - 1)
    span = high - low or 0.001
    slow = ((torch.arange(h // 2, dtype=torch.float32) - low) / span).clamp(0, 1)
    base = _base(config)
    return base / factor * slow + base * (1 - slow), _yarn_magnitude(rope, factor)


def _yarn_magnitude(rope: RopeConfig, factor: float) -> float:
    if rope.attention_factor is not None:
        return rope.attention_factor

    def magnitude(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    if rope.mscale and rope.mscale_all_dim:
        return magnitude(rope.mscale) / magnitude(rope.mscale_all_dim)
    return magnitude(1.0)


def _longrope(config: ModelConfig, length: int) -> tuple[torch.Tensor, float]:
    """LongRoPE, arXiv 2402.13753: one factor a pair, a short set and a long set for texts past the trained
    length."""
    rope = config.rope
    trained = _need(rope, "original_max_position_embeddings")
    name = "long_factor" if length > trained else "short_factor"
    factors = getattr(rope, name)
    factor = rope.factor if rope.factor is not None else config.max_position_embeddings / trained
    magnitude = rope.attention_factor
    if magnitude is None:
        magnitude = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(trained))
    return _base(config) / torch.tensor(factors, dtype=torch.float32), magnitude


_SCALINGS: dict[str, Callable[[ModelConfig, int], tuple[torch.Tensor, float]]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}
# Their frequencies follow the longest position of a call, so a prompt must not be split into several calls.
LENGTH_DEPENDENT = ("dynamic", "longrope")
