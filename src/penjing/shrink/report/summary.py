"""The top of the report: how small it is now, and whether what was asked for holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

from penjing.shrink.report import numbers
from penjing.shrink.report.numbers import Figure
from penjing.shrink.result import ShrinkResult

_SAME = 0.01  # sizes nearer than this share are told once


@dataclass(frozen=True)
class SizeBar:
    """`length` is relative to the largest, 0 to 1; `ratio` is what the shrunk model is of this size."""

    label: str
    size: str
    ratio: str | None
    length: float


@dataclass(frozen=True)
class Verdict:
    state: Literal["holds", "fails", "unasked"]
    title: str
    reason: str


@dataclass(frozen=True)
class Tile:
    label: str
    figure: Figure


@dataclass(frozen=True)
class Summary:
    name: str
    size: str
    ratio: str
    bits: str
    verdict: Verdict
    asked: str
    sizes: Sequence[SizeBar]
    tiles: Sequence[Tile]


def summary(result: ShrinkResult) -> Summary:
    """Everything that the headline needs."""
    return Summary(
        name=short_name(result.original_name),
        size=numbers.size(result.nbytes),
        ratio=f"{result.ratio:.2f}",
        bits=f"{result.model.ledger.bits_per_weight:.2f}",
        verdict=_verdict(result),
        asked=_asked(result),
        sizes=size_bars(result),
        tiles=_tiles(result),
    )


def short_name(name: str) -> str:
    """The last part of a path or hub id."""
    return PurePath(name).name or name


def size_bars(result: ShrinkResult) -> list[SizeBar]:
    """The model now, the file it came from, the same at 16 bits, and the base, each size once."""
    sixteen = 2 * result.original.parameters
    known = {"the model it came from": result.original.nbytes}
    for label, nbytes in (("the same at 16 bits", sixteen), ("the base", result.base_bytes)):
        if all(abs(nbytes - other) > _SAME * other for other in known.values()):
            known[label] = nbytes
    largest = max(result.nbytes, *known.values())
    bars = [SizeBar("now", numbers.size(result.nbytes), None, result.nbytes / largest)]
    return bars + [
        SizeBar(label, numbers.size(nbytes), f"{result.nbytes / nbytes:.2f}", nbytes / largest)
        for label, nbytes in known.items()
    ]


def _verdict(result: ShrinkResult) -> Verdict:
    if result.verdict is None:
        return Verdict(
            "unasked", "No promise was asked for", "What it kept was measured all the same; see below."
        )
    indicative = " (indicative, from a fast run)" if result.asked.effort == "fast" else ""
    share = f"{100 * result.asked.keep:g}% kept" if result.asked.keep is not None else "The promise"
    state, word = ("holds", "holds") if result.verdict.holds else ("fails", "does not hold")
    return Verdict(state, f"{share}: {word}{indicative}", numbers.sentence(result.verdict.reason))


def _asked(result: ShrinkResult) -> str:
    wishes = []
    if result.asked.nbytes is not None:
        met = "" if result.nbytes <= result.asked.nbytes else " (not reached)"
        wishes.append(f"at most {numbers.size(result.asked.nbytes)}{met}")
    if result.asked.keep is not None:
        wishes.append(f"at least {100 * result.asked.keep:g}% kept")
    return " and ".join(wishes) or "nothing in particular"


def _tiles(result: ShrinkResult) -> list[Tile]:
    overall = result.report.overall
    absent = choice_absence(overall.choice_accuracy)
    return [
        Tile("perplexity kept", numbers.percent_figure(overall.perplexity_kept)),
        Tile("choice kept", numbers.percent_figure(overall.choice_kept, absent)),
        Tile("same next token", numbers.percent_figure(overall.agreement)),
        Tile("KL, nats a token", numbers.nats_figure(overall.kl)),
    ]


def choice_absence(choice_accuracy: float | None) -> str:
    """Why there is no choice kept: no items at all, or an original that is not above chance."""
    return numbers.NOT_MEASURED if choice_accuracy is None else "not measurable"
