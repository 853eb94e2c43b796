"""The stored parts of a packed matrix, by name: shapes and dtypes under torch's names."""

from collections.abc import Mapping
from math import prod

PartShapes = Mapping[str, tuple[tuple[int, ...], str]]
_ITEM_BYTES = {"uint8": 1, "bfloat16": 2}


def parts_nbytes(parts: PartShapes) -> int:
    """Bytes of all parts."""
    return sum(prod(shape) * _ITEM_BYTES[dtype] for shape, dtype in parts.values())
