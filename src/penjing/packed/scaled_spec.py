"""The scaled layout: 8-bit numbers, each times the scale of its block.

    weight[r, c] = weight8[r, c] * scale[r // block_rows, c // block_columns]

This is DeepSeek-V3's fp8 (blocks of 128 x 128; its name for the scale, `weight_scale_inv`, is a factor all
the same), and the fp8 and int8 of transformers and compressed-tensors with a scale for each row or for the
whole matrix. Blocks at the edges may be cut short.
"""

from dataclasses import dataclass
from typing import ClassVar

from penjing.packed.parts import PackedSpec, PartShapes

NUMBERS = ("float8_e4m3fn", "int8")
SCALE_DTYPES = ("float32", "bfloat16", "float16", "float8_e8m0fnu")


@dataclass(frozen=True)
class ScaledSpec(PackedSpec):
    """How a matrix is laid out: the dtype of its numbers, the size of a block (0: the whole dimension), and
    its scales' name, dtype and rank (files hold one scale a row as (rows,) or (rows, 1), a single one also as
    a scalar)."""

    dtype: str
    block: tuple[int, int]
    scale: str = "weight_scale"
    scale_dtype: str = "float32"
    scale_rank: int = 2
    scheme: ClassVar[str] = "scaled"

    def __str__(self) -> str:
        sizes = " x ".join(str(size) if size else "all" for size in self.block)
        return f"{self.dtype}, " + ("one scale" if self.block == (0, 0) else f"blocks of {sizes}")

    def block_of(self, rows: int, columns: int) -> tuple[int, int]:
        """Rows and columns of a whole block of a (rows, columns) matrix; at least one each."""
        return max(self.block[0] or rows, 1), max(self.block[1] or columns, 1)

    def grid(self, rows: int, columns: int) -> tuple[int, int]:
        """Rows and columns of the scales of a (rows, columns) matrix."""
        height, width = self.block_of(rows, columns)
        return -(-rows // height), -(-columns // width)

    def part_shapes(self, rows: int, columns: int) -> PartShapes:
        scale_shape = self.grid(rows, columns)[: self.scale_rank]
        return {
            "weight": ((rows, columns), self.dtype),
            self.scale: (scale_shape, self.scale_dtype),
        }
