"""The verb: take a model, make it small, measure what it kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from penjing.api import Model, load
from penjing.engine.params import SamplingParams
from penjing.errors import InputError
from penjing.evaluate.compare import compare
from penjing.evaluate.result import EvalResult, holds
from penjing.evaluate.sample import draw_sample, passage_length
from penjing.memory import give_back_memory
from penjing.model.bridge.module import BridgedModel
from penjing.model.linear import keep_float
from penjing.model.opening import OpenedModel
from penjing.shrink.builder import Builder, make_builder
from penjing.shrink.effort import Effort, find_effort
from penjing.shrink.forms import Form, find_form
from penjing.shrink.goal import parse_share, parse_size
from penjing.shrink.result import Answer, Asked, ShrinkResult, Trial
from penjing.shrink.search import Measured, find_smallest, smallest_holding
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
    model: Model | OpenedModel | str | Path,
    *,
    to: str | float | None = None,
    keep: str | float | None = None,
    effort: str = "default",
    texts: Mapping[str, Sequence[str]] | None = None,
    seed: int = 0,
    form: str = "hf",
    progress: Progress | None = None,
) -> ShrinkResult:
    """Make `model` smaller and measure what it kept.

    `to` is the size to reach ("1/4", 0.4, "60MB", "4.0bpw"); `keep` is the share to keep ("95%", 0.95), for
    which the smallest size that holds is searched (within `to`, if that is given too). One of the two is
    needed. `texts` are documents by name, parted into disjoint splits to tune on, search with and report on;
    without them, the documentation that comes with Python is used. `form` is what the result will be saved
    as: "hf", a folder in penjing's own layout, or "gguf", a file in GGML's blocks, for llama.cpp.
    `progress(stage, done, total)` is called as work goes on. The same inputs, seed and thread count give the
    same bytes.

    Raises `InputError` for a goal that can't be read or reached, or too little text.
    """
    started = time.perf_counter()
    result = _find(model, to, keep, find_effort(effort), texts, seed, form, progress or (lambda *_: None))
    give_back_memory()  # the original is let go of here, unless the caller holds it
    answers = tuple(
        replace(answer, shrunk=text)
        for answer, text in zip(result.answers, _answers(result.model, result.answers), strict=True)
    )
    return replace(result, answers=answers, seconds=time.perf_counter() - started)


def _find(
    model: Model | OpenedModel | str | Path,
    to: str | float | None,
    keep: str | float | None,
    effort: Effort,
    texts: Mapping[str, Sequence[str]] | None,
    seed: int,
    form: str,
    progress: Progress,
) -> ShrinkResult:
    """All of the result but the shrunk model's answers. A model that was loaded here is let go of at the
    end: those answers need its room."""
    job = make_job(model, texts, effort, seed, form, progress)
    original = job.original
    asked = _asked(original, to, keep, effort.name, seed, form)
    require_measurable(job, searched=asked.keep is not None)
    builder = job.builder
    if asked.nbytes is not None:
        builder.planner.require_reachable(asked.nbytes)
    found = job.to_size(asked.nbytes or 0) if asked.keep is None else job.to_keep(asked.keep, asked.nbytes)
    plan = builder.planner.plan(found.model.ledger.nbytes)
    questions = [Answer(prompt, "", "") for prompt in (_QUESTIONS if original.can_chat else _OPENINGS)]
    return ShrinkResult(
        model=found.model,
        original=original.stored,
        original_name=original.name,
        base_bytes=original.base_bytes,
        asked=asked,
        report=found.report,
        verdict=None if asked.keep is None else holds(found.report, asked.keep),
        trials=found.trials,
        predicted=builder.planner.predicted_curve(),
        divergence={name: candidate.divergence for name, candidate in plan.chosen.items()},
        answers=tuple(
            replace(answer, original=text)
            for answer, text in zip(questions, _answers(original, questions), strict=True)
        ),
        seconds=0.0,
        notices=(*job.notices, *found.report.notices, *found.notices),
    )


def make_job(
    model: Model | OpenedModel | str | Path,
    texts: Mapping[str, Sequence[str]] | None,
    effort: Effort,
    seed: int,
    form: str,
    progress: Progress,
) -> Job:
    """All that is needed to build and measure sizes of `model`; statistics are taken when they are first
    used."""
    if not 0 <= seed < 1 << 63:
        raise InputError(f"the seed must be a whole number from 0 to 2^63 - 1, not {seed}")
    original = model if isinstance(model, Model) else _load(model, progress)
    saved_as = find_form(form, original)
    splits = make_splits(builtin_texts() if texts is None else texts, seed=seed)
    return Job(original, saved_as, splits, effort, seed, progress)


def _load(ref: OpenedModel | str | Path, progress: Progress) -> Model:
    return load(ref, lambda done, total: progress("load", done, total), hold_stored=False)


@dataclass(frozen=True)
class _Found:
    """A shrunk model, what it kept on the report split, and the way to it."""

    model: Model
    report: EvalResult
    trials: tuple[Trial, ...] = ()
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Job:
    """One call's parts, and the two ways to a result."""

    original: Model
    form: Form
    splits: Splits
    effort: Effort
    seed: int
    progress: Progress

    @cached_property
    def builder(self) -> Builder:
        return make_builder(self.original, self.splits.tune, self.effort, self.seed, self.progress, self.form)

    @property
    def notices(self) -> tuple[str, ...]:
        return (*self.original.notices, *self.splits.notices, *self.builder.notices)

    def to_size(self, nbytes: int) -> _Found:
        """Build the size that was asked for, heal it, and measure it."""
        shrunk = self.builder.heal(self.builder.build(nbytes))
        report = self._report(shrunk)
        return _Found(shrunk, report, (_trial(shrunk.ledger.nbytes, report, None, "report", chosen=True),))

    def to_keep(self, keep: float, at_most: int | None) -> _Found:
        """Search the smallest size that holds, and measure it on fresh text. Sizes are compared unhealed,
        which is quicker; healing makes the one that is kept hold with more certainty."""
        planner = self.builder.planner
        largest = min(at_most or planner.largest, planner.largest)
        measured = find_smallest(
            lambda nbytes: self._measure_size(nbytes, keep),
            self._predict,
            planner.smallest,
            largest,
            keep,
            self.effort.trials,
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

    def _measure_size(self, nbytes: int, keep: float) -> Measured[EvalResult]:
        result = self.probe(nbytes)
        return Measured(nbytes, result, _kept_at_least(result), holds(result, keep).holds)

    def probe(self, nbytes: int) -> EvalResult:
        """Build a size, unhealed, and measure it on the search split."""
        return self._compare(
            self.builder.build(nbytes), self.splits.search, self.effort.search_tokens, "search"
        )

    def _predict(self, nbytes: int) -> float:
        return self.builder.planner.plan(nbytes).divergence

    def _report(self, shrunk: Model) -> EvalResult:
        return self._compare(shrunk, self.splits.report, self.effort.report_tokens, "measure what was kept")

    def _compare(
        self, shrunk: Model, texts: Mapping[str, Sequence[str]], tokens: int, stage: str
    ) -> EvalResult:
        if isinstance(shrunk.module, BridgedModel):
            keep_float(shrunk.module)
        else:
            keep_float(shrunk.module.model.embed_tokens)  # as head it is used for every few positions

        def tell(done: int, total: int, _: str) -> None:
            give_back_memory()
            self.progress(stage, done, total)

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
            progress=tell,
        )
        keep_float(shrunk.module, False)
        return result


