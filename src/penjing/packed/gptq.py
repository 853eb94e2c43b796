"""Matrices in the GPTQ layout (see `gptq_spec`)."""

import torch

from penjing.packed.gptq_spec import GptqSpec
from penjing.packed.groups import check_groups, dequantize_groups
from penjing.packed.tensor import PackedTensor, Rows
from penjing.packed.words import unpack_words


class GptqTensor(PackedTensor[GptqSpec]):
    """A matrix as `GptqSpec` describes it."""

    def dequantize(self, rows: torch.Tensor | None = None) -> torch.Tensor:
        columns, bits = self.shape[1], self.spec.bits
        zero_RG, scale_RG = self._zeros().T, self.parts["scales"].T.float()
        width, group_C = self.spec.columns_per_group(columns), self.parts.get("g_idx")

        def fill(which: Rows, out_RC: torch.Tensor) -> None:
            codes_RC = unpack_words(self.parts["qweight"][:, which].T, columns, bits)
            dequantize_groups(out_RC, codes_RC, zero_RG[which], scale_RG[which], width, group_C)

        return self._by_slabs(rows, fill)

    def check_values(self, name: str) -> None:
        self._require_finite(name, "scales")
        if self.spec.has_g_idx:
            check_groups(f"{name}.g_idx", self.parts["g_idx"], self.spec.groups(self.shape[1]))

    def _zeros(self) -> torch.Tensor:
        """Float32 zero points (groups, rows)."""
        bits, stored = self.spec.bits, self.parts["qzeros"]
        if not self.spec.zero_minus_one:
            return unpack_words(stored, self.shape[0], bits).float()
        if 32 % bits == 0:
            # The one was taken from whole words, so that a zero point of 0 borrowed from its neighbour.
            ones = sum(1 << shift for shift in range(0, 32, bits))
            return unpack_words(stored + ones, self.shape[0], bits).float()
        return ((unpack_words(stored, self.shape[0], bits) + 1) & ((1 << bits) - 1)).float()
