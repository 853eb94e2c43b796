"""One safetensors file, checked in full before any of it is used.

The format: https://github.com/huggingface/safetensors#format. Eight bytes hold the length of a JSON header,
which names each tensor's dtype, shape and byte range; the data follows without holes.
"""

from math import prod
from typing import TYPE_CHECKING, Any

from penjing.errors import InputError, UnsupportedError
from penjing.formats.checkpoint import TensorInfo
from penjing.formats.json_file import parse_json
from penjing.formats.mapped import FileBytes
from penjing.formats.quote import quote

if TYPE_CHECKING:
    import torch

MAX_HEADER_BYTES = 100_000_000
LENGTH_BYTES = 8
# torch's own limits on the rank and on the count of elements.
MAX_DIMS = 64
MAX_ELEMENTS = 2**63 - 1

# The format's dtypes by torch's names, and the bytes of one element.
DTYPES = {
    "F64": ("float64", 8),
    "F32": ("float32", 4),
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),
    "F8_E4M3": ("float8_e4m3fn", 1),
    "F8_E5M2": ("float8_e5m2", 1),
    "F8_E8M0": ("float8_e8m0fnu", 1),
    "I64": ("int64", 8),
    "I32": ("int32", 4),
    "I16": ("int16", 2),
    "I8": ("int8", 1),
    "U64": ("uint64", 8),
    "U32": ("uint32", 4),
    "U16": ("uint16", 2),
    "U8": ("uint8", 1),
    "BOOL": ("bool", 1),
}


def read_header(file: FileBytes) -> dict[str, TensorInfo]:
    """Every tensor of the file by name, in the order of the header.

    Raises InputError where the file is cut short, damaged or breaks the format, and UnsupportedError for an
    unknown dtype.
    """
    start, header = _header(file)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise InputError(f"{file.path}: __metadata__ should map names to text.")
    tensors = {name: _tensor_info(file, name, entry, start) for name, entry in header.items()}
    _check_cover(file, tensors, start)
    return tensors


def read_tensor(file: FileBytes, info: TensorInfo) -> "torch.Tensor":
    """The mapped tensor that `info` (of this file) describes."""
    from penjing.formats.tensors import tensor_over, uint8_tensor

    data = file.bytes(info.offset, info.nbytes)
    if info.dtype == "bool" and bool((uint8_tensor(data) > 1).any()):
        raise InputError(
            f"{file.path}: tensor {quote(info.name)} is BOOL but holds bytes other than 0 and 1."
        )
    return tensor_over(data, info.shape, info.dtype)


def _header(file: FileBytes) -> tuple[int, dict[str, Any]]:
    """Where the data starts, and the parsed header."""
    if file.size < LENGTH_BYTES:
        raise InputError(f"{file.path} isn't a safetensors file: it has only {file.size} bytes.")
    length = int.from_bytes(file.bytes(0, LENGTH_BYTES), "little")
    start = LENGTH_BYTES + length
    if length > MAX_HEADER_BYTES and start <= file.size:
        raise InputError(
            f"{file.path}: the header is {length:,} bytes, above the format's limit of "
            f"{MAX_HEADER_BYTES:,}; store the weights in more files."
        )
    if start > file.size:
        raise InputError(
            f"{file.path} is truncated or no safetensors file: it asks for a header of {length:,} bytes "
            f"(the format's limit is {MAX_HEADER_BYTES:,}), but the whole file has {file.size:,}."
        )
    data = bytes(file.bytes(LENGTH_BYTES, length))
    if not data.startswith(b"{"):
        raise InputError(f"{file.path} isn't a safetensors file: its header doesn't begin with '{{'.")
    return start, parse_json(data, f"The header of {file.path}")


def _tensor_info(file: FileBytes, name: str, entry: Any, start: int) -> TensorInfo:
    where = f"{file.path}: tensor {quote(name)}"
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise InputError(f"{where} should have dtype, shape and data_offsets, but has {quote(entry)}.")
    dtype = DTYPES.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
    if dtype is None:
        known = ", ".join(DTYPES)
        raise UnsupportedError(f"{where} has the unknown dtype {quote(entry['dtype'])}; known are {known}.")
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not _are_counts(shape) or len(shape) > MAX_DIMS or prod(n for n in shape if n) > MAX_ELEMENTS:
        raise InputError(f"{where} has the impossible shape {quote(shape)}.")
    if not _are_counts(offsets) or len(offsets) != 2:
        raise InputError(f"{where} has the impossible data_offsets {quote(offsets)}.")
    begin, end = offsets
    dtype_name, item_bytes = dtype
    nbytes = prod(shape) * item_bytes
    if end - begin != nbytes:
        raise InputError(
            f"{where} takes {nbytes} bytes ({entry['dtype']} {shape}), but its data_offsets {offsets} "
            f"hold {end - begin}."
        )
    return TensorInfo(name, tuple(shape), dtype_name, nbytes, file.path, start + begin)


def _are_counts(values: Any) -> bool:
    # type() and not isinstance(): JSON's true is an int to Python.
    return isinstance(values, list) and all(type(n) is int and 0 <= n <= MAX_ELEMENTS for n in values)


def _check_cover(file: FileBytes, tensors: dict[str, TensorInfo], start: int) -> None:
    """The format's rule: the tensors cover the data exactly, without overlap, hole or rest."""
    end = start
    for info in sorted(tensors.values(), key=lambda info: (info.offset, info.nbytes)):
        if info.offset != end:
            fault = "overlaps the one before it" if info.offset < end else "follows a hole in the data"
            raise InputError(f"{file.path}: tensor {quote(info.name)} {fault}; the file is damaged.")
        end += info.nbytes
    if end > file.size:
        raise InputError(
            f"{file.path} is truncated: its tensors end at byte {end:,}, but the file has {file.size:,}; "
            "copy or download it again."
        )
    if end < file.size:
        raise InputError(f"{file.path} is damaged: {file.size - end:,} bytes follow its last tensor.")
