"""The scales of a matrix's groups, whatever the layout: weight = step · (code - zero).

Shapes: R rows, C columns in G groups of w, the last one padded if the layout allows it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, Self, TypeVar

import torch

from penjing.packed.parts import PackedSpec
from penjing.packed.tensor import PackedTensor

Spec = TypeVar("Spec", bound=PackedSpec)


class Scales(ABC, Generic[Spec]):
    """Steps and zeros that can be stored."""

    spec: Spec

    @property
    @abstractmethod
    def max_code(self) -> int:
        """Codes are from 0 to this."""

    @property
    @abstractmethod
    def fixed_zero(self) -> bool:
        """Whether the layout knows one zero only."""

    @property
    def whole_zero(self) -> bool:
        """Whether zeros are whole numbers."""
        return False

    @classmethod
    @abstractmethod
    def fit(cls, weight_RC: torch.Tensor, importance_C: torch.Tensor, spec: Spec) -> Self:
        """Search the storable scales of least Σ importance·error²; `importance_C` isn't negative."""

    @classmethod
    @abstractmethod
    def store(cls, step_RG: torch.Tensor, zero_RG: torch.Tensor, spec: Spec) -> Self:
        """The storable scales nearest to these float32 ones, which are `storable`."""

    @abstractmethod
    def width(self, columns: int) -> int:
        """Columns of a group."""

    @abstractmethod
    def resolve(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Float32 step and zero of each group, (R, G)."""

    @abstractmethod
    def storable(self, step_RG: torch.Tensor, zero_RG: torch.Tensor) -> torch.Tensor:
        """Which of these are in the range of what can be stored."""

    @abstractmethod
    def choose(self, first_R: torch.Tensor, other: Any) -> Self:
        """These scales for the rows in the mask, `other` ones of the same kind for the rest."""

    @abstractmethod
    def assemble(self, codes_RC: torch.Tensor) -> PackedTensor:
        """The packed matrix with these scales and uint8 codes."""

    def expand(self, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Float32 step and zero of every column, (R, columns)."""
        step_RG, zero_RG = self.resolve()
        group_C = torch.arange(columns) // self.width(columns)
        return step_RG[:, group_C], zero_RG[:, group_C]

    def nearest(self, weight_RC: torch.Tensor) -> torch.Tensor:
        """Round to nearest: uint8 codes (R, C)."""
        step_RC, zero_RC = self.expand(weight_RC.shape[1])
        return round_codes(weight_RC * inverse(step_RC), zero_RC, self.max_code).to(torch.uint8)


def round_codes(in_steps: torch.Tensor, zero: torch.Tensor, max_code: int) -> torch.Tensor:
    """Codes, as floats, of weights that are given in steps; `in_steps` may be overwritten."""
    return (in_steps + zero).round_().clamp_(0, max_code)


def inverse(x: torch.Tensor) -> torch.Tensor:
    """1/x, and 0 where x is too small to divide by: such a group's weights become exact zeros."""
    return torch.where(x.abs() < 1e-35, torch.zeros_like(x), x.reciprocal())
