"""The scales of the affine layout: 8-bit scales under a row scale, and 8-bit zero points.

Shapes: R rows, G groups of w columns, C = G·w columns (the last group padded with weightless zeros).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import torch

from penjing.packed import bits as bit_packing
from penjing.packed.affine import AffineTensor, resolve_scales
from penjing.packed.affine_spec import STEPS, AffineSpec
from penjing.shrink.grids.scales import Scales, inverse, round_codes

_SLAB = 1 << 18  # weights searched at a time: the temporaries stay in cache (measured)
_CLIPS = tuple(1 - i * 0.05 for i in range(11))  # how much of the group's range the grid spans


@dataclass(frozen=True)
class AffineScales(Scales[AffineSpec]):
    """Stored parts of an affine matrix, without its codes: `scale` and `zero_point` are uint8 (R, G),
    `row_scale` is bfloat16 (R)."""

    spec: AffineSpec
    scale: torch.Tensor
    zero_point: torch.Tensor
    row_scale: torch.Tensor

    @property
    def max_code(self) -> int:
        return self.spec.max_code

    @property
    def fixed_zero(self) -> bool:
        return False

    @classmethod
    def fit(cls, weight_RC: torch.Tensor, importance_C: torch.Tensor, spec: AffineSpec) -> Self:
        """The range of a group is clipped in steps; for each clip the zero point is first set by the range,
        then solved for the codes that this gives (the real-valued zero of NeUQI, arXiv 2505.17595)."""
        rows, columns = weight_RC.shape
        step = max(1, _SLAB // max(columns, 1))
        slabs = [_fit_slab(weight_RC[i : i + step], importance_C, spec) for i in range(0, rows, step)]
        scale, zero_point, row_scale = (torch.cat(parts) for parts in zip(*slabs, strict=True))
        return cls(spec, scale, zero_point, row_scale)

    @classmethod
    def store(cls, step_RG: torch.Tensor, zero_RG: torch.Tensor, spec: AffineSpec) -> Self:
        """Steps aren't negative, zeros are from 0 to the largest code."""
        row_scale_R = _row_scale(step_RG.amax(dim=1))
        scale_RG = torch.round(step_RG * inverse(row_scale_R.float()).unsqueeze(1)).clamp(0, STEPS)
        zero_RG = torch.round(zero_RG * (STEPS / spec.max_code)).clamp(0, STEPS)
        return cls(spec, scale_RG.to(torch.uint8), zero_RG.to(torch.uint8), row_scale_R)

    def width(self, columns: int) -> int:
        return self.spec.columns_per_group(columns)

    def resolve(self) -> tuple[torch.Tensor, torch.Tensor]:
        return resolve_scales(self.scale, self.zero_point, self.row_scale, self.spec)

    def storable(self, step_RG: torch.Tensor, zero_RG: torch.Tensor) -> torch.Tensor:
        return (step_RG > 0) & (zero_RG >= 0) & (zero_RG <= self.max_code)

    def choose(self, first_R: torch.Tensor, other: Any) -> Self:
        first_R1 = first_R.unsqueeze(1)
        return type(self)(
            self.spec,
            torch.where(first_R1, self.scale, other.scale),
            torch.where(first_R1, self.zero_point, other.zero_point),
            torch.where(first_R, self.row_scale, other.row_scale),
        )

    def assemble(self, codes_RC: torch.Tensor) -> AffineTensor:
        rows, columns = codes_RC.shape
        parts = {
            "codes": bit_packing.pack(codes_RC, self.spec.bits),
            "scale": self.scale,
            "zero_point": self.zero_point,
            "row_scale": self.row_scale,
        }
        return AffineTensor(self.spec, (rows, columns), parts)


def _fit_slab(
    weight_RC: torch.Tensor, importance_C: torch.Tensor, spec: AffineSpec
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    weight_RGw = _grouped(weight_RC.float(), spec)
    importance_Gw = _grouped(importance_C.float().unsqueeze(0), spec)[0]
    low_RG = weight_RGw.amin(dim=2).clamp(max=0)
    high_RG = weight_RGw.amax(dim=2).clamp(min=0)
    full_RG = (high_RG - low_RG) / spec.max_code
    row_scale_R = _row_scale(full_RG.amax(dim=1))
    zero_RG = torch.nan_to_num(-low_RG / full_RG)
    best = _Best(full_RG)
    for clip in _CLIPS:
        scale_RG = torch.ceil(full_RG * clip * inverse(row_scale_R.float()).unsqueeze(1)).clamp(0, STEPS)
        _try_scale(best, weight_RGw, importance_Gw, scale_RG, zero_RG, row_scale_R, spec)
    return best.scale.to(torch.uint8), best.zero.to(torch.uint8), row_scale_R


class _Best:
    """The least error seen for each group, and the stored values that gave it."""

    def __init__(self, like_RG: torch.Tensor) -> None:
        self.error = torch.full_like(like_RG, torch.inf)
        self.scale = torch.zeros_like(like_RG)
        self.zero = torch.zeros_like(like_RG)

    def offer(self, error: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor) -> None:
        better = error < self.error
        self.error = torch.where(better, error, self.error)
        self.scale = torch.where(better, scale, self.scale)
        self.zero = torch.where(better, zero, self.zero)


def _try_scale(
    best: _Best,
    weight_RGw: torch.Tensor,
    importance_Gw: torch.Tensor,
    scale_RG: torch.Tensor,
    zero_RG: torch.Tensor,
    row_scale_R: torch.Tensor,
    spec: AffineSpec,
) -> None:
    to_stored = STEPS / spec.max_code
    step_RG = scale_RG * row_scale_R.float().unsqueeze(1)
    in_steps_RGw = weight_RGw * inverse(step_RG).unsqueeze(2)
    weight_sum_G = importance_Gw.sum(dim=1).clamp(min=1e-30)
    for _ in range(2):
        stored_RG = torch.round(zero_RG * to_stored).clamp(0, STEPS)
        zero_RGw = (stored_RG / to_stored).unsqueeze(2)
        offset_RGw = round_codes(in_steps_RGw, zero_RGw, spec.max_code) - in_steps_RGw
        error_RG = ((offset_RGw - zero_RGw).square_() * importance_Gw).sum(dim=2) * step_RG.square()
        best.offer(error_RG, scale_RG, stored_RG)
        zero_RG = (offset_RGw * importance_Gw).sum(dim=2) / weight_sum_G


def _grouped(x_RC: torch.Tensor, spec: AffineSpec) -> torch.Tensor:
    columns = x_RC.shape[1]
    width = spec.columns_per_group(columns)
    padded = torch.nn.functional.pad(x_RC, (0, -columns % width))
    return padded.view(x_RC.shape[0], -1, width)


def _row_scale(largest_R: torch.Tensor) -> torch.Tensor:
    """The largest step of a row over 255, rounded up in bfloat16 so that it stays reachable."""
    wanted = largest_R / STEPS
    rounded = wanted.to(torch.bfloat16)
    above = torch.nextafter(rounded, torch.full_like(rounded, torch.inf))
    return torch.where(rounded.float() < wanted, above, rounded)
