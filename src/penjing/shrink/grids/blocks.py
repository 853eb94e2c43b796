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
from penjing.shrink.grids.scales import Scales, inverse
from penjing.shrink.grids.search import SMALLEST, Range, search_scales

_LARGEST = float(torch.finfo(torch.float16).max)


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
        within = Range(form.max_code, form.zero, holds_zero=bool(form.largest_step))
        return cls.store(*search_scales(weight_RC, importance_C, form.group, within), spec)

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
        inside = (step_RG.abs() > SMALLEST) & (step_RG.abs() < _LARGEST)
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
