"""Write a GGUF file: header first, then one tensor at a time, under another name until it is whole."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter

from penjing.errors import InputError
from penjing.formats.atomic import atomic_file
from penjing.formats.quote import quote
from penjing.packed.ggml.blocks import packed_nbytes

# numpy has no bfloat16, so its bits go as bytes, like those of blocks.
_PLAIN = {"F32": torch.float32, "F16": torch.float16}


@dataclass(frozen=True)
class GGUFTensor:
    """A tensor to write: its shape in torch's order, its GGML type, and `read`, which gives it when its turn
    has come: as floats of that shape, or as blocks (uint8), a row's in each row."""

    name: str
    shape: tuple[int, ...]
    type_name: str
    read: Callable[[], torch.Tensor]

    @property
    def nbytes(self) -> int:
        return packed_nbytes(self.type_name, self.shape)


def write_gguf(
    path: Path, architecture: str, metadata: Mapping[str, Any], tensors: Sequence[GGUFTensor]
) -> int:
    """Write the file whole or not at all; returns the bytes of its tensors.

    `metadata` has full keys; texts, flags, whole numbers, floats, and lists of one kind of them. Raises
    `InputError` for values that GGUF can't hold, `ResourceError` for a full disk.
    """
    with atomic_file(path) as draft:
        writer = GGUFWriter(draft, architecture)
        for key, value in metadata.items():
            if key != "general.architecture":  # the writer has put it there
                _add(writer, key, value)
        for tensor in tensors:
            _announce(writer, tensor)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for tensor in tensors:
            writer.write_tensor_data(_data(tensor))
        writer.close()
    return sum(tensor.nbytes for tensor in tensors)


def _announce(writer: GGUFWriter, tensor: GGUFTensor) -> None:
    plain = _PLAIN.get(tensor.type_name)
    if plain is not None:
        dtype = torch.empty(0, dtype=plain).numpy().dtype
        writer.add_tensor_info(tensor.name, tensor.shape, dtype, tensor.nbytes)
        return
    byte = torch.empty(0, dtype=torch.uint8).numpy().dtype
    type_ = GGMLQuantizationType[tensor.type_name]
    writer.add_tensor_info(tensor.name, _block_shape(tensor), byte, tensor.nbytes, raw_dtype=type_)


def _block_shape(tensor: GGUFTensor) -> tuple[int, ...]:
    """The shape in bytes."""
    return (*tensor.shape[:-1], packed_nbytes(tensor.type_name, tensor.shape[-1:]))


def _data(tensor: GGUFTensor) -> Any:
    """The stored form as a numpy array."""
    values = tensor.read()
    in_blocks = values.dtype == torch.uint8
    shape = _block_shape(tensor) if in_blocks else tensor.shape
    if tuple(values.shape) != shape:
        raise InputError(f"{tensor.name} has shape {list(values.shape)}, {list(shape)} was promised")
    if in_blocks:
        return values.contiguous().numpy()
    stored = values.to(_PLAIN.get(tensor.type_name, torch.bfloat16))
    if not stored.isfinite().all():
        raise InputError(f"{tensor.name} holds values that {tensor.type_name} can't; choose bf16 or f32")
    if tensor.type_name in _PLAIN:
        return stored.contiguous().numpy()
    return stored.contiguous().view(torch.uint8).numpy()


def _add(writer: GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, list | tuple):
        if value:  # an empty list has no type; leaving it out means the same
            writer.add_key_value(key, list(value), GGUFValueType.ARRAY, sub_type=_common_type(key, value))
        return
    writer.add_key_value(key, value, _type(key, value))


def _common_type(key: str, values: Sequence[Any]) -> GGUFValueType:
    kinds = {_type(key, value) for value in values}
    if kinds <= {GGUFValueType.UINT32, GGUFValueType.INT32}:
        return GGUFValueType.INT32 if all(value < 1 << 31 for value in values) else GGUFValueType.UINT32
    if len(kinds) > 1:
        raise InputError(f"the values of {quote(key)} are of several kinds, which GGUF can't hold")
    return kinds.pop()


def _type(key: str, value: Any) -> GGUFValueType:
    if isinstance(value, bool):
        return GGUFValueType.BOOL
    if isinstance(value, int) and -(1 << 31) <= value < 1 << 32:
        return GGUFValueType.UINT32 if value >= 0 else GGUFValueType.INT32
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 64:
        return GGUFValueType.UINT64 if value >= 0 else GGUFValueType.INT64
    if isinstance(value, float):
        return GGUFValueType.FLOAT32
    if isinstance(value, str):
        return GGUFValueType.STRING
    raise InputError(f"{quote(key)} can't be written to a GGUF file: {quote(value)} is no number or text")
