"""The MXFP4 layout of the OCP Microscaling standard (version 1.0), as gpt-oss stores its experts.

    weight[r, c] = value(code[r, c]) * 2**(scales[r, c // 32] - 127)

A code is a 4-bit float (E2M1), the scale an 8-bit exponent (E8M0). A byte of `blocks` holds two columns, the
first in its low half. The last block of a row may be cut short.

A stack of experts (experts, rows, groups, ...) is the matrix of all their rows, parts flattened over the
first two dimensions: `dequantize(rows=...)` unpacks one expert.
"""

from dataclasses import dataclass
from typing import ClassVar

from penjing.packed.parts import PackedSpec, PartShapes

BLOCK = 32
VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


@dataclass(frozen=True)
class Mxfp4Spec(PackedSpec):
    """The layout has no settings."""

    scheme: ClassVar[str] = "mxfp4"

    def __str__(self) -> str:
        return "mxfp4, blocks of 32"

    def part_shapes(self, rows: int, columns: int) -> PartShapes:
        groups = -(-columns // BLOCK)
        return {
            "blocks": ((rows, groups, BLOCK // 2), "uint8"),
            "scales": ((rows, groups), "uint8"),
        }
