"""Numbers and tables as people read them, in plain ASCII."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR
from typing import TYPE_CHECKING

from penjing.shrink.report import numbers

if TYPE_CHECKING:
    from penjing.evaluate.result import Interval


def megabytes(nbytes: int) -> str:
    """Bytes in MB of 10^6."""
    return f"{nbytes / 1e6:,.1f} MB"


def millions(count: int) -> str:
    return f"{count / 1e6:,.2f} M"


def percent(share: float | None) -> str:
    return "-" if share is None else numbers.percent(share)


def percent_between(interval: Interval | None) -> str:
    """ "97.3% (96.9% to 97.8%)", the ends rounded outwards, or "-" for what wasn't measured."""
    if interval is None or interval.low is None or interval.high is None:
        return percent(None if interval is None else interval.value)
    low, high = numbers.percent(interval.low, ROUND_FLOOR), numbers.percent(interval.high, ROUND_CEILING)
    return f"{percent(interval.value)} ({low} to {high})"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows as aligned columns, the first to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width) for i, (cell, width) in enumerate(pairs)
        ).rstrip()
        for pairs in (list(zip(row, widths, strict=True)) for row in rows)
    )


def listing(pairs: Sequence[tuple[str, str]]) -> str:
    """Names and values, one pair a line."""
    width = max(len(name) for name, _ in pairs)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in pairs)
