"""The scales of GGML's blocks: a step of 16 bits a group, or whole numbers under a factor of 16 bits a block.

Shapes: R rows, C columns in G groups of w, N = R · blocks a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import torch

from penjing.packed.ggml.encode import BlockFormat, BlockParts, block_format, encode
from penjing.packed.ggml.spec import BlockSpec
from penjing.packed.ggml.tensor import GgmlTensor
from penjing.shrink.grids.scales import Scales, inverse, round_codes

_SLAB = 1 << 18  # weights searched at a time: the temporaries stay in cache
_CLIPS = tuple(1.05 - i * 0.05 for i in range(12))  # how much of the group's range the grid spans
_LARGEST = float(torch.finfo(torch.float16).max)
_SMALLEST = float(torch.finfo(torch.float16).tiny)


@dataclass(frozen=True)
class BlockScales(Scales[BlockSpec]):
    """`factor` and `minimum_factor` are float16, (R, G) where a block is a group, else (R, blocks); `steps`
    (int8) and `minimums` (uint8) are (R, G)."""

    spec: BlockSpec
    factor: torch.Tensor
    minimum_factor: torch.Tensor
    steps: torch.Tensor
    minimums: torch.Tensor

    @property
    def form(self) -> BlockFormat:
        return block_format(self.spec.type_name)

    @property
    def max_code(self) -> int:
        return self.form.max_code

    @property
    def fixed_zero(self) -> bool:
        return self.form.zero is not None

    @classmethod
    def fit(cls, weight_RC: torch.Tensor, importance_C: torch.Tensor, spec: BlockSpec) -> Self:
        """Steps, and minimums if the type has them, are searched group by group as if they were real numbers,
        and then stored."""
        form = block_format(spec.type_name)
        rows, columns = weight_RC.shape
        step = max(1, _SLAB // columns)
        slabs = [_fit_slab(weight_RC[i : i + step].float(), importance_C, form) for i in range(0, rows, step)]
        step_RG, zero_RG = (torch.cat(parts) for parts in zip(*slabs, strict=True))
        return cls.store(step_RG, zero_RG, spec)

    @classmethod
    def store(cls, step_RG: torch.Tensor, zero_RG: torch.Tensor, spec: BlockSpec) -> Self:
        form = block_format(spec.type_name)
        minimum_RG = torch.zeros_like(step_RG) if form.zero is not None else step_RG * zero_RG
        if not form.largest_step:
            ones = torch.ones_like(step_RG)
            return cls(spec, _half(step_RG), _half(-minimum_RG), ones.to(torch.int8), ones.to(torch.uint8))
        factor, steps = _whole(step_RG, form, form.signed)
        if not form.signed:
            steps = steps.clamp(min=1)  # with a step of 0 there would be no code for the minimum
        minimum_factor, minimums = _whole(minimum_RG.clamp(min=0), form, False)
        return cls(spec, factor, minimum_factor, steps.to(torch.int8), minimums.to(torch.uint8))

    def width(self, columns: int) -> int:
        return self.form.group

    def resolve(self) -> tuple[torch.Tensor, torch.Tensor]:
        step_RG = self._spread(self.factor) * self.steps.float()
        if self.form.zero is not None:
            return step_RG, torch.full_like(step_RG, self.form.zero)
        minimum_RG = self._spread(self.minimum_factor) * self.minimums.float()
        if not self.form.largest_step:
            minimum_RG = -minimum_RG
        return step_RG, minimum_RG * inverse(step_RG)

    def storable(self, step_RG: torch.Tensor, zero_RG: torch.Tensor) -> torch.Tensor:
        inside = (step_RG.abs() > _SMALLEST) & (step_RG.abs() < _LARGEST)
        if self.fixed_zero:
            return inside
        inside &= (step_RG > 0) & ((step_RG * zero_RG).abs() < _LARGEST)
        return inside & (zero_RG >= 0) if self.form.largest_step else inside

    def choose(self, first_R: torch.Tensor, other: Any) -> Self:
        first_R1 = first_R.unsqueeze(1)
        return type(self)(
            self.spec,
            torch.where(first_R1, self.factor, other.factor),
            torch.where(first_R1, self.minimum_factor, other.minimum_factor),
            torch.where(first_R1, self.steps, other.steps),
            torch.where(first_R1, self.minimums, other.minimums),
        )

    def assemble(self, codes_RC: torch.Tensor) -> GgmlTensor:
        rows, columns = codes_RC.shape
        groups = self.form.groups
        parts = BlockParts(
            codes_RC.reshape(-1, groups * self.form.group),
            self.factor.reshape(-1, 1),
            self.minimum_factor.reshape(-1, 1),
            self.steps.reshape(-1, groups),
            self.minimums.reshape(-1, groups),
        )
        blocks = encode(self.spec.type_name, parts).view(rows, -1)
        return GgmlTensor(self.spec, (rows, columns), {"blocks": blocks})

    def _spread(self, factor: torch.Tensor) -> torch.Tensor:
        """The factor of each group's block, (R, G), float32."""
        return factor.float().repeat_interleave(self.form.groups, dim=1)


