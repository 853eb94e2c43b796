"""The measurement itself: one model on held-out texts, or a shrunk model against its original.

Shapes: U units (passages or choice items), their sums in columns.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple
from functools import partial

import numpy as np

from penjing.errors import InputError
from penjing.evaluate.bootstrap import Floats, bootstrap
from penjing.evaluate.choice import CHANCE, above_chance, score_items
from penjing.evaluate.likelihood import PairScore, PassageScore, score_pair, score_passage
from penjing.evaluate.result import EvalResult, Interval, TextResult
from penjing.evaluate.sample import CHOICE_ITEMS, TOKENS, Sample, draw_sample, passage_length
from penjing.model.language_model import LanguageModel
from penjing.text.tokenizer import Tokenizer

Progress = Callable[[int, int, str], None]


def evaluate(
    model: LanguageModel,
    tokenizer: Tokenizer,
    texts: Mapping[str, Sequence[str]],
    *,
    name: str = "model",
    tokens: int = TOKENS,
    choice_items: int = CHOICE_ITEMS,
    seed: int = 0,
    progress: Progress | None = None,
) -> EvalResult:
    """Perplexity and choice accuracy of one model on `texts` (documents by name), about `tokens` tokens in
    all.

    Fields that need an original are None. `progress(done, total, label)` counts tokens run. Errors:
    `InputError` for texts that are too short or a foreign tokenizer, `PenjingError` for logits that aren't
    finite.
    """
    length = passage_length(model.config.max_position_embeddings)
    sample = draw_sample(tokenizer, texts, length=length, tokens=tokens, choice_items=choice_items, seed=seed)
    advance = _Counter(sample.tokens, progress)
    scores: dict[str, list[PassageScore]] = {text: [] for text in texts}
    right: dict[str, list[bool]] = {}
    for text in texts:
        for where, ids in _named(text, sample.passages[text]):
            scores[text].append(score_passage(model, ids, where=where))
            advance(len(ids), text)
        right[text] = score_items(model, sample.items[text], advance=partial(advance, label=text))

    def pooled(names: Sequence[str]) -> TextResult:
        units = [score for name in names for score in scores[name]]
        tokens = sum(score.tokens for score in units)
        perplexity = _exp(sum(score.nll for score in units) / tokens)
        return TextResult(tokens, float(perplexity), _accuracy([r for name in names for r in right[name]]))

    notices = _notices(sample, choice_items)
    return EvalResult(name, None, {text: pooled([text]) for text in texts}, pooled(list(texts)), notices)


def compare(
    original: LanguageModel,
    shrunk: LanguageModel,
    tokenizer: Tokenizer,
    texts: Mapping[str, Sequence[str]],
    *,
    name: str = "shrunk",
    against: str = "original",
    tokens: int = TOKENS,
    choice_items: int = CHOICE_ITEMS,
    seed: int = 0,
    progress: Progress | None = None,
) -> EvalResult:
    """What `shrunk` kept of `original` on `texts`; the arguments and errors are `evaluate`'s.

    Both models run on the same ids. Overall figures pool all passages and all items; their intervals
    resample within each text. Where the vocabularies differ by padding, the shared ids are compared and a
    notice says so.
    """
    vocab, notices = shared_vocabulary(original, shrunk, tokenizer)
    length = passage_length(min(m.config.max_position_embeddings for m in (original, shrunk)))
    sample = draw_sample(tokenizer, texts, length=length, tokens=tokens, choice_items=choice_items, seed=seed)
    advance = _Counter(2 * sample.tokens, progress)
    scores: dict[str, list[PairScore]] = {text: [] for text in texts}
    right: dict[str, list[tuple[bool, bool]]] = {}
    for text in texts:
        for where, ids in _named(text, sample.passages[text]):
            scores[text].append(score_pair(original, shrunk, ids, vocab=vocab, where=where))
            advance(2 * len(ids), text)
        count = partial(advance, label=text)
        first = score_items(original, sample.items[text], vocab=vocab, who="the original", advance=count)
        second = score_items(shrunk, sample.items[text], vocab=vocab, who="the shrunk model", advance=count)
        right[text] = list(zip(first, second, strict=True))

    def pooled(names: Sequence[str]) -> TextResult:
        return _compared([scores[text] for text in names], [right[text] for text in names], seed)

    results = {text: pooled([text]) for text in texts}
    notices += _notices(sample, choice_items) + _unmeasured(right, results)
    return EvalResult(name, against, results, pooled(list(texts)), notices)


def shared_vocabulary(
    original: LanguageModel, shrunk: LanguageModel, tokenizer: Tokenizer
) -> tuple[int, tuple[str, ...]]:
    """How many first token ids both models share, and a notice if one has more: padding that no text uses.

    Ids that only one model has but the tokenizer uses are an `InputError`.
    """
    first, second = original.config.vocab_size, shrunk.config.vocab_size
    vocab = min(first, second)
    if first == second:
        return vocab, ()
    if tokenizer.vocab_size > vocab:
        raise InputError(
            f"the original has {first} token ids, the shrunk model {second}, and the tokenizer uses"
            f" {tokenizer.vocab_size}; compare models with the same tokenizer"
        )
    return vocab, (
        f"the original has {first} token ids and the shrunk model {second};"
        f" the {vocab} that both have are compared, the rest is padding",
    )


def _compared(
    scores: Sequence[Sequence[PairScore]], right: Sequence[Sequence[tuple[bool, bool]]], seed: int
) -> TextResult:
    """The result over some texts, each of them a stratum."""
    units_UC = np.array([astuple(score) for text in scores for score in text], dtype=np.float64)
    strata = [len(text) for text in scores]
    tokens, _, nll_shrunk, _, _ = units_UC.sum(0)
    answers = [pair for text in right for pair in text]
    return TextResult(
        tokens=int(tokens),
        perplexity=float(_exp(nll_shrunk / tokens)),
        choice_accuracy=_accuracy([shrunk for _, shrunk in answers]),
        perplexity_kept=bootstrap(
            units_UC, strata, lambda s: _exp((s[..., 1] - s[..., 2]) / s[..., 0]), seed
        ),
        choice_kept=_choice_kept(answers, [len(text) for text in right if text], seed),
        kl=bootstrap(units_UC, strata, lambda s: s[..., 3] / s[..., 0], seed),
        agreement=bootstrap(units_UC, strata, lambda s: s[..., 4] / s[..., 0], seed),
    )


def _choice_kept(answers: Sequence[tuple[bool, bool]], strata: Sequence[int], seed: int) -> Interval | None:
    """Accuracy above chance, shrunk over original; None where the original isn't clearly above chance."""
    if not above_chance(sum(original for original, _ in answers), len(answers)):
        return None

    def kept(right: Floats) -> Floats:
        above = right - CHANCE * len(answers)
        # A resample in which the original is no better than chance says nothing good of the shrunk model.
        return above[..., 1] / np.maximum(above[..., 0], CHANCE)

    return bootstrap(np.array(answers, dtype=np.float64), strata, kept, seed)


