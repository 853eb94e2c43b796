"""A model into a Hugging Face folder: transformers opens it, unless it is packed, and penjing always does."""

from collections.abc import Callable, Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

import torch

from penjing.errors import InputError
from penjing.formats.atomic import MANIFEST, atomic_folder, require_disk
from penjing.formats.hf_writer import write_json, write_safetensors_shards
from penjing.model.bridge.module import BridgedModel
from penjing.model.decoder import Decoder
from penjing.model.families.registry import family_of_model_type
from penjing.model.ledger import FLOATS, Entry, Ledger
from penjing.model.linear import PackedMatrix, packed_matrices, weight_of
from penjing.model.names import apply_rules
from penjing.model.packed_parameter import PackedParameter, packed_parameters
from penjing.model.plan import Plan
from penjing.model.quantization import FORMAT_KEY, write_quantization
from penjing.model.shapes import Shape, tensor_shapes
from penjing.packed.specs import OwnSpec

SHARD_BYTES = 5_000_000_000
_SLACK = 64_000_000  # tokenizer, configs and report


def storage_dtypes(plan: Plan) -> dict[str, torch.dtype]:
    """The dtype in which each float tensor is saved again: its own, and float32, which loses nothing, for
    values that were unpacked from blocks."""
    dtypes = {}
    for name in plan.shapes:
        is_packed = name.removesuffix(".weight") in plan.packed
        stored = "" if is_packed else plan.info(name).dtype
        dtypes[name] = getattr(torch, stored) if stored in FLOATS else torch.float32
    return dtypes


def module_ledger(module: Decoder | BridgedModel, dtypes: Mapping[str, torch.dtype]) -> Ledger:
    """The ledger of what saving `module` will write; `dtypes` says how each float tensor is stored."""
    entries = []
    for name, shape in _float_shapes(module).items():
        dtype, count = dtypes[name], prod(shape)
        stored = str(dtype).removeprefix("torch.")
        entries.append(Entry(name, count, count * dtype.itemsize, stored))
    for name, child in _packed(module).items():
        entries.append(Entry(name, prod(child.shape), child.packed.nbytes, str(child.spec)))
    return Ledger(tuple(entries))


def named_root(module: Decoder | BridgedModel) -> torch.nn.Module:
    """The module under which names of weights begin."""
    return module.wrapped if isinstance(module, BridgedModel) else module


def native_shapes(module: Decoder | BridgedModel) -> Mapping[str, Shape]:
    """Every weight under the name that it has in the module, packed or not; a tied one once."""
    if not isinstance(module, BridgedModel):
        return tensor_shapes(module.config)
    packed = {name: child.form.shape for name, child in packed_parameters(module.wrapped).items()}
    return {name: tuple(tensor.shape) for name, tensor in module.float_tensors().items()} | packed


def native_dtypes(
    module: Decoder | BridgedModel, dtypes: Mapping[str, torch.dtype]
) -> dict[str, torch.dtype]:
    """`dtypes`, which go by the names in the file, by those in the module. Where transformers names or joins
    weights otherwise, they have the dtype that most have."""
    values = list(dtypes.values())
    common = max(dict.fromkeys(values), key=values.count)
    return {name: dtypes.get(name, common) for name in native_shapes(module)}


def _float_shapes(module: Decoder | BridgedModel) -> dict[str, Shape]:
    """Everything that is saved as floats, whether it is held as such or as a file stores it."""
    if isinstance(module, BridgedModel):
        return {name: tuple(tensor.shape) for name, tensor in module.saved_tensors().items()}
    packed = packed_matrices(module)
    shapes = tensor_shapes(module.config).items()
    return {name: shape for name, shape in shapes if name.removesuffix(".weight") not in packed}


def _packed(module: Decoder | BridgedModel) -> dict[str, PackedMatrix]:
    """Packed weights by the names of what they stand for."""
    return {
        name if isinstance(child, PackedParameter) else f"{name}.weight": child
        for name, child in packed_matrices(named_root(module)).items()
    }


