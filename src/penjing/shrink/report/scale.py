"""From values to places on a chart: linear and logarithmic axes with round ticks."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10

_MAX_TICKS = 6
_MARGIN = 0.05  # of the range, left free at both ends of a linear axis


@dataclass(frozen=True)
class Scale:
    """Maps [low, high] to [start, end]; `end` may lie before `start`, as a vertical axis of SVG does."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        low, high = self._place(self.low), self._place(self.high)
        share = (self._place(value) - low) / (high - low)
        return round(self.start + share * (self.end - self.start), 2)

    def ticks(self) -> list[float]:
        """Round values inside the range, at most about six."""
        return self._decades() if self.logarithmic else self._steps()

    def _place(self, value: float) -> float:
        return log10(value) if self.logarithmic else value

    def _decades(self) -> list[float]:
        first, last = round(log10(self.low)), round(log10(self.high))
        step = ceil((last - first) / _MAX_TICKS)
        return [10.0**power for power in range(first, last + 1, step)]

    def _steps(self) -> list[float]:
        step = _round_step((self.high - self.low) / _MAX_TICKS)
        first, last = ceil(self.low / step), floor(self.high / step)
        # Rounded, for 3 * 0.1 is not 0.3.
        return [float(f"{i * step:.12g}") for i in range(first, last + 1)]


def linear(values: Iterable[float], start: float, end: float) -> Scale:
    """An axis that shows all finite `values` with a margin; there must be at least one."""
    low, high = _range(values)
    margin = _MARGIN * ((high - low) or abs(high) or 1.0)
    return Scale(low - margin, high + margin, start, end)


def logarithmic(values: Iterable[float], start: float, end: float) -> Scale:
    """An axis of whole decades that shows all finite positive `values`; there must be at least one."""
    low, high = _range(value for value in values if value > 0)
    first, last = floor(log10(low)), ceil(log10(high))
    return Scale(10.0**first, 10.0 ** max(last, first + 1), start, end, logarithmic=True)


def _range(values: Iterable[float]) -> tuple[float, float]:
    finite = [value for value in values if isfinite(value)]
    return min(finite), max(finite)


def _round_step(least: float) -> float:
    """The smallest of 1, 2, 2.5, 5 times a power of ten that is at least `least`."""
    power = 10.0 ** floor(log10(least))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= least * (1 - 1e-9))
