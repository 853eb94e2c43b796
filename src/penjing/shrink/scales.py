"""Choosing a group's scale and zero point: the pair that loses least on the weights that matter.

Shapes: R rows, G groups of w columns, C = G·w columns (the last group padded with weightless zeros).
"""

from dataclasses import dataclass

import torch

from penjing.packed.affine import resolve_scales
from penjing.packed.affine_spec import STEPS, AffineSpec

_SLAB = 1 << 18  # weights searched at a time: the temporaries stay in cache (measured)
_CLIPS = tuple(1 - i * 0.05 for i in range(11))  # how much of the group's range the grid spans


@dataclass(frozen=True)
class GroupScales:
    """Stored parts of an affine matrix, without its codes: `scale` and `zero_point` are uint8 (R, G),
    `row_scale` is bfloat16 (R)."""

    spec: AffineSpec
    scale: torch.Tensor
    zero_point: torch.Tensor
    row_scale: torch.Tensor

    def expand(self, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Float32 step and zero point of every column, (R, columns)."""
        step_RG, zero_RG = resolve_scales(self.scale, self.zero_point, self.row_scale, self.spec)
        group_C = torch.arange(columns) // self.spec.columns_per_group(columns)
        return step_RG[:, group_C], zero_RG[:, group_C]


def fit_scales(weight_RC: torch.Tensor, importance_C: torch.Tensor, spec: AffineSpec) -> GroupScales:
    """Search scale and zero point of each group for the least Σ importance·error², among storable values
    only.

    The range of the group is clipped in steps; for each clip the zero point is first set by the range, then
    solved for the codes that this gives (the real-valued zero of NeUQI, arXiv 2505.17595). `importance_C` is
    non-negative.
    """
    rows, columns = weight_RC.shape
    step = max(1, _SLAB // max(columns, 1))
    slabs = [_fit_slab(weight_RC[i : i + step], importance_C, spec) for i in range(0, rows, step)]
    scale, zero_point, row_scale = (torch.cat(parts) for parts in zip(*slabs, strict=True))
    return GroupScales(spec, scale, zero_point, row_scale)


def store_scales(step_RG: torch.Tensor, zero_RG: torch.Tensor, spec: AffineSpec) -> GroupScales:
    """The storable scales nearest to these float32 steps (not negative) and zero points (0 to the largest
    code)."""
    row_scale_R = _row_scale(step_RG.amax(dim=1))
    scale_RG = torch.round(step_RG * inverse(row_scale_R.float()).unsqueeze(1)).clamp(0, STEPS)
    zero_RG = torch.round(zero_RG * (STEPS / spec.max_code)).clamp(0, STEPS)
    return GroupScales(spec, scale_RG.to(torch.uint8), zero_RG.to(torch.uint8), row_scale_R)


def nearest_codes(weight_RC: torch.Tensor, scales: GroupScales) -> torch.Tensor:
    """Round to nearest: uint8 codes (R, C)."""
    step_RC, zero_RC = scales.expand(weight_RC.shape[1])
    return _codes(weight_RC * inverse(step_RC), zero_RC, scales.spec.max_code).to(torch.uint8)


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
        offset_RGw = _codes(in_steps_RGw, zero_RGw, spec.max_code) - in_steps_RGw
        error_RG = ((offset_RGw - zero_RGw).square_() * importance_Gw).sum(dim=2) * step_RG.square()
        best.offer(error_RG, scale_RG, stored_RG)
        zero_RG = (offset_RGw * importance_Gw).sum(dim=2) / weight_sum_G


def _codes(in_steps: torch.Tensor, zero: torch.Tensor, max_code: int) -> torch.Tensor:
    return (in_steps + zero).round_().clamp_(0, max_code)


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


def inverse(x: torch.Tensor) -> torch.Tensor:
    """1/x, and 0 where x is too small to divide by: such a group's weights become exact zeros."""
    return torch.where(x.abs() < 1e-35, torch.zeros_like(x), x.reciprocal())
