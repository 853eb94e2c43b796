"""How the tensors of the module lie in a tensor of a file, where they aren't the same: fused, transposed,
interleaved or stacked.

A layout knows the stored shape from the module's shapes, and goes both ways without losing a bit. It sees the
module's tensors in the order in which a rule names them, with the experts outermost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # headers are read without it
    from torch import Tensor

Shape = tuple[int, ...]


class Layout(Protocol):
    """`keeps_rows`: every row of the module's tensors is a row of the stored one, so that the bytes of packed
    rows can be moved as they are."""

    @property
    def keeps_rows(self) -> bool: ...

    def stored_shape(self, shapes: Sequence[Shape]) -> Shape:
        """The shape in the file of tensors that have `shapes` in the module."""
        ...

    def split(self, stored: Tensor, shapes: Sequence[Shape]) -> Sequence[Tensor]:
        """The module's tensors, of `shapes`; they may share the stored one's memory."""
        ...

    def join(self, tensors: Sequence[Tensor]) -> Tensor:
        """The stored tensor."""
        ...


@dataclass(frozen=True)
class Same:
    """One tensor, as it is; without its rows in the file if it may have been put together on reading."""

    keeps_rows: bool = True

    def stored_shape(self, shapes: Sequence[Shape]) -> Shape:
        return shapes[0]

    def split(self, stored: Tensor, shapes: Sequence[Shape]) -> Sequence[Tensor]:
        return (stored,)

    def join(self, tensors: Sequence[Tensor]) -> Tensor:
        return tensors[0]


AS_IS = Same()


@dataclass(frozen=True)
class Rows:
    """Tensors one below another: fused queries, keys and values, or a fused gate."""

    @property
    def keeps_rows(self) -> bool:
        return True

    def stored_shape(self, shapes: Sequence[Shape]) -> Shape:
        return (sum(shape[0] for shape in shapes), *shapes[0][1:])

    def split(self, stored: Tensor, shapes: Sequence[Shape]) -> Sequence[Tensor]:
        return stored.split([shape[0] for shape in shapes])

    def join(self, tensors: Sequence[Tensor]) -> Tensor:
        import torch

        return torch.cat(tuple(tensors))


@dataclass(frozen=True)
class RowsByGroup:
    """Fused rows that alternate group by group: (group, tensor, rows, …). GPT-NeoX and BLOOM keep each head's
    query, key and value together, so a group is a head; gpt-oss alternates single rows of gate and up."""

    groups: int

    @property
    def keeps_rows(self) -> bool:
        return True

    def stored_shape(self, shapes: Sequence[Shape]) -> Shape:
        return (sum(shape[0] for shape in shapes), *shapes[0][1:])

    def split(self, stored: Tensor, shapes: Sequence[Shape]) -> Sequence[Tensor]:
        grouped = stored.unflatten(0, (self.groups, -1))
        parts = grouped.split([shape[0] // self.groups for shape in shapes], dim=1)
        return [part.flatten(0, 1) for part in parts]

    def join(self, tensors: Sequence[Tensor]) -> Tensor:
        import torch

        return torch.cat([t.unflatten(0, (self.groups, -1)) for t in tensors], dim=1).flatten(0, 1)


@dataclass(frozen=True)
class Transposed:
    """Matrices stored as (inputs, outputs), such as GPT-2's, under another layout of (outputs, inputs)."""

    inner: Layout = AS_IS

    @property
    def keeps_rows(self) -> bool:
        return False

    def stored_shape(self, shapes: Sequence[Shape]) -> Shape:
        return self.inner.stored_shape(shapes)[::-1]

    def split(self, stored: Tensor, shapes: Sequence[Shape]) -> Sequence[Tensor]:
        return self.inner.split(stored.T, shapes)

    def join(self, tensors: Sequence[Tensor]) -> Tensor:
        return self.inner.join(tensors).T


@dataclass(frozen=True)
class Stacked:
    """All experts, or the norms of all heads, in one tensor (experts, …), each under another layout."""

    experts: int
    inner: Layout = AS_IS

    @property
    def keeps_rows(self) -> bool:
        return self.inner.keeps_rows

    def stored_shape(self, shapes: Sequence[Shape]) -> Shape:
        return (self.experts, *self.inner.stored_shape(shapes[: len(shapes) // self.experts]))

    def split(self, stored: Tensor, shapes: Sequence[Shape]) -> Sequence[Tensor]:
        each = shapes[: len(shapes) // self.experts]
        return [tensor for expert in stored for tensor in self.inner.split(expert, each)]

    def join(self, tensors: Sequence[Tensor]) -> Tensor:
        import torch

        step = len(tensors) // self.experts
        return torch.stack([self.inner.join(tensors[i : i + step]) for i in range(0, len(tensors), step)])


@dataclass(frozen=True)
class PairedRows:
    """Rows of each head in pairs (i, i + h/2), as llama.cpp stores what its interleaved rotation turns."""

    heads: int

    @property
    def keeps_rows(self) -> bool:
        return True

    def stored_shape(self, shapes: Sequence[Shape]) -> Shape:
        return shapes[0]

    def split(self, stored: Tensor, shapes: Sequence[Shape]) -> Sequence[Tensor]:
        paired = stored.unflatten(0, (self.heads, -1, 2))
        return (paired.transpose(1, 2).reshape(stored.shape),)

    def join(self, tensors: Sequence[Tensor]) -> Tensor:
        halves = tensors[0].unflatten(0, (self.heads, 2, -1))
        return halves.transpose(1, 2).reshape(tensors[0].shape)


@dataclass(frozen=True)
class Shifted:
    """Values stored with `by` added: llama.cpp stores the gain of Gemma's norms, not its distance from
    one."""

    by: float

    @property
    def keeps_rows(self) -> bool:
        return False

    def stored_shape(self, shapes: Sequence[Shape]) -> Shape:
        return shapes[0]

    def split(self, stored: Tensor, shapes: Sequence[Shape]) -> Sequence[Tensor]:
        return (stored.float() - self.by,)

    def join(self, tensors: Sequence[Tensor]) -> Tensor:
        return tensors[0].float() + self.by
