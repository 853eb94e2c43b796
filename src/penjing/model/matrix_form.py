"""How a parameter of any module is read as matrices. Shapes: E matrices of R rows (outputs) and C columns
(inputs)."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from penjing.errors import InputError

if TYPE_CHECKING:  # plans are drawn up without it
    import torch


@dataclass(frozen=True)
class MatrixForm:
    """How a parameter of `shape` is read as matrices: one whose columns are all dimensions but the first, or,
    `stacked`, one for each index of the first. `transposed`: columns are stored before rows."""

    shape: tuple[int, ...]
    stacked: bool = False
    transposed: bool = False

    def __post_init__(self) -> None:
        dimensions = len(self.shape) - self.stacked
        if dimensions < 2 or ((self.stacked or self.transposed) and dimensions != 2) or 0 in self.shape:
            raise InputError(f"a parameter of shape {list(self.shape)} can't be read as matrices")

    @property
    def matrices(self) -> int:
        return self.shape[0] if self.stacked else 1

    @property
    def rows(self) -> int:
        """Of one matrix."""
        first = self.shape[1:] if self.stacked else self.shape
        return first[1] if self.transposed else first[0]

    @property
    def columns(self) -> int:
        return prod(self.shape) // (self.matrices * self.rows)

    def read(self, parameter: torch.Tensor) -> torch.Tensor:
        """The matrices (E, R, C) of a parameter, as a view."""
        if self.transposed:
            parameter = parameter.transpose(-1, -2)
        return parameter.reshape(self.matrices, self.rows, self.columns)

    def write(self, weight_RC: torch.Tensor) -> torch.Tensor:
        """The parameter of matrices that stand one below the other, (E·R, C)."""
        weight_ERC = weight_RC.view(self.matrices, self.rows, self.columns)
        return (weight_ERC.transpose(-1, -2) if self.transposed else weight_ERC).reshape(self.shape)
