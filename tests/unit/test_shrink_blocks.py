"""Weights are rounded to GGML's blocks: what is predicted is what a reader of the blocks gets."""

import gguf
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from penjing.errors import UnsupportedError
from penjing.packed.ggml.encode import FORMATS
from penjing.packed.ggml.spec import BlockSpec, GgmlSpec
from penjing.shrink.grids.kinds import fit_scales
from penjing.shrink.refine import refine, row_losses
from penjing.shrink.rounding import round_calibrated, round_nearest


def weights(rows=24, columns=512, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return 0.05 * torch.randn(rows, columns, generator=generator)


def moments(columns=512, tokens=2000):
    generator = torch.Generator().manual_seed(2)
    mixed = torch.randn(tokens, 64, generator=generator) @ torch.randn(64, columns, generator=generator)
    x = mixed / 8 + 0.3 * torch.randn(tokens, columns, generator=generator)
    x[:, :8] *= 6
    return x.T @ x / tokens


def loss(weight, packed, moments_CC):
    error = packed.dequantize() - weight
    return float(((error @ moments_CC) * error).sum())


@pytest.mark.parametrize("type_name", FORMATS)
def test_scales_resolve_to_what_the_blocks_hold(type_name):
    weight = weights()
    scales = fit_scales(weight, torch.ones(512), BlockSpec(type_name))
    codes = scales.nearest(weight)
    step, zero = scales.expand(512)
    assert torch.allclose(scales.assemble(codes).dequantize(), step * (codes - zero), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("type_name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_rounding_to_nearest_errs_no_more_than_the_gguf_package(type_name):
    weight = weights()
    kind = gguf.GGMLQuantizationType[type_name]
    theirs = gguf.quants.dequantize(gguf.quants.quantize(weight.numpy(), kind), kind)
    ours = round_nearest(weight, BlockSpec(type_name)).dequantize()
    assert (ours - weight).square().sum() < (torch.from_numpy(theirs) - weight).square().sum()


def test_more_bits_err_less():
    weight = weights()
    errors = [
        float((round_nearest(weight, BlockSpec(name)).dequantize() - weight).square().sum())
        for name in ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "Q8_0")
    ]
    assert errors == sorted(errors, reverse=True)


@pytest.mark.parametrize("type_name", [name for name in FORMATS if name != "Q8_0"])
def test_calibrated_rounding_loses_less_than_rounding_to_nearest(type_name):
    weight, moments_CC, spec = weights(), moments(), BlockSpec(type_name)
    nearest = round_nearest(weight, spec, torch.diagonal(moments_CC))
    calibrated = round_calibrated(weight, moments_CC, spec)
    assert loss(weight, calibrated, moments_CC) < 0.8 * loss(weight, nearest, moments_CC)


@pytest.mark.parametrize("type_name", FORMATS)
def test_refinement_never_loses_more(type_name):
    weight, moments_CC, spec = weights(), moments(), BlockSpec(type_name)
    scales = fit_scales(weight, torch.diagonal(moments_CC), spec)
    codes = scales.nearest(weight)
    before = row_losses(weight, codes, scales, moments_CC)
    after = row_losses(weight, *refine(weight, codes, scales, moments_CC, rounds=2), moments_CC)
    assert (after <= before * (1 + 1e-4)).all() and after.sum() < before.sum()


@pytest.mark.parametrize("type_name", FORMATS)
@given(
    scale=st.sampled_from([0.0, 1e-12, 1e-6, 1.0, 300.0]),
    outlier=st.sampled_from([0.0, -1.0, 50.0]),
    constant=st.booleans(),
)
@settings(max_examples=20, deadline=None)
def test_odd_weights_give_finite_values_that_are_near(type_name, scale, outlier, constant):
    weight = scale * (torch.ones(2, 256) if constant else weights(2, 256) * 20)
    weight[0, 3] += scale * outlier
    found = round_nearest(weight, BlockSpec(type_name)).dequantize()
    assert found.isfinite().all()
    spread = float(weight.amax() - weight.amin().clamp(max=0)) + float(weight.amin().abs())
    assert (found - weight).abs().max() <= spread / 2 + 1e-4  # a factor of 16 bits is no smaller


def test_blocks_that_are_only_read_are_refused():
    with pytest.raises(UnsupportedError, match="Q4_0"):
        fit_scales(weights(), torch.ones(512), GgmlSpec("Q4_0"))
    with pytest.raises(UnsupportedError, match="IQ3_S"):
        fit_scales(weights(), torch.ones(512), BlockSpec("IQ3_S"))
