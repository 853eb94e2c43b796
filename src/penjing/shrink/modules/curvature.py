"""How much any module's output suffers when a weight is off, by its parameters' gradients.

The squared gradient of the sampled loss of one batch is, in the mean, the sum over its samples of each
weight's curvature (see `shrink.sensitivity`; here no inputs need be seen). It is kept as its sums over rows
and columns: a weight's own figure would be mostly chance.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from penjing.errors import InputError, PenjingError
from penjing.shrink.modules.calls import Outputs, call
from penjing.shrink.modules.objective import Objective
from penjing.shrink.modules.parameters import Packable
from penjing.shrink.sensitivity import Curvature
from penjing.shrink.sharing import share_copy

Progress = Callable[[int, int], None]


def measure_curvature(
    module: nn.Module,
    packable: Sequence[Packable],
    batches: Sequence[Any],
    objective: Objective,
    outputs: Outputs,
    generator: torch.Generator,
    progress: Progress | None = None,
) -> dict[str, Curvature]:
    """The curvature of every packable parameter, per unit of the objective's weight.

    Raises `InputError` if the output doesn't depend on the parameters in a differentiable way,
    `PenjingError` if a gradient isn't finite.
    """
    sums = {each.name: (torch.zeros(each.matrix.rows), torch.zeros(each.matrix.columns)) for each in packable}
    parameters = [each.parameter for each in packable]
    wanted = [parameter.requires_grad for parameter in parameters]
    weight = 0.0
    module = share_copy(module)  # a module may keep tensors of its last run, which would hold on to the graph
    try:
        for parameter in parameters:
            parameter.requires_grad_(True)
        for i, batch in enumerate(batches):
            weight += _add_batch(module, packable, batch, objective, outputs, generator, sums)
            if progress:
                progress(i + 1, len(batches))
    finally:
        for parameter, flag in zip(parameters, wanted, strict=True):
            parameter.requires_grad_(flag)
    found = {}
    for name, (by_row, by_column) in sums.items():
        if not (torch.isfinite(by_row).all() and torch.isfinite(by_column).all()):
            raise PenjingError(f"{name} has gradients that are not finite on the calibration data")
        total = by_row.sum().clamp(min=1e-30)
        found[name] = Curvature(by_row / total, by_column / weight)
    return found


def _add_batch(
    module: nn.Module,
    packable: Sequence[Packable],
    batch: Any,
    objective: Objective,
    outputs: Outputs,
    generator: torch.Generator,
    sums: dict[str, tuple[torch.Tensor, torch.Tensor]],
) -> float:
    """Add one batch's squared gradients; returns its weight."""
    with torch.enable_grad():
        output = outputs(call(module, batch))
        if not output.requires_grad:
            raise InputError(
                "the module's output doesn't depend on its weights in a way that can be differentiated, so it"
                " can't be told which of them matter"
            )
        loss = objective.sampled_loss(output, generator)
        gradients = torch.autograd.grad(loss, [each.parameter for each in packable], allow_unused=True)
    for each, gradient in zip(packable, gradients, strict=True):
        if gradient is not None:
            squared_RC = each.form.read(gradient).flatten(0, 1).float().square_()
            sums[each.name][0].add_(squared_RC.sum(1))
            sums[each.name][1].add_(squared_RC.sum(0))
    detached = output.detach()
    return float(objective.compare(detached, detached)[:, 1].sum())
