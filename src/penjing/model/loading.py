"""Weights from a checkpoint into the one decoder."""

from collections.abc import Callable, Iterator

import torch
from torch import nn

from penjing.errors import InputError
from penjing.model.decoder import Decoder, build_skeleton
from penjing.model.ledger import FLOATS
from penjing.model.linear import pack_module, weight_of
from penjing.model.names import Stored
from penjing.model.plan import LoadPlan
from penjing.model.shapes import matrix_shapes
from penjing.packed.ggml.blocks import packed_nbytes
from penjing.packed.ggml.spec import GgmlSpec
from penjing.packed.plain_spec import PlainSpec
from penjing.packed.schemes import PackedTensor, packed_tensor

Progress = Callable[[int, int], None]


def load_decoder(plan: LoadPlan, progress: Progress | None = None, hold_stored: bool = False) -> Decoder:
    """Read every planned tensor: floats as float32, packed parts as they are stored. The module owns its
    memory (nothing stays mapped) and is in evaluation mode.

    With `hold_stored`, float matrices stay in the file, mapped as they are stored, and are unpacked each time
    they are used: memory grows only as they are touched. Raises `InputError` if a weight that is read isn't
    finite.
    """
    module = build_skeleton(plan.config)
    parts: dict[str, dict[str, torch.Tensor]] = {name: {} for name in plan.packed}
    for done, stored in enumerate(plan.stored):
        is_packed = plan.is_packed_part(stored.native[0])
        if hold_stored and not is_packed and _can_be_held(plan, stored):
            for name, held in _held(plan, stored):
                pack_module(module, name.removesuffix(".weight"), held)
            continue
        tensors = _read_parts(plan, stored) if is_packed else _read_floats(plan, stored)
        for name, tensor in zip(stored.native, tensors, strict=True):
            owner, _, leaf = name.rpartition(".")
            if is_packed:
                parts[owner][leaf] = tensor
            else:
                setattr(module.get_submodule(owner), leaf, nn.Parameter(tensor, requires_grad=False))
        plan.checkpoint.release(stored.name)
        if progress:
            progress(done + 1, len(plan.stored))
    for name, found in parts.items():
        pack_module(module, name, _packed(plan, module, name, found))
    return module.eval().requires_grad_(False)


def _can_be_held(plan: LoadPlan, stored: Stored) -> bool:
    """Linears and embeddings whose rows lie whole in the file."""
    matrices = matrix_shapes(plan.config)
    are_matrices = all(name.removesuffix(".weight") in matrices for name in stored.native)
    is_float = plan.checkpoint.tensors[stored.name].dtype in FLOATS
    return are_matrices and (is_float or stored.layout.keeps_rows)


def _held(plan: LoadPlan, stored: Stored) -> Iterator[tuple[str, PackedTensor]]:
    """Each of the module's matrices in a stored tensor, over the file's own bytes where the layout allows."""
    dtype = plan.checkpoint.tensors[stored.name].dtype
    if dtype in FLOATS:
        parts = stored.layout.split(plan.checkpoint.read(stored.name), stored.shapes)
        for name, shape, part in zip(stored.native, stored.shapes, parts, strict=True):
            yield name, packed_tensor(PlainSpec(dtype), (shape[0], shape[1]), {"weight": part})
        return
    in_bytes = [(rows, packed_nbytes(dtype, (columns,))) for rows, columns in stored.shapes]
    parts = stored.layout.split(plan.checkpoint.read_blocks(stored.name), in_bytes)
    for name, shape, part in zip(stored.native, stored.shapes, parts, strict=True):
        yield name, packed_tensor(GgmlSpec(dtype), (shape[0], shape[1]), {"blocks": part})


def _packed(plan: LoadPlan, module: nn.Module, name: str, parts: dict[str, torch.Tensor]) -> PackedTensor:
    rows, columns = weight_of(module, name).shape
    packed = packed_tensor(plan.packed[name], (rows, columns), parts)
    packed.check_values(f"{plan.checkpoint.path}: {name}")
    return packed


def _read_parts(plan: LoadPlan, stored: Stored) -> list[torch.Tensor]:
    """Parts of packed matrices, as they are stored, in memory of their own."""
    tensor = plan.checkpoint.read(stored.name)
    parts = stored.layout.split(tensor, stored.shapes)
    return [part.clone(memory_format=torch.contiguous_format) for part in parts]


def _read_floats(plan: LoadPlan, stored: Stored) -> list[torch.Tensor]:
    """The module's tensors that lie in a stored one, in memory of their own."""
    tensor = plan.checkpoint.read(stored.name)
    if not tensor.is_floating_point():
        raise InputError(f"{plan.checkpoint.path}: {stored.name} holds {tensor.dtype}, not floats")
    is_mapped = plan.checkpoint.tensors[stored.name].dtype == "float32"
    weights = [
        part.to(torch.float32, copy=is_mapped).contiguous()
        for part in stored.layout.split(tensor, stored.shapes)
    ]
    # The sum is one quick pass; only when it isn't finite is each value looked at.
    if not all(weight.sum().isfinite() or weight.isfinite().all() for weight in weights):
        raise InputError(f"{plan.checkpoint.path}: {stored.name} holds values that are not finite")
    return weights
