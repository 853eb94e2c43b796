"""The whole measurement on small models."""

import json
import math

import pytest
import torch
from tests.unit.evaluate_fakes import (
    NumberTokenizer,
    TableModel,
    nearby_model,
    random_model,
    successor_model,
    uniform_model,
)

from penjing.errors import InputError
from penjing.evaluate.compare import compare, evaluate
from penjing.evaluate.likelihood import score_pair
from penjing.evaluate.result import holds
from penjing.evaluate.sample import draw_sample

VOCAB = 400


def counting(start: int, length: int) -> str:
    return " ".join(str(n % VOCAB) for n in range(start, start + length))


TEXTS = {
    "first": [counting(17 * n, 200) for n in range(12)],
    "second": [counting(29 * n + 5, 150) for n in range(10)],
}
TOKENIZER = NumberTokenizer(vocab_size=VOCAB)


def measured(original, shrunk, **kwargs):
    return compare(original, shrunk, TOKENIZER, TEXTS, **{"tokens": 3000, "choice_items": 20, **kwargs})


def test_a_model_keeps_all_of_itself():
    model = nearby_model(successor_model(VOCAB), 1, 0.5)
    result = measured(model, model)
    for text in (*result.texts.values(), result.overall):
        assert text.perplexity_kept.value == text.perplexity_kept.low == text.perplexity_kept.high == 1.0
        assert text.kl.value == 0.0
        assert text.agreement.value == 1.0
    assert result.overall.choice_accuracy == 1.0
    assert result.overall.choice_kept.low == 1.0
    assert holds(result, 1.0).holds


def test_figures_equal_the_pooled_sums():
    original = nearby_model(successor_model(VOCAB), 1, 0.5)
    shrunk = nearby_model(original, 2, 0.5)
    result = measured(original, shrunk)
    sample = draw_sample(TOKENIZER, TEXTS, tokens=3000, choice_items=20)
    scores = [score_pair(original, shrunk, ids) for text in sample.passages.values() for ids in text]
    tokens = sum(score.tokens for score in scores)
    lost = sum(score.nll_shrunk - score.nll_original for score in scores)
    assert result.overall.tokens == tokens == sum(text.tokens for text in result.texts.values())
    assert result.overall.perplexity_kept.value == pytest.approx(math.exp(-lost / tokens))
    assert result.overall.kl.value == pytest.approx(sum(score.kl for score in scores) / tokens)
    assert result.overall.agreement.value == pytest.approx(sum(score.agree for score in scores) / tokens)
    kept = result.overall.perplexity_kept
    assert kept.low < kept.value < kept.high < 1


def test_a_measured_model_has_the_same_perplexity_alone():
    original, shrunk = random_model(VOCAB, 1), random_model(VOCAB, 2)
    alone = evaluate(shrunk, TOKENIZER, TEXTS, name="small", tokens=3000, choice_items=20)
    pair = measured(original, shrunk)
    assert alone.against is None
    assert alone.overall.perplexity_kept is alone.overall.kl is alone.overall.agreement is None
    for name in TEXTS:
        assert alone.texts[name].perplexity == pytest.approx(pair.texts[name].perplexity)
        assert alone.texts[name].choice_accuracy == pair.texts[name].choice_accuracy


def test_choice_is_not_measurable_where_the_original_guesses():
    result = measured(uniform_model(VOCAB), random_model(VOCAB, 1))
    assert result.overall.choice_kept is None
    assert any("not measurable" in notice and "0 of 20" in notice for notice in result.notices)
    assert "perplexity alone decides" in holds(result, 0.5).reason


def test_a_ruined_model_keeps_nothing_and_the_promise_does_not_hold():
    original = nearby_model(successor_model(VOCAB), 1, 0.5)
    result = measured(original, uniform_model(VOCAB))
    assert result.overall.choice_kept.value < 0
    assert not holds(result, 0.95).holds


def test_an_absurd_model_still_gives_finite_figures():
    wrong = TableModel(-1e6 * torch.eye(VOCAB).roll(1, dims=1))
    result = measured(successor_model(VOCAB), wrong)
    assert math.isfinite(result.overall.perplexity)
    json.loads(json.dumps(result.to_json(), allow_nan=False))


def test_padding_ids_of_one_model_are_left_out_and_said():
    original = nearby_model(successor_model(VOCAB), 1, 0.5)
    padded = TableModel(torch.nn.functional.pad(original.table.detach(), (0, 112, 0, 112)))
    result = measured(original, padded)
    assert result.overall.kl.value == 0.0
    assert any("400 token ids" in notice and "512" in notice for notice in result.notices)


def test_vocabularies_that_differ_in_used_ids_are_refused():
    with pytest.raises(InputError, match="the same tokenizer"):
        measured(uniform_model(VOCAB), uniform_model(VOCAB - 10))


def test_passages_fit_the_model_and_the_budget_is_spread_over_the_texts():
    sample = draw_sample(TOKENIZER, TEXTS, length=64, tokens=2000, choice_items=0)
    assert max(len(ids) for text in sample.passages.values() for ids in text) == 64
    for text in sample.passages.values():
        assert 900 <= sum(map(len, text)) <= 1000


def test_what_a_short_text_lacks_longer_ones_give():
    texts = {"long": TEXTS["first"], "short": [counting(0, 100)]}
    sample = draw_sample(TOKENIZER, texts, tokens=2000, choice_items=0)
    assert list(sample.passages) == ["long", "short"]
    assert 1800 <= sum(map(len, sample.passages["long"])) <= 1900


def test_a_text_of_one_passage_has_a_value_and_no_interval():
    texts = {"long": TEXTS["first"], "short": [counting(0, 100)]}
    original = nearby_model(successor_model(VOCAB), 1, 0.5)
    result = compare(original, nearby_model(original, 2, 0.5), TOKENIZER, texts, tokens=2000)
    assert result.texts["short"].perplexity_kept.value > 0
    assert result.texts["short"].perplexity_kept.low is None
    assert result.overall.perplexity_kept.low is not None
    assert any("too few passages for an interval: short" in notice for notice in result.notices)
    assert any("long enough for" in notice and "not for 200" in notice for notice in result.notices)


def test_without_choice_items_perplexity_decides_and_it_is_said():
    model = random_model(VOCAB, 1)
    result = measured(model, model, choice_items=0)
    assert result.overall.choice_accuracy is None
    assert result.overall.choice_kept is None
    assert any("no choice items" in notice for notice in result.notices)


def test_progress_ends_at_its_total():
    steps = []
    measured(
        random_model(VOCAB, 1),
        random_model(VOCAB, 2),
        progress=lambda done, total, label: steps.append((done, total, label)),
    )
    assert [done for done, _, _ in steps] == sorted({done for done, _, _ in steps})
    assert steps[-1][0] == steps[-1][1]
    assert {label for _, _, label in steps} == set(TEXTS)


def test_the_same_call_gives_the_same_result():
    original, shrunk = random_model(VOCAB, 1), random_model(VOCAB, 2)
    assert measured(original, shrunk) == measured(original, shrunk)


def test_text_that_is_too_short_is_named():
    with pytest.raises(InputError, match="text 'tiny'"):
        draw_sample(TOKENIZER, {**TEXTS, "tiny": ["1 2 3"]})
    with pytest.raises(InputError, match="no text"):
        draw_sample(TOKENIZER, {})
    with pytest.raises(InputError, match="50 tokens are too few for 2 texts; give at least 64"):
        draw_sample(TOKENIZER, TEXTS, tokens=50)
