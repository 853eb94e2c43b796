"""What every packed matrix can do, whatever its layout."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

from penjing.errors import InputError
from penjing.packed.parts import PackedSpec, check_parts

Spec = TypeVar("Spec", bound=PackedSpec, covariant=True)
Rows = slice | torch.Tensor

_SLAB = 1 << 19  # weights unpacked at a time: the temporaries stay in the processor's cache


@dataclass(frozen=True)
class PackedTensor(ABC, Generic[Spec]):
    """A packed (rows, columns) matrix. Parts have the shapes and dtypes that `spec.part_shapes` gives."""

    spec: Spec
    shape: tuple[int, int]
    parts: Mapping[str, torch.Tensor]

    def __post_init__(self) -> None:
        check_parts(self.parts, self.spec.part_shapes(*self.shape))

    @property
    def nbytes(self) -> int:
        return self.spec.nbytes(*self.shape)

    @abstractmethod
    def dequantize(self, rows: torch.Tensor | None = None) -> torch.Tensor:
        """Float32 weights (rows, columns); with `rows` (int64 indices) only those rows, in that order."""

    @abstractmethod
    def check_values(self, name: str) -> None:
        """Raise `InputError` about `name` if a stored value can't be meant: for parts fresh from a file."""

    def _by_slabs(
        self, rows: torch.Tensor | None, fill: Callable[[Rows, torch.Tensor], None]
    ) -> torch.Tensor:
        """A float32 matrix of the wanted rows; `fill` writes the weights of some rows into its slab."""
        count, columns = self.shape[0] if rows is None else rows.numel(), self.shape[1]
        out = torch.empty(count, columns, dtype=torch.float32)
        if not out.numel():
            return out
        step = max(1, _SLAB // columns)
        for start in range(0, count, step):
            stop = min(start + step, count)
            fill(slice(start, stop) if rows is None else rows[start:stop], out[start:stop])
        return out

    def _require_finite(self, name: str, part: str) -> None:
        if not self.parts[part].float().isfinite().all():
            raise InputError(f"{name}.{part} holds values that are not finite")