def _unmeasured(
    right: Mapping[str, Sequence[tuple[bool, bool]]], results: Mapping[str, TextResult]
) -> tuple[str, ...]:
    """Says of which texts something couldn't be measured, and why."""
    notices = []
    answers = [original for text in right.values() for original, _ in text]
    if not answers:
        notices.append("choice was not measured, for there are no choice items; perplexity decides alone")
    elif not above_chance(sum(answers), len(answers)):
        notices.append(
            f"choice kept is not measurable: the original is right on {sum(answers)} of {len(answers)} items,"
            f" which is not above chance ({CHANCE:.0%}) by three standard errors; perplexity decides alone"
        )
    short = [name for name, text in results.items() if text.kl is not None and text.kl.low is None]
    if short:
        notices.append(f"too few passages for an interval: {', '.join(short)}; measure on more tokens")
    return tuple(notices)


def _notices(sample: Sample, choice_items: int) -> tuple[str, ...]:
    found = sum(len(items) for items in sample.items.values())
    if found == choice_items:
        return ()
    return (f"the texts are long enough for {found} choice items, not for {choice_items}",)


def _named(text: str, cut: Sequence[list[int]]) -> Iterator[tuple[str, list[int]]]:
    for number, ids in enumerate(cut, start=1):
        yield f"passage {number} of {text!r}", ids


def _accuracy(right: Sequence[bool]) -> float | None:
    return sum(right) / len(right) if right else None


def _exp(nats: np.float64 | Floats | float) -> Floats:
    """exp that stays finite, so that a ruined model has a huge perplexity and not an infinite one."""
    return np.exp(np.minimum(nats, 700.0))


class _Counter:
    """Adds up the tokens run and tells `progress`."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._done, self._total, self._progress = 0, total, progress

    def __call__(self, tokens: int, label: str) -> None:
        self._done += tokens
        if self._progress is not None:
            self._progress(self._done, self._total, label)
