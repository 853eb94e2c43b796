"""The scales of GPTQ's and compressed-tensors' layouts: 16-bit steps and whole zeros.

Shapes: R rows, C columns in G groups of w.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import torch

from penjing.packed.gptq import GptqTensor
from penjing.packed.gptq_spec import GptqSpec
from penjing.packed.pack_quantized import PackQuantizedTensor
from penjing.packed.pack_quantized_spec import PackQuantizedSpec
from penjing.packed.tensor import PackedTensor
from penjing.packed.words import pack_words
from penjing.shrink.grids.scales import Scales
from penjing.shrink.grids.search import SMALLEST, Range, search_scales

Spec = TypeVar("Spec", GptqSpec, PackQuantizedSpec)
_LARGEST = float(torch.finfo(torch.float16).max)


@dataclass(frozen=True)
class IntegerScales(Scales[Spec]):
    """`step` (R, G) in the layout's 16-bit type, `zero` (R, G) uint8."""

    spec: Spec
    step: torch.Tensor
    zero: torch.Tensor

    @property
    def max_code(self) -> int:
        return (1 << self.spec.bits) - 1

    @property
    def fixed_zero(self) -> bool:
        return False

    @property
    def whole_zero(self) -> bool:
        return True

    @classmethod
    def fit(cls, weight_RC: torch.Tensor, importance_C: torch.Tensor, spec: Spec) -> Self:
        within = Range((1 << spec.bits) - 1, whole=True, lowest=_lowest(spec))
        width = spec.columns_per_group(weight_RC.shape[1])
        return cls.store(*search_scales(weight_RC, importance_C, width, within), spec)

    @classmethod
    def store(cls, step_RG: torch.Tensor, zero_RG: torch.Tensor, spec: Spec) -> Self:
        step = step_RG.clamp(SMALLEST, _LARGEST).to(getattr(torch, spec.scale_dtype))
        return cls(spec, step, zero_RG.round().clamp(_lowest(spec), (1 << spec.bits) - 1).to(torch.uint8))

    def width(self, columns: int) -> int:
        return self.spec.columns_per_group(columns)

    def resolve(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.step.float(), self.zero.float()

    def storable(self, step_RG: torch.Tensor, zero_RG: torch.Tensor) -> torch.Tensor:
        inside = (step_RG > SMALLEST) & (step_RG < _LARGEST)
        return inside & (zero_RG > _lowest(self.spec) - 0.5) & (zero_RG < self.max_code + 0.5)

    def choose(self, first_R: torch.Tensor, other: Any) -> Self:
        first_R1 = first_R.unsqueeze(1)
        step, zero = (
            torch.where(first_R1, self.step, other.step),
            torch.where(first_R1, self.zero, other.zero),
        )
        return type(self)(self.spec, step, zero)

    @abstractmethod
    def assemble(self, codes_RC: torch.Tensor) -> PackedTensor: ...


class GptqScales(IntegerScales[GptqSpec]):
    """Zeros are whole codes, stored minus one in files of the format "gptq"."""

    def assemble(self, codes_RC: torch.Tensor) -> GptqTensor:
        columns, bits = codes_RC.shape[1], self.spec.bits
        parts = {
            "qweight": pack_words(codes_RC, bits).T.contiguous(),
            "qzeros": pack_words(self.zero.T - _lowest(self.spec), bits),
            "scales": self.step.T.contiguous(),
            "g_idx": (torch.arange(columns) // self.width(columns)).to(torch.int32),
        }
        return GptqTensor(self.spec, (codes_RC.shape[0], columns), parts)


class PackQuantizedScales(IntegerScales[PackQuantizedSpec]):
    """For asymmetric weights, whose zeros are stored."""

    def assemble(self, codes_RC: torch.Tensor) -> PackQuantizedTensor:
        rows, columns = codes_RC.shape
        parts = {
            "weight_packed": pack_words(codes_RC, self.spec.bits),
            "weight_scale": self.step,
            "weight_shape": torch.tensor([rows, columns], dtype=torch.int64),
            "weight_zero_point": pack_words(self.zero.T.contiguous(), self.spec.bits).T.contiguous(),
        }
        return PackQuantizedTensor(self.spec, (rows, columns), parts)


def _lowest(spec: GptqSpec | PackQuantizedSpec) -> int:
    """Where zeros are stored minus one, a zero of 0 would be read by some programs as the largest."""
    return int(isinstance(spec, GptqSpec) and spec.zero_minus_one)
