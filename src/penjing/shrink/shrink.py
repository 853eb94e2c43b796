"""The verb: take a model, make it small, measure what it kept."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from penjing.api import Model, load
from penjing.engine.params import SamplingParams
from penjing.errors import InputError
from penjing.evaluate.compare import compare
from penjing.evaluate.result import EvalResult, holds
from penjing.evaluate.sample import draw_sample, passage_length
from penjing.memory import give_back_memory
from penjing.model.linear import keep_float
from penjing.shrink.builder import Builder, make_builder
from penjing.shrink.effort import Effort, find_effort
from penjing.shrink.goal import parse_share, parse_size
from penjing.shrink.result import Answer, Asked, ShrinkResult, Trial
from penjing.shrink.search import find_smallest, smallest_holding
from penjing.text.documents import builtin_documents
from penjing.text.splits import Splits, make_splits

Progress = Callable[[str, int, int], None]
_QUESTIONS = (
    "What is the capital of France?",
    "Explain in two sentences why the sky is blue.",
    "Write a short poem about a small tree.",
)
_OPENINGS = ("The capital of France is", "The sky is blue because", "Once upon a time there was a small tree")
_ANSWER = SamplingParams(temperature=0.0, max_tokens=64)
_MARGIN = 1.03  # the least size that held on the search split is raised by this, as the report split differs


def shrink(
    model: Model | str | Path,
    *,
    to: str | float | None = None,
    keep: str | float | None = None,
    effort: str = "default",
    texts: Mapping[str, Sequence[str]] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> ShrinkResult:
    """Make `model` smaller and measure what it kept.

    `to` is the size to reach ("1/4", 0.4, "60MB", "4.0bpw"); `keep` is the share to keep ("95%", 0.95), for
    which the smallest size that holds is searched (within `to`, if that is given too). One of the two is
    needed. `texts` are documents by name, parted into disjoint splits to tune on, search with and report on;
    without them, the documentation that comes with Python is used. `progress(stage, done, total)` is called
    as work goes on. The same inputs, seed and thread count give the same bytes.

    Raises `InputError` for a goal that can't be read or reached, or too little text.
    """
    started = time.perf_counter()
    if not 0 <= seed < 1 << 63:
        raise InputError(f"the seed must be a whole number from 0 to 2^63 - 1, not {seed}")
    amounts = find_effort(effort)
    original = model if isinstance(model, Model) else load(model, hold_stored=False)
    asked = _asked(original, to, keep, effort, seed)
    splits = make_splits(builtin_texts() if texts is None else texts, seed=seed)
    _require_measurable(original, splits, amounts, seed, searched=asked.keep is not None)
    tell = progress or (lambda *_: None)
    builder = make_builder(original, splits.tune, amounts, seed, tell)
    if asked.nbytes is not None:
        builder.require_reachable(asked.nbytes)
    job = _Job(original, builder, splits, amounts, seed, tell)
    found = job.to_size(asked.nbytes or 0) if asked.keep is None else job.to_keep(asked.keep, asked.nbytes)
    plan = builder.plan(found.model.ledger.nbytes)
    return ShrinkResult(
        model=found.model,
        original=original.stored,
        original_name=original.name,
        base_bytes=original.base_bytes,
        asked=asked,
        report=found.report,
        verdict=None if asked.keep is None else holds(found.report, asked.keep),
        trials=found.trials,
        predicted=builder.predicted_curve(),
        divergence={name: candidate.divergence for name, candidate in plan.chosen.items()},
        answers=_answers(original, found.model),
        seconds=time.perf_counter() - started,
        notices=(*original.notices, *splits.notices, *builder.notices, *found.report.notices, *found.notices),
    )


@dataclass(frozen=True)
class _Found:
    """A shrunk model, what it kept on the report split, and the way to it."""

    model: Model
    report: EvalResult
    trials: tuple[Trial, ...] = ()
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Job:
    """One call's parts, and the two ways to a result."""

    original: Model
    builder: Builder
    splits: Splits
    effort: Effort
    seed: int
    progress: Progress

    def to_size(self, nbytes: int) -> _Found:
        """Build the size that was asked for, heal it, and measure it."""
        shrunk = self.builder.heal(self.builder.build(nbytes))
        report = self._report(shrunk)
        return _Found(shrunk, report, (_trial(shrunk.ledger.nbytes, report, None, "report", chosen=True),))

    def to_keep(self, keep: float, at_most: int | None) -> _Found:
        """Search the smallest size that holds, and measure it on fresh text. Sizes are compared unhealed,
        which is quicker; healing makes the one that is kept hold with more certainty."""
        largest = min(at_most or self.builder.largest, self.builder.largest)
        measured = find_smallest(
            self._measure_size, self._predict, self.builder.smallest, largest, keep, self.effort.trials
        )
        best, missed = smallest_holding(measured), ()
        if best is None:
            missed = (f"no size up to {largest / 1e6:.1f} MB held on the search split; the largest is kept",)
        size = largest if best is None else min(int(best.nbytes * _MARGIN), largest)
        found = self.to_size(size)
        verdict = holds(found.report, keep)
        if not verdict.holds and size < largest:
            missed += (
                f"on fresh text it fell short; the next size to try is --to {size * 1.06 / 1e6:.1f}MB",
            )
        searched = tuple(_trial(m.nbytes, m.result, m.holds, "search", chosen=False) for m in measured)
        certified = replace(found.trials[-1], holds=verdict.holds)
        return replace(found, trials=(*searched, certified), notices=missed)

    def _measure_size(self, nbytes: int) -> EvalResult:
        return self._compare(
            self.builder.build(nbytes), self.splits.search, self.effort.search_tokens, "search"
        )

    def _predict(self, nbytes: int) -> float:
        return self.builder.plan(nbytes).divergence

    def _report(self, shrunk: Model) -> EvalResult:
        return self._compare(shrunk, self.splits.report, self.effort.report_tokens, "measure what was kept")

    def _compare(
        self, shrunk: Model, texts: Mapping[str, Sequence[str]], tokens: int, stage: str
    ) -> EvalResult:
        keep_float(shrunk.decoder.model.embed_tokens)  # as head it is used for every few positions
        result = compare(
            self.original.module,
            shrunk.module,
            self.original.tokenizer,
            texts,
            name=shrunk.name,
            against=self.original.name,
            tokens=tokens,
            choice_items=self.effort.choice_items,
            seed=self.seed,
            progress=lambda done, total, _: self.progress(stage, done, total),
        )
        keep_float(shrunk.module, False)
        give_back_memory()  # or the answers, which unpack the whole model, would come on top of it
        return result


