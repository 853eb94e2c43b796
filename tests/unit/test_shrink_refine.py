"""Codes and scales are bettered in turn, and no row ever loses more than before."""

import pytest
import torch
from tests.unit.test_shrink_rounding import correlated_inputs, weights

from penjing.packed.affine_spec import AffineSpec
from penjing.shrink.grids.kinds import fit_scales
from penjing.shrink.refine import descend, refine, refit_scales, row_losses

SPECS = [AffineSpec(bits, group) for bits in (2, 3, 4, 8) for group in (0, 32, 64)]
RAGGED = 80  # columns of which the last group of 32 or 64 has 16


def rounded(columns, spec):
    weight, inputs = weights(columns=columns), correlated_inputs(columns)
    moments = inputs.T @ inputs / len(inputs) + 1e-3 * torch.eye(columns)
    scales = fit_scales(weight, torch.diagonal(moments), spec)
    return weight, scales.nearest(weight), scales, moments


@pytest.mark.parametrize("columns", [128, RAGGED])
@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_no_row_loses_more_after_refining_and_most_lose_less(spec, columns):
    weight, codes, scales, moments = rounded(columns, spec)
    before = row_losses(weight, codes, scales, moments)
    codes, scales = refine(weight, codes, scales, moments, rounds=2)
    after = row_losses(weight, codes, scales, moments)
    assert (after <= before * (1 + 1e-4)).all()
    assert after.sum() < 0.8 * before.sum()
    assert codes.max() <= spec.max_code


def test_a_sweep_ends_where_no_single_code_can_be_changed_for_the_better():
    spec = AffineSpec(3, 32)
    weight, codes, scales, moments = rounded(64, spec)
    for _ in range(20):
        codes = descend(weight, codes, scales, moments)
    best = row_losses(weight, codes, scales, moments)
    for column in (0, 17, 63):
        for change in (-1, 1):
            other = codes.clone()
            other[:, column] = (codes[:, column].int() + change).clamp(0, spec.max_code).to(torch.uint8)
            assert (row_losses(weight, other, scales, moments) >= best * (1 - 1e-4)).all()


def test_scales_are_found_again_where_the_codes_are_the_true_ones():
    spec = AffineSpec(4, 32)
    _, codes, scales, moments = rounded(64, spec)
    step, zero = scales.expand(64)
    exact = (codes - zero) * step
    shifted = fit_scales(exact * 1.1 + 0.01, torch.diagonal(moments), spec)
    found = refit_scales(exact, codes, shifted, moments)
    before = row_losses(exact, codes, shifted, moments).sum()
    assert row_losses(exact, codes, found, moments).sum() < 1e-3 * before


def test_groups_that_are_all_zero_stay_finite():
    spec = AffineSpec(3, 32)
    weight, _, _, moments = rounded(64, spec)
    weight[0] = 0
    weight[1, :32] = 0
    scales = fit_scales(weight, torch.diagonal(moments), spec)
    codes, scales = refine(weight, scales.nearest(weight), scales, moments, rounds=2)
    assert row_losses(weight, codes, scales, moments).isfinite().all()
