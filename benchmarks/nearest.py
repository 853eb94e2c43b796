"""The baseline: every linear layer rounded to the nearest of 16 values a group, nothing calibrated.

A group of 64 weights of a row spans from its least to its largest weight, with 0 exactly on the grid. Scale
and zero point take 16 bits each, as torchao stores them, so a weight takes 4.5 bits. Embedding, head and
norms stay as they are.
"""

from dataclasses import replace

import torch
from torch import nn

from penjing.api import Model

BITS, GROUP = 4, 64
NAME = f"nearest, {BITS} bits in groups of {GROUP}, embedding at 16 bits"


def round_to_nearest(model: Model) -> tuple[Model, int]:
    """Round the linear layers of `model` in place; returns it, and the bytes that it would take.

    Widths must be multiples of 64.
    """
    rounded = 0
    for name, linear in model.module.named_modules():
        if isinstance(linear, nn.Linear) and name != "lm_head":
            linear.weight.copy_(_rounded(linear.weight))
            rounded += linear.weight.numel()
    packed_bits = rounded * BITS + rounded // GROUP * 2 * 16
    kept = model.ledger.parameters - rounded
    return replace(model, name=NAME), packed_bits // 8 + 2 * kept


def _rounded(weight_RC: torch.Tensor) -> torch.Tensor:
    grouped_RGW = weight_RC.unflatten(1, (-1, GROUP))
    low = grouped_RGW.amin(2, keepdim=True).clamp_max(0)
    high = grouped_RGW.amax(2, keepdim=True).clamp_min(0)
    top = 2**BITS - 1
    scale = ((high - low) / top).bfloat16().float().clamp_min(1e-12)
    zero = (-low / scale).round()
    codes = ((grouped_RGW / scale).round() + zero).clamp(0, top)
    return ((codes - zero) * scale).flatten(1)
