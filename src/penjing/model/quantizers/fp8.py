"""The `quantization_config` of DeepSeek, Qwen, transformers and vLLM for fp8 weights."""

from dataclasses import replace
from math import prod

from penjing.errors import InputError
from penjing.formats.checkpoint import TensorInfo
from penjing.model.foreign import ForeignConfig
from penjing.model.quantizers.reading import (
    Matrices,
    Quantization,
    Stored,
    choice,
    dtype_of,
    has_part,
    refuse_unknown,
    tensors_called,
)
from penjing.packed.scaled_spec import SCALE_DTYPES, ScaledSpec

_DTYPE = "float8_e4m3fn"
_DEFAULT_BLOCK = (128, 128)  # where the config doesn't say
_ACTIVATION_SCALES = ("activation_scale", "input_scale")
# fmt: off
_KNOWN = frozenset((
    "quant_method", "fmt", "activation_scheme", "weight_block_size", "scale_fmt", "expert_dtype",
    "modules_to_not_convert", "ignored_layers", "modules_to_convert", "dequantize",
    "is_checkpoint_fp8_serialized",
))
# fmt: on


def read_fp8(config: ForeignConfig, matrices: Matrices, stored: Stored) -> Quantization:
    """Layouts of the fp8 matrices: scales of blocks, of rows, or one for the matrix."""
    refuse_unknown(config, _KNOWN)
    choice(config, "fmt", ("e4m3",), "e4m3")
    choice(config, "expert_dtype", ("fp8",), "fp8")
    choice(config, "scale_fmt", ("float", "ue8m0"), "float")
    choice(config, "activation_scheme", ("dynamic", "static"), "dynamic")
    block = _configured_block(config)
    scale = "weight_scale" if has_part(stored, "weight_scale") else "weight_scale_inv"

    def spec(name: str) -> ScaledSpec:
        return scaled_spec(_DTYPE, block, name, scale, matrices[name], stored)

    names = [name for name in matrices if is_scaled(stored, name, _DTYPE, scale)]
    unused = tensors_called(stored, _ACTIVATION_SCALES)
    notices = ("scales of activations are left out: activations stay in float32",) if unused else ()
    return Quantization({name: spec(name) for name in names}, unused, notices)


def is_scaled(stored: Stored, name: str, dtype: str, scale: str) -> bool:
    """Whether a matrix is stored in the scaled layout, or at least a part of it is."""
    weight = stored.get(f"{name}.weight")
    return f"{name}.{scale}" in stored or (weight is not None and weight.dtype == dtype)


def scaled_spec(
    dtype: str,
    block: tuple[int, int] | None,
    name: str,
    scale: str,
    shape: tuple[int, int],
    stored: Stored,
) -> ScaledSpec:
    """The layout of one matrix; without a `block`, the shape of its scales tells what each is for."""
    info = stored.get(f"{name}.{scale}")
    scale_dtype = dtype_of(stored, f"{name}.{scale}", SCALE_DTYPES, "float32")
    whole = ScaledSpec(dtype, block or _block_from(info, shape), scale, scale_dtype)
    rank = 2 if info is None else min(len(info.shape), 2)
    # Only dimensions of one block can be missing.
    return whole if max(whole.grid(*shape)[rank:], default=1) > 1 else replace(whole, scale_rank=rank)


def _configured_block(config: ForeignConfig) -> tuple[int, int] | None:
    size = config.get("weight_block_size")
    if size is None:
        return None
    if not isinstance(size, (list, tuple)) or [type(n) for n in size] != [int, int] or min(size) < 1:
        raise InputError(
            f"{config.source}: weight_block_size must be two numbers of at least 1, not {size!r}"
        )
    return size[0], size[1]


def _block_from(info: TensorInfo | None, shape: tuple[int, int]) -> tuple[int, int]:
    if info is not None and prod(info.shape) == 1:
        return 0, 0
    if info is not None and info.shape in ((shape[0],), (shape[0], 1)):
        return 1, 0
    return _DEFAULT_BLOCK
