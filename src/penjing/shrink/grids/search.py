"""Searching a group's step and zero for the least weighted error, as if they were real numbers.

Shapes: R rows, G groups of w columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from penjing.shrink.grids.scales import inverse, round_codes

SMALLEST = float(torch.finfo(torch.float16).tiny)
_SLAB = 1 << 18  # weights searched at a time: the temporaries stay in cache
_CLIPS = tuple(1.05 - i * 0.05 for i in range(12))  # how much of the group's range the grid spans


@dataclass(frozen=True)
class Range:
    """What a layout can hold: codes up to `max_code`, and one `zero` (None: any), which may have to be a
    whole code from `lowest` on (`whole`) or at least 0 (`holds_zero`)."""

    max_code: int
    zero: int | None = None
    whole: bool = False
    lowest: int = 0
    holds_zero: bool = True

    def near(self, zero: torch.Tensor) -> torch.Tensor:
        """The nearest zeros that can be held."""
        if self.whole:
            return zero.round().clamp(self.lowest, self.max_code)
        return zero.clamp(min=0) if self.holds_zero else zero


def search_scales(
    weight_RC: torch.Tensor, importance_C: torch.Tensor, width: int, within: Range
) -> tuple[torch.Tensor, torch.Tensor]:
    """Float32 steps and zeros (R, G) of least Σ importance·error² for groups of `width` columns, which divide
    a row."""
    importance_Gw = importance_C.float().view(-1, width) + 1e-30
    search = _search_steps if within.zero is not None else _search_both
    steps, zeros = [], []
    for slab_RC in weight_RC.split(max(1, _SLAB // weight_RC.shape[1])):
        weight_RGw = slab_RC.float().unflatten(1, (-1, width))
        best = _Best(weight_RGw)
        search(best, weight_RGw, importance_Gw, within)
        steps.append(best.step)
        zeros.append(best.zero)
    return torch.cat(steps), torch.cat(zeros)


class _Best:
    """The least error seen for each group, and the scales that gave it."""

    def __init__(self, weight_RGw: torch.Tensor) -> None:
        self.error = torch.full(weight_RGw.shape[:2], torch.inf)
        self.step = torch.zeros(weight_RGw.shape[:2])
        self.zero = torch.zeros(weight_RGw.shape[:2])

    def offer(self, error: torch.Tensor, step: torch.Tensor, zero: torch.Tensor) -> None:
        better = error < self.error
        self.error = torch.where(better, error, self.error)
        self.step = torch.where(better, step, self.step)
        self.zero = torch.where(better, zero, self.zero)


def _search_steps(best: _Best, weight_RGw: torch.Tensor, importance_Gw: torch.Tensor, within: Range) -> None:
    """The zero is given. The range has one code more on its negative side, so both signs of the step are
    tried, and each clip's step is then solved for its codes."""
    zero = torch.full(weight_RGw.shape[:2], float(within.zero or 0))
    full_RG = weight_RGw.abs().amax(dim=2) / max(within.zero or 0, within.max_code - (within.zero or 0))
    for sign in (1.0, -1.0):
        for clip in _CLIPS:
            step_RG = sign * clip * full_RG
            for _ in range(2):
                centred_RGw = _centred(weight_RGw, step_RG, zero, within)
                best.offer(_error(weight_RGw, centred_RGw, step_RG, importance_Gw), step_RG, zero)
                weighted_RGw = centred_RGw * importance_Gw
                step_RG = (weighted_RGw * weight_RGw).sum(2) * inverse((weighted_RGw * centred_RGw).sum(2))


def _search_both(best: _Best, weight_RGw: torch.Tensor, importance_Gw: torch.Tensor, within: Range) -> None:
    """Step and zero; where zero must be among the codes, or at least 0, the range reaches to weights of 0."""
    low_RG, high_RG = weight_RGw.amin(dim=2), weight_RGw.amax(dim=2)
    if within.holds_zero:
        low_RG = low_RG.clamp(max=0)
    if within.whole:
        high_RG = high_RG.clamp(min=0)
    full_RG = ((high_RG - low_RG) / within.max_code).clamp(min=SMALLEST)
    for clip in _CLIPS:
        step_RG = clip * full_RG
        zero_RG = within.near(-low_RG / full_RG)
        for _ in range(3):
            centred_RGw = _centred(weight_RGw, step_RG, zero_RG, within)
            best.offer(_error(weight_RGw, centred_RGw, step_RG, importance_Gw), step_RG, zero_RG)
            codes_RGw = centred_RGw + zero_RG.unsqueeze(2)
            step_RG, zero_RG = _solve(weight_RGw, codes_RGw, importance_Gw, step_RG)
            zero_RG = within.near(zero_RG)


def _solve(
    weight_RGw: torch.Tensor, codes_RGw: torch.Tensor, importance_Gw: torch.Tensor, step_RG: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Step and zero of weighted least squares for these codes; the step stays where all codes are equal."""
    total_G = importance_Gw.sum(1)
    mean_code = (codes_RGw * importance_Gw).sum(2) / total_G
    mean_weight = (weight_RGw * importance_Gw).sum(2) / total_G
    offset_RGw = (codes_RGw - mean_code.unsqueeze(2)) * importance_Gw
    spread = (offset_RGw * codes_RGw).sum(2)
    slope = (offset_RGw * weight_RGw).sum(2) / spread.clamp(min=1e-30)
    step = torch.where((spread > 1e-20) & (slope > SMALLEST), slope, step_RG)
    return step, mean_code - mean_weight * inverse(step)


def _centred(
    weight_RGw: torch.Tensor, step_RG: torch.Tensor, zero_RG: torch.Tensor, within: Range
) -> torch.Tensor:
    """Codes less the zero."""
    zero_RG1 = zero_RG.unsqueeze(2)
    return round_codes(weight_RGw * inverse(step_RG).unsqueeze(2), zero_RG1, within.max_code) - zero_RG1


def _error(
    weight_RGw: torch.Tensor, centred_RGw: torch.Tensor, step_RG: torch.Tensor, importance_Gw: torch.Tensor
) -> torch.Tensor:
    return ((centred_RGw * step_RG.unsqueeze(2) - weight_RGw).square_() * importance_Gw).sum(dim=2)
