"""The one seam for weights: a linear or an embedding whose matrix is packed behaves like the float one.

Both hold the packed parts as buffers, so a state dict of them is what is saved. Products are computed in
float32 from weights that are unpacked on the way; `keep_float` trades memory for speed by unpacking once.
"""

import torch
import torch.nn.functional as F
from torch import nn

from penjing.packed.parts import PackedSpec
from penjing.packed.schemes import PackedTensor, packed_tensor


class PackedMatrix(nn.Module):
    """A packed (rows, columns) matrix as a module: parts are buffers, `weight` is float32."""

    def __init__(self, packed: PackedTensor) -> None:
        super().__init__()
        self.spec: PackedSpec = packed.spec
        self.shape = packed.shape
        # Not by register_buffer: a part may be called "weight", as the property below is.
        self._buffers.update(packed.parts)
        self._float: torch.Tensor | None = None

    @property
    def packed(self) -> PackedTensor:
        return packed_tensor(self.spec, self.shape, dict(self.named_buffers()))

    @property
    def weight(self) -> torch.Tensor:
        return self._float if self._float is not None else self.packed.dequantize()

    def keep_float(self, keep: bool = True) -> None:
        """Hold the unpacked weight from now on (4 bytes a weight), or let it go."""
        self._float = self.packed.dequantize() if keep else None


class PackedLinear(PackedMatrix):
    """y = x Wᵀ + b with W packed."""

    def __init__(self, packed: PackedTensor, bias: nn.Parameter | None = None) -> None:
        super().__init__(packed)
        self.bias = bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight, self.bias)


class PackedEmbedding(PackedMatrix):
    """Look-up of rows; only the rows that are asked for are unpacked."""

    def forward(self, ids_BL: torch.Tensor) -> torch.Tensor:
        if self._float is not None:
            return F.embedding(ids_BL, self._float)
        unique, where = torch.unique(ids_BL, return_inverse=True)
        return F.embedding(where, self.packed.dequantize(rows=unique))


def packed_matrices(root: nn.Module) -> dict[str, PackedMatrix]:
    """The matrices that are packed, by name; not those that are merely held as a file stores their floats."""
    return {
        name: child
        for name, child in root.named_modules()
        if isinstance(child, PackedMatrix) and not child.spec.is_float_form
    }


def held_matrices(root: nn.Module) -> dict[str, PackedMatrix]:
    """The matrices that are held as a file stores their floats, by name."""
    return {
        name: child
        for name, child in root.named_modules()
        if isinstance(child, PackedMatrix) and child.spec.is_float_form
    }


def weight_of(root: nn.Module, name: str) -> torch.Tensor:
    """The float weight of the linear or embedding called `name` (dotted), unpacked if need be."""
    weight = root.get_submodule(name).weight
    assert isinstance(weight, torch.Tensor)
    return weight.detach()


def replace_module(root: nn.Module, name: str, new: nn.Module) -> None:
    """Put `new` in the place of the submodule called `name` (dotted)."""
    parent, _, leaf = name.rpartition(".")
    setattr(root.get_submodule(parent), leaf, new)


def replace_weight(root: nn.Module, name: str, weight: torch.Tensor) -> None:
    """Give the linear or embedding called `name` this float weight, in a module of its own; a bias stays."""
    old = root.get_submodule(name)
    rows, columns = weight.shape
    new: nn.Module
    if isinstance(old, (nn.Embedding, PackedEmbedding)):
        new = nn.Embedding(rows, columns, _weight=weight)
    else:
        new = nn.Linear(columns, rows, bias=False, device="meta")
        new.register_parameter("bias", dict(old.named_parameters(recurse=False)).get("bias"))
    new.weight = nn.Parameter(weight, requires_grad=False)
    replace_module(root, name, new.train(old.training))


def unpack_module(root: nn.Module) -> None:
    """Replace every packed matrix below `root` by the plain linear or embedding with the same weights."""
    for name, module in list(root.named_modules()):
        if isinstance(module, PackedMatrix):
            replace_weight(root, name, module.weight)


def pack_module(root: nn.Module, name: str, packed: PackedTensor) -> None:
    """Replace the linear or embedding called `name` by its packed form; a bias stays as it is."""
    old = root.get_submodule(name)
    is_embedding = isinstance(old, (nn.Embedding, PackedEmbedding))
    new = PackedEmbedding(packed) if is_embedding else PackedLinear(packed, getattr(old, "bias", None))
    replace_module(root, name, new)


def keep_float(root: nn.Module, keep: bool = True) -> None:
    """Let every packed matrix below `root` hold its unpacked weight, or let all of them go."""
    for module in root.modules():
        if isinstance(module, PackedMatrix):
            module.keep_float(keep)
