"""Matrices in compressed-tensors' layout "pack-quantized" (see `pack_quantized_spec`)."""

import torch

from penjing.errors import InputError
from penjing.packed.groups import check_groups, dequantize_groups
from penjing.packed.pack_quantized_spec import PackQuantizedSpec
from penjing.packed.tensor import PackedTensor, Rows
from penjing.packed.words import unpack_words


class PackQuantizedTensor(PackedTensor[PackQuantizedSpec]):
    """A matrix as `PackQuantizedSpec` describes it."""

    def dequantize(self, rows: torch.Tensor | None = None) -> torch.Tensor:
        columns, bits = self.shape[1], self.spec.bits
        zero_RG, scale_RG = self._zeros(), self.parts["weight_scale"].float()
        width, group_C = self.spec.columns_per_group(columns), self.parts.get("weight_g_idx")

        def fill(which: Rows, out_RC: torch.Tensor) -> None:
            codes_RC = unpack_words(self.parts["weight_packed"][which], columns, bits)
            dequantize_groups(out_RC, codes_RC, zero_RG[which], scale_RG[which], width, group_C)

        return self._by_slabs(rows, fill)

    def check_values(self, name: str) -> None:
        self._require_finite(name, "weight_scale")
        if self.parts["weight_shape"].tolist() != list(self.shape):
            found = self.parts["weight_shape"].tolist()
            raise InputError(f"{name}.weight_shape says {found}, but the matrix is {list(self.shape)}")
        if self.spec.has_g_idx:
            check_groups(f"{name}.weight_g_idx", self.parts["weight_g_idx"], self.spec.groups(self.shape[1]))

    def _zeros(self) -> torch.Tensor:
        """Float32 zero points (rows, groups)."""
        rows, bits = self.shape[0], self.spec.bits
        if self.spec.symmetric:
            return torch.tensor(float(1 << (bits - 1))).expand_as(self.parts["weight_scale"])
        return unpack_words(self.parts["weight_zero_point"].T, rows, bits).T.float()
