"""The `quantization_config` of compressed-tensors, as llm-compressor writes it.

Of its formats "pack-quantized" (packed integers) and "float-quantized", "int-quantized" and "naive-quantized"
(8-bit numbers under scales) are read.
"""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from penjing.errors import InputError, UnsupportedError
from penjing.model.foreign import ForeignConfig
from penjing.model.quantizers.fp8 import is_scaled, scaled_spec
from penjing.model.quantizers.reading import (
    FLOATS,
    Matrices,
    Quantization,
    Stored,
    choice,
    dtype_of,
    group_size,
    has_part,
    packed_matrices,
    refuse_unknown,
    tensors_called,
)
from penjing.packed.pack_quantized_spec import BITS, PackQuantizedSpec
from penjing.packed.parts import PackedSpec

# fmt: off
_KNOWN = frozenset((
    "quant_method", "config_groups", "format", "ignore", "quantization_status", "global_compression_ratio",
    "kv_cache_scheme", "version", "sparsity_config", "run_compressed", "dequantize",
))
_GROUP_KNOWN = frozenset(("targets", "weights", "input_activations", "output_activations", "format"))
_WEIGHTS_KNOWN = frozenset((
    "num_bits", "type", "symmetric", "group_size", "strategy", "block_structure", "actorder", "scale_dtype",
    "zp_dtype", "observer", "observer_kwargs",
))
# fmt: on
_ACTIVATION_LEAVES = (
    *("input_scale", "input_zero_point", "output_scale", "output_zero_point"),
    *("q_scale", "k_scale", "v_scale", "k_zero_point", "v_zero_point"),
)
_PACK_PARTS = ("weight_packed", "weight_zero_point", "weight_shape", "weight_g_idx")
_SCALED_FORMATS = ("float-quantized", "int-quantized", "naive-quantized")

SpecOf = Callable[[str, Matrices, Stored], PackedSpec]


def write_compressed_tensors(
    packed: Mapping[str, PackQuantizedSpec], floats: Collection[str]
) -> dict[str, Any]:
    """The config of matrices that were rounded to "pack-quantized", a group for each layout; `floats` are the
    linear layers that weren't."""
    layouts = sorted(set(packed.values()), key=lambda spec: (spec.bits, spec.group_size))
    groups = {
        f"group_{i}": {
            "targets": sorted(name for name, spec in packed.items() if spec == layout),
            "weights": {
                "num_bits": layout.bits,
                "type": "int",
                "symmetric": layout.symmetric,
                "strategy": "group" if layout.group_size else "channel",
                "group_size": layout.group_size or None,
            },
            "input_activations": None,
            "output_activations": None,
        }
        for i, layout in enumerate(layouts)
    }
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "config_groups": groups,
        "ignore": sorted(floats),
    }


def read_compressed_tensors(config: ForeignConfig, matrices: Matrices, stored: Stored) -> Quantization:
    """Layouts of the matrices, each by the group of the config that targets it."""
    refuse_unknown(config, _KNOWN)
    choice(config, "quantization_status", ("compressed",), "compressed")
    sparsity = config.get("sparsity_config", {})
    if sparsity and not (isinstance(sparsity, Mapping) and sparsity.get("format") == "dense"):
        raise UnsupportedError(
            f"{config.source}: weights stored sparsely are not supported; use the original"
        )
    groups = _groups(config)
    names = packed_matrices(matrices, stored, (*_PACK_PARTS, "weight_scale"))
    names += [
        name
        for name in matrices
        if name not in names
        and any(is_scaled(stored, name, t, "weight_scale") for t in ("float8_e4m3fn", "int8"))
    ]
    packed = {name: _spec_of(config, name, groups)(name, matrices, stored) for name in names}
    unused = tensors_called(stored, _ACTIVATION_LEAVES)
    notices = ("scales of activations are left out: activations stay in float32",) if unused else ()
    return Quantization(packed, unused, notices)


