"""Activation checkpointing: a block's inner values are computed again when they are needed, not kept.

Training Deep Nets with Sublinear Memory Cost (arXiv 1604.06174). Shapes: B rows, L tokens, D hidden size.
"""

import torch
from torch.utils.checkpoint import checkpoint

from penjing.model.decoder import Decoder


def checkpointed_hidden(module: Decoder, input_ids: torch.Tensor, positions_BL: torch.Tensor) -> torch.Tensor:
    """`module.hidden` (B, L, D) without a cache, of which only the blocks' inputs are kept for the backward
    pass."""
    step = module.step(positions_BL)
    x_BLD = module.model.embed(input_ids, positions_BL)
    for block in module.blocks:
        x_BLD = checkpoint(block, x_BLD, step, None, use_reentrant=False)
    return module.model.norm(x_BLD)
