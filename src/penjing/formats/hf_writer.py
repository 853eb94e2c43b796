"""Write the files of a Hugging Face folder: safetensors, in shards if large, their index, and JSON.

Meant for a fresh folder (see `atomic_folder`). Nothing written depends on time, machine or chance: the same
tensors in the same order give the same bytes.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import torch

from penjing.errors import InputError
from penjing.formats.hf_folder import INDEX, WEIGHTS
from penjing.formats.quote import quote
from penjing.formats.safetensors_file import DTYPES, LENGTH_BYTES

_DTYPE_NAMES = {getattr(torch, name): code for code, (name, _) in DTYPES.items()}
# The header is padded to this, so that data sorted by item size is aligned for every dtype.
_ALIGNMENT = 8

Shard = dict[str, torch.Tensor]


def write_safetensors_shards(
    folder: Path,
    tensors: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]],
    max_shard_bytes: int = 5_000_000_000,
    metadata: Mapping[str, str] | None = None,
) -> int:
    """Write `model.safetensors`, or shards of at most `max_shard_bytes` and their index; return the bytes of
    all tensors.

    A mapping is written in the order of its names, an iterable in its own order and without ever holding more
    than one shard. A tensor larger than a shard gets one of its own. Within a file, tensors lie by falling
    item size, then by name. `metadata` is {"format": "pt"} unless given. Raises InputError if there is no
    tensor, a name comes twice, or the folder already has weights.
    """
    if any(folder.glob("*.safetensors*")):
        raise InputError(f"{folder} already has weights; give a new folder.")
    if isinstance(tensors, Mapping):
        tensors = sorted(cast("Mapping[str, torch.Tensor]", tensors).items())
    files: list[tuple[Path, list[str]]] = []
    total = 0
    for number, shard in enumerate(_shards(tensors, max_shard_bytes), start=1):
        # How many shards there are, which is part of each one's name, is known only after the last.
        path = folder / f"{number}.partial"
        write_safetensors(path, shard, metadata or {"format": "pt"})
        files.append((path, sorted(shard)))
        total += sum(tensor.nbytes for tensor in shard.values())
        del shard  # not to be held while the next one fills
    if not files:
        raise InputError(f"No tensor was given to write to {folder}, so no model is written.")
    _name_shards(folder, files, total)
    return total


def write_safetensors(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> None:
    """Write one file; tensors lie by falling item size, then by name."""
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0]))
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name, tensor in ordered:
        begin, end = end, end + tensor.nbytes
        header[name] = {
            "dtype": _stored_dtype(name, tensor),
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % _ALIGNMENT)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(LENGTH_BYTES, "little"))
        file.write(text)
        for _, tensor in ordered:
            file.write(_little_endian(tensor))


def write_json(path: Path, obj: Any) -> None:
    """Write `obj` as UTF-8 JSON with an indent of two, keys in their given order and a last newline."""
    path.write_text(json.dumps(obj, ensure_ascii=False, indent=2) + "\n", encoding="utf-8", newline="\n")


def _shards(pairs: Iterable[tuple[str, torch.Tensor]], max_shard_bytes: int) -> Iterator[Shard]:
    seen: set[str] = set()
    shard: Shard = {}
    filled = 0
    for name, tensor in pairs:
        if name in seen:
            raise InputError(f"Tensor {quote(name)} was given twice; each name is written once.")
        seen.add(name)
        if shard and filled + tensor.nbytes > max_shard_bytes:
            yield shard
            shard, filled = {}, 0
        shard[name] = tensor
        filled += tensor.nbytes
    if shard:
        yield shard


def _name_shards(folder: Path, files: list[tuple[Path, list[str]]], total: int) -> None:
    if len(files) == 1:
        files[0][0].rename(folder / WEIGHTS)
        return
    weight_map: dict[str, str] = {}
    for number, (path, names) in enumerate(files, start=1):
        final = f"model-{number:05}-of-{len(files):05}.safetensors"
        path.rename(folder / final)
        weight_map |= dict.fromkeys(names, final)
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    write_json(folder / INDEX, index)


def _stored_dtype(name: str, tensor: torch.Tensor) -> str:
    if tensor.dtype not in _DTYPE_NAMES:
        raise InputError(f"Tensor {quote(name)} has {tensor.dtype}, which safetensors can't store.")
    return _DTYPE_NAMES[tensor.dtype]


def _little_endian(tensor: torch.Tensor) -> memoryview:
    flat = tensor.detach().cpu().contiguous().view(-1)
    return flat.view(torch.uint8).numpy().data
