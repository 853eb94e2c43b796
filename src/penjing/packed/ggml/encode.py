"""Codes and scales into GGML's blocks: the inverse of `decode`, bit by bit.

What a block holds is given as `BlockParts`; finding good values for them is not done here. Shapes: n blocks
of w weights, g groups of neighbouring weights that share a scale.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from penjing.errors import UnsupportedError


@dataclass(frozen=True)
class BlockFormat:
    """The values that blocks of a type can hold: codes 0 to `max_code`, groups of `group` weights, `groups`
    of them a block. A weight is step · (code - `zero`), or, where that is None, step · code - minimum. In a
    block of several groups steps are whole numbers up to `largest_step` (negative ones too if `signed`) times
    one 16-bit factor, and minimums likewise; else they are 16-bit numbers themselves."""

    max_code: int
    group: int
    groups: int = 1
    zero: int | None = None
    largest_step: int = 0
    signed: bool = True


FORMATS: Mapping[str, BlockFormat] = {
    "Q4_0": BlockFormat(15, 32, zero=8),
    "Q4_1": BlockFormat(15, 32),
    "Q5_0": BlockFormat(31, 32, zero=16),
    "Q5_1": BlockFormat(31, 32),
    "Q8_0": BlockFormat(254, 32, zero=127),  # -128 has no opposite, and kernels take absolute values
    "Q2_K": BlockFormat(3, 16, 16, largest_step=15, signed=False),
    "Q3_K": BlockFormat(7, 16, 16, zero=4, largest_step=31),
    "Q4_K": BlockFormat(15, 32, 8, largest_step=63, signed=False),
    "Q5_K": BlockFormat(31, 32, 8, largest_step=63, signed=False),
    "Q6_K": BlockFormat(63, 16, 16, zero=32, largest_step=127),
}


@dataclass(frozen=True)
class BlockParts:
    """`codes` (n, w) uint8; `factor` and `minimum_factor` (n, 1) float16; `steps` and `minimums` (n, g) are
    whole numbers, int8 and uint8. What a type doesn't have isn't looked at."""

    codes: Tensor
    factor: Tensor
    minimum_factor: Tensor
    steps: Tensor
    minimums: Tensor


def block_format(type_name: str) -> BlockFormat:
    """What blocks of the type can hold; `UnsupportedError` for one that isn't written here."""
    if type_name not in FORMATS:
        raise UnsupportedError(f"GGML type {type_name} isn't written; choose {', '.join(FORMATS)}")
    return FORMATS[type_name]


def encode(type_name: str, parts: BlockParts) -> Tensor:
    """The blocks (n, bytes a block), uint8."""
    block_format(type_name)
    return torch.cat(_ENCODERS[type_name](parts), dim=1)


def _half(values_N1: Tensor) -> Tensor:
    return values_N1.contiguous().view(torch.uint8)


def _fields(codes: Tensor, width: int, bits: int) -> Tensor:
    """Bytes (n, w · bits / 8) of codes of `bits` each, whose bit planes interleave every `width` bytes."""
    planes = codes.unflatten(1, (-1, 8 // bits, width))
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8).view(1, 1, -1, 1)
    return (planes << shifts).sum(dim=2, dtype=torch.uint8).flatten(1)


def _high(codes: Tensor, width: int) -> Tensor:
    """The fifth bits of codes."""
    return _fields(codes >> 4, width, bits=1)


def _steps_and_minimums(parts: BlockParts) -> Tensor:
    """Eight 6-bit steps and minimums of Q4_K and Q5_K, in twelve bytes."""
    step, minimum = parts.steps.view(torch.uint8), parts.minimums
    first_step, second_step, first_minimum, second_minimum = *step.split(4, 1), *minimum.split(4, 1)
    rest = second_step & 15 | (second_minimum & 15) << 4
    return torch.cat(
        (first_step | second_step >> 4 << 6, first_minimum | second_minimum >> 4 << 6, rest), dim=1
    )


def _q4_0(parts: BlockParts) -> tuple[Tensor, ...]:
    return _half(parts.factor), _fields(parts.codes, 16, bits=4)


def _q4_1(parts: BlockParts) -> tuple[Tensor, ...]:
    return _half(parts.factor), _half(parts.minimum_factor), _fields(parts.codes, 16, bits=4)


def _q5_0(parts: BlockParts) -> tuple[Tensor, ...]:
    return _half(parts.factor), _high(parts.codes, 1), _fields(parts.codes & 15, 16, bits=4)


def _q5_1(parts: BlockParts) -> tuple[Tensor, ...]:
    factors = _half(parts.factor), _half(parts.minimum_factor)
    return *factors, _high(parts.codes, 1), _fields(parts.codes & 15, 16, bits=4)


def _q8_0(parts: BlockParts) -> tuple[Tensor, ...]:
    return _half(parts.factor), (parts.codes - 127).contiguous()


def _q2_k(parts: BlockParts) -> tuple[Tensor, ...]:
    scales = parts.steps.view(torch.uint8) | parts.minimums << 4
    return scales, _fields(parts.codes, 32, bits=2), _half(parts.factor), _half(parts.minimum_factor)


def _q3_k(parts: BlockParts) -> tuple[Tensor, ...]:
    steps = (parts.steps + 32).view(torch.uint8)
    scales = _fields(steps & 15, 8, bits=4), _fields(steps >> 4, 4, bits=2)
    codes = _fields(parts.codes >> 2, 32, bits=1), _fields(parts.codes & 3, 32, bits=2)
    return *codes, *scales, _half(parts.factor)


def _q4_k(parts: BlockParts) -> tuple[Tensor, ...]:
    factors = _half(parts.factor), _half(parts.minimum_factor)
    return *factors, _steps_and_minimums(parts), _fields(parts.codes, 32, bits=4)


def _q5_k(parts: BlockParts) -> tuple[Tensor, ...]:
    factors = _half(parts.factor), _half(parts.minimum_factor)
    codes = _high(parts.codes, 32), _fields(parts.codes & 15, 32, bits=4)
    return *factors, _steps_and_minimums(parts), *codes


def _q6_k(parts: BlockParts) -> tuple[Tensor, ...]:
    codes = _fields(parts.codes & 15, 64, bits=4), _fields(parts.codes >> 4, 32, bits=2)
    return *codes, parts.steps.view(torch.uint8), _half(parts.factor)


_ENCODERS: Mapping[str, Callable[[BlockParts], tuple[Tensor, ...]]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}
