"""The smallest size that keeps what was asked, found by building and measuring a few."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log

from penjing.errors import InputError
from penjing.evaluate.result import EvalResult, holds

Predict = Callable[[int], float]
_CLOSE = 1.02  # sizes nearer than this count as the same
_INSIDE = 0.15  # a guess stays this share of the bracket away from its ends


@dataclass(frozen=True)
class Measured:
    """A size that was built, and what it kept on the search split."""

    nbytes: int
    result: EvalResult
    holds: bool


def find_smallest(
    measure: Callable[[int], EvalResult],
    predict: Predict,
    smallest: int,
    largest: int,
    keep: float,
    trials: int,
) -> list[Measured]:
    """Measure up to `trials` sizes in [smallest, largest], closing in on the least one that holds `keep`.

    `predict(nbytes)` is the predicted divergence, falling with size: measured sizes correct its scale. The
    result holds all trials in order; the smallest one that holds, if any, is the answer.
    """
    low, high = smallest, largest
    measured: list[Measured] = []
    size = _size_for(predict, -log(keep) / 2, low, high)
    for _ in range(trials):
        result = measure(size)
        _require_interval(result)
        measured.append(Measured(size, result, holds(result, keep).holds))
        if measured[-1].holds:
            high = min(high, size)
        else:
            low = max(low, size)
        if low >= largest or high / low < _CLOSE:
            break
        size = _next_size(measured, predict, keep, low, high, largest)
    return measured


def _require_interval(result: EvalResult) -> None:
    kept = result.overall.perplexity_kept
    if kept is None or kept.low is None:
        raise InputError(
            "the search split has too few passages for an interval, so no promise can be searched for;"
            " give more text, fewer texts, or a higher effort"
        )


def smallest_holding(measured: Sequence[Measured]) -> Measured | None:
    """The least size that held."""
    return min((m for m in measured if m.holds), key=lambda m: m.nbytes, default=None)


def _next_size(
    measured: Sequence[Measured], predict: Predict, keep: float, low: int, high: int, largest: int
) -> int:
    if not any(m.holds for m in measured) and len(measured) > 1:
        return largest  # two misses: see first whether it can be reached at all
    last = measured[-1]
    scale = _loss(last.result) / max(predict(last.nbytes), 1e-12)
    guess = _size_for(predict, -log(keep) / max(scale, 1e-12), low, high)
    margin = int((high - low) * _INSIDE)
    return min(max(guess, low + margin), high - margin)


def _loss(result: EvalResult) -> float:
    """Nats a token that may have been lost: by the lower bounds of what was kept."""
    overall = result.overall
    bounds = [
        k.low for k in (overall.perplexity_kept, overall.choice_kept) if k is not None and k.low is not None
    ]
    return -log(min(max(min(bounds, default=1e-3), 1e-3), 1 - 1e-6))


def _size_for(predict: Predict, divergence: float, low: int, high: int) -> int:
    """The least size in [low, high] whose predicted divergence is at most `divergence`; `high` if none is."""
    while high - low > max(1, high // 1000):
        middle = (low + high) // 2
        if predict(middle) <= divergence:
            high = middle
        else:
            low = middle
    return high
