"""Matrices that are kept in the float type in which a file stores them, mapped and not copied."""

from dataclasses import dataclass
from typing import ClassVar

from penjing.packed.parts import PackedSpec, PartShapes


@dataclass(frozen=True)
class PlainSpec(PackedSpec):
    """`dtype` is torch's name."""

    dtype: str
    scheme: ClassVar[str] = "plain"
    is_float_form: ClassVar[bool] = True

    def __str__(self) -> str:
        return self.dtype

    def part_shapes(self, rows: int, columns: int) -> PartShapes:
        return {"weight": ((rows, columns), self.dtype)}
