"""The stable JSON keys and what it means that a promise holds."""

import json

import pytest

from penjing.errors import InputError
from penjing.evaluate.result import EvalResult, Interval, TextResult, holds

KEYS = ["tokens", "perplexity", "kept", "kl", "agreement", "choice_accuracy"]


def result(perplexity: Interval | None, choice: Interval | None) -> EvalResult:
    text = TextResult(
        tokens=1000,
        perplexity=12.5,
        choice_accuracy=0.75,
        perplexity_kept=perplexity,
        choice_kept=choice,
        kl=Interval(0.01, 0.005, 0.02),
        agreement=Interval(0.9, 0.88, 0.92),
    )
    return EvalResult("small", "big", {"novel": text}, text)


def test_the_json_has_the_promised_keys():
    found = json.loads(json.dumps(result(Interval(0.98, 0.97, 0.99), Interval(1.0, 0.9, 1.1)).to_json()))
    assert list(found) == ["model", "against", "texts", "overall"]
    assert found["texts"] == {"novel": found["overall"]}
    assert list(found["overall"]) == KEYS
    assert found["overall"]["kept"] == {
        "perplexity": {"value": 0.98, "low": 0.97, "high": 0.99},
        "choice": {"value": 1.0, "low": 0.9, "high": 1.1},
    }
    assert found["overall"]["kl"] == 0.01
    assert found["overall"]["agreement"] == 0.9


def test_choice_that_is_not_measurable_is_null():
    kept = result(Interval(0.98, 0.97, 0.99), None).to_json()["overall"]["kept"]
    assert kept["choice"] is None


def test_without_an_original_nothing_was_kept():
    text = TextResult(tokens=1000, perplexity=12.5, choice_accuracy=0.75)
    found = EvalResult("small", None, {"novel": text}, text).to_json()
    assert found["against"] is None
    assert list(found["overall"]) == KEYS
    assert [found["overall"][key] for key in ("kept", "kl", "agreement")] == [None] * 3


@pytest.mark.parametrize(
    ("perplexity_low", "choice_low", "expected", "said"),
    [
        (0.96, 0.96, True, "perplexity kept is at least 96.00% and choice kept is at least 96.00%"),
        (0.95, 0.95, True, "95% confidence"),
        (0.94, 0.96, False, "perplexity may fall below 95.00%"),
        (0.96, 0.94, False, "choice may fall below 95.00%"),
        (0.94, 0.94, False, "perplexity and choice may fall"),
        (0.96, None, True, "perplexity alone decides"),
        (0.94, None, False, "perplexity alone decides"),
    ],
)
def test_a_promise_holds_when_both_lower_bounds_reach_it(perplexity_low, choice_low, expected, said):
    choice = None if choice_low is None else Interval(1.0, choice_low, 1.1)
    verdict = holds(result(Interval(0.97, perplexity_low, 0.99), choice), 0.95)
    assert verdict.holds is expected
    assert said in verdict.reason


def test_nothing_is_promised_without_an_interval():
    verdict = holds(result(Interval(0.99, None, None), Interval(1.0, 0.99, 1.0)), 0.5)
    assert not verdict.holds
    assert "more text" in verdict.reason


@pytest.mark.parametrize("keep", [0.0, -0.1, 95.0, float("nan")])
def test_a_share_that_is_none_is_refused(keep):
    with pytest.raises(InputError, match="above 0 and at most 1"):
        holds(result(Interval(0.99, 0.98, 1.0), None), keep)


def test_a_promise_needs_an_original():
    with pytest.raises(InputError, match="original"):
        holds(result(None, None), 0.95)
