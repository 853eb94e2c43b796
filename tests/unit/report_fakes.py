"""A small result of shrinking, made by hand, for tests of the report."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from penjing.api import Model
from penjing.evaluate.result import EvalResult, Interval, TextResult, holds
from penjing.model.ledger import Entry, Ledger
from penjing.shrink.result import Answer, Asked, ShrinkResult, Trial

QUERY, DOWN = "model.layers.{}.self_attn.q_proj", "model.layers.{}.mlp.down_proj"
MODULES = [name.format(layer) for layer in range(3) for name in (DOWN, QUERY)]


def ledger(bits: int = 4) -> Ledger:
    """An embedding at 8 bits, three layers of two matrices at `bits`, a norm."""
    matrices = [Entry(f"{name}.weight", 1_000_000, 125_000 * bits, f"{bits}-bit") for name in MODULES]
    return Ledger(
        (
            Entry("model.embed_tokens.weight", 2_000_000, 2_000_000, "8-bit"),
            *matrices,
            Entry("model.layers.0.input_layernorm.weight", 576, 1152, "bfloat16"),
        )
    )


def text_result(kept: float = 0.97, **changes: Any) -> TextResult:
    result = TextResult(
        tokens=12_345,
        perplexity=16.4,
        choice_accuracy=0.6,
        perplexity_kept=Interval(kept, kept - 0.005, kept + 0.005),
        choice_kept=Interval(0.98, 0.96, 1.0),
        kl=Interval(0.0331, 0.0309, 0.0356),
        agreement=Interval(0.905, 0.901, 0.909),
    )
    return replace(result, **changes)


def evaluation(overall: TextResult, **texts: TextResult) -> EvalResult:
    return EvalResult("small", "large", texts or {"python docs": overall}, overall)


def trial(nbytes: int, kl: float, kept: float, **changes: Any) -> Trial:
    made = Trial(nbytes, kl, Interval(kept, kept - 0.01, kept + 0.01), None, None, "search", False)
    return replace(made, **changes)


def shrunk(**changes: Any) -> ShrinkResult:
    """5.0 MB from a model of 16 MB in 16 bits, asked to keep 95%, which holds."""
    small, report = ledger(), evaluation(text_result())
    result = ShrinkResult(
        model=cast(Model, SimpleNamespace(ledger=small)),
        original=Ledger(
            tuple(Entry(e.name, e.parameters, 2 * e.parameters, "bfloat16") for e in small.entries)
        ),
        original_name="models/Big-1B",
        base_bytes=2 * small.parameters,
        asked=Asked(None, 0.95, "default", 0),
        report=report,
        verdict=holds(report, 0.95),
        trials=(
            trial(3_000_000, 0.2, 0.80, holds=False),
            trial(6_000_000, 0.02, 0.98, holds=True),
            trial(small.nbytes, 0.0331, 0.97, holds=True, split="report", chosen=True),
        ),
        predicted=((3_000_000, 0.3), (5_000_000, 0.04), (16_000_000, 0.0)),
        divergence={"model.embed_tokens": 0.01, **dict.fromkeys(MODULES, 0.005)},
        answers=(Answer("Where is Paris?", "In France, of course.", "In Texas."),),
        seconds=75.0,
        notices=(),
    )
    return replace(result, **changes)
