"""What the matrices of a block are fed: which share an input, in which order they are used, and the second
moments of those inputs.

Shapes: N passages, L tokens, t tokens that reach a matrix, D hidden size, C columns.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import nn

from penjing.model.decoder import Block
from penjing.model.linear import weight_of
from penjing.model.self_attention import Step

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
    stage: Stage,
    block: Block,
    x_NLD: torch.Tensor,
    step: Step,
    token_weights: Mapping[str, torch.Tensor],
) -> dict[str, torch.Tensor]:
    """Second moments E[x xᵀ] (C, C) of the inputs of each group of `stage`, by its first name, where `block`
    is fed `x_NLD` (N, L, D).

    `token_weights` (N·L) say by name how much each token counts; a matrix without them counts all alike. A
    group that no token reached is left out.
    """
    columns = {group[0]: weight_of(block, group[0]).shape[1] for group in stage.groups}
    weights = {group[0]: _shared_weights(group, token_weights) for group in stage.groups}
    sums_CC = {name: torch.zeros(width, width) for name, width in columns.items()}
    tokens = dict.fromkeys(columns, 0)
    for seen in _inputs(block, list(columns), x_NLD, step):
        for name, x_tC in seen.items():
            weights_T = weights[name]
            weighted_tC = x_tC
            if weights_T is not None:
                weighted_tC = x_tC * weights_T[tokens[name] : tokens[name] + len(x_tC)].unsqueeze(1)
            sums_CC[name].addmm_(weighted_tC.T, x_tC)
            tokens[name] += len(x_tC)
    return {name: total_CC / tokens[name] for name, total_CC in sums_CC.items() if tokens[name]}


def _shared_weights(group: tuple[str, ...], token_weights: Mapping[str, torch.Tensor]) -> torch.Tensor | None:
    """The mean of the weights of matrices that read one input, each first brought to a mean of 1."""
    known = [token_weights[name] for name in group if name in token_weights]
    if not known:
        return None
    return torch.stack([weights_T / weights_T.mean() for weights_T in known]).mean(dim=0)


def block_output(block: Block, x_LD: torch.Tensor, step: Step) -> torch.Tensor:
    """What a block makes of one passage, (L, D)."""
    return block(x_LD.unsqueeze(0), step, None)[0]


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
