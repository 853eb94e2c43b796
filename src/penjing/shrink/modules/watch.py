"""Seeing how any module uses its parameters: which are multiplied with what, which are looked up.

A dispatch mode sees every tensor operation, whoever wrote the module; a parameter is known by its memory,
also where a part of it, or its transpose, is used. Shapes: t rows of inputs, K contracted, R rows, C columns.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from penjing.model.matrix_form import MatrixForm

aten = torch.ops.aten


@dataclass(frozen=True)
class Product:
    """Inputs `x_tC` that the parameter `name`, read as `form`, is multiplied with, in its matrix `index`."""

    name: str
    form: MatrixForm
    index: int
    x_tC: torch.Tensor


@dataclass(frozen=True)
class LookUp:
    """Rows of the parameter `name` are read by their index."""

    name: str


Use = Product | LookUp


@contextmanager
def watching(
    module: nn.Module, parameters: Mapping[str, torch.Tensor], note: Callable[[Use], None]
) -> Iterator[None]:
    """While the block runs, `note` is told of every use of `parameters`; gradients aren't kept. torch's own
    layers are kept from computing several products in one operation, which would hide them."""
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad(), _recurrence_apart(module), _Watch(parameters, note):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)


@contextmanager
def _recurrence_apart(module: nn.Module) -> Iterator[None]:
    """oneDNN computes a whole recurrent layer at once; without it, each product is seen."""
    if not any(isinstance(child, nn.RNNBase) for child in module.modules()):
        yield
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of its settings for Intel's GPUs
        with torch.backends.mkldnn.flags(enabled=False):
            yield


class _Watch(TorchDispatchMode):
    def __init__(self, parameters: Mapping[str, torch.Tensor], note: Callable[[Use], None]) -> None:
        super().__init__()
        self._named = [(name, parameter) for name, parameter in parameters.items()]
        self._memory = {parameter.untyped_storage().data_ptr() for parameter in parameters.values()}
        self._note = note

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        seen = _SEEN.get(func.overloadpacket)
        if seen is not None:
            for use in seen(self, *args, **(kwargs or {})):
                self._note(use)
        return func(*args, **(kwargs or {}))

    def owner(self, tensor: torch.Tensor) -> tuple[str, torch.Tensor] | None:
        """The parameter that `tensor` is, or a part of."""
        if tensor.untyped_storage().data_ptr() not in self._memory:
            return None
        for name, parameter in self._named:
            first, at = parameter.storage_offset(), tensor.storage_offset()
            same = parameter.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
            if same and first <= at < first + parameter.numel():
                return name, parameter
        return None

    def multiplied(self, weight_RK: torch.Tensor, x_tK: torch.Tensor) -> Iterator[Product]:
        """A product x Wᵀ, if W is a parameter, or rows of it, or of one of its matrices."""
        found = self.owner(weight_RK)
        if found is None or found[1].dim() not in (2, 3) or not found[1].is_contiguous():
            return
        name, parameter = found
        rows, columns = parameter.shape[-2:]
        offset = weight_RK.storage_offset() - parameter.storage_offset()
        as_is = weight_RK.shape[1] == columns and weight_RK.stride() == (columns, 1)
        transposed = weight_RK.shape[1] == rows and weight_RK.stride() == (1, columns)
        if as_is or transposed:
            form = MatrixForm(tuple(parameter.shape), parameter.dim() == 3, not as_is)
            yield Product(name, form, offset // (rows * columns), x_tK)


def _mm(watch: _Watch, a: torch.Tensor, b: torch.Tensor, **_: Any) -> Iterator[Use]:
    yield from watch.multiplied(b.t(), a)
    yield from watch.multiplied(a, b.t())


def _addmm(watch: _Watch, _: torch.Tensor, a: torch.Tensor, b: torch.Tensor, **__: Any) -> Iterator[Use]:
    yield from _mm(watch, a, b)


def _mv(watch: _Watch, a: torch.Tensor, x_K: torch.Tensor, **_: Any) -> Iterator[Use]:
    yield from watch.multiplied(a, x_K.unsqueeze(0))


def _addmv(watch: _Watch, _: torch.Tensor, a: torch.Tensor, x_K: torch.Tensor, **__: Any) -> Iterator[Use]:
    yield from _mv(watch, a, x_K)


def _bmm(watch: _Watch, a: torch.Tensor, b: torch.Tensor, **_: Any) -> Iterator[Use]:
    if watch.owner(a) or watch.owner(b):
        for one, other in zip(a, b, strict=True):
            yield from _mm(watch, one, other)


def _baddbmm(watch: _Watch, _: torch.Tensor, a: torch.Tensor, b: torch.Tensor, **__: Any) -> Iterator[Use]:
    yield from _bmm(watch, a, b)


def _grouped_mm(
    watch: _Watch, a_tK: torch.Tensor, b_EKR: torch.Tensor, offs: torch.Tensor, *_: Any, **__: Any
) -> Iterator[Use]:
    """Rows of `a_tK` up to each of `offs` go to one matrix after another."""
    if watch.owner(b_EKR) is None:
        return
    start = 0
    for b_KR, stop in zip(b_EKR, offs.tolist(), strict=True):
        yield from watch.multiplied(b_KR.t(), a_tK[start:stop])
        start = stop


def _convolution(
    watch: _Watch,
    x: torch.Tensor,
    weight: torch.Tensor,
    _: Any,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    is_transposed: bool,
    __: Any,
    groups: int,
) -> Iterator[Use]:
    """A convolution is a product of its weights with unfolded inputs."""
    found = watch.owner(weight)
    if found is None or is_transposed or groups > 1 or weight.dim() not in (3, 4):
        return
    if weight.dim() == 3:  # one dimension: as two, the first of size 1
        x, weight = x.unsqueeze(-2), weight.unsqueeze(-2)
        stride, padding, dilation = [1, *stride], [0, *padding], [1, *dilation]
    kernel = tuple(weight.shape[2:])
    unfolded = F.unfold(x.float(), kernel, tuple(dilation), tuple(padding), tuple(stride))
    x_tC = unfolded.transpose(1, 2).flatten(0, 1)
    yield Product(found[0], MatrixForm(tuple(found[1].shape)), 0, x_tC)


def _embedding(watch: _Watch, weight: torch.Tensor, *_: Any, **__: Any) -> Iterator[Use]:
    found = watch.owner(weight)
    if found is not None:
        yield LookUp(found[0])


_SEEN: Mapping[Any, Callable[..., Iterator[Use]]] = {
    aten.mm: _mm,
    aten.addmm: _addmm,
    aten.mv: _mv,
    aten.addmv: _addmv,
    aten.bmm: _bmm,
    aten.baddbmm: _baddbmm,
    aten._grouped_mm: _grouped_mm,
    aten.convolution: _convolution,
    aten.embedding: _embedding,
}
