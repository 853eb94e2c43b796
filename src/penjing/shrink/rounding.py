"""Rounding a matrix so that later columns make up for what earlier ones lost.

GPTQ (arXiv 2210.17323) with static groups and columns in the order of importance. The target may be shifted
first so that the *original* output is matched through inputs that are already quantised (GPTAQ, arXiv
2504.02692; Qronos, arXiv 2505.11695). Shapes: R rows (outputs), C columns (inputs).
"""

from dataclasses import dataclass

import torch

from penjing.errors import PenjingError
from penjing.packed import bits as bit_packing
from penjing.packed.affine import AffineTensor
from penjing.packed.affine_spec import AffineSpec
from penjing.shrink.scales import GroupScales, fit_scales, inverse, nearest_codes

_BLOCK = 64  # columns whose corrections are applied at once
_SLAB_ROWS = 8192  # rows rounded together: rows don't influence one another


@dataclass(frozen=True)
class Moments:
    """Second moments of a linear's inputs, float32 (C, C), as means over tokens: `inputs` is E[x̂ x̂ᵀ] of
    what the quantised model feeds it, `drift` is E[(x - x̂) x̂ᵀ] with x from the original model (None: not
    measured)."""

    inputs: torch.Tensor
    drift: torch.Tensor | None = None


@dataclass(frozen=True)
class RoundingConfig:
    """`damping`: share of the mean diagonal added to it. `drift`: how far to follow the original's outputs, 0
    to 1."""

    damping: float = 0.01
    drift: float = 0.5


def round_nearest(
    weight_RC: torch.Tensor, spec: AffineSpec, importance_C: torch.Tensor | None = None
) -> AffineTensor:
    """Round without calibration; `importance_C` weighs the columns in the search for scales."""
    importance = torch.ones(weight_RC.shape[1]) if importance_C is None else importance_C
    scales = fit_scales(weight_RC, importance, spec)
    return assemble(scales, nearest_codes(weight_RC, scales), weight_RC.shape[1])


def round_calibrated(
    weight_RC: torch.Tensor, moments: Moments, spec: AffineSpec, config: RoundingConfig | None = None
) -> AffineTensor:
    """Round `weight_RC` (float32) to `spec` for the least error of its outputs on inputs like the measured
    ones.

    A column whose input was always zero keeps plain rounding. Raises `PenjingError` if the moments aren't
    finite.
    """
    config = config or RoundingConfig()
    if not torch.isfinite(moments.inputs).all():
        raise PenjingError(
            "the calibration inputs are not finite; the model overflows on the calibration text"
        )
    damped_CC, live_C = _damp(moments.inputs.double(), config.damping)
    factor_CC = torch.linalg.cholesky(damped_CC)
    target_RC = _follow_original(weight_RC, moments, factor_CC, live_C, config.drift)
    importance_C = torch.diagonal(moments.inputs).clamp(min=0)
    importance_C = torch.where(live_C, importance_C, importance_C.mean())
    order_C = torch.argsort(torch.diagonal(damped_CC), descending=True, stable=True)
    feedback_CC = _feedback(damped_CC[order_C][:, order_C]).float()
    scales = fit_scales(target_RC, importance_C, spec)
    codes_RC = torch.empty(weight_RC.shape, dtype=torch.uint8)
    for start in range(0, weight_RC.shape[0], _SLAB_ROWS):
        rows = slice(start, start + _SLAB_ROWS)
        part = GroupScales(spec, scales.scale[rows], scales.zero_point[rows], scales.row_scale[rows])
        codes_RC[rows] = _round_rows(target_RC[rows], part, feedback_CC, order_C)
    return assemble(scales, codes_RC, weight_RC.shape[1])


def assemble(scales: GroupScales, codes_RC: torch.Tensor, columns: int) -> AffineTensor:
    """Pack codes (R, C) and their scales."""
    parts = {
        "codes": bit_packing.pack(codes_RC, scales.spec.bits),
        "scale": scales.scale,
        "zero_point": scales.zero_point,
        "row_scale": scales.row_scale,
    }
    return AffineTensor(scales.spec, (codes_RC.shape[0], columns), parts)


def _damp(moments_CC: torch.Tensor, damping: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Moments fit for factorising, and which inputs were ever non-zero."""
    diagonal = torch.diagonal(moments_CC)
    live_C = diagonal > 0
    mean = diagonal[live_C].mean() if bool(live_C.any()) else torch.ones((), dtype=moments_CC.dtype)
    added = torch.where(live_C, damping * mean, mean)
    return moments_CC + torch.diag(added), live_C


def _feedback(moments_CC: torch.Tensor) -> torch.Tensor:
    """The upper U with Uᵀ U = inverse of the moments: row c says how an error in column c is made up for
    later.

    With the order reversed, a plain Cholesky factor of the moments is the inverse of U: one factorisation
    instead of two, and no explicit inverse.
    """
    inverse_of_u = torch.linalg.cholesky(moments_CC.flip(0, 1)).flip(0, 1)
    identity = torch.eye(len(moments_CC), dtype=moments_CC.dtype)
    return torch.linalg.solve_triangular(inverse_of_u, identity, upper=True)


def _follow_original(
    weight_RC: torch.Tensor, moments: Moments, factor_CC: torch.Tensor, live_C: torch.Tensor, share: float
) -> torch.Tensor:
    """The weights that give the original outputs on the quantised inputs, in the least-squares sense."""
    if moments.drift is None or share == 0:
        return weight_RC
    shift_CC = torch.cholesky_solve(moments.drift.double().T, factor_CC).T.float()
    return weight_RC + share * (weight_RC @ shift_CC) * live_C


def _round_rows(
    target_RC: torch.Tensor, scales: GroupScales, feedback_CC: torch.Tensor, order_C: torch.Tensor
) -> torch.Tensor:
    columns = target_RC.shape[1]
    step_RC, zero_RC = (part[:, order_C].T.contiguous() for part in scales.expand(columns))
    inverse_RC = inverse(step_RC)
    rest_CR = target_RC.T[order_C].contiguous()
    codes_CR = torch.empty(columns, target_RC.shape[0], dtype=torch.uint8)
    max_code = scales.spec.max_code
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
