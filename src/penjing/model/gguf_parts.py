"""Matrices that a GGUF file keeps in parts: shown whole to those who read, cut for those who write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from penjing.errors import InputError
from penjing.formats.checkpoint import Checkpoint, TensorInfo

if TYPE_CHECKING:  # headers are read without it
    from pathlib import Path

    from torch import Tensor

Shape = tuple[int, ...]


@dataclass(frozen=True)
class KeysAndValues:
    """`whole` has for each of `heads` the rows that make its key and those that make its value, both from
    `rank` values. The parts are stacks of the heads: what makes keys, transposed, so that it can be applied
    to queries instead, and what makes values. `{i}` in the names stands for the layer.
    """

    whole: str
    parts: tuple[str, str]
    heads: int
    rank: int
    key_dim: int
    value_dim: int

    @property
    def whole_shape(self) -> Shape:
        return self.heads * (self.key_dim + self.value_dim), self.rank

    @property
    def part_shapes(self) -> tuple[Shape, Shape]:
        return (self.heads, self.rank, self.key_dim), (self.heads, self.value_dim, self.rank)

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """The whole, of the parts."""
        import torch

        keys_Hrk, values_Hvr = parts
        return torch.cat((keys_Hrk.transpose(1, 2), values_Hvr), dim=1).flatten(0, 1)

    def split(self, whole: Tensor) -> tuple[Tensor, Tensor]:
        """The parts of the whole."""
        keys_Hkr, values_Hvr = whole.unflatten(0, (self.heads, -1)).split((self.key_dim, self.value_dim), 1)
        return keys_Hkr.transpose(1, 2).contiguous(), values_Hvr.contiguous()


def assembled(checkpoint: Checkpoint, divisions: Sequence[KeysAndValues], layers: int) -> Checkpoint:
    """The checkpoint with each matrix whole whose parts it has; others are left as they are.

    Raises `InputError` for parts of another shape.
    """
    found = {
        division.whole.format(i=i): (division, tuple(part.format(i=i) for part in division.parts))
        for division in divisions
        for i in range(layers)
    }
    found = {
        whole: (d, parts) for whole, (d, parts) in found.items() if checkpoint.tensors.keys() >= {*parts}
    }
    if not found:
        return checkpoint
    used = {part for _, parts in found.values() for part in parts}
    tensors = {name: info for name, info in checkpoint.tensors.items() if name not in used}
    for whole, (division, parts) in found.items():
        if whole in tensors:
            raise InputError(f"{checkpoint.path} holds {whole} whole and in parts ({', '.join(parts)})")
        tensors[whole] = _whole_info(whole, division, [checkpoint.tensors[part] for part in parts])
    return _Assembled(checkpoint, tensors, found)


def _whole_info(whole: str, division: KeysAndValues, parts: Sequence[TensorInfo]) -> TensorInfo:
    for part, shape in zip(parts, division.part_shapes, strict=True):
        if part.shape != shape:
            where = f"{part.name} in {part.file.name}"
            raise InputError(f"{where} has shape {list(part.shape)}, the config asks for {list(shape)}")
    types = sorted({part.dtype for part in parts})
    nbytes = sum(part.nbytes for part in parts)
    return TensorInfo(
        whole, division.whole_shape, " and ".join(types), nbytes, parts[0].file, parts[0].offset
    )


@dataclass(frozen=True)
class _Assembled:
    """A `Checkpoint` over another, with some of its tensors put together."""

    inner: Checkpoint
    tensors: Mapping[str, TensorInfo]
    divided: Mapping[str, tuple[KeysAndValues, tuple[str, ...]]]
    kind: Literal["gguf"] = "gguf"

    @property
    def path(self) -> Path:
        return self.inner.path

    @property
    def config(self) -> Mapping[str, Any]:
        return self.inner.config

    @property
    def notices(self) -> tuple[str, ...]:
        return self.inner.notices

    def read(self, name: str) -> Tensor:
        if name not in self.divided:
            return self.inner.read(name)
        division, parts = self.divided[name]
        tensors = [self.inner.read(part) for part in parts]
        if tensors[0].dtype != tensors[1].dtype:
            tensors = [tensor.float() for tensor in tensors]
        return division.join(tensors)

    def read_blocks(self, name: str) -> Tensor:
        return self.inner.read_blocks(name)

    def release(self, name: str) -> None:
        for part in self.divided[name][1] if name in self.divided else (name,):
            self.inner.release(part)
