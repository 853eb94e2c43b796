"""Rounding a matrix so that later columns make up for what earlier ones lost.

GPTQ (arXiv 2210.17323) with static groups and columns in the order of importance, then the refinement of
`refine`. Shapes: R rows (outputs), C columns (inputs).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from penjing.errors import PenjingError
from penjing.packed.parts import PackedSpec
from penjing.packed.schemes import packed_tensor
from penjing.packed.tensor import PackedTensor
from penjing.shrink.grids.kinds import fit_scales
from penjing.shrink.grids.scales import Scales, inverse
from penjing.shrink.refine import refine

_BLOCK = 64  # columns whose corrections are applied at once
# Rows don't influence one another; the equations of those that are rounded together take room.
_SLAB_ROWS = 2048


@dataclass(frozen=True)
class RoundingConfig:
    """What is held against too few tokens, which make chance correlations: `damping` is the share of the mean
    diagonal that is added to it, `correlation` the share of the rest that is believed. `rounds` is how often
    codes and scales are bettered after GPTQ.

    Measured on a 135M model in 4 bits with 8k tokens: a damping of 0.03 instead of 0.01 gives 4% less
    divergence on other text, a correlation of 0.9 instead of 1 gives 3% less.
    """

    damping: float = 0.03
    correlation: float = 0.9
    rounds: int = 1


def round_nearest(
    weight_RC: torch.Tensor, spec: PackedSpec, importance_C: torch.Tensor | None = None
) -> PackedTensor:
    """Round without calibration; `importance_C` weighs the columns in the search for scales."""
    importance = torch.ones(weight_RC.shape[1]) if importance_C is None else importance_C
    scales = fit_scales(weight_RC, importance, spec)
    return scales.assemble(scales.nearest(weight_RC))


def round_calibrated(
    weight_RC: torch.Tensor,
    moments_CC: torch.Tensor,
    spec: PackedSpec,
    config: RoundingConfig | None = None,
) -> PackedTensor:
    """Round `weight_RC` (float32) to `spec` for the least error of its outputs on inputs x with second
    moments E[x xᵀ] like `moments_CC` (float32).

    A column whose input was always zero keeps plain rounding. Raises `PenjingError` if the moments aren't
    finite.
    """
    config = config or RoundingConfig()
    if not torch.isfinite(moments_CC).all():
        raise PenjingError(
            "the calibration inputs are not finite; the model overflows on the calibration text"
        )
    damped_CC, live_C = _damp(moments_CC.double(), config)
    importance_C = torch.diagonal(moments_CC).clamp(min=0)
    importance_C = torch.where(live_C, importance_C, importance_C.mean())
    order_C = torch.argsort(torch.diagonal(damped_CC), descending=True, stable=True)
    feedback_CC, damped_CC = _feedback(damped_CC[order_C][:, order_C]).float(), damped_CC.float()
    slabs = []
    for slab_RC in weight_RC.split(_SLAB_ROWS):
        scales = fit_scales(slab_RC, importance_C, spec)
        codes_RC = _round_rows(slab_RC, scales, feedback_CC, order_C)
        codes_RC, scales = refine(slab_RC, codes_RC, scales, damped_CC, config.rounds)
        slabs.append(scales.assemble(codes_RC))
    return stack(slabs)


def stack(matrices: Sequence[PackedTensor]) -> PackedTensor:
    """Matrices of one spec and width, one below the other."""
    first = matrices[0]
    parts = {name: torch.cat([matrix.parts[name] for matrix in matrices]) for name in first.parts}
    return packed_tensor(first.spec, (sum(matrix.shape[0] for matrix in matrices), first.shape[1]), parts)


def _damp(moments_CC: torch.Tensor, config: RoundingConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """Moments fit for factorising, and which inputs were ever non-zero."""
    diagonal_C = torch.diagonal(moments_CC).clone()
    live_C = diagonal_C > 0
    mean = diagonal_C[live_C].mean() if bool(live_C.any()) else torch.ones((), dtype=moments_CC.dtype)
    damped_CC = moments_CC * config.correlation
    damped_CC.diagonal().copy_(diagonal_C + torch.where(live_C, config.damping * mean, mean))
    return damped_CC, live_C


def _feedback(moments_CC: torch.Tensor) -> torch.Tensor:
    """The upper U with Uᵀ U = inverse of the moments: row c says how an error in column c is made up for
    later.

    With the order reversed, a plain Cholesky factor of the moments is the inverse of U: one factorisation
    instead of two, and no explicit inverse.
    """
    inverse_of_u = torch.linalg.cholesky(moments_CC.flip(0, 1)).flip(0, 1)
    identity = torch.eye(len(moments_CC), dtype=moments_CC.dtype)
    return torch.linalg.solve_triangular(inverse_of_u, identity, upper=True)


def _round_rows(
    target_RC: torch.Tensor, scales: Scales, feedback_CC: torch.Tensor, order_C: torch.Tensor
) -> torch.Tensor:
    columns = target_RC.shape[1]
    step_RC, zero_RC = (part[:, order_C].T.contiguous() for part in scales.expand(columns))
    inverse_RC = inverse(step_RC)
    rest_CR = target_RC.T[order_C].contiguous()
    codes_CR = torch.empty(columns, target_RC.shape[0], dtype=torch.uint8)
    max_code = scales.max_code
    for start in range(0, columns, _BLOCK):
        stop = min(start + _BLOCK, columns)
        errors = torch.empty(stop - start, target_RC.shape[0])
        for c in range(start, stop):
            code_R = torch.addcmul(zero_RC[c], rest_CR[c], inverse_RC[c]).round_().clamp_(0, max_code)
            codes_CR[c] = code_R
            error_R = code_R.sub_(zero_RC[c]).mul_(step_RC[c]).sub_(rest_CR[c]).div_(-feedback_CC[c, c])
            errors[c - start] = error_R
            if c + 1 < stop:
                rest_CR[c + 1 : stop].addr_(feedback_CC[c, c + 1 : stop], error_R, alpha=-1)
        if stop < columns:
            rest_CR[stop:].addmm_(feedback_CC[start:stop, stop:].T, errors, alpha=-1)
    codes_RC = torch.empty(target_RC.shape, dtype=torch.uint8)
    codes_RC[:, order_C] = codes_CR.T
    return codes_RC
