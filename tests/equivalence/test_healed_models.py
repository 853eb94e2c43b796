"""A healed model is nearer to its original, with the same codes and bytes, the same on disk as in memory."""

from dataclasses import replace

import pytest
import torch
from tests.equivalence.test_shrunk_models import documents
from tests.unit.models import hf_model, prompt

import penjing
from penjing.model.linear import packed_matrices
from penjing.shrink.builder import make_builder
from penjing.shrink.effort import find_effort
from penjing.shrink.healing import HealingConfig, heal
from penjing.train.distillation import distillation_loss

EFFORT = replace(find_effort("fast"), healing_passages=12, passage_tokens=64)


@pytest.fixture(scope="module")
def builder(tmp_path_factory):
    original = penjing.load(hf_model(tmp_path_factory.mktemp("original") / "m"))
    return make_builder(original, {"words": documents()}, EFFORT)


@pytest.fixture(scope="module")
def shrunk(builder):
    return builder.build(builder.planner.smallest)


@torch.no_grad()
def divergence(original, module, ids_NL):
    positions = torch.arange(ids_NL.shape[1]).expand(ids_NL.shape)
    hidden = [each.hidden(ids_NL, positions).flatten(0, 1) for each in (original, module)]
    loss = distillation_loss(original.head, hidden[0], module.head, hidden[1])
    return float(loss.total) / loss.count


def test_healing_brings_the_model_nearer_on_text_that_it_did_not_learn_from(builder, shrunk):
    learned, fresh = builder._healing_ids, builder.ids_NL
    config = HealingConfig(row_rate=1e-2, epochs=4)
    healed = heal(builder.original.decoder, shrunk.decoder, learned, torch.Generator().manual_seed(0), config)
    before, after = (divergence(builder.original.decoder, m, fresh) for m in (shrunk.decoder, healed))
    assert after < 0.95 * before


def test_codes_stay_and_no_byte_is_added(builder, shrunk):
    healed = builder.heal(shrunk)
    assert healed.module is not shrunk.module
    assert healed.ledger.nbytes == shrunk.ledger.nbytes
    before, after = packed_matrices(shrunk.module), packed_matrices(healed.module)
    for name, matrix in after.items():
        assert torch.equal(matrix.packed.parts["codes"], before[name].packed.parts["codes"])


def test_the_original_and_the_model_before_healing_are_left_alone(builder, shrunk):
    weights = {name: p.clone() for name, p in builder.original.module.named_parameters()}
    logits = shrunk.module(*prompt())
    builder.heal(shrunk)
    assert all(torch.equal(p, weights[name]) for name, p in builder.original.module.named_parameters())
    assert torch.equal(shrunk.module(*prompt()), logits)


def test_a_healed_model_reopens_bit_equal_and_heals_the_same_again(builder, shrunk, tmp_path):
    first, second = builder.heal(shrunk), builder.heal(shrunk)
    assert torch.equal(first.module(*prompt()), second.module(*prompt()))
    first.save(tmp_path / "healed")
    reopened = penjing.load(tmp_path / "healed")
    assert torch.equal(reopened.module(*prompt()), first.module(*prompt()))


def test_where_nothing_gets_better_the_model_stays_as_it_was(builder, shrunk):
    ruinous = HealingConfig(row_rate=10.0)
    generator = torch.Generator().manual_seed(0)
    original, before = builder.original.decoder, shrunk.decoder
    assert heal(original, before, builder._healing_ids, generator, ruinous) is before
