"""Matrices in the scaled layout (see `scaled_spec`)."""

import torch

from penjing.errors import InputError
from penjing.packed.groups import dequantize_groups
from penjing.packed.scaled_spec import ScaledSpec
from penjing.packed.tensor import PackedTensor, Rows

_FP8_NAN = 0x7F  # float8_e4m3fn has no infinities and this one NaN, with either sign


class ScaledTensor(PackedTensor[ScaledSpec]):
    """A matrix as `ScaledSpec` describes it."""

    def dequantize(self, rows: torch.Tensor | None = None) -> torch.Tensor:
        height, width = self.spec.block_of(*self.shape)
        grid = self.parts[self.spec.scale].float().view(self.spec.grid(*self.shape))
        scale_RG = grid[torch.arange(self.shape[0]) // height]
        zero_RG = torch.zeros(()).expand_as(scale_RG)

        def fill(which: Rows, out_RC: torch.Tensor) -> None:
            numbers_RC = self.parts["weight"][which].float()
            dequantize_groups(out_RC, numbers_RC, zero_RG[which], scale_RG[which], width)

        return self._by_slabs(rows, fill)

    def check_values(self, name: str) -> None:
        self._require_finite(name, self.spec.scale)
        weight = self.parts["weight"]
        if weight.dtype == torch.float8_e4m3fn and ((weight.view(torch.uint8) & _FP8_NAN) == _FP8_NAN).any():
            raise InputError(f"{name}.weight holds values that are not finite")
