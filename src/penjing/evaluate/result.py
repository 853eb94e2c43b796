"""What an evaluation found, and whether a promise of kept quality holds."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penjing.errors import InputError


@dataclass(frozen=True)
class Interval:
    """A measured value with its 95% interval; `low` and `high` are None where too few passages give none."""

    value: float
    low: float | None
    high: float | None

    def to_json(self) -> dict[str, float | None]:
        return {"value": self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True)
class TextResult:
    """One text, or all of them pooled. None stands for what wasn't measured: anything that needs an original
    where there was none, and choice where it isn't measurable.

    `tokens` counts predicted tokens; `kl` is in nats a token; `choice_accuracy` is the evaluated model's.
    """

    tokens: int
    perplexity: float
    choice_accuracy: float | None
    perplexity_kept: Interval | None = None
    choice_kept: Interval | None = None
    kl: Interval | None = None
    agreement: Interval | None = None

    def to_json(self) -> dict[str, Any]:
        kept = None
        if self.perplexity_kept is not None:
            choice = None if self.choice_kept is None else self.choice_kept.to_json()
            kept = {"perplexity": self.perplexity_kept.to_json(), "choice": choice}
        return {
            "tokens": self.tokens,
            "perplexity": self.perplexity,
            "kept": kept,
            "kl": None if self.kl is None else self.kl.value,
            "agreement": None if self.agreement is None else self.agreement.value,
            "choice_accuracy": self.choice_accuracy,
        }


@dataclass(frozen=True)
class EvalResult:
    """`model` measured on `texts`, against the original `against` if there was one.

    `notices` are full sentences for the user, such as why choice isn't measurable.
    """

    model: str
    against: str | None
    texts: Mapping[str, TextResult]
    overall: TextResult
    notices: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "against": self.against,
            "texts": {name: text.to_json() for name, text in self.texts.items()},
            "overall": self.overall.to_json(),
        }


@dataclass(frozen=True)
class Verdict:
    """Whether a promise holds, and a sentence that says why."""

    holds: bool
    reason: str


def holds(result: EvalResult, keep: float) -> Verdict:
    """`keep` (0.95 for 95%) holds when the lower bounds of perplexity kept and of choice kept, over all
    texts, both reach it; where choice isn't measurable, perplexity decides and the reason says so."""
    if not 0 < keep <= 1:
        raise InputError(f"the share to keep must be above 0 and at most 1 (95% is 0.95), not {keep}")
    perplexity, choice = result.overall.perplexity_kept, result.overall.choice_kept
    if perplexity is None:
        raise InputError("what was kept needs an original to compare with; name it with --against")
    if perplexity.low is None:
        return Verdict(
            False, "the text has too few passages for an interval, so nothing can be promised; give more text"
        )
    bounds = {"perplexity": perplexity.low}
    if choice is not None and choice.low is not None:
        bounds["choice"] = choice.low
    missed = [name for name, low in bounds.items() if low < keep]
    found = " and ".join(f"{name} kept is at least {_floor(low):.2%}" for name, low in bounds.items())
    if "choice" not in bounds:
        found += "; choice isn't measurable here, so perplexity alone decides"
    if missed:
        return Verdict(False, f"{' and '.join(missed)} may fall below {keep:.2%}: {found}")
    return Verdict(True, f"{found} (95% confidence, asked: {keep:.2%})")


def _floor(share: float) -> float:
    """Rounded down to hundredths of a percent, so that a bound is never stated higher than it is."""
    return math.floor(share * 10_000) / 10_000
