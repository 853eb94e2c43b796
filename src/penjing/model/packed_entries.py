"""The packed parameters that a saved model says it has, before a weight is read.

They lie in the file as `NAME.codes`, `NAME.scale` and so on; a JSON object says how each is read.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penjing.errors import InputError
from penjing.formats.checkpoint import TensorInfo
from penjing.model.matrix_form import MatrixForm
from penjing.packed.specs import OwnSpec, spec_from_json

_KEYS = {"shape": list, "stacked": bool, "transposed": bool, "dtype": str, "layout": Mapping}
_DTYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class PackedEntry:
    """One packed parameter: how it is read, and as which dtype (torch's name)."""

    name: str
    form: MatrixForm
    dtype: str
    spec: OwnSpec

    @property
    def matrix_shape(self) -> tuple[int, int]:
        """Of its matrices, one below the other."""
        return self.form.matrices * self.form.rows, self.form.columns

    @property
    def parts(self) -> dict[str, str]:
        """The tensors that hold it, and which part of the layout each is."""
        return {f"{self.name}.{part}": part for part in self.spec.part_shapes(*self.matrix_shape)}


PackedEntries = Mapping[str, PackedEntry]


def read_packed_entries(
    described: Mapping[str, Any], tensors: Mapping[str, TensorInfo], source: str
) -> dict[str, PackedEntry]:
    """The packed parameters by name, each checked against the tensors of the file; whatever is missing or
    wrong is an `InputError` that names it and `source`."""
    entries = {name: _read(f"{source}: {name}", name, entry) for name, entry in described.items()}
    for entry in entries.values():
        _check_parts(entry, tensors, source)
    return entries


def all_parts(entries: Iterable[PackedEntry]) -> set[str]:
    """The names of all tensors that hold parts."""
    return {name for entry in entries for name in entry.parts}


def _read(where: str, name: str, entry: Any) -> PackedEntry:
    if not isinstance(entry, Mapping) or entry.keys() != _KEYS.keys():
        raise InputError(f"{where}: a packed parameter is described by {', '.join(_KEYS)}, not {entry!r}")
    wrong = [key for key, kind in _KEYS.items() if not isinstance(entry[key], kind)]
    if wrong or not all(type(size) is int and 0 < size < 1 << 40 for size in entry["shape"]):
        raise InputError(f"{where}: the packed parameter's {wrong[0] if wrong else 'shape'} can't be read")
    if entry["dtype"] not in _DTYPES:
        raise InputError(f"{where}: a packed parameter is read as a float, not as {entry['dtype']!r}")
    form = MatrixForm(tuple(entry["shape"]), entry["stacked"], entry["transposed"])
    return PackedEntry(name, form, entry["dtype"], spec_from_json(entry["layout"]))


def _check_parts(entry: PackedEntry, tensors: Mapping[str, TensorInfo], source: str) -> None:
    expected = entry.spec.part_shapes(*entry.matrix_shape)
    for name, part in entry.parts.items():
        info, (shape, dtype) = tensors.get(name), expected[part]
        if info is None:
            raise InputError(f"{source} has no {name}, a part of a packed parameter; the file is incomplete")
        if (info.shape, info.dtype) != (shape, dtype):
            raise InputError(
                f"{source}: {name} must be {dtype} {list(shape)}, not {info.dtype} {list(info.shape)}"
            )