def _half(values: torch.Tensor) -> torch.Tensor:
    return values.clamp(-_LARGEST, _LARGEST).half()


def _whole(values_RG: torch.Tensor, form: BlockFormat, signed: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """A factor for each block and whole numbers, as floats, whose products come near the values."""
    values_RBg = values_RG.unflatten(1, (-1, form.groups))
    factor_RB = _half(values_RBg.abs().amax(dim=2) / form.largest_step)
    whole_RBg = torch.round(values_RBg * inverse(factor_RB.float()).unsqueeze(2))
    lowest = -form.largest_step if signed else 0
    return factor_RB, whole_RBg.clamp(lowest, form.largest_step).flatten(1)


def _fit_slab(
    weight_RC: torch.Tensor, importance_C: torch.Tensor, form: BlockFormat
) -> tuple[torch.Tensor, torch.Tensor]:
    """Real-valued steps and zeros of least weighted error, (R, G)."""
    weight_RGw = weight_RC.unflatten(1, (-1, form.group))
    importance_Gw = importance_C.float().view(-1, form.group) + 1e-30
    search = _search_steps if form.zero is not None else _search_both
    best = _Best(weight_RGw)
    search(best, weight_RGw, importance_Gw, form)
    return best.step, best.zero


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


def _search_steps(
    best: _Best, weight_RGw: torch.Tensor, importance_Gw: torch.Tensor, form: BlockFormat
) -> None:
    """The zero is given. The range has one code more on its negative side, so both signs of the step are
    tried, and each clip's step is then solved for its codes."""
    zero = torch.full(weight_RGw.shape[:2], float(form.zero or 0))
    full_RG = weight_RGw.abs().amax(dim=2) / max(form.zero or 0, form.max_code - (form.zero or 0))
    for sign in (1.0, -1.0):
        for clip in _CLIPS:
            step_RG = sign * clip * full_RG
            for _ in range(2):
                centred_RGw = _centred(weight_RGw, step_RG, zero, form)
                best.offer(_error(weight_RGw, centred_RGw, step_RG, importance_Gw), step_RG, zero)
                weighted_RGw = centred_RGw * importance_Gw
                step_RG = (weighted_RGw * weight_RGw).sum(2) * inverse((weighted_RGw * centred_RGw).sum(2))


def _search_both(
    best: _Best, weight_RGw: torch.Tensor, importance_Gw: torch.Tensor, form: BlockFormat
) -> None:
    """Step and minimum. Whole-numbered minimums can't be negative, so the range then reaches to 0."""
    low_RG, high_RG = weight_RGw.amin(dim=2), weight_RGw.amax(dim=2)
    if form.largest_step:
        low_RG = low_RG.clamp(max=0)
    full_RG = ((high_RG - low_RG) / form.max_code).clamp(min=_SMALLEST)
    for clip in _CLIPS:
        step_RG = clip * full_RG
        zero_RG = -low_RG / full_RG
        for _ in range(3):
            centred_RGw = _centred(weight_RGw, step_RG, zero_RG, form)
            best.offer(_error(weight_RGw, centred_RGw, step_RG, importance_Gw), step_RG, zero_RG)
            step_RG, zero_RG = _solve(weight_RGw, centred_RGw + zero_RG.unsqueeze(2), importance_Gw, step_RG)
            if form.largest_step:
                zero_RG = zero_RG.clamp(min=0)


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
    step = torch.where((spread > 1e-20) & (slope > _SMALLEST), slope, step_RG)
    return step, mean_code - mean_weight * inverse(step)


def _centred(
    weight_RGw: torch.Tensor, step_RG: torch.Tensor, zero_RG: torch.Tensor, form: BlockFormat
) -> torch.Tensor:
    """Codes less the zero."""
    zero_RG1 = zero_RG.unsqueeze(2)
    return round_codes(weight_RGw * inverse(step_RG).unsqueeze(2), zero_RG1, form.max_code) - zero_RG1


def _error(
    weight_RGw: torch.Tensor, centred_RGw: torch.Tensor, step_RG: torch.Tensor, importance_Gw: torch.Tensor
) -> torch.Tensor:
    return ((centred_RGw * step_RG.unsqueeze(2) - weight_RGw).square_() * importance_Gw).sum(dim=2)
