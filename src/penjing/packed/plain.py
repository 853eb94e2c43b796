"""Matrices in a plain float type (see `plain_spec`)."""

import torch

from penjing.packed.plain_spec import PlainSpec
from penjing.packed.tensor import PackedTensor


class PlainTensor(PackedTensor[PlainSpec]):
    """A matrix as `PlainSpec` describes it."""

    def dequantize(self, rows: torch.Tensor | None = None) -> torch.Tensor:
        weight_RC = self.parts["weight"]
        return (weight_RC if rows is None else weight_RC[rows]).float()

    def check_values(self, name: str) -> None:
        """Nothing is checked: looking at every value would read the whole file."""