def _groups(config: ForeignConfig) -> list[tuple[list[str], SpecOf]]:
    """Targets and layout of every group."""
    entries = config.get("config_groups")
    if not isinstance(entries, Mapping) or not entries:
        raise InputError(f"{config.source} has no config_groups; the config is incomplete")
    groups = []
    for name, entry in entries.items():
        if not isinstance(entry, Mapping):
            raise UnsupportedError(f"{config.source}: group {name!r} of config_groups must be an object")
        group = ForeignConfig(entry, f"{config.source}: group {name!r}")
        refuse_unknown(group, _GROUP_KNOWN)
        targets = group.get("targets", [])
        if not isinstance(targets, list) or not all(isinstance(target, str) for target in targets):
            raise InputError(f"{group.source}: targets must be a list of names, not {targets!r}")
        groups.append((targets, _layout(group, config)))
    return groups


def _layout(group: ForeignConfig, config: ForeignConfig) -> SpecOf:
    form = group if group.get("format") else config
    name = choice(form, "format", ("pack-quantized", *_SCALED_FORMATS))
    weights = group.get("weights")
    if not isinstance(weights, Mapping):
        raise UnsupportedError(f"{group.source} has no weights; only quantised weights are read")
    settings = ForeignConfig(weights, f"{group.source}: weights")
    refuse_unknown(settings, _WEIGHTS_KNOWN)
    return _pack_quantized(settings) if name == "pack-quantized" else _scaled(settings)


def _pack_quantized(weights: ForeignConfig) -> SpecOf:
    choice(weights, "type", ("int",), "int")
    bits = choice(weights, "num_bits", BITS)
    strategy = choice(weights, "strategy", ("group", "channel"))
    size = group_size(weights) if strategy == "group" else 0
    symmetric = weights.flag("symmetric", True)
    by_activation = weights.get("actorder") in ("group", "dynamic", True)

    def spec(name: str, matrices: Matrices, stored: Stored) -> PackQuantizedSpec:
        has_g_idx = by_activation or has_part(stored, "weight_g_idx")
        scale_dtype = dtype_of(stored, f"{name}.weight_scale", FLOATS, "bfloat16")
        shape_dtype = dtype_of(stored, f"{name}.weight_shape", ("int64", "int32"), "int64")
        return PackQuantizedSpec(bits, size, symmetric, has_g_idx, scale_dtype, shape_dtype)

    return spec


def _scaled(weights: ForeignConfig) -> SpecOf:
    dtype = "int8" if choice(weights, "type", ("int", "float")) == "int" else "float8_e4m3fn"
    choice(weights, "num_bits", (8,))
    choice(weights, "symmetric", (True,), True)
    strategy = choice(weights, "strategy", ("tensor", "channel", "group", "block"))
    block = {"tensor": (0, 0), "channel": (1, 0)}.get(strategy) or _block(weights, strategy)

    def spec(name: str, matrices: Matrices, stored: Stored) -> PackedSpec:
        return scaled_spec(dtype, block, name, "weight_scale", matrices[name], stored)

    return spec


def _block(weights: ForeignConfig, strategy: str) -> tuple[int, int]:
    if strategy == "group":
        return 1, group_size(weights)
    size: Any = weights.get("block_structure")
    if not isinstance(size, list) or [type(n) for n in size] != [int, int] or min(size) < 1:
        raise InputError(f"{weights.source}: block_structure must be two numbers of at least 1, not {size!r}")
    return size[0], size[1]


def _spec_of(config: ForeignConfig, name: str, groups: list[tuple[list[str], SpecOf]]) -> SpecOf:
    """The layout of the group that targets a matrix: by its name, by a pattern, or as one of all linears."""
    for fits in (_is_name, _is_pattern, _is_class):
        for targets, spec in groups:
            if any(fits(target, name) for target in targets):
                return spec
    raise InputError(f"{config.source}: {name} is stored quantised, but no group of config_groups targets it")


def _is_name(target: str, name: str) -> bool:
    return target == name


def _is_pattern(target: str, name: str) -> bool:
    if not target.startswith("re:"):
        return False
    try:
        return re.match(target.removeprefix("re:"), name) is not None
    except re.error as error:
        raise InputError(f"{target!r} in config_groups is no regular expression: {error}") from None


def _is_class(target: str, name: str) -> bool:
    return target == "Linear"
