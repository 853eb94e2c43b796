"""What counts as close to the original: for any output, a loss, and the share that was kept.

Shapes: B samples (the first dimension of an output), V classes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import torch

from penjing.errors import InputError
from penjing.evaluate.bootstrap import Floats

Metric = str | Callable[[torch.Tensor, torch.Tensor], torch.Tensor | float]


class Objective(ABC):
    """Compares outputs, and draws the loss whose squared gradients are the curvature of that comparison."""

    name: str

    @abstractmethod
    def sampled_loss(self, output: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """A scalar that is random by `generator`; the outer product of its gradient is in the mean the
        curvature of the loss in the output."""

    @abstractmethod
    def compare(self, original: torch.Tensor, shrunk: torch.Tensor) -> torch.Tensor:
        """Loss and weight of each sample, float64 (B, 2). The loss of all is the quotient of the sums."""

    @abstractmethod
    def kept(self, sums: Floats) -> Floats:
        """The share kept, of summed losses and weights (..., 2)."""


class Divergence(Objective):
    """The last dimension holds logits: KL(original || shrunk) in nats, kept is exp(-KL)."""

    name = "kl"

    def sampled_loss(self, output: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """The negative log-likelihood of labels that the output itself is asked for."""
        logits_TV = output.flatten(0, -2) if output.dim() > 1 else output.unsqueeze(0)
        labels_T1 = torch.multinomial(logits_TV.detach().float().softmax(-1), 1, generator=generator)
        return -logits_TV.float().log_softmax(-1).gather(1, labels_T1).sum()

    def compare(self, original: torch.Tensor, shrunk: torch.Tensor) -> torch.Tensor:
        logp, logq = original.double().log_softmax(-1), shrunk.double().log_softmax(-1)
        loss = (logp.exp() * (logp - logq)).sum(-1)
        loss_BT = loss.view(len(loss), -1) if loss.dim() > 0 else loss.view(1, 1)
        return torch.stack([loss_BT.sum(1), torch.full_like(loss_BT[:, 0], loss_BT.shape[1])], dim=1)

    def kept(self, sums: Floats) -> Floats:
        return np.exp(-sums[..., 0] / sums[..., 1])


class SquaredDistance(Objective):
    """Outputs are values: the squared error as a share of their variance, kept is the rest."""

    name = "mse"

    def sampled_loss(self, output: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return (output * torch.randn(output.shape, generator=generator, dtype=output.dtype)).sum()

    def compare(self, original: torch.Tensor, shrunk: torch.Tensor) -> torch.Tensor:
        original_BN = original.double().reshape(_samples(original), -1)
        error_BN = shrunk.double().reshape(original_BN.shape) - original_BN
        spread_BN = original_BN - original_BN.mean(1, keepdim=True)
        return torch.stack([error_BN.square().sum(1), spread_BN.square().sum(1)], dim=1)

    def kept(self, sums: Floats) -> Floats:
        return 1 - sums[..., 0] / np.maximum(sums[..., 1], 1e-300)


class OwnMetric(SquaredDistance):
    """The user's function of both outputs gives what was kept; where errors matter is judged by squared
    error."""

    name = "own"

    def __init__(self, function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor | float]) -> None:
        self.function = function

    def compare(self, original: torch.Tensor, shrunk: torch.Tensor) -> torch.Tensor:
        kept_B = torch.as_tensor(self.function(original, shrunk), dtype=torch.float64).reshape(-1)
        if not torch.isfinite(kept_B).all() or not len(kept_B):
            raise InputError(
                "the metric must give the share kept, a finite number for each sample or for all"
            )
        return torch.stack([1 - kept_B, torch.ones_like(kept_B)], dim=1)


def find_objective(metric: Metric) -> Objective:
    """The objective that `metric` names; "kl", "mse" or a function, else an `InputError`."""
    if callable(metric):
        return OwnMetric(metric)
    for objective in (Divergence(), SquaredDistance()):
        if metric == objective.name:
            return objective
    raise InputError(f"metric {metric!r} is not known; choose kl (logits), mse (values), or give a function")


def _samples(output: torch.Tensor) -> int:
    return len(output) if output.dim() > 1 else 1
