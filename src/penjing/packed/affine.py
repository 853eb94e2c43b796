"""Matrices in the affine layout (see `affine_spec`)."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from penjing.errors import InputError
from penjing.packed import bits as bit_packing
from penjing.packed.affine_spec import STEPS, AffineSpec

_SLAB = 1 << 19  # weights unpacked at a time: the temporaries stay in the processor's cache


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
            found = str(part.dtype).removeprefix("torch.")
            if tuple(part.shape) != shape or found != dtype:
                raise InputError(f"part {name} must be {dtype} {shape}, not {found} {tuple(part.shape)}")

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
    return scale, zero_point_RG.float() * (spec.max_code / STEPS)


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
