"""Weights from a checkpoint into the one decoder."""

from collections.abc import Callable

import torch
from torch import nn

from penjing.errors import InputError
from penjing.memory import require_memory
from penjing.model.decoder import Decoder
from penjing.model.linear import pack_module, weight_of
from penjing.model.plan import LoadPlan, build_skeleton
from penjing.packed.schemes import PackedTensor, packed_tensor

Progress = Callable[[int, int], None]


def load_decoder(plan: LoadPlan, progress: Progress | None = None) -> Decoder:
    """Read every planned tensor: floats as float32, packed parts as they are stored. The module owns its
    memory (nothing stays mapped) and is in evaluation mode.

    Raises `ResourceError` before reading if the memory isn't there, `InputError` if a weight isn't finite.
    """
    require_memory(
        load_bytes(plan), f"loading {plan.checkpoint.path}", "close other programs or use a smaller model"
    )
    module = build_skeleton(plan.config)
    for name in plan.packed:
        pack_module(module, name, _read_packed(plan, module, name))
    parameters = [name for name, _ in module.named_parameters()]
    for done, name in enumerate(parameters):
        _assign(module, name, _read_float(plan, name))
        plan.checkpoint.release(plan.sources[name])
        if progress:
            progress(done + 1, len(parameters))
    return module.eval().requires_grad_(False)


def load_bytes(plan: LoadPlan) -> int:
    """Bytes that the loaded module will hold."""
    total = 0
    for name in plan.sources:
        info = plan.info(name)
        is_part = name.rpartition(".")[0] in plan.packed and not name.endswith(".bias")
        total += info.nbytes if is_part else 4 * torch.Size(info.shape).numel()
    return total


def _read_packed(plan: LoadPlan, module: nn.Module, name: str) -> PackedTensor:
    rows, columns = weight_of(module, name).shape
    spec = plan.packed[name]
    parts = {
        part: plan.checkpoint.read(plan.sources[f"{name}.{part}"]).clone()
        for part in spec.part_shapes(rows, columns)
    }
    packed = packed_tensor(spec, (rows, columns), parts)
    packed.check_values(f"{plan.checkpoint.path}: {name}")
    return packed


def _read_float(plan: LoadPlan, name: str) -> torch.Tensor:
    tensor = plan.checkpoint.read(plan.sources[name])
    if not tensor.is_floating_point():
        raise InputError(f"{plan.checkpoint.path}: {plan.sources[name]} holds {tensor.dtype}, not floats")
    is_mapped = tensor.dtype == torch.float32 and plan.info(name).dtype == "float32"
    if plan.checkpoint.kind == "gguf":
        tensor = plan.family.undo_gguf(name, tensor, plan.config)
    weight = tensor.to(torch.float32, copy=is_mapped).contiguous()
    # The sum is one quick pass; only when it isn't finite is each value looked at.
    if not weight.sum().isfinite() and not weight.isfinite().all():
        raise InputError(f"{plan.checkpoint.path}: {plan.sources[name]} holds values that are not finite")
    return weight


def _assign(module: nn.Module, name: str, tensor: torch.Tensor) -> None:
    owner, _, leaf = name.rpartition(".")
    setattr(module.get_submodule(owner), leaf, nn.Parameter(tensor, requires_grad=False))
