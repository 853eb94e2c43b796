"""The header of a GGUF file (v2 and v3, little-endian), checked in full before any of it is used.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Counts and lengths come from the file,
so each is held against the bytes that are left before anything of that size is read or made.
"""

import struct
from dataclasses import dataclass, replace
from math import prod
from typing import Any, BinaryIO

from gguf import GGMLQuantizationType, GGUFValueType

from penjing.errors import InputError, UnsupportedError
from penjing.formats.checkpoint import TensorInfo
from penjing.formats.mapped import FileBytes
from penjing.formats.quote import quote
from penjing.packed.ggml.blocks import TYPES, packed_nbytes

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_DIMS = 4
MAX_ELEMENTS = 2**63 - 1
MAX_NAME_BYTES = 65_535
# Far above any vocabulary; keeps what a hostile file can make Python hold to a few hundred MB.
MAX_ARRAY = 1 << 22
MAX_ARRAY_DEPTH = 4
# The fewest bytes that one metadata entry and one tensor entry take.
MIN_METADATA_BYTES = 8 + 4 + 1
MIN_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8

# Plain floats go by torch's names, as in every checkpoint.
_TORCH_NAMES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_TENSOR_TYPES = {type_.value: type_.name for type_ in GGMLQuantizationType}
_SCALARS = {
    GGUFValueType.UINT8: "B",
    GGUFValueType.INT8: "b",
    GGUFValueType.UINT16: "H",
    GGUFValueType.INT16: "h",
    GGUFValueType.UINT32: "I",
    GGUFValueType.INT32: "i",
    GGUFValueType.FLOAT32: "f",
    GGUFValueType.BOOL: "B",
    GGUFValueType.UINT64: "Q",
    GGUFValueType.INT64: "q",
    GGUFValueType.FLOAT64: "d",
}


@dataclass(frozen=True)
class GGUFHeader:
    """`metadata` has the file's own keys; arrays are lists. `tensors` have shapes in torch's order."""

    metadata: dict[str, Any]
    tensors: dict[str, TensorInfo]


def read_header(file: FileBytes) -> GGUFHeader:
    """Metadata and tensors of the file; nothing of the tensors' data is read.

    Raises InputError where the file is cut short or damaged, and UnsupportedError for a version, byte order
    or type that penjing doesn't know. The message names the file and the field.
    """
    with file.stream() as stream:
        return _Reader(file, stream).header()


