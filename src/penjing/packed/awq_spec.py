"""The AWQ layout (AutoAWQ's version "gemm"): 4-bit codes in groups with 16-bit scales and whole zero points.

    weight[r, c] = scales[g, r] * (code[r, c] - zero[g, r])     with g = c // group_size

Everything lies transposed, columns first. Codes and zero points are packed along the rows: a 32-bit word
holds eight rows, in `ORDER` from its low bits up.
"""

from dataclasses import dataclass
from typing import ClassVar

from penjing.packed.parts import GroupedSpec, PartShapes

BITS, ROWS_A_WORD = 4, 8
ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


@dataclass(frozen=True)
class AwqSpec(GroupedSpec):
    """How a matrix is laid out: columns a group (0: a whole row)."""

    group_size: int
    scale_dtype: str = "float16"
    scheme: ClassVar[str] = "awq"

    def __str__(self) -> str:
        return f"awq 4-bit, {self.group_text}"

    def part_shapes(self, rows: int, columns: int) -> PartShapes:
        groups, words = self.groups(columns), -(-rows // ROWS_A_WORD)
        return {
            "qweight": ((columns, words), "int32"),
            "qzeros": ((groups, words), "int32"),
            "scales": ((groups, rows), self.scale_dtype),
        }
