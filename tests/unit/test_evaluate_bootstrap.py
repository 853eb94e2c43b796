"""Intervals on synthetic data whose truth is known."""

import numpy as np
import pytest

from penjing.evaluate.bootstrap import bootstrap


def mean(sums):
    return sums[..., 1] / sums[..., 0]


def with_counts(values) -> np.ndarray:
    return np.stack([np.ones(len(values)), values], axis=1)


def kept(sums):
    return np.exp((sums[..., 1] - sums[..., 2]) / sums[..., 0])


def synthetic_passages(rng: np.random.Generator, count: int, loss: float, spread: float) -> np.ndarray:
    """Tokens, both likelihoods: passages that differ much, a skewed loss of mean `loss` a token."""
    tokens = rng.integers(300, 1024, count).astype(float)
    original = tokens * rng.normal(3, 0.5, count)
    return np.stack([tokens, original, original + tokens * loss * rng.gamma(4, spread / 4, count)], axis=1)


@pytest.mark.parametrize("strata", [(8,), (32,), (4, 4, 4, 4), (5, 20)])
def test_the_interval_covers_the_truth_as_often_as_it_says(strata):
    rng = np.random.default_rng(0)
    covered = 0
    for experiment in range(200):
        units = synthetic_passages(rng, sum(strata), loss=0.02, spread=1.0)
        interval = bootstrap(units, strata, kept, seed=experiment)
        covered += interval.low <= np.exp(-0.02) <= interval.high
    assert 0.90 <= covered / 200 <= 0.99


def test_pairing_removes_what_both_models_share():
    units = synthetic_passages(np.random.default_rng(1), 32, loss=0.02, spread=1.0)
    interval = bootstrap(units, [32], kept, seed=0)
    assert interval.low < interval.value < interval.high
    assert interval.high - interval.low < 0.01


def test_differences_between_texts_do_not_widen_the_pooled_interval():
    rng = np.random.default_rng(2)
    values = np.concatenate([rng.normal(0, 1, 40), rng.normal(100, 1, 40)])
    interval = bootstrap(with_counts(values), [40, 40], mean, seed=0)
    assert interval.high - interval.low < 1


def test_the_spread_of_few_units_is_not_understated():
    values = np.random.default_rng(3).normal(0, 1, 12)
    interval = bootstrap(with_counts(values), [3, 3, 3, 3], mean, seed=0)
    blocks = values.reshape(4, 3)
    error = np.sqrt((blocks.var(axis=1, ddof=1) / 3).sum()) / 4
    assert interval.high - interval.low == pytest.approx(2 * 2.31 * error, rel=0.1)


@pytest.mark.parametrize("strata", [(1,), (5,), (2, 2, 2, 2)])
def test_too_few_units_give_a_value_and_no_interval(strata):
    interval = bootstrap(with_counts(np.arange(sum(strata)) + 1.0), strata, mean, seed=0)
    assert interval.value == np.mean(np.arange(sum(strata)) + 1.0)
    assert interval.low is None
    assert interval.high is None


def test_a_text_of_one_passage_is_resampled_with_the_others():
    values = np.random.default_rng(4).normal(0, 1, 21)
    together = bootstrap(with_counts(values), [21], mean, seed=0)
    assert bootstrap(with_counts(values), [20, 1], mean, seed=0) == together


def test_the_seed_decides_and_the_global_state_is_left_alone():
    units = synthetic_passages(np.random.default_rng(5), 20, loss=0.1, spread=1.0)
    before = np.random.get_state()[1].copy()
    assert bootstrap(units, [20], kept, seed=1) == bootstrap(units, [20], kept, seed=1)
    assert bootstrap(units, [20], kept, seed=1) != bootstrap(units, [20], kept, seed=2)
    assert (np.random.get_state()[1] == before).all()
