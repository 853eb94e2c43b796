"""The affine layout: group-wise codes with 8-bit scales under a row scale and real-valued zero points.

    weight[r, c] = row_scale[r] * scale[r, g] * (codes[r, c] - zero_point[r, g] * (2**bits - 1) / 255)

with g = c // group_size. Scales and zero points cost one byte a group each, the row scale two bytes, so 4-bit
codes in groups of 64 take 4.25 bits a weight and 16 bits a row. The last group of a row may be short.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from penjing.errors import InputError
from penjing.packed.parts import GroupedSpec, PartShapes
from penjing.packed.planes import row_bytes

STEPS = 255  # of a stored scale or zero point


@dataclass(frozen=True)
class AffineSpec(GroupedSpec):
    """How a matrix is laid out: bits a code (2, 3, 4, 5, 6, 8) and columns a group (0: a whole row)."""

    bits: int
    group_size: int
    scheme: ClassVar[str] = "affine"

    def __post_init__(self) -> None:
        if not isinstance(self.bits, int) or self.bits not in (2, 3, 4, 5, 6, 8):
            raise InputError(f"{self.bits}-bit codes are not supported; choose 2, 3, 4, 5, 6 or 8 bits")
        if not isinstance(self.group_size, int) or self.group_size < 0 or self.group_size % 32:
            raise InputError(f"group size {self.group_size} is not a multiple of 32 (0 means a whole row)")

    def __str__(self) -> str:
        return f"{self.bits}-bit, {self.group_text}"

    @property
    def max_code(self) -> int:
        return (1 << self.bits) - 1

    def part_shapes(self, rows: int, columns: int) -> PartShapes:
        groups = self.groups(columns)
        return {
            "codes": ((rows, row_bytes(columns, self.bits)), "uint8"),
            "scale": ((rows, groups), "uint8"),
            "zero_point": ((rows, groups), "uint8"),
            "row_scale": ((rows,), "bfloat16"),
        }

    def to_json(self) -> dict[str, Any]:
        return {"scheme": self.scheme, "bits": self.bits, "group_size": self.group_size}
