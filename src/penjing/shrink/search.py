"""The smallest size that keeps what was asked, found by building and measuring a few."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log
from typing import Generic, TypeVar

Result = TypeVar("Result")
Predict = Callable[[int], float]
_CLOSE = 1.02  # sizes nearer than this count as the same
_INSIDE = 0.15  # a guess stays this share of the bracket away from its ends


@dataclass(frozen=True)
class Measured(Generic[Result]):
    """A size that was built, what it kept on the search split, and the share that it kept at least."""

    nbytes: int
    result: Result
    at_least: float
    holds: bool

    @property
    def loss(self) -> float:
        """Nats a token that may have been lost."""
        return -log(min(max(self.at_least, 1e-3), 1 - 1e-6))


def find_smallest(
    measure: Callable[[int], Measured[Result]],
    predict: Predict,
    smallest: int,
    largest: int,
    keep: float,
    trials: int,
) -> list[Measured[Result]]:
    """Measure up to `trials` sizes in [smallest, largest], closing in on the least one that holds `keep`.

    `predict(nbytes)` is the predicted divergence, falling with size: measured sizes correct its scale. The
    result holds all trials in order; the smallest one that holds, if any, is the answer.
    """
    low, high = smallest, largest
    measured: list[Measured[Result]] = []
    size = _size_for(predict, -log(keep) / 2, low, high)
    for _ in range(trials):
        measured.append(measure(size))
        if measured[-1].holds:
            high = min(high, size)
        else:
            low = max(low, size)
        if low >= largest or high / low < _CLOSE:
            break
        size = _next_size(measured, predict, keep, low, high, largest)
    return measured


def smallest_holding(measured: Sequence[Measured[Result]]) -> Measured[Result] | None:
    """The least size that held."""
    return min((m for m in measured if m.holds), key=lambda m: m.nbytes, default=None)


def _next_size(
    measured: Sequence[Measured[Result]], predict: Predict, keep: float, low: int, high: int, largest: int
) -> int:
    if not any(m.holds for m in measured) and len(measured) > 1:
        return largest  # two misses: see first whether it can be reached at all
    last = measured[-1]
    scale = last.loss / max(predict(last.nbytes), 1e-12)
    guess = _size_for(predict, -log(keep) / max(scale, 1e-12), low, high)
    margin = int((high - low) * _INSIDE)
    return min(max(guess, low + margin), high - margin)


def _size_for(predict: Predict, divergence: float, low: int, high: int) -> int:
    """The least size in [low, high] whose predicted divergence is at most `divergence`; `high` if none is."""
    while high - low > max(1, high // 1000):
        middle = (low + high) // 2
        if predict(middle) <= divergence:
            high = middle
        else:
            low = middle
    return high