def builtin_texts() -> dict[str, list[str]]:
    """What is used when the user gives no text."""
    return {"python documentation": builtin_documents()}


def _asked(
    original: Model, to: str | float | None, keep: str | float | None, effort: str, seed: int, form: str
) -> Asked:
    if to is None and keep is None:
        raise InputError(
            "say how small (to, such as 1/4 or 60MB), or how much to keep (keep, such as 95%), or both"
        )
    size = None if to is None else parse_size(str(to), original.base_bytes, original.ledger.parameters)
    return Asked(size, None if keep is None else parse_share(str(keep)), effort, seed, form)


def require_measurable(job: Job, searched: bool) -> None:
    """`InputError` now, not after minutes of work, where a split is too short to be measured on."""
    parts = [(job.splits.report, job.effort.report_tokens)]
    if searched:
        parts.append((job.splits.search, job.effort.search_tokens))
    for texts, tokens in parts:
        draw_sample(
            job.original.tokenizer,
            texts,
            length=passage_length(job.original.config.max_position_embeddings),
            tokens=tokens,
            choice_items=job.effort.choice_items,
            seed=job.seed,
        )


def _kept_at_least(result: EvalResult) -> float:
    """The lower bound of what was kept; `InputError` where the text is too short for one."""
    overall = result.overall
    if overall.perplexity_kept is None or overall.perplexity_kept.low is None:
        raise InputError(
            "the search split has too few passages for an interval, so no promise can be searched for;"
            " give more text, fewer texts, or a higher effort"
        )
    bounds = [kept.low for kept in (overall.perplexity_kept, overall.choice_kept) if kept is not None]
    return min(low for low in bounds if low is not None)


def _trial(nbytes: int, result: EvalResult, held: bool | None, split: str, chosen: bool) -> Trial:
    overall = result.overall
    assert overall.kl is not None and overall.perplexity_kept is not None
    return Trial(nbytes, overall.kl.value, overall.perplexity_kept, overall.choice_kept, held, split, chosen)


def _answers(model: Model, asked: Sequence[Answer]) -> list[str]:
    """What `model` says to the questions; a base model continues them."""

    def ask(prompt: str) -> str:
        if model.can_chat:
            return model.chat([{"role": "user", "content": prompt}], _ANSWER).text
        return model.generate(prompt, _ANSWER).text

    model.keep_float()
    answers = [ask(answer.question) for answer in asked]
    model.keep_float(False)
    return answers
