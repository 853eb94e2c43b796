"""Packed matrices whose scales and zero points can be trained, with their codes as they are.

Shapes: R rows, C columns in G groups of w, the last one padded.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from penjing.model.linear import PackedEmbedding, PackedLinear, PackedMatrix, replace_module
from penjing.packed import bits as bit_packing
from penjing.packed.affine import AffineTensor, resolve_scales
from penjing.shrink.grids.affine import AffineScales


class TrainableMatrix(nn.Module):
    """An affine matrix in the making. `row_change` (R, 1) and `scale_change` (R, G) are relative to the
    scales that it began with, `zero_change` (R, G) is in steps of a code, so that one learning rate suits all
    matrices."""

    def __init__(self, packed: AffineTensor, bias: nn.Parameter | None = None) -> None:
        super().__init__()
        self.spec, self.shape, self.bias = packed.spec, packed.shape, bias
        columns = self.shape[1]
        self.width = self.spec.columns_per_group(columns)
        parts = packed.parts
        codes_RC = bit_packing.unpack(parts["codes"], columns, self.spec.bits)
        self.codes_RC = F.pad(codes_RC, (0, -columns % self.width))
        self.step_RG, self.zero_RG = resolve_scales(
            parts["scale"], parts["zero_point"], parts["row_scale"], self.spec
        )
        self.row_change = nn.Parameter(torch.zeros(len(self.step_RG), 1))
        self.scale_change = nn.Parameter(torch.zeros_like(self.step_RG))
        self.zero_change = nn.Parameter(torch.zeros_like(self.zero_RG))

    @property
    def weight(self) -> torch.Tensor:
        """Float32 (R, C); gradients flow to the changes."""
        weight_RC = _Unpack.apply(*self._scales(), self.codes_RC, self.width)
        return weight_RC[:, : self.shape[1]]

    @torch.no_grad()
    def packed(self) -> AffineTensor:
        """The matrix as it is stored: scales and zero points take their nearest 8-bit values."""
        step_RG, zero_RG = self._scales()
        zero_RG = zero_RG.clamp(0, self.spec.max_code)
        columns = self.shape[1]
        scales = AffineScales.store(step_RG.clamp(min=0), zero_RG, self.spec)
        return scales.assemble(self.codes_RC[:, :columns].contiguous())

    def packed_module(self) -> PackedMatrix:
        """What takes this module's place again."""
        raise NotImplementedError

    def _scales(self) -> tuple[torch.Tensor, torch.Tensor]:
        step_RG = self.step_RG * (1 + self.row_change) * (1 + self.scale_change)
        return step_RG, self.zero_RG + self.zero_change


class TrainableLinear(TrainableMatrix):
    """y = x Wᵀ + b."""

    def packed_module(self) -> PackedMatrix:
        return PackedLinear(self.packed(), self.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight, self.bias)


class TrainableEmbedding(TrainableMatrix):
    """Look-up of rows."""

    def packed_module(self) -> PackedMatrix:
        return PackedEmbedding(self.packed())

    def forward(self, ids_BL: torch.Tensor) -> torch.Tensor:
        return F.embedding(ids_BL, self.weight)


def make_trainable(root: nn.Module) -> dict[str, TrainableMatrix]:
    """Replace the affine packed matrices below `root` by trainable ones; returns them by name."""
    found: dict[str, TrainableMatrix] = {}
    for name, module in list(root.named_modules()):
        if isinstance(module, PackedMatrix) and isinstance(module.packed, AffineTensor):
            kind = TrainableEmbedding if isinstance(module, PackedEmbedding) else TrainableLinear
            bias = module.bias if isinstance(module, PackedLinear) else None
            found[name] = kind(module.packed, bias)
            replace_module(root, name, found[name])
    return found


def pack_trained(root: nn.Module, trained: dict[str, TrainableMatrix]) -> None:
    """Put the trained matrices back in packed form."""
    for name, matrix in trained.items():
        replace_module(root, name, matrix.packed_module())


class _Unpack(torch.autograd.Function):
    """step · (codes - zero) by groups. Its backward pass unpacks the codes again instead of keeping
    floats."""

    @staticmethod
    def forward(
        ctx: Any, step_RG: torch.Tensor, zero_RG: torch.Tensor, codes_RC: torch.Tensor, width: int
    ) -> torch.Tensor:
        ctx.save_for_backward(step_RG, zero_RG, codes_RC)
        codes_RGw = codes_RC.view(*step_RG.shape, width)
        weight_RGw = torch.sub(codes_RGw, zero_RG.unsqueeze(2)).mul_(step_RG.unsqueeze(2))
        return weight_RGw.view(codes_RC.shape)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        step_RG, zero_RG, codes_RC = ctx.saved_tensors
        gradient_RGw = gradients[0].view(*step_RG.shape, -1)
        sum_RG = gradient_RGw.sum(dim=2)
        by_code_RG = torch.einsum("rgw,rgw->rg", gradient_RGw, codes_RC.view(gradient_RGw.shape).float())
        return by_code_RG - zero_RG * sum_RG, -step_RG * sum_RG, None, None
