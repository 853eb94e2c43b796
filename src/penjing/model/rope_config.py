"""Rope settings in all the spellings that configs use, read into one `RopeConfig`."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from penjing.errors import InputError, UnsupportedError
from penjing.model.config import ROPE_NEEDS, RopeConfig
from penjing.model.foreign import ForeignConfig

_ALIASES = {"su": "longrope", "none": "default"}
_NEED_TRAINED_LENGTH = ("llama3", "yarn", "longrope")


def read_rope(config: ForeignConfig, default_theta: float = 10_000.0, partial: bool = False) -> RopeConfig:
    """From `rope_parameters` (holding everything), or `rope_theta` beside `rope_scaling` with `type` or
    `rope_type`. `partial` is for families that may turn a part of each head only (see `read_rotary_dim`)."""
    theta = config.get("rope_theta", default_theta)
    values = dict(_settings(config))
    share = values.pop("partial_rotary_factor", 1.0)
    if not partial and share not in (None, 1, 1.0):
        raise UnsupportedError(f"{config.source}: rotating only a part of each head is not supported")
    values.setdefault("rope_theta", theta)
    old = values.pop("type", None)
    values["rope_type"] = _rope_type(_first(values.get("rope_type"), old, "default"), config.source)
    if values["rope_type"] in _NEED_TRAINED_LENGTH:
        _add_trained_length(values, config)
    return _build(values, config.source)


def read_local_rope(config: ForeignConfig, key: str, default_theta: float) -> RopeConfig:
    """The rotation of windowed layers: parted settings, or a base of its own under `key`, never scaled."""
    base = config.get(key, default_theta)
    settings = config.get("rope_parameters")
    if isinstance(settings, Mapping) and isinstance(settings.get("sliding_attention"), Mapping):
        return _build(dict(settings["sliding_attention"]), config.source)
    return _build({"rope_theta": base}, config.source)


def read_rotary_dim(config: ForeignConfig, head_dim: int, default_share: float = 1.0) -> int:
    """How many values of each head are turned: a share, which configs keep in several places."""
    share = _settings(config).get("partial_rotary_factor")
    outside = config.get("partial_rotary_factor")
    share = _first(share, outside, default_share)
    if not _is_positive(share) or share > 1:
        raise InputError(f"{config.source}: partial_rotary_factor has the impossible value {share!r}")
    return int(head_dim * share)


def _settings(config: ForeignConfig) -> Mapping[str, Any]:
    """The rope settings as the config has them; those of full attention, where kinds of layers differ."""
    scaling = config.get("rope_scaling")
    parameters = config.get("rope_parameters")
    chosen = scaling if scaling is not None else parameters
    if isinstance(chosen, Mapping) and isinstance(chosen.get("full_attention"), Mapping):
        chosen = chosen["full_attention"]
    if chosen is not None and not isinstance(chosen, Mapping):
        raise InputError(f"{config.source}: the rope settings must be an object, not {chosen!r}")
    return chosen or {}


def rope_to_hf(rope: RopeConfig) -> dict[str, Any]:
    """The `rope_parameters` object of a Hugging Face config that means the same."""
    default = RopeConfig()
    kept = {
        f.name: getattr(rope, f.name)
        for f in fields(rope)
        if getattr(rope, f.name) != getattr(default, f.name)
    }
    kept |= {"rope_type": rope.rope_type, "rope_theta": rope.rope_theta}
    return {k: list(v) if isinstance(v, tuple) else v for k, v in kept.items()}


def _first(*options: Any) -> Any:
    return next(option for option in options if option is not None)


def _rope_type(name: Any, source: str) -> str:
    known = _ALIASES.get(name, name) if isinstance(name, str) else None
    if known not in ROPE_NEEDS:
        raise UnsupportedError(
            f"{source}: rope type {name!r} is not supported (supported: {', '.join(ROPE_NEEDS)}, su)"
        )
    return known


def _add_trained_length(values: dict[str, Any], config: ForeignConfig) -> None:
    """Phi-3's configs keep the trained length outside the rope settings, where it takes precedence."""
    outside = config.get("original_max_position_embeddings")
    if outside is not None:
        values["original_max_position_embeddings"] = outside
    values.setdefault("original_max_position_embeddings", config.get("max_position_embeddings"))


def _build(values: dict[str, Any], source: str) -> RopeConfig:
    known = {f.name for f in fields(RopeConfig)}
    values = {k: v for k, v in values.items() if v is not None}
    unknown = sorted(set(values) - known)
    if unknown:
        raise UnsupportedError(
            f"{source}: unknown rope settings {', '.join(unknown)} (known: {', '.join(sorted(known))})"
        )
    for name, value in values.items():
        values[name] = _checked(name, value, source)
    return RopeConfig(**values)


def _checked(name: str, value: Any, source: str) -> Any:
    if name == "rope_type":
        return value
    if name == "truncate":
        if isinstance(value, bool):
            return value
    elif name in ("short_factor", "long_factor"):
        if isinstance(value, (list, tuple)) and all(_is_positive(v) for v in value):
            return tuple(float(v) for v in value)
    elif name == "original_max_position_embeddings":
        if _is_positive(value) and float(value).is_integer():
            return int(value)
    elif _is_positive(value):
        return float(value)
    raise InputError(f"{source}: rope setting {name} has the impossible value {value!r}")


def _is_positive(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < float("inf")
