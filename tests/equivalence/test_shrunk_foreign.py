"""Models shrunk to the layouts of GPTQ and compressed-tensors: a reader gets the weights that were meant."""

import json

import pytest
import torch
from tests.equivalence.test_shrunk_gguf import QUICK, logits, twin
from tests.equivalence.test_shrunk_models import documents
from tests.unit.models import hf_model

import penjing
from penjing.errors import UnsupportedError
from penjing.model.linear import packed_matrices
from penjing.packed.gptq_spec import GptqSpec
from penjing.packed.pack_quantized_spec import PackQuantizedSpec
from penjing.shrink.effort import EFFORTS
from penjing.shrink.grids.kinds import fit_scales
from penjing.shrink.refine import refine, row_losses
from penjing.shrink.rounding import round_calibrated, round_nearest

LAYOUTS = [
    GptqSpec(4, 64),
    GptqSpec(3, 32),
    GptqSpec(8, 128),
    GptqSpec(2, 64, zero_minus_one=False),
    PackQuantizedSpec(4, 64, symmetric=False),
    PackQuantizedSpec(8, 32, symmetric=False),
]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setitem(EFFORTS, "fast", QUICK)


def weights_and_moments():
    generator = torch.Generator().manual_seed(0)
    weight = 0.05 * torch.randn(48, 256, generator=generator) + 0.01
    x = torch.randn(1000, 64, generator=generator) @ torch.randn(64, 256, generator=generator)
    x += 2 * torch.randn(1000, 256, generator=generator)
    return weight, x.T @ x / 1000


@pytest.mark.parametrize("spec", LAYOUTS, ids=str)
def test_the_parts_hold_the_scales_zeros_and_codes_that_were_chosen(spec):
    weight, _ = weights_and_moments()
    scales = fit_scales(weight, torch.ones(256), spec)
    codes = scales.nearest(weight)
    step, zero = scales.expand(256)
    assert torch.equal(scales.assemble(codes).dequantize(), step * (codes - zero))


@pytest.mark.parametrize("spec", LAYOUTS, ids=str)
def test_calibrated_rounding_loses_less_and_refinement_never_more(spec):
    weight, moments = weights_and_moments()

    def loss(packed):
        error = packed.dequantize() - weight
        return float(((error @ moments) * error).sum())

    nearest = round_nearest(weight, spec, torch.diagonal(moments))
    assert loss(round_calibrated(weight, moments, spec)) < 0.8 * loss(nearest)
    scales = fit_scales(weight, torch.diagonal(moments), spec)
    codes = scales.nearest(weight)
    before = row_losses(weight, codes, scales, moments)
    after = row_losses(weight, *refine(weight, codes, scales, moments, rounds=2), moments)
    assert (after <= before * (1 + 1e-4)).all()


@pytest.mark.parametrize(("form", "share"), [("gptq", 0.75), ("compressed-tensors", 0.75)])
def test_a_folder_opens_with_equal_logits_and_the_promised_bytes(form, share, tmp_path):
    original = penjing.load(hf_model(tmp_path / "m"))
    result = penjing.shrink(original, to=share, effort="fast", texts={"words": documents()}, form=form)
    assert result.save(tmp_path / "small") == result.nbytes <= share * original.base_bytes
    again = penjing.load(tmp_path / "small")
    assert torch.equal(logits(again), logits(result.model)) and again.stored.nbytes == result.nbytes
    config = json.loads((tmp_path / "small" / "config.json").read_text(encoding="utf-8"))
    assert config["quantization_config"]["quant_method"] == form


def test_gptq_has_one_layout_and_leaves_the_embedding_alone(tmp_path):
    original = penjing.load(hf_model(tmp_path / "m"))
    result = penjing.shrink(original, to=0.75, effort="fast", texts={"words": documents()}, form="gptq")
    packed = packed_matrices(result.model.module)
    assert len({matrix.spec for matrix in packed.values()}) == 1
    assert "model.embed_tokens" not in packed and len(packed) == 7 * original.config.num_hidden_layers


def test_what_vllm_runs_as_one_product_has_one_layout(tmp_path):
    original = penjing.load(hf_model(tmp_path / "m"))
    texts = {"words": documents()}
    result = penjing.shrink(original, to=0.75, effort="fast", texts=texts, form="compressed-tensors")
    packed = {name: matrix.spec for name, matrix in packed_matrices(result.model.module).items()}
    for layer in range(original.config.num_hidden_layers):
        attention = f"model.layers.{layer}.self_attn"
        assert len({packed.get(f"{attention}.{name}_proj") for name in "qkv"}) == 1


def test_a_family_that_fuses_its_matrices_is_refused_by_name(tmp_path):
    original = penjing.load(twin("gpt2", tmp_path / "m"))
    with pytest.raises(UnsupportedError, match="fused or transposed"):
        penjing.shrink(original, to=0.75, effort="fast", texts={"words": documents()}, form="gptq")
