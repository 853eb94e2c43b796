"""Matrices that are kept in the blocks in which a GGUF file stores them, mapped and not copied."""

from dataclasses import dataclass
from typing import ClassVar

from penjing.packed.ggml.blocks import packed_nbytes
from penjing.packed.parts import PackedSpec, PartShapes


@dataclass(frozen=True)
class GgmlSpec(PackedSpec):
    """`type_name` is GGML's ("Q4_0")."""

    type_name: str
    scheme: ClassVar[str] = "ggml"
    is_float_form: ClassVar[bool] = True

    def __str__(self) -> str:
        return self.type_name

    def part_shapes(self, rows: int, columns: int) -> PartShapes:
        return {"blocks": ((rows, packed_nbytes(self.type_name, (columns,))), "uint8")}


@dataclass(frozen=True)
class BlockSpec(GgmlSpec):
    """Blocks that weights were rounded to, to be saved as they are."""

    is_float_form: ClassVar[bool] = False
