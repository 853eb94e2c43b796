"""Rope settings in all the spellings that configs use, read into one `RopeConfig`."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from penjing.errors import InputError, UnsupportedError
from penjing.model.config import ROPE_NEEDS, RopeConfig
from penjing.model.foreign import ForeignConfig

_ALIASES = {"su": "longrope", "none": "default"}
_NEED_TRAINED_LENGTH = ("llama3", "yarn", "longrope")
_LAYER_KINDS = ("full_attention", "sliding_attention")


def read_rope(config: ForeignConfig, default_theta: float = 10_000.0) -> RopeConfig:
    """From `rope_parameters` (holding everything), or `rope_theta` beside `rope_scaling` with `type` or
    `rope_type`."""
    theta = config.get("rope_theta", default_theta)
    scaling = config.get("rope_scaling")
    parameters = config.get("rope_parameters")
    chosen = scaling if scaling is not None else parameters
    if chosen is not None and not isinstance(chosen, Mapping):
        raise InputError(f"{config.source}: the rope settings must be an object, not {chosen!r}")
    values = dict(chosen or {})
    values.setdefault("rope_theta", theta)
    old = values.pop("type", None)
    values["rope_type"] = _rope_type(_first(values.get("rope_type"), old, "default"), config.source)
    if values["rope_type"] in _NEED_TRAINED_LENGTH:
        _add_trained_length(values, config)
    return _build(values, config.source)


def read_ropes(config: ForeignConfig) -> tuple[RopeConfig, RopeConfig | None]:
    """The rotation, and that of windowed layers where they have their own: `rope_parameters` by kind of
    layer, or, before transformers 5, `rope_local_base_freq` beside the other settings."""
    theta, local_theta = config.get("rope_theta"), config.get("rope_local_base_freq")
    parameters = config.get("rope_parameters")
    if not isinstance(parameters, Mapping) or not set(parameters) & set(_LAYER_KINDS):
        local = None if local_theta is None else _read_settings(config, None, local_theta)
        return read_rope(config), local
    if set(parameters) - set(_LAYER_KINDS):
        raise UnsupportedError(
            f"{config.source}: rope_parameters names more than {' and '.join(_LAYER_KINDS)}"
        )
    config.expect("rope_scaling", None)
    full, local = (parameters.get(kind) for kind in _LAYER_KINDS)
    return _read_settings(config, full, theta), _read_settings(config, local, local_theta or theta)


def _read_settings(config: ForeignConfig, settings: Any, theta: Any) -> RopeConfig:
    lengths = ("max_position_embeddings", "original_max_position_embeddings")
    alone = {key: config.get(key) for key in lengths} | {"rope_theta": theta, "rope_parameters": settings}
    return read_rope(ForeignConfig(alone, config.source))


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
    if values.pop("partial_rotary_factor", 1.0) not in (None, 1, 1.0):
        raise UnsupportedError(f"{source}: rotating only a part of each head is not supported")
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
