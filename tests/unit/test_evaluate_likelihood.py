"""Likelihood of passages and the distance of two models, against a plain computation in float64."""

import math

import pytest
import torch
from tests.unit.evaluate_fakes import TableModel, nearby_model, random_ids, random_model, uniform_model

from penjing.errors import InputError, PenjingError
from penjing.evaluate import forward
from penjing.evaluate.likelihood import score_pair, score_passage

VOCAB = 97


def plain_log_probabilities(model: TableModel, ids: list[int]) -> torch.Tensor:
    return model.table.detach()[ids[:-1]].double().log_softmax(-1)


def test_a_passage_scores_every_token_but_the_first():
    model, ids = random_model(VOCAB, 1), random_ids(VOCAB, 50, 2)
    logp = plain_log_probabilities(model, ids)
    score = score_passage(model, ids)
    assert score.tokens == 49
    expected = -sum(logp[i, token].item() for i, token in enumerate(ids[1:]))
    assert score.nll == pytest.approx(expected, rel=1e-6)


def test_a_uniform_model_has_the_perplexity_of_its_vocabulary():
    score = score_passage(uniform_model(VOCAB), random_ids(VOCAB, 50, 2))
    assert math.exp(score.nll / score.tokens) == pytest.approx(VOCAB, rel=1e-6)


@pytest.mark.parametrize("distance", [1.0, 0.1, 1e-2, 1e-3])
def test_a_pair_equals_the_plain_computation(distance):
    original, ids = random_model(VOCAB, 1), random_ids(VOCAB, 200, 2)
    shrunk = nearby_model(original, 3, distance)
    logp, logq = plain_log_probabilities(original, ids), plain_log_probabilities(shrunk, ids)
    score = score_pair(original, shrunk, ids)
    assert score.nll_original == score_passage(original, ids).nll
    assert score.nll_shrunk == score_passage(shrunk, ids).nll
    assert score.kl == pytest.approx((logp.exp() * (logp - logq)).sum().item(), rel=1e-3)
    assert score.agree == (logp.argmax(-1) == logq.argmax(-1)).sum().item()


def test_a_model_is_at_no_distance_from_itself():
    model = random_model(VOCAB, 1)
    score = score_pair(model, model, random_ids(VOCAB, 80, 2))
    assert score.kl == 0.0
    assert score.agree == score.tokens
    assert score.nll_original == score.nll_shrunk


def test_kl_is_taken_from_the_original_to_the_shrunk_model():
    sure = TableModel(torch.tensor([[2.0, 0.0]] * 2))
    p = 1 / (1 + math.exp(-2))
    expected = p * math.log(p / 0.5) + (1 - p) * math.log((1 - p) / 0.5)
    assert score_pair(sure, uniform_model(2), [0, 1]).kl == pytest.approx(expected, rel=1e-5)


def test_the_size_of_a_slice_does_not_matter(monkeypatch):
    original, ids = random_model(VOCAB, 1), random_ids(VOCAB, 100, 2)
    shrunk = nearby_model(original, 3, 0.3)
    whole = score_pair(original, shrunk, ids)
    for positions in (1, 7, 98):
        monkeypatch.setattr(forward, "SLICE_BYTES", 4 * VOCAB * positions)
        sliced = score_pair(original, shrunk, ids)
        assert sliced.nll_shrunk == pytest.approx(whole.nll_shrunk, rel=1e-12)
        assert sliced.kl == pytest.approx(whole.kl, rel=1e-12)
        assert sliced.agree == whole.agree


def test_logits_of_a_passage_are_never_held_whole(monkeypatch):
    model, seen = random_model(VOCAB, 1), []
    monkeypatch.setattr(forward, "SLICE_BYTES", 4 * VOCAB * 10)
    monkeypatch.setattr(model, "head", lambda x: (seen.append(len(x)), x)[1])
    score_passage(model, random_ids(VOCAB, 100, 2))
    assert sum(seen) == 99
    assert max(seen) == 10


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_logits_that_are_not_finite_name_the_model_and_the_passage(bad):
    model, broken = random_model(VOCAB, 1), random_model(VOCAB, 1)
    broken.table.data[5, 3] = bad
    with pytest.raises(PenjingError, match=r"the shrunk model .* passage 2 of 'novel'"):
        score_pair(model, broken, [1, 5, 2], where="passage 2 of 'novel'")
    with pytest.raises(PenjingError, match=r"the model .* the passage"):
        score_passage(broken, [1, 5, 2])


def test_ids_outside_the_vocabulary_are_refused():
    with pytest.raises(InputError, match=f"token id {VOCAB}, outside the model's vocabulary of {VOCAB}"):
        score_passage(uniform_model(VOCAB), [1, VOCAB])
    with pytest.raises(InputError, match="token id -1"):
        score_passage(uniform_model(VOCAB), [-1, 1])


@pytest.mark.parametrize("ids", [[], [1]])
def test_a_passage_without_a_token_to_predict_is_refused(ids):
    with pytest.raises(InputError, match="at least 2"):
        score_passage(uniform_model(VOCAB), ids)


def test_padding_of_one_vocabulary_changes_nothing():
    original, ids = random_model(VOCAB, 1), random_ids(VOCAB, 60, 2)
    shrunk = nearby_model(original, 3, 0.3)
    padded = TableModel(torch.nn.functional.pad(shrunk.table.detach(), (0, 31, 0, 31), value=3.0))
    assert score_pair(original, padded, ids, vocab=VOCAB) == score_pair(original, shrunk, ids)


def test_vocabularies_of_different_size_are_not_compared_unasked():
    with pytest.raises(InputError, match="97 token ids and the shrunk model 98"):
        score_pair(uniform_model(97), uniform_model(98), [1, 2])