def save_folder(
    target: Path,
    module: Decoder | BridgedModel,
    dtypes: Mapping[str, torch.dtype],
    hf_config: Mapping[str, Any],
    generation_config: Mapping[str, Any],
    write_extras: Callable[[Path], None],
) -> int:
    """Write the folder whole or not at all, and return the bytes of its tensors.

    `dtypes` says how each float tensor is stored; `write_extras` adds files (the tokenizer, a report) to the
    folder before it is put in place. Raises `InputError` for a target that isn't ours to replace,
    `ResourceError` for a full disk.
    """
    promised = module_ledger(module, dtypes).nbytes
    require_disk(target, promised + _SLACK)
    with atomic_folder(target) as folder:
        write_extras(folder)
        write_json(folder / "config.json", _config(module, dtypes, hf_config))
        if generation_config:
            write_json(folder / "generation_config.json", dict(generation_config))
        written = write_safetensors_shards(folder, _stored(module, dtypes, hf_config), SHARD_BYTES)
        assert written == promised, f"{written} bytes were written, {promised} were promised"
        write_json(folder / MANIFEST, {"format_version": 1, "tensor_bytes": written})
    return written


def _config(
    module: Decoder | BridgedModel, dtypes: Mapping[str, torch.dtype], hf_config: Mapping[str, Any]
) -> dict[str, Any]:
    config = {k: v for k, v in hf_config.items() if k not in (FORMAT_KEY, "torch_dtype", "dtype")}
    packed = packed_matrices(named_root(module))
    config["dtype"] = str(_common(module, dtypes)).removeprefix("torch.")
    if packed:
        parameters = {name: p.to_json() for name, p in packed.items() if isinstance(p, PackedParameter)}
        specs = {name: matrix.spec for name, matrix in packed.items()}
        linears = [name for name, child in module.named_modules() if isinstance(child, torch.nn.Linear)]
        config[FORMAT_KEY] = write_quantization(specs, hf_config.get(FORMAT_KEY), parameters, linears)
    return config


def _common(module: Decoder | BridgedModel, dtypes: Mapping[str, torch.dtype]) -> torch.dtype:
    """The dtype of most float tensors: what transformers is told to compute in."""
    values = [dtypes[name] for name in _float_shapes(module)]
    return max(dict.fromkeys(values), key=values.count)


def _stored(
    module: Decoder | BridgedModel, dtypes: Mapping[str, torch.dtype], hf_config: Mapping[str, Any]
) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors as the family, or transformers, stores them; what penjing packed, and only penjing opens,
    under the module's own names."""
    packed = packed_matrices(named_root(module))
    parts = {
        f"{name}.{part}": tensor
        for name, child in packed.items()
        for part, tensor in child.packed.parts.items()
    }
    if isinstance(module, BridgedModel):
        for name, tensor in module.saved_tensors().items():
            yield name, _as_stored(name, tensor, dtypes[name])
        yield from parts.items()
        return
    family = family_of_model_type(hf_config["model_type"], "the model")
    is_own = any(isinstance(child.spec, OwnSpec) for child in packed.values())
    rules = () if is_own else family.rules(module.config)
    shapes = _float_shapes(module) | {name: tuple(tensor.shape) for name, tensor in parts.items()}
    for stored in apply_rules(rules, shapes):
        tensors = [parts[n] if n in parts else _float(module, n, dtypes[n]) for n in stored.native]
        yield stored.name, stored.layout.join(tensors)


def _float(module: Decoder | BridgedModel, name: str, dtype: torch.dtype) -> torch.Tensor:
    owner, _, leaf = name.rpartition(".")
    tensor = weight_of(module, owner) if leaf == "weight" else module.get_parameter(name).detach()
    return _as_stored(name, tensor, dtype)


def _as_stored(name: str, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    tensor = tensor.to(dtype)
    if not tensor.isfinite().all():
        held = str(dtype).removeprefix("torch.")
        raise InputError(f"{name} holds values that {held} can't; save in bf16 or f32 instead")
    return tensor
