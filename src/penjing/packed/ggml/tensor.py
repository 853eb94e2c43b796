"""Matrices in GGML's blocks (see `spec`)."""

import torch

from penjing.packed.ggml.decode import dequantize
from penjing.packed.ggml.spec import GgmlSpec
from penjing.packed.tensor import PackedTensor


class GgmlTensor(PackedTensor[GgmlSpec]):
    """A matrix as `GgmlSpec` describes it."""

    def dequantize(self, rows: torch.Tensor | None = None) -> torch.Tensor:
        blocks_RB = self.parts["blocks"] if rows is None else self.parts["blocks"][rows]
        return dequantize(blocks_RB.reshape(-1), self.spec.type_name, (len(blocks_RB), self.shape[1]))

    def check_values(self, name: str) -> None:
        """Nothing is checked: looking at every value would read the whole file."""
