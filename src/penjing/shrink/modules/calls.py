"""Running any module on calibration data, and what its output is."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from penjing.errors import InputError

Outputs = Callable[[Any], torch.Tensor]


def call(module: nn.Module, batch: Any) -> Any:
    """The module's output: a mapping gives keyword arguments, a tuple or list positional ones, anything else
    is the one argument."""
    if isinstance(batch, Mapping):
        return module(**batch)
    if isinstance(batch, (tuple, list)):
        return module(*batch)
    return module(batch)


def main_output(output: Any) -> torch.Tensor:
    """The tensor that matters of an output: itself, its `logits`, or the first tensor of a sequence or
    mapping. Raises `InputError` where there is none."""
    if isinstance(output, torch.Tensor):
        return output
    logits = getattr(output, "logits", None)
    if isinstance(logits, torch.Tensor):
        return logits
    values = output.values() if isinstance(output, Mapping) else output
    if isinstance(output, (Mapping, tuple, list)):
        for value in values:
            if isinstance(value, torch.Tensor):
                return value
    raise InputError(
        f"the module's output is a {type(output).__name__}, and no tensor is found in it; say with outputs="
        " how to get at the one that matters"
    )


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Without dropout and the like while the block runs; every part goes back to the mode that it was in."""
    training = [child for child in module.modules() if child.training]
    module.eval()
    try:
        yield
    finally:
        for child in training:
            child.training = True
