"""Matrices in the affine layout (see `affine_spec`)."""

from collections.abc import Mapping

import torch

from penjing.packed import bits as bit_packing
from penjing.packed.affine_spec import STEPS, AffineSpec
from penjing.packed.groups import dequantize_groups
from penjing.packed.tensor import PackedTensor, Rows


class AffineTensor(PackedTensor[AffineSpec]):
    """A matrix as `AffineSpec` describes it."""

    def dequantize(self, rows: torch.Tensor | None = None) -> torch.Tensor:
        def fill(which: Rows, out_RC: torch.Tensor) -> None:
            _dequantize_into(out_RC, {name: part[which] for name, part in self.parts.items()}, self.spec)

        return self._by_slabs(rows, fill)

    def check_values(self, name: str) -> None:
        self._require_finite(name, "row_scale")


def resolve_scales(
    scale_RG: torch.Tensor, zero_point_RG: torch.Tensor, row_scale_R: torch.Tensor, spec: AffineSpec
) -> tuple[torch.Tensor, torch.Tensor]:
    """Float32 scale and zero point (rows, groups) from their stored 8-bit form."""
    scale = scale_RG.float() * row_scale_R.float().unsqueeze(1)
    return scale, zero_point_RG.float() * (spec.max_code / STEPS)


def _dequantize_into(out_RC: torch.Tensor, parts: Mapping[str, torch.Tensor], spec: AffineSpec) -> None:
    columns = out_RC.shape[1]
    codes_RC = bit_packing.unpack(parts["codes"], columns, spec.bits)
    scale_RG, zero_RG = resolve_scales(parts["scale"], parts["zero_point"], parts["row_scale"], spec)
    dequantize_groups(out_RC, codes_RC, zero_RG, scale_RG, spec.columns_per_group(columns))
