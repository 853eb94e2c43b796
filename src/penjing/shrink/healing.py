"""Healing: the shrunk model learns from the original, in its scales, zero points, norms and biases.

The codes stay as they are, so no byte is added (EfficientQAT's second phase, arXiv 2407.11062, with the
original's whole distribution as the target). Shapes: N passages, L tokens, T = N·L, D hidden size.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from penjing.memory import give_back_memory
from penjing.model.decoder import Decoder
from penjing.shrink.trainable import make_trainable, pack_trained
from penjing.train.checkpointing import checkpointed_hidden
from penjing.train.distillation import distillation_loss
from penjing.train.loss import LossSum

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class HealingConfig:
    """Adam's rates: `row_rate` for relative changes of rows' scales, norms and biases, `scale_rate` for those
    of groups, `zero_rate` for zero points, in steps of a code; at 0 they stay as they are. `held_out` is the
    share of the passages that only judge, `judgements` how often they do, `patience` how many in a row may be
    no better before it ends. Each of the other passages is learned from `epochs` times.

    There are 64 times as many groups as tokens in a short text, so their gradients are mostly noise: measured
    on a 135M model with 12k tokens, training them as well made every result worse.
    """

    row_rate: float = 1e-3
    scale_rate: float = 0.0
    zero_rate: float = 0.0
    epochs: int = 2
    passages_per_step: int = 2
    held_out: float = 1 / 8
    judgements: int = 6
    patience: int = 2
    largest_gradient: float = 1.0


def heal(
    original: Decoder,
    shrunk: Decoder,
    ids_NL: torch.Tensor,
    generator: torch.Generator,
    config: HealingConfig | None = None,
    progress: Progress | None = None,
) -> Decoder:
    """A healed copy of `shrunk`: the best one seen, by its divergence on held-out passages of `ids_NL`;
    `shrunk` itself where none was better.

    Packed matrices keep spec and codes; `generator` orders the passages. What is trained is copied, what
    isn't is shared.
    """
    return _Healing(original, shrunk, ids_NL, config or HealingConfig()).run(generator, progress)


class _Healing:
    """One run: the teacher's hidden states, the student's parameters, and the best of them so far."""

    def __init__(
        self, original: Decoder, shrunk: Decoder, ids_NL: torch.Tensor, config: HealingConfig
    ) -> None:
        self.original, self.shrunk, self.config = original, shrunk, config
        self.ids_NL = ids_NL
        self.student = copy.deepcopy(shrunk)
        self.trained = make_trainable(self.student)
        self.groups = self._parameter_groups()
        self.parameters = [parameter for group in self.groups for parameter in group["params"]]
        self.optimizer = torch.optim.Adam(self.groups, betas=(0.9, 0.95))
        self.held_out = max(1, int(len(ids_NL) * config.held_out))

    def run(self, generator: torch.Generator, progress: Progress | None) -> Decoder:
        steps = self._steps(generator)
        judge_at = {len(steps) * (i + 1) // self.config.judgements for i in range(self.config.judgements)}
        best, best_state, worse = self._judge(), None, 0
        for i, passages in enumerate(steps):
            self._set_rate(i, len(steps))
            self._step(passages)
            if progress:
                progress(i + 1, len(steps))
            if i + 1 in judge_at:
                divergence = self._judge()
                worse = worse + 1 if divergence >= best else 0
                if divergence < best:
                    best, best_state = divergence, self._state()
                if worse == self.config.patience:
                    break
        give_back_memory()
        if best_state is None:
            return self.shrunk
        self._restore(best_state)
        pack_trained(self.student, self.trained)
        return self.student.requires_grad_(False)

    def _parameter_groups(self) -> list[dict[str, Any]]:
        """What is trained, at which rate. A norm or bias moves in proportion to its mean size."""
        self.student.requires_grad_(False)
        config, matrices = self.config, self.trained.values()
        small = [p for p in self.student.parameters() if p.ndim == 1 and p.any()]
        groups = [
            {"params": [m.row_change for m in matrices], "rate": config.row_rate},
            {"params": [m.scale_change for m in matrices], "rate": config.scale_rate},
            {"params": [m.zero_change for m in matrices], "rate": config.zero_rate},
            *({"params": [p], "rate": config.row_rate * float(p.abs().mean())} for p in small),
        ]
        used = [group for group in groups if group["params"] and group["rate"] > 0]
        for group in used:
            for parameter in group["params"]:
                parameter.requires_grad_(True)
        return used

    def _steps(self, generator: torch.Generator) -> list[list[int]]:
        """Which passages each step learns from; those at the end are held out."""
        count, size, steps = len(self.ids_NL) - self.held_out, self.config.passages_per_step, []
        for _ in range(self.config.epochs):
            order: list[int] = torch.randperm(count, generator=generator).tolist()
            steps += [order[i : i + size] for i in range(0, count, size)]
        return steps

    def _set_rate(self, step: int, steps: int) -> None:
        """Warm up over a tenth of the steps, then down along a cosine (arXiv 1608.03983)."""
        warm = min(1.0, (step + 1) / max(1.0, 0.1 * steps))
        for group in self.optimizer.param_groups:
            group["lr"] = group["rate"] * warm * (0.5 + 0.5 * math.cos(math.pi * step / steps))

    def _step(self, passages: list[int]) -> None:
        count = len(passages) * self.ids_NL.shape[1]
        with torch.enable_grad():
            for i in passages:
                (self._loss(i).total / count).backward()
        nn.utils.clip_grad_norm_(self.parameters, self.config.largest_gradient)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def _loss(self, i: int) -> LossSum:
        ids_1L = self.ids_NL[i].unsqueeze(0)
        positions_1L = torch.arange(ids_1L.shape[1]).unsqueeze(0)
        with torch.no_grad():
            teacher_LD = self.original.hidden(ids_1L, positions_1L)[0]
        student_LD = checkpointed_hidden(self.student, ids_1L, positions_1L)[0]
        return distillation_loss(self.original.head, teacher_LD, self.student.head, student_LD)

    @torch.no_grad()
    def _judge(self) -> float:
        """Divergence in nats a token on the passages that are held out."""
        losses = [self._loss(i) for i in range(len(self.ids_NL) - self.held_out, len(self.ids_NL))]
        return sum(float(loss.total) for loss in losses) / sum(loss.count for loss in losses)

    def _state(self) -> list[torch.Tensor]:
        return [parameter.detach().clone() for parameter in self.parameters]

    @torch.no_grad()
    def _restore(self, state: list[torch.Tensor]) -> None:
        for parameter, value in zip(self.parameters, state, strict=True):
            parameter.copy_(value)
