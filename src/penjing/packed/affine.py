"""The affine layout: group-wise codes with 8-bit scales under a row scale and real-valued zero points.

    weight[r, c] = row_scale[r] * scale[r, g] * (codes[r, c] - zero_point[r, g] * (2**bits - 1) / 255)

with g = c // group_size. Scales and zero points cost one byte a group each, the row scale two bytes, so 4-bit
codes in groups of 64 take 4.25 bits a weight and 16 bits a row. The last group of a row may be short.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from penjing.errors import InputError
from penjing.packed import bits as bit_packing

_STEPS = 255
_SLAB = 1 << 19  # weights unpacked at a time: the temporaries stay in the processor's cache


@dataclass(frozen=True)
class AffineSpec:
    """How a matrix is laid out: bits a code (2, 3, 4, 5, 6, 8) and columns a group (0: a whole row)."""

    bits: int
    group_size: int
    scheme: ClassVar[str] = "affine"

    def __post_init__(self) -> None:
        if not isinstance(self.bits, int) or self.bits not in (2, 3, 4, 5, 6, 8):
            raise InputError(f"{self.bits}-bit codes are not supported; choose 2, 3, 4, 5, 6 or 8 bits")
        if not isinstance(self.group_size, int) or self.group_size < 0 or self.group_size % 32:
            raise InputError(f"group size {self.group_size} is not a multiple of 32 (0 means a whole row)")

    def __str__(self) -> str:
        group = f"groups of {self.group_size}" if self.group_size else "a group a row"
        return f"{self.bits}-bit, {group}"

    @property
    def max_code(self) -> int:
        return (1 << self.bits) - 1

    def columns_per_group(self, columns: int) -> int:
        return min(self.group_size or columns, columns)

    def groups(self, columns: int) -> int:
        return -(-columns // self.columns_per_group(columns)) if columns else 0

    def part_shapes(self, rows: int, columns: int) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """Shape and dtype of each stored part of a (rows, columns) matrix."""
        groups = self.groups(columns)
        return {
            "codes": ((rows, bit_packing.row_bytes(columns, self.bits)), torch.uint8),
            "scale": ((rows, groups), torch.uint8),
            "zero_point": ((rows, groups), torch.uint8),
            "row_scale": ((rows,), torch.bfloat16),
        }

    def nbytes(self, rows: int, columns: int) -> int:
        """Bytes of all parts, the overhead included."""
        return sum(
            torch.Size(shape).numel() * dtype.itemsize
            for shape, dtype in self.part_shapes(rows, columns).values()
        )

    def to_json(self) -> dict[str, Any]:
        return {"scheme": self.scheme, "bits": self.bits, "group_size": self.group_size}


@dataclass(frozen=True)
class AffineTensor:
    """A packed matrix. Parts have the shapes and dtypes that `AffineSpec.part_shapes` gives."""

    spec: AffineSpec
    shape: tuple[int, int]
    parts: Mapping[str, torch.Tensor]

    def __post_init__(self) -> None:
        expected = self.spec.part_shapes(*self.shape)
        if set(self.parts) != set(expected):
            raise InputError(f"a packed matrix needs the parts {sorted(expected)}, not {sorted(self.parts)}")
        for name, (shape, dtype) in expected.items():
            part = self.parts[name]
            if tuple(part.shape) != shape or part.dtype != dtype:
                raise InputError(f"part {name} must be {dtype} {shape}, not {part.dtype} {tuple(part.shape)}")

    @property
    def nbytes(self) -> int:
        return self.spec.nbytes(*self.shape)

    def dequantize(self, rows: torch.Tensor | None = None) -> torch.Tensor:
        """Float32 weights (rows, columns); with `rows` (int64 indices) only those rows, in that order."""
        parts = self.parts if rows is None else {k: v.index_select(0, rows) for k, v in self.parts.items()}
        count, columns = parts["codes"].shape[0], self.shape[1]
        out = torch.empty(count, columns, dtype=torch.float32)
        step = max(1, _SLAB // max(columns, 1))
        for start in range(0, count, step):
            slab = {k: v[start : start + step] for k, v in parts.items()}
            _dequantize_into(out[start : start + step], slab, self.spec)
        return out


def resolve_scales(
    scale_RG: torch.Tensor, zero_point_RG: torch.Tensor, row_scale_R: torch.Tensor, spec: AffineSpec
) -> tuple[torch.Tensor, torch.Tensor]:
    """Float32 scale and zero point (rows, groups) from their stored 8-bit form."""
    scale = scale_RG.float() * row_scale_R.float().unsqueeze(1)
    return scale, zero_point_RG.float() * (spec.max_code / _STEPS)


def _dequantize_into(out_RC: torch.Tensor, parts: Mapping[str, torch.Tensor], spec: AffineSpec) -> None:
    rows, columns = out_RC.shape
    if out_RC.numel() == 0:
        return
    codes_RC = bit_packing.unpack(parts["codes"], columns, spec.bits)
    scale_RG, zero_RG = resolve_scales(parts["scale"], parts["zero_point"], parts["row_scale"], spec)
    width, groups = spec.columns_per_group(columns), scale_RG.shape[1]
    if columns == width * groups:
        grouped = out_RC.view(rows, groups, width)
        torch.sub(codes_RC.view(rows, groups, width), zero_RG.unsqueeze(2), out=grouped)
        grouped.mul_(scale_RG.unsqueeze(2))
    else:
        expand = torch.arange(columns) // width
        torch.sub(codes_RC, zero_RG[:, expand], out=out_RC)
        out_RC.mul_(scale_RG[:, expand])
