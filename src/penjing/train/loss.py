"""The loss contract: every micro-batch returns a sum and a count, and whoever steps divides once.

Dividing each micro-batch by its own count would weigh tokens of short batches more than those of long ones,
and make the gradient depend on how a batch was cut.
"""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class LossSum:
    """`total` is a scalar tensor that gradients flow from, in nats; `count` is the number of tokens in it."""

    total: torch.Tensor
    count: int
