"""Packed matrices in training: the same weights, right gradients, and packed again within a stored step."""

import pytest
import torch
from tests.unit.test_shrink_rounding import weights
from torch import nn

from penjing.model.linear import PackedEmbedding, PackedLinear
from penjing.packed.affine_spec import AffineSpec
from penjing.shrink.rounding import round_nearest
from penjing.shrink.trainable import TrainableMatrix, make_trainable, pack_trained

CASES = [(3, 32, 64), (4, 64, 80), (8, 0, 96)]  # bits, group, columns: even groups, a short last one, a row


@pytest.mark.parametrize(("bits", "group", "columns"), CASES)
def test_before_training_the_weights_are_the_packed_ones(bits, group, columns):
    packed = round_nearest(weights(columns=columns), AffineSpec(bits, group))
    assert torch.equal(TrainableMatrix(packed).weight, packed.dequantize())


@pytest.mark.parametrize(("bits", "group", "columns"), CASES)
def test_gradients_are_those_of_the_formula(bits, group, columns):
    matrix = TrainableMatrix(round_nearest(weights(columns=columns), AffineSpec(bits, group)))
    wanted = torch.randn(48, columns, generator=torch.Generator().manual_seed(1))
    (matrix.weight * wanted).sum().backward()
    found = [parameter.grad for parameter in matrix.parameters()]
    matrix.zero_grad()
    step = matrix.step_RG * (1 + matrix.row_change) * (1 + matrix.scale_change)
    zero = matrix.zero_RG + matrix.zero_change
    group_C = torch.arange(columns) // matrix.width
    plain = step[:, group_C] * (matrix.codes_RC[:, :columns].float() - zero[:, group_C])
    (plain * wanted).sum().backward()
    for gradient, parameter in zip(found, matrix.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad)


@pytest.mark.parametrize(("bits", "group", "columns"), CASES)
def test_changes_survive_packing_to_half_a_stored_step(bits, group, columns):
    matrix = TrainableMatrix(round_nearest(weights(columns=columns), AffineSpec(bits, group)))
    with torch.no_grad():
        matrix.row_change += 0.05
        matrix.scale_change += 0.1 * torch.rand(matrix.scale_change.shape)
        matrix.zero_change += 0.2
    wanted, packed = matrix.weight.detach(), matrix.packed()
    assert packed.spec == AffineSpec(bits, group)
    largest = wanted.abs().amax(dim=1, keepdim=True)
    assert ((packed.dequantize() - wanted).abs() <= 0.02 * largest + 1e-6).all()


def test_linears_and_embeddings_come_back_as_they_went():
    spec = AffineSpec(4, 32)
    bias = nn.Parameter(torch.ones(48))
    root = nn.ModuleDict(
        {
            "linear": PackedLinear(round_nearest(weights(), spec), bias),
            "embedding": PackedEmbedding(round_nearest(weights(seed=1), spec)),
            "plain": nn.Linear(4, 4),
        }
    )
    trained = make_trainable(root)
    assert sorted(trained) == ["embedding", "linear"]
    assert root["linear"](torch.ones(1, 128)).requires_grad
    pack_trained(root, trained)
    assert isinstance(root["linear"], PackedLinear) and root["linear"].bias is bias
    assert isinstance(root["embedding"], PackedEmbedding)
