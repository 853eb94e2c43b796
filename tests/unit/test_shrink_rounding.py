"""Scales and codes: what is lost is small, and never a NaN."""

import pytest
import torch

from penjing.errors import PenjingError
from penjing.packed.affine_spec import AffineSpec
from penjing.shrink.rounding import round_calibrated, round_nearest

WIDTHS = [2, 3, 4, 5, 6, 8]


def weights(rows=48, columns=128, seed=0):
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) * 0.05


def correlated_inputs(columns=128, tokens=2048, seed=1):
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(columns, columns, generator=generator) * torch.logspace(0, -1.5, columns)[:, None]
    return torch.randn(tokens, columns, generator=generator) @ mixing


def moments_of(inputs):
    return inputs.T @ inputs / len(inputs)


def output_error(packed, weight, inputs):
    return float(((packed.dequantize() - weight) @ inputs.T).square().mean())


@pytest.mark.parametrize("width", WIDTHS)
def test_nearest_rounding_stays_within_the_step_of_a_min_max_grid(width):
    weight, spec = weights(), AffineSpec(width, 32)
    error = (round_nearest(weight, spec).dequantize() - weight).view(48, 4, 32).square().mean()
    grouped = weight.view(48, 4, 32)
    low, high = grouped.amin(2, keepdim=True).clamp(max=0), grouped.amax(2, keepdim=True).clamp(min=0)
    step = (high - low) / spec.max_code
    plain = ((grouped - low) / step).round() * step + low
    assert (
        error <= (plain - grouped).square().mean() * 1.15
    )  # stored in 8 bits, scales cost a little at 8-bit codes


@pytest.mark.parametrize("width", WIDTHS)
def test_calibrated_rounding_loses_at_most_half_of_what_nearest_rounding_loses(width):
    weight, inputs, spec = weights(), correlated_inputs(), AffineSpec(width, 64)
    nearest = output_error(round_nearest(weight, spec), weight, inputs)
    calibrated = output_error(round_calibrated(weight, moments_of(inputs), spec), weight, inputs)
    assert calibrated < 0.5 * nearest


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("group", [0, 32, 64])
def test_dead_tiny_and_constant_groups_give_finite_weights_and_zeros_stay_zero(width, group):
    weight = weights()
    weight[0, :64] = 0
    weight[1, :64] = 1e-42
    weight[2] = 0
    weight[3] = 0.5
    weight[4] = -0.5
    inputs = correlated_inputs()
    inputs[:, 5] = 0
    for packed in (
        round_nearest(weight, AffineSpec(width, group)),
        round_calibrated(weight, moments_of(inputs), AffineSpec(width, group)),
    ):
        found = packed.dequantize()
        assert found.isfinite().all()
        assert (found[2] == 0).all()
    nearest = round_nearest(weight, AffineSpec(width, group)).dequantize()
    if group:
        assert (nearest[0, :group] == 0).all()
    assert torch.allclose(nearest[3], weight[3], rtol=0.02)
    assert torch.allclose(nearest[4], weight[4], rtol=0.02)


def test_a_column_that_was_never_used_keeps_plain_rounding():
    weight, inputs, spec = weights(), correlated_inputs(), AffineSpec(4, 64)
    inputs[:, 5] = 0
    step = weight.abs().amax() * 2 / spec.max_code
    packed = round_calibrated(weight, moments_of(inputs), spec)
    assert (packed.dequantize()[:, 5] - weight[:, 5]).abs().max() <= step


def test_inputs_that_were_all_zero_still_give_the_nearest_weights():
    weight, spec = weights(), AffineSpec(6, 64)
    packed = round_calibrated(weight, torch.zeros(128, 128), spec)
    assert (packed.dequantize() - weight).abs().max() < 0.02


def test_inputs_that_are_not_finite_are_refused():
    moments = torch.eye(128)
    moments[0, 0] = torch.inf
    with pytest.raises(PenjingError, match="not finite"):
        round_calibrated(weights(), moments, AffineSpec(4, 64))


@pytest.mark.parametrize("sign", [1, -1])
def test_weights_of_one_sign_use_the_whole_grid(sign):
    weight = sign * (weights().abs() + 1.0)
    spec = AffineSpec(4, 32)
    packed = round_nearest(weight, spec)
    zero = 0 if sign > 0 else 255
    assert (packed.parts["zero_point"] == zero).any()
    assert (packed.dequantize() - weight).abs().max() <= weight.abs().max() / 15


def test_the_same_inputs_give_the_same_bytes():
    weight, inputs, spec = weights(), correlated_inputs(), AffineSpec(3, 32)
    first, second = (round_calibrated(weight, moments_of(inputs), spec) for _ in range(2))
    assert all(torch.equal(first.parts[name], second.parts[name]) for name in first.parts)
