"""The stored parts of a packed matrix, by name: shapes and dtypes under torch's names."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from math import prod
from typing import Any, ClassVar

from penjing.errors import InputError

PartShapes = Mapping[str, tuple[tuple[int, ...], str]]
_ITEM_BYTES = {
    "bfloat16": 2,
    "float16": 2,
    "float32": 4,
    "float8_e4m3fn": 1,
    "float8_e8m0fnu": 1,
    "int32": 4,
    "int64": 8,
    "int8": 1,
    "uint8": 1,
}


class PackedSpec(ABC):
    """How a matrix is laid out: plain numbers, known before anything is packed or read."""

    scheme: ClassVar[str]
    is_float_form: ClassVar[bool] = False  # how a file stores floats; such a matrix is saved as floats again

    @abstractmethod
    def part_shapes(self, rows: int, columns: int) -> PartShapes:
        """Shape and dtype (torch's name) of each stored part of a (rows, columns) matrix."""

    def nbytes(self, rows: int, columns: int) -> int:
        """Bytes of all parts, the overhead included."""
        return sum(
            prod(shape) * _ITEM_BYTES[dtype] for shape, dtype in self.part_shapes(rows, columns).values()
        )


class GroupedSpec(PackedSpec):
    """A layout with a scale for every `group_size` columns of a row (0: for the whole row)."""

    group_size: int

    @property
    def group_text(self) -> str:
        return f"groups of {self.group_size}" if self.group_size else "a group a row"

    def columns_per_group(self, columns: int) -> int:
        return min(self.group_size or columns, columns)

    def groups(self, columns: int) -> int:
        """Groups of a row; the last one may be short."""
        return -(-columns // self.columns_per_group(columns)) if columns else 0


def check_parts(parts: Mapping[str, Any], expected: PartShapes) -> None:
    """Raise `InputError` unless these tensors are the expected ones, by name, shape and dtype."""
    if set(parts) != set(expected):
        raise InputError(f"a packed matrix needs the parts {sorted(expected)}, not {sorted(parts)}")
    for name, (shape, dtype) in expected.items():
        found = str(parts[name].dtype).removeprefix("torch.")
        if tuple(parts[name].shape) != shape or found != dtype:
            raise InputError(f"part {name} must be {dtype} {shape}, not {found} {tuple(parts[name].shape)}")