class _Reader:
    """Reads fields in order and never beyond the end of the file."""

    def __init__(self, file: FileBytes, stream: BinaryIO) -> None:
        self.path = file.path
        self.file = file
        self.stream = stream
        self.left = file.size

    def header(self) -> GGUFHeader:
        self._magic_and_version()
        tensor_count = self._count("the tensor count", MIN_TENSOR_BYTES)
        metadata_count = self._count("the metadata count", MIN_METADATA_BYTES)
        metadata: dict[str, Any] = {}
        for _ in range(metadata_count):
            key = self._name("a metadata key")
            if key in metadata:
                raise self._broken(f"the metadata key {quote(key)} appears twice")
            field = f"metadata {quote(key)}"
            metadata[key] = self._value(self._type(field), field)
        tensors: dict[str, TensorInfo] = {}
        for _ in range(tensor_count):
            info = self._tensor()
            if info.name in tensors:
                raise self._broken(f"the tensor {quote(info.name)} appears twice")
            tensors[info.name] = info
        return GGUFHeader(metadata, self._placed(tensors, self._alignment(metadata)))

    def _magic_and_version(self) -> None:
        magic = self._take(4, "the magic")
        if magic != MAGIC:
            raise InputError(f"{self.path} isn't a GGUF file: it begins with {magic!r}, not {MAGIC!r}.")
        version = self._scalar("I", "the version")
        if version & 0xFFFF == 0 and version:
            raise UnsupportedError(
                f"{self.path} is a big-endian GGUF file; only little-endian ones are opened."
            )
        if version not in VERSIONS:
            raise UnsupportedError(f"{self.path} has GGUF version {version}; versions 2 and 3 are opened.")

    def _tensor(self) -> TensorInfo:
        """A tensor's entry; `offset` is still relative to the start of the data."""
        name = self._name("a tensor name")
        field = f"tensor {quote(name)}"
        n_dims = self._scalar("I", f"n_dims of {field}")
        if not 1 <= n_dims <= MAX_DIMS:
            raise self._broken(f"{field} has n_dims {n_dims}; 1 to {MAX_DIMS} are possible")
        dims = struct.unpack(f"<{n_dims}Q", self._take(8 * n_dims, f"the dimensions of {field}"))
        if prod(n for n in dims if n) > MAX_ELEMENTS:
            raise self._broken(f"the dimensions {list(dims)} of {field} multiply to more than 2^63")
        type_name = self._tensor_type(field)
        offset = self._scalar("Q", f"the offset of {field}")
        shape = tuple(reversed(dims))
        try:
            nbytes = packed_nbytes(type_name, shape)
        except InputError as error:
            raise self._broken(f"{field}: {error}") from error
        return TensorInfo(name, shape, _TORCH_NAMES.get(type_name, type_name), nbytes, self.path, offset)

    def _tensor_type(self, field: str) -> str:
        number = self._scalar("I", f"the type of {field}")
        name = _TENSOR_TYPES.get(number)
        if name in TYPES:
            return name
        label = f"type {name}" if name else f"the unknown type {number}"
        raise UnsupportedError(f"{self.path}: {field} has {label}; known are {', '.join(TYPES)}.")

    def _alignment(self, metadata: dict[str, Any]) -> int:
        alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if type(alignment) is not int or alignment <= 0 or alignment & (alignment - 1):
            raise self._broken(f"general.alignment is {quote(alignment)}; it should be a power of two")
        return alignment

    def _placed(self, tensors: dict[str, TensorInfo], alignment: int) -> dict[str, TensorInfo]:
        """The tensors with offsets from the start of the file, checked to lie in it and apart."""
        start = -(-self._position() // alignment) * alignment
        end = 0
        for info in sorted(tensors.values(), key=lambda info: (info.offset, info.nbytes)):
            field = f"tensor {quote(info.name)} (offset {info.offset}, {info.nbytes} bytes)"
            if info.offset % alignment:
                raise self._broken(f"the offset of {field} isn't a multiple of the alignment {alignment}")
            if info.offset < end:
                raise self._broken(f"{field} overlaps the one before it")
            end = info.offset + info.nbytes
            if start + end > self.file.size:
                raise self._broken(f"{field} ends after the file, which has {self.file.size} bytes")
        return {name: replace(info, offset=start + info.offset) for name, info in tensors.items()}

    def _value(self, type_: GGUFValueType, field: str, depth: int = 0) -> Any:
        if type_ == GGUFValueType.STRING:
            return self._text(self._take(self._scalar("Q", f"the length of {field}"), field), field)
        if type_ == GGUFValueType.ARRAY:
            return self._array(field, depth + 1)
        return self._scalars(type_, 1, field)[0]

    def _array(self, field: str, depth: int) -> list[Any]:
        type_ = self._type(field)
        count = self._scalar("Q", f"the array length of {field}")
        if count > MAX_ARRAY or depth > MAX_ARRAY_DEPTH:
            raise self._broken(
                f"{field} is an array of {count} elements at depth {depth}; "
                f"the limits are {MAX_ARRAY} and {MAX_ARRAY_DEPTH}"
            )
        if type_ == GGUFValueType.STRING:
            return self._strings(count, field)
        if type_ == GGUFValueType.ARRAY:
            return [self._array(field, depth + 1) for _ in range(count)]
        return self._scalars(type_, count, field)

    def _scalars(self, type_: GGUFValueType, count: int, field: str) -> list[Any]:
        code = _SCALARS[type_]
        data = self._take(count * struct.calcsize(f"<{code}"), field)
        values = list(struct.unpack(f"<{count}{code}", data))
        if type_ != GGUFValueType.BOOL:
            return values
        if any(value > 1 for value in values):
            raise self._broken(f"{field} is boolean but has a value other than 0 and 1")
        return [bool(value) for value in values]

    def _strings(self, count: int, field: str) -> list[str]:
        # A vocabulary has 100,000 strings and more, so this is the one loop that has to be quick.
        read, left, strings = self.stream.read, self.left, []
        for index in range(count):
            length = int.from_bytes(read(8), "little")
            left -= 8 + length
            if left < 0:
                raise self._broken(f"element {index} of {field} ends after the file: it is cut short")
            strings.append(read(length))
        self.left = left
        try:
            return [data.decode("utf-8") for data in strings]
        except UnicodeDecodeError:
            return [self._text(data, f"an element of {field}") for data in strings]

    def _type(self, field: str) -> GGUFValueType:
        number = self._scalar("I", f"the type of {field}")
        try:
            return GGUFValueType(number)
        except ValueError:
            raise UnsupportedError(f"{self.path}: {field} has the unknown value type {number}.") from None

    def _name(self, field: str) -> str:
        length = self._scalar("Q", f"the length of {field}")
        if length > MAX_NAME_BYTES:
            raise self._broken(f"{field} has a length of {length} bytes; the limit is {MAX_NAME_BYTES}")
        return self._text(self._take(length, field), field)

    def _text(self, data: bytes, field: str) -> str:
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self._broken(
                f"{field} isn't UTF-8 text (byte {error.start} of {quote(data[:40])})"
            ) from error

    def _count(self, field: str, min_bytes: int) -> int:
        count = self._scalar("Q", field)
        if count * min_bytes > self.left:
            raise self._broken(f"{field} is {count}, more than the file's {self.file.size} bytes can hold")
        return count

    def _scalar(self, code: str, field: str) -> Any:
        return struct.unpack(f"<{code}", self._take(struct.calcsize(f"<{code}"), field))[0]

    def _take(self, nbytes: int, field: str) -> bytes:
        if nbytes > self.left:
            raise self._broken(
                f"{field} needs {nbytes} bytes, but only {self.left} are left: it is cut short"
            )
        self.left -= nbytes
        return self.stream.read(nbytes)

    def _position(self) -> int:
        return self.file.size - self.left

    def _broken(self, fault: str) -> InputError:
        return InputError(f"{self.path} is a damaged GGUF file: {fault}; copy or download it again.")
