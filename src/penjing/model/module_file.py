"""Any module's weights, packed ones as they are, in a folder: safetensors, and what says how to read them.

The module itself isn't saved: its code makes it again, and `load_module` fills it.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from penjing.errors import InputError, UnsupportedError
from penjing.formats.atomic import MANIFEST, atomic_folder, require_disk
from penjing.formats.hf_writer import write_json, write_safetensors
from penjing.formats.json_file import read_json
from penjing.formats.mapped import MappedFile
from penjing.formats.safetensors_file import read_header, read_tensor
from penjing.model.packed_entries import all_parts, read_packed_entries
from penjing.model.packed_parameter import (
    float_tensors,
    packed_parameters,
    put_in_place,
    read_packed,
)

WEIGHTS = "module.safetensors"
DESCRIPTION = "module.json"
_FORMAT_VERSION = 1
AnyModule = TypeVar("AnyModule", bound=nn.Module)


def module_bytes(module: nn.Module) -> int:
    """Bytes of all that is saved of a module: parameters, packed or not, and buffers of its state, each
    once."""
    packed = packed_parameters(module).values()
    return sum(t.nbytes for t in float_tensors(module).values()) + sum(p.packed.nbytes for p in packed)


def module_parameters(module: nn.Module) -> int:
    """How many numbers a module's parameters hold, each once, packed or not."""
    packed = {id(part) for child in packed_parameters(module).values() for part in child.parameters()}
    floats = sum(p.numel() for p in module.parameters() if id(p) not in packed)
    return floats + sum(p.shape[0] * p.shape[1] for p in packed_parameters(module).values())


def save_module(module: nn.Module, out: str | Path) -> int:
    """Write the folder whole or not at all; returns the bytes of its tensors. Raises `InputError` for a
    target that isn't ours to replace, `ResourceError` for a full disk."""
    packed = packed_parameters(module)
    tensors = float_tensors(module) | {
        f"{name}.{part}": tensor
        for name, child in packed.items()
        for part, tensor in child.packed.parts.items()
    }
    nbytes = module_bytes(module)
    require_disk(Path(out), nbytes)
    with atomic_folder(Path(out)) as folder:
        write_safetensors(folder / WEIGHTS, tensors, {"format": "pt"})
        described = {name: child.to_json() for name, child in packed.items()}
        write_json(folder / DESCRIPTION, {"format_version": _FORMAT_VERSION, "packed": described})
        write_json(folder / MANIFEST, {"format_version": 1, "tensor_bytes": nbytes})
    return nbytes


@torch.no_grad()
def load_module(module: AnyModule, folder: str | Path) -> AnyModule:
    """Fill `module`, made anew by its own code, with the weights of a folder that a shrunk module was saved
    in; returns it. Names, shapes and dtypes must be those that were saved, or it is an `InputError`, and
    nothing is changed."""
    folder = Path(folder)
    described = _description(folder)
    file = MappedFile(folder / WEIGHTS)
    infos = read_header(file)
    entries = read_packed_entries(described, infos, str(folder))
    parts = all_parts(entries.values())
    stored = {name: read_tensor(file, info) for name, info in infos.items() if name not in parts}
    held = float_tensors(module)
    _check_names(held, stored, set(entries), str(folder))
    put_in_place(module, read_packed(entries, lambda name: read_tensor(file, infos[name])))
    for name, tensor in stored.items():
        held[name].copy_(tensor)
    return module


def _description(folder: Path) -> Mapping[str, Any]:
    path = folder / DESCRIPTION
    if not path.exists():
        raise InputError(f"{folder} has no {DESCRIPTION}; it isn't a folder of a shrunk module")
    found = read_json(path)
    version = found.get("format_version")
    if version != _FORMAT_VERSION:
        raise UnsupportedError(
            f"{path}: format version {json.dumps(version)} is not known here (known: {_FORMAT_VERSION});"
            " a newer penjing may have written it"
        )
    if found.keys() != {"format_version", "packed"} or not isinstance(found["packed"], Mapping):
        raise InputError(f"{path} is malformed: it should say which parameters are packed, and nothing else")
    return found["packed"]


def _check_names(
    held: Mapping[str, torch.Tensor], stored: Mapping[str, torch.Tensor], packed: set[str], source: str
) -> None:
    missing = held.keys() - stored.keys() - packed
    unexpected = stored.keys() - held.keys()
    if missing or unexpected:
        raise InputError(
            f"{source} doesn't fit the module: missing {sorted(missing)}, unexpected {sorted(unexpected)}"
        )
    for name, tensor in stored.items():
        if (tensor.shape, tensor.dtype) != (held[name].shape, held[name].dtype):
            raise InputError(
                f"{source}: {name} is {tensor.dtype} {list(tensor.shape)}, and {held[name].dtype}"
                f" {list(held[name].shape)} in the module"
            )
