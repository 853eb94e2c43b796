"""The layout "pack-quantized" of compressed-tensors: group-wise codes with scales and whole zero points.

    weight[r, c] = weight_scale[r, g] * (code[r, c] - zero[r, g])

with g = weight_g_idx[c], or c // group_size without it. Symmetric weights have no stored zero point: it is
2**(bits - 1). Codes are packed along the columns and zero points along the rows, each as a dense stream of
bits in 32-bit words; `weight_shape` repeats the shape.
"""

from dataclasses import dataclass
from typing import ClassVar

from penjing.packed.parts import GroupedSpec, PartShapes
from penjing.packed.planes import word_count

BITS = (2, 3, 4, 5, 6, 7, 8)


@dataclass(frozen=True)
class PackQuantizedSpec(GroupedSpec):
    """How a matrix is laid out: bits a code, columns a group (0: a whole row), and which parts there are."""

    bits: int
    group_size: int
    symmetric: bool = True
    has_g_idx: bool = False
    scale_dtype: str = "bfloat16"
    shape_dtype: str = "int64"
    scheme: ClassVar[str] = "pack-quantized"

    def __str__(self) -> str:
        return f"pack-quantized {self.bits}-bit, {self.group_text}"

    def part_shapes(self, rows: int, columns: int) -> PartShapes:
        groups = self.groups(columns)
        shapes = {
            "weight_packed": ((rows, word_count(columns, self.bits)), "int32"),
            "weight_scale": ((rows, groups), self.scale_dtype),
            "weight_shape": ((2,), self.shape_dtype),
        }
        if not self.symmetric:
            shapes["weight_zero_point"] = ((word_count(rows, self.bits), groups), "int32")
        if self.has_g_idx:
            shapes["weight_g_idx"] = ((columns,), "int32")
        return shapes
