"""What was kept, text by text."""

from dataclasses import dataclass
from math import isfinite

from penjing.evaluate.result import EvalResult, TextResult
from penjing.shrink.report import numbers
from penjing.shrink.report.numbers import Figure
from penjing.shrink.report.summary import choice_absence


@dataclass(frozen=True)
class KeptRow:
    name: str
    tokens: str
    model_perplexity: str
    perplexity: Figure
    choice: Figure
    kl: Figure
    agreement: Figure


def kept_rows(report: EvalResult) -> list[KeptRow]:
    """A row a text."""
    return [kept_row(name, text) for name, text in report.texts.items()]


def kept_row(name: str, text: TextResult) -> KeptRow:
    """One text, or all of them pooled."""
    return KeptRow(
        name=name,
        tokens=f"{text.tokens:,}",
        model_perplexity=f"{text.perplexity:.4g}" if isfinite(text.perplexity) else "not finite",
        perplexity=numbers.percent_figure(text.perplexity_kept),
        choice=numbers.percent_figure(text.choice_kept, choice_absence(text.choice_accuracy)),
        kl=numbers.nats_figure(text.kl),
        agreement=numbers.percent_figure(text.agreement),
    )
