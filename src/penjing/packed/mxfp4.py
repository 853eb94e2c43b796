"""Matrices in the MXFP4 layout (see `mxfp4_spec`)."""

import torch

from penjing.errors import InputError
from penjing.packed import bits as bit_packing
from penjing.packed.groups import dequantize_groups
from penjing.packed.mxfp4_spec import BLOCK, VALUES, Mxfp4Spec
from penjing.packed.tensor import PackedTensor, Rows

_NAN_SCALE = 255


class Mxfp4Tensor(PackedTensor[Mxfp4Spec]):
    """A matrix as `Mxfp4Spec` describes it."""

    def dequantize(self, rows: torch.Tensor | None = None) -> torch.Tensor:
        values = torch.tensor(VALUES)

        def fill(which: Rows, out_RC: torch.Tensor) -> None:
            codes_RC = bit_packing.unpack(self.parts["blocks"][which].flatten(1), self.shape[1], 4)
            scale_RG = self.parts["scales"][which].view(torch.float8_e8m0fnu).float()
            zero_RG = torch.zeros(()).expand_as(scale_RG)
            dequantize_groups(out_RC, values[codes_RC.int()], zero_RG, scale_RG, BLOCK)

        return self._by_slabs(rows, fill)

    def check_values(self, name: str) -> None:
        if (self.parts["scales"] == _NAN_SCALE).any():
            raise InputError(f"{name}.scales holds values that are not finite")
