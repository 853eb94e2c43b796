"""The GPTQ layout of AutoGPTQ and GPTQModel: group-wise codes with 16-bit scales and whole zero points.

    weight[r, c] = scales[g, r] * (code[r, c] - zero[g, r])

with g = g_idx[c], or c // group_size without it. Everything lies transposed, columns first. Codes are packed
along the columns and zero points along the rows, each as a dense stream of bits in 32-bit words. Files of the
format "gptq" hold every zero point minus one; those of "gptq_v2" hold it as it is.
"""

from dataclasses import dataclass
from typing import ClassVar

from penjing.packed.parts import GroupedSpec, PartShapes
from penjing.packed.planes import word_count

BITS = (2, 3, 4, 8)


@dataclass(frozen=True)
class GptqSpec(GroupedSpec):
    """How a matrix is laid out: bits a code, columns a group (0: a whole row), whether zero points are stored
    minus one, and whether the file has a `g_idx`."""

    bits: int
    group_size: int
    zero_minus_one: bool = True
    has_g_idx: bool = True
    scale_dtype: str = "float16"
    scheme: ClassVar[str] = "gptq"

    def __str__(self) -> str:
        return f"gptq {self.bits}-bit, {self.group_text}"

    def part_shapes(self, rows: int, columns: int) -> PartShapes:
        groups = self.groups(columns)
        shapes = {
            "qweight": ((word_count(columns, self.bits), rows), "int32"),
            "qzeros": ((groups, word_count(rows, self.bits)), "int32"),
            "scales": ((groups, rows), self.scale_dtype),
        }
        return shapes | {"g_idx": ((columns,), "int32")} if self.has_g_idx else shapes
