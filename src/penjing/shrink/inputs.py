"""What the matrices of a block are fed: which share an input, in which order they are used, and the second
moments of those inputs.

Shapes: N passages, L tokens, t tokens that reach a matrix, D hidden size, C columns.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import nn

from penjing.model.decoder import Block
from penjing.model.linear import weight_of
from penjing.model.self_attention import Step
from penjing.shrink.rounding import Moments

_EXPERTS = "mlp.experts."
_EXPERTS_AT_ONCE = 16  # each holds a matrix of moments


@dataclass(frozen=True)
class Stage:
    """Matrices that are rounded in one go: groups of names, each of which reads one input."""

    groups: tuple[tuple[str, ...], ...]
    of_experts: bool = False


def stages(block: Block, names: Sequence[str], x_LD: torch.Tensor, step: Step) -> list[Stage]:
    """The submodules `names` in the order of their use, as one run over `x_LD` shows it; experts come last,
    since which of them are used depends on the tokens."""
    always = [name for name in names if not name.startswith(_EXPERTS)]
    found = [Stage((group,)) for group in _groups_by_input(block, always, x_LD, step)]
    experts = [name for name in names if name.startswith(_EXPERTS)]
    readers = [name for name in experts if not name.endswith("down_proj")]
    for kind in (readers, [name for name in experts if name not in readers]):
        by_expert: dict[str, tuple[str, ...]] = {}
        for name in kind:
            expert = name.rpartition(".")[0]
            by_expert[expert] = (*by_expert.get(expert, ()), name)
        groups = tuple(by_expert.values())
        for start in range(0, len(groups), _EXPERTS_AT_ONCE):
            found.append(Stage(groups[start : start + _EXPERTS_AT_ONCE], of_experts=True))
    return found


def gather_moments(
    stage: Stage, streams: Sequence[tuple[Block, torch.Tensor]], step: Step
) -> dict[str, Moments]:
    """Moments by the first name of each group of `stage`.

    `streams` are blocks with what they are fed (N, L, D): the shrunk one last, and, where drift is to be
    measured, the original before it. A group that no token reached is left out.
    """
    columns = {group[0]: weight_of(streams[0][0], group[0]).shape[1] for group in stage.groups}
    sums = {name: _Sums(width, with_drift=len(streams) == 2) for name, width in columns.items()}
    runs = [_inputs(block, list(columns), x_NLD, step) for block, x_NLD in streams]
    for seen in zip(*runs, strict=True):
        for name, total in sums.items():
            if name in seen[-1]:
                total.add(*(inputs[name] for inputs in seen))
    return {name: total.moments() for name, total in sums.items() if total.tokens}


def block_output(block: Block, x_LD: torch.Tensor, step: Step) -> torch.Tensor:
    """What a block makes of one passage, (L, D)."""
    return block(x_LD.unsqueeze(0), step, None)[0]


class _Sums:
    """Running sums of one input's moments."""

    def __init__(self, columns: int, with_drift: bool) -> None:
        self.inputs_CC = torch.zeros(columns, columns)
        self.drift_CC = torch.zeros(columns, columns) if with_drift else None
        self.tokens = 0

    def add(self, first_tC: torch.Tensor, shrunk_tC: torch.Tensor | None = None) -> None:
        """The original's inputs and the shrunk model's, or the latter alone."""
        quantised_tC = first_tC if shrunk_tC is None else shrunk_tC
        self.inputs_CC.addmm_(quantised_tC.T, quantised_tC)
        if self.drift_CC is not None:
            self.drift_CC.addmm_((first_tC - quantised_tC).T, quantised_tC)
        self.tokens += len(quantised_tC)

    def moments(self) -> Moments:
        drift_CC = None if self.drift_CC is None else self.drift_CC / self.tokens
        return Moments(self.inputs_CC / self.tokens, drift_CC)


def _groups_by_input(
    block: Block, names: Sequence[str], x_LD: torch.Tensor, step: Step
) -> list[tuple[str, ...]]:
    """Names in the order of use, those that read the very same tensor together."""
    seen: list[tuple[torch.Tensor, list[str]]] = []

    def note(name: str):
        def before(_: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            if seen and seen[-1][0] is inputs[0]:
                seen[-1][1].append(name)
            else:
                seen.append((inputs[0], [name]))

        return before

    handles = [block.get_submodule(name).register_forward_pre_hook(note(name)) for name in names]
    try:
        block_output(block, x_LD, step)
    finally:
        for handle in handles:
            handle.remove()
    return [tuple(group) for _, group in seen]


class _InputReachedError(Exception):
    """The one input that was wanted has been seen; the rest of the block needn't run."""


def _inputs(
    block: Block, names: Sequence[str], x_NLD: torch.Tensor, step: Step
) -> Iterator[dict[str, torch.Tensor]]:
    """What the submodules `names` are fed, (t, C) each, passage by passage."""
    caught: dict[str, torch.Tensor] = {}

    def catch(name: str):
        def before(_: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            caught[name] = inputs[0].flatten(0, -2)
            if len(names) == 1:
                raise _InputReachedError

        return before

    handles = [block.get_submodule(name).register_forward_pre_hook(catch(name)) for name in names]
    try:
        for x_LD in x_NLD:
            caught.clear()
            with suppress(_InputReachedError):
                block_output(block, x_LD, step)
            yield dict(caught)
    finally:
        for handle in handles:
            handle.remove()
