"""Matrices in the AWQ layout (see `awq_spec`)."""

import torch

from penjing.packed.awq_spec import BITS, ORDER, ROWS_A_WORD, AwqSpec
from penjing.packed.groups import dequantize_groups
from penjing.packed.tensor import PackedTensor, Rows


class AwqTensor(PackedTensor[AwqSpec]):
    """A matrix as `AwqSpec` describes it."""

    def dequantize(self, rows: torch.Tensor | None = None) -> torch.Tensor:
        width = self.spec.columns_per_group(self.shape[1])
        rows_R = torch.arange(self.shape[0])

        def fill(which: Rows, out_RC: torch.Tensor) -> None:
            codes_RC = _codes(self.parts["qweight"], rows_R[which])
            zero_RG = _codes(self.parts["qzeros"], rows_R[which])
            scale_RG = self.parts["scales"][:, which].T.float()
            dequantize_groups(out_RC, codes_RC, zero_RG, scale_RG, width)

        return self._by_slabs(rows, fill)

    def check_values(self, name: str) -> None:
        self._require_finite(name, "scales")


def _codes(words_XW: torch.Tensor, rows_R: torch.Tensor) -> torch.Tensor:
    """The codes (R, X) of these rows, float32, from words (X, W) that hold eight rows each."""
    places = torch.tensor([ORDER.index(row) for row in range(ROWS_A_WORD)], dtype=torch.int32)
    shift_R = BITS * places[rows_R % ROWS_A_WORD]
    codes_XR = (words_XW[:, rows_R // ROWS_A_WORD] >> shift_R) & ((1 << BITS) - 1)
    return codes_XR.T.float()
