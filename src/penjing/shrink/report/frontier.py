"""Size against quality: what was predicted, what was built and measured, and what was chosen."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite, log10
from typing import Literal

from penjing.evaluate.result import Interval
from penjing.shrink.report import numbers
from penjing.shrink.report.numbers import Figure
from penjing.shrink.report.scale import Scale, linear, logarithmic
from penjing.shrink.result import ShrinkResult, Trial

Kind = Literal["chosen", "held", "missed", "tried"]
WIDTH, HEIGHT = 420, 320
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
LEFT, RIGHT, TOP, BOTTOM = 56, 404, 28, 274


@dataclass(frozen=True)
class Point:
    """One trial on a chart; `whisker` is the two ends of its interval."""

    kind: Kind
    x: float
    y: float
    whisker: tuple[float, float] | None
    title: str


@dataclass(frozen=True)
class Tick:
    at: float
    label: str


@dataclass(frozen=True)
class Chart:
    """A chart in pixels: `curve` is a polyline's points, `original_x` and `keep_y` are straight lines."""

    title: str
    y_label: str
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    curve: str
    points: Sequence[Point]
    original_x: float
    keep_y: float | None = None
    keep_label: str = ""


@dataclass(frozen=True)
class TrialRow:
    size: str
    kl: str
    perplexity: Figure
    choice: Figure
    outcome: str
    split: str
    chosen: bool


def divergence_chart(result: ShrinkResult) -> Chart | None:
    """Size against KL on a logarithmic axis; None if nothing positive was predicted or measured."""
    curve = [(nbytes, kl) for nbytes, kl in result.predicted if _drawable(kl)]
    trials = [trial for trial in result.trials if _drawable(trial.kl)]
    if not curve and not trials:
        return None
    spans = {id(trial): _kl_interval(trial, result) for trial in trials}
    ends = [end for span in spans.values() if span for end in span]
    x = _size_axis(result)
    y = logarithmic([*(kl for _, kl in curve), *(t.kl for t in trials), *ends], BOTTOM, TOP)
    return Chart(
        title="Divergence from the original, by size",
        y_label="KL, nats a token (less is better)",
        x_ticks=_size_ticks(x),
        y_ticks=[Tick(y(value), _decade(value)) for value in y.ticks()],
        curve=" ".join(f"{x(nbytes)},{y(kl)}" for nbytes, kl in curve),
        points=_points(trials, [(x(t.nbytes), y(t.kl), _mapped(y, spans[id(t)])) for t in trials]),
        original_x=x(result.original.nbytes),
    )


def perplexity_chart(result: ShrinkResult) -> Chart | None:
    """Size against perplexity kept with its intervals; None without a trial."""
    trials = [trial for trial in result.trials if isfinite(trial.perplexity_kept.value)]
    if not trials:
        return None
    spans = [_interval(trial.perplexity_kept) for trial in trials]
    keep = result.asked.keep
    values = [t.perplexity_kept.value for t in trials] + [end for span in spans if span for end in span]
    x, y = _size_axis(result), linear([*values, 1.0, *([keep] if keep else [])], BOTTOM, TOP)
    places = [
        (x(t.nbytes), y(t.perplexity_kept.value), _mapped(y, s)) for t, s in zip(trials, spans, strict=True)
    ]
    return Chart(
        title="Perplexity kept, by size",
        y_label="perplexity kept (more is better)",
        x_ticks=_size_ticks(x),
        y_ticks=[Tick(y(value), f"{100 * value:.6g}%") for value in y.ticks()],
        curve="",
        points=_points(trials, places),
        original_x=x(result.original.nbytes),
        keep_y=y(keep) if keep else None,
        keep_label=f"asked: {100 * keep:g}%" if keep else "",
    )


def trial_rows(trials: Iterable[Trial]) -> list[TrialRow]:
    """The measured trials as a table, smallest first."""
    return [
        TrialRow(
            size=numbers.size(trial.nbytes),
            kl=numbers.nats(trial.kl),
            perplexity=numbers.percent_figure(trial.perplexity_kept),
            choice=numbers.percent_figure(trial.choice_kept, "no figure"),
            outcome={True: "holds", False: "does not hold", None: "not asked"}[trial.holds],
            split=trial.split,
            chosen=trial.chosen,
        )
        for trial in sorted(trials, key=lambda t: t.nbytes)
    ]


def kind_of(trial: Trial) -> Kind:
    """How a trial is drawn."""
    if trial.chosen:
        return "chosen"
    return "tried" if trial.holds is None else "held" if trial.holds else "missed"


def _points(
    trials: Sequence[Trial], places: Sequence[tuple[float, float, tuple[float, float] | None]]
) -> list[Point]:
    points = [
        Point(kind_of(t), x, y, whisker, _title(t)) for t, (x, y, whisker) in zip(trials, places, strict=True)
    ]
    return sorted(points, key=lambda point: point.kind == "chosen")  # the chosen one is drawn on top


def _title(trial: Trial) -> str:
    kept = numbers.percent_figure(trial.perplexity_kept)
    name = "chosen: " if trial.chosen else ""
    outcome = {True: ", holds", False: ", does not hold", None: ""}[trial.holds]
    interval = f" ({kept.interval})" if kept.interval else ""
    return (
        f"{name}{numbers.size(trial.nbytes)}{outcome}: KL {numbers.nats(trial.kl)},"
        f" perplexity kept {kept.text}{interval}, on the {trial.split} split"
    )


def _kl_interval(trial: Trial, result: ShrinkResult) -> tuple[float, float] | None:
    """Only the report's own measurement carries an interval of its KL."""
    overall = result.report.overall.kl
    if trial.split != "report" or not trial.chosen or overall is None or overall.value != trial.kl:
        return None
    span = _interval(overall)
    return span if span and span[0] > 0 else None


def _interval(interval: Interval) -> tuple[float, float] | None:
    if interval.low is None or interval.high is None:
        return None
    return (interval.low, interval.high) if isfinite(interval.low) and isfinite(interval.high) else None


def _mapped(y: Scale, span: tuple[float, float] | None) -> tuple[float, float] | None:
    return (y(span[0]), y(span[1])) if span else None


def _size_axis(result: ShrinkResult) -> Scale:
    """Both charts share it, so that they can be read side by side."""
    sizes = [nbytes for nbytes, _ in result.predicted] + [trial.nbytes for trial in result.trials]
    return linear([*sizes, result.original.nbytes, result.nbytes], LEFT, RIGHT)


def _size_ticks(x: Scale) -> list[Tick]:
    return [Tick(x(value), f"{value / 1e6:g}") for value in x.ticks() if value >= 0]


def _drawable(kl: float) -> bool:
    return isfinite(kl) and kl > 0


def _decade(value: float) -> str:
    """A power of ten, written out where that is short."""
    power = round(log10(value))
    return f"{value:g}" if -4 < power < 5 else f"10{str(power).translate(_SUPERSCRIPT)}"
