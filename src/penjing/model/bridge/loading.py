"""The weights of a planned folder into a model of transformers."""

from collections.abc import Callable

import torch

from penjing.errors import InputError
from penjing.model.bridge import library
from penjing.model.bridge.module import BridgedModel
from penjing.model.bridge.plan import BridgedPlan
from penjing.model.bridge.probing import find_traits
from penjing.model.packed_entries import all_parts
from penjing.model.packed_parameter import put_in_place, read_packed

Progress = Callable[[int, int], None]


@torch.inference_mode(False)
def load_bridged(plan: BridgedPlan, progress: Progress | None = None) -> tuple[BridgedModel, tuple[str, ...]]:
    """Read every tensor as float32 and find out what the model does; also returns what makes it slow, a
    sentence each. The module owns its memory (nothing stays mapped) and is in evaluation mode. Raises
    `InputError` if a weight isn't finite; otherwise as `find_traits`."""
    checkpoint, source = plan.checkpoint, str(plan.checkpoint.path)
    packed = read_packed(plan.own_packed, checkpoint.read)
    parts = all_parts(plan.own_packed.values())
    tensors = {name: _in_memory(checkpoint.read(name)) for name in checkpoint.tensors if name not in parts}
    tensors |= {name: parameter.value for name, parameter in packed.items()}
    wrapped, gaps = library.load(plan.found, tensors, source)
    assert not (gaps.missing or gaps.unexpected or gaps.mismatched), gaps
    for name in checkpoint.tensors:
        checkpoint.release(name)
    del tensors
    _require_finite(wrapped, source)
    put_in_place(wrapped, packed)
    traits, notices = find_traits(BridgedModel(wrapped, plan.config), source)
    if progress:
        progress(len(plan.stored), len(plan.stored))
    return BridgedModel(wrapped, plan.config, traits).eval(), notices


def _in_memory(tensor: torch.Tensor) -> torch.Tensor:
    """transformers copies what it converts to float32; what is float32 already it would take as it is,
    mapped."""
    return tensor.clone() if tensor.dtype == torch.float32 or not tensor.is_floating_point() else tensor


def _require_finite(wrapped: torch.nn.Module, source: str) -> None:
    for name, weight in wrapped.named_parameters():
        # The sum is one quick pass; only when it isn't finite is each value looked at.
        if not (weight.sum().isfinite() or weight.isfinite().all()):
            raise InputError(f"{source}: {name} holds values that are not finite")