def builtin_texts() -> dict[str, list[str]]:
    """What is used when the user gives no text."""
    return {"python documentation": builtin_documents()}


def _asked(
    original: Model, to: str | float | None, keep: str | float | None, effort: str, seed: int
) -> Asked:
    if to is None and keep is None:
        raise InputError(
            "say how small (to, such as 1/4 or 60MB), or how much to keep (keep, such as 95%), or both"
        )
    size = None if to is None else parse_size(str(to), original.base_bytes, original.ledger.parameters)
    return Asked(size, None if keep is None else parse_share(str(keep)), effort, seed)


def _require_measurable(original: Model, splits: Splits, effort: Effort, seed: int, searched: bool) -> None:
    """`InputError` now, not after minutes of work, where a split is too short to be measured on."""
    parts = [(splits.report, effort.report_tokens)]
    if searched:
        parts.append((splits.search, effort.search_tokens))
    for texts, tokens in parts:
        draw_sample(
            original.tokenizer,
            texts,
            length=passage_length(original.config.max_position_embeddings),
            tokens=tokens,
            choice_items=effort.choice_items,
            seed=seed,
        )


def _trial(nbytes: int, result: EvalResult, held: bool | None, split: str, chosen: bool) -> Trial:
    overall = result.overall
    assert overall.kl is not None and overall.perplexity_kept is not None
    return Trial(nbytes, overall.kl.value, overall.perplexity_kept, overall.choice_kept, held, split, chosen)


def _answers(original: Model, shrunk: Model) -> tuple[Answer, ...]:
    """The same questions to both models; a base model is given openings to continue."""
    prompts = _QUESTIONS if original.can_chat else _OPENINGS

    def ask(model: Model, prompt: str) -> str:
        if model.can_chat:
            return model.chat([{"role": "user", "content": prompt}], _ANSWER).text
        return model.generate(prompt, _ANSWER).text

    shrunk.keep_float()
    answers = tuple(Answer(p, ask(original, p), ask(shrunk, p)) for p in prompts)
    shrunk.keep_float(False)
    return answers
