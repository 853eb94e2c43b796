"""How the report writes numbers: short, rounded once, and never a number where nothing was measured."""

from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from math import isfinite

from penjing.evaluate.result import Interval

NOT_MEASURED = "not measured"
_NO_INTERVAL = "no interval: too few passages"
_TO = "\u202f\u2013\u2060\u202f"  # an en dash between narrow spaces, where no line breaks


@dataclass(frozen=True)
class Figure:
    """A figure as it is printed, and its 95% interval if there is one."""

    text: str
    interval: str | None = None


def size(nbytes: int) -> str:
    """Bytes in kB, MB or GB (powers of ten)."""
    if nbytes >= 10**9:
        return f"{nbytes / 1e9:.2f} GB"
    return f"{nbytes / 1e6:.1f} MB" if nbytes >= 10**5 else f"{nbytes / 1e3:.1f} kB"


def percent(value: float, rounding: str = ROUND_HALF_EVEN) -> str:
    """A share as a percentage with one decimal."""
    if not isfinite(value):
        return "not a number"
    return f"{(100 * Decimal(str(value))).quantize(Decimal('0.1'), rounding=rounding)}%"


def percent_figure(interval: Interval | None, absent: str = NOT_MEASURED) -> Figure:
    """A share with its interval. The ends are rounded outwards, so 94.97% never reads as 95%."""
    if interval is None:
        return Figure(absent)
    if interval.low is None or interval.high is None:
        return Figure(percent(interval.value), _NO_INTERVAL)
    low = percent(interval.low, ROUND_FLOOR).removesuffix("%")
    return Figure(percent(interval.value), low + _TO + percent(interval.high, ROUND_CEILING))


def nats(value: float) -> str:
    """A divergence in nats a token, three significant digits."""
    return f"{value:.3g}" if isfinite(value) else "not finite"


def nats_figure(interval: Interval | None) -> Figure:
    """A divergence with its interval."""
    if interval is None:
        return Figure(NOT_MEASURED)
    if interval.low is None or interval.high is None:
        return Figure(nats(interval.value), _NO_INTERVAL)
    return Figure(nats(interval.value), nats(interval.low) + _TO + nats(interval.high))


def sentence(text: str) -> str:
    """`text` with a capital first letter and an end."""
    text = text.strip()
    return text if not text else text[0].upper() + text[1:] + ("" if text[-1] in ".!?" else ".")
