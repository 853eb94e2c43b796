"""Continuation choice: which of four passages really follows? Made from any text, so no benchmark is needed.

Shapes: B items, C context tokens, M continuation tokens, V vocabulary.
"""

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from penjing.errors import InputError
from penjing.evaluate.forward import (
    check_ids,
    device_of,
    log_probabilities,
    position_slices,
    token_log_probabilities,
)
from penjing.model.language_model import LanguageModel
from penjing.text.tokenizer import Tokenizer

CHOICES = 4
CHANCE = 1 / CHOICES
CONTEXT_TOKENS = 48
CONTINUATION_TOKENS = 16
# How much of a text is read at first: for each item, the text of so many windows.
SPARE = 4
CHARACTERS_A_TOKEN = 4
# Within one document, wrong continuations come from at least this many windows away.
FAR = 4


@dataclass(frozen=True)
class ChoiceItem:
    """A context of the text `text` and four continuations of equal length; `answer` indexes the true one."""

    text: str
    context: tuple[int, ...]
    choices: tuple[tuple[int, ...], ...]
    answer: int

    @property
    def tokens(self) -> int:
        """Tokens that a model runs to score it: the context once, each continuation but for its last."""
        return len(self.context) + len(self.choices) * (len(self.choices[0]) - 1)


@dataclass(frozen=True)
class _Window:
    document: int
    index: int
    context: tuple[int, ...]
    continuation: tuple[int, ...]


def build_items(
    tokenizer: Tokenizer,
    documents_by_text: Mapping[str, Sequence[str]],
    count: int,
    seed: int,
    *,
    context: int = CONTEXT_TOKENS,
    continuation: int = CONTINUATION_TOKENS,
) -> list[ChoiceItem]:
    """Up to `count` items, spread evenly over the texts and, within a text, over its documents.

    The wrong continuations are true ones of other places in the same text: of other documents where there
    are enough, else from far away in the same document. A text that is too short gives fewer items, and the
    others make up for it where they can. A context begins with BOS if the tokenizer puts it before a
    text. The same arguments give the same items.
    """
    if count < 0:
        raise InputError(f"the number of choice items must not be negative, it is {count}")
    if context < 1 or continuation < 2:
        raise InputError("a choice item needs a context of at least 1 token and a continuation of at least 2")
    names = sorted(documents_by_text, key=lambda name: (sum(map(len, documents_by_text[name])), name))
    items: dict[str, list[ChoiceItem]] = {}
    for position, name in enumerate(names):
        wanted = (count - sum(map(len, items.values()))) // (len(names) - position)
        rng = random.Random(f"{seed} {name}")
        windows = _windows(tokenizer, documents_by_text[name], wanted, context, continuation)
        items[name] = list(itertools.islice(_items(name, windows, rng), wanted))
    return [item for name in documents_by_text for item in items[name]]


def _windows(
    tokenizer: Tokenizer, documents: Sequence[str], wanted: int, context: int, continuation: int
) -> list[list[_Window]]:
    """Windows by document, at least twice as many as wanted if the text has them.

    Of long documents only the first `characters` are read, at first as many as do if all documents are long.
    """
    longest = max(map(len, documents), default=0)
    characters = SPARE * CHARACTERS_A_TOKEN * (context + continuation)
    characters = max(characters, characters * wanted // max(1, len(documents)))
    while True:
        by_document = [
            _cut(tokenizer, number, document[:characters], context, continuation)
            for number, document in enumerate(documents)
        ]
        if characters >= longest or sum(map(len, by_document)) >= 2 * wanted:
            return by_document
        characters *= 4


def _cut(tokenizer: Tokenizer, document: int, text: str, context: int, continuation: int) -> list[_Window]:
    """The windows of one document, side by side; a rest that fills none is left out."""
    begin = (tokenizer.bos_id,) if tokenizer.add_bos and tokenizer.bos_id is not None else ()
    ids = tokenizer.encode(text, add_special_tokens=False)
    windows = []
    for start in range(0, len(ids) - context - continuation + 1, context + continuation):
        middle, end = start + context, start + context + continuation
        windows.append(_Window(document, len(windows), (*begin, *ids[start:middle]), tuple(ids[middle:end])))
    return windows


def _items(name: str, by_document: list[list[_Window]], rng: random.Random) -> Iterator[ChoiceItem]:
    """Items of one text in random order, a window of each document before a second of any."""
    for windows in by_document:
        rng.shuffle(windows)
    rng.shuffle(by_document)
    rounds = itertools.chain.from_iterable(itertools.zip_longest(*by_document))
    # Text that stands in several places, such as a licence, would make two choices right: it is used once.
    pool = list({window.continuation: window for window in rounds if window is not None}.values())
    for window in pool:
        wrong = _wrong_continuations(window, pool, rng)
        if wrong is not None:
            answer = rng.randrange(CHOICES)
            choices = (*wrong[:answer], window.continuation, *wrong[answer:])
            yield ChoiceItem(name, window.context, choices, answer)


def _wrong_continuations(
    window: _Window, pool: list[_Window], rng: random.Random
) -> list[tuple[int, ...]] | None:
    """Three continuations from elsewhere, or None if the text hasn't got them."""
    others = [w.continuation for w in pool if w.document != window.document]
    if len(others) < CHOICES - 1:
        others += [w.continuation for w in pool if _far(w, window)]
    return rng.sample(others, CHOICES - 1) if len(others) >= CHOICES - 1 else None


def _far(one: _Window, other: _Window) -> bool:
    return one.document == other.document and abs(one.index - other.index) >= FAR


@torch.inference_mode()
def score_items(
    model: LanguageModel,
    items: Sequence[ChoiceItem],
    *,
    batch: int = 32,
    vocab: int | None = None,
    who: str = "the model",
    advance: Callable[[int], None] | None = None,
) -> list[bool]:
    """Whether `model` gives the true continuation of each item the highest summed log-probability.

    A tie counts against the model. `batch` items with equal lengths run together; `vocab` and `who` are as in
    `score_pair` and `score_passage`, and so are the errors. `advance` is told the tokens run.
    """
    vocab = model.config.vocab_size if vocab is None else vocab
    right: list[bool] = []
    for _, group in itertools.groupby(items, key=_lengths):
        for rows in _chunks(list(group), batch):
            for item in rows:
                check_ids([*item.context, *itertools.chain(*item.choices)], vocab, _where(item))
            right += _score_rows(model, rows, vocab, who)
            if advance is not None:
                advance(sum(item.tokens for item in rows))
    return right


def _score_rows(model: LanguageModel, rows: list[ChoiceItem], vocab: int, who: str) -> list[bool]:
    """The context runs once; each continuation then writes over the last one's slots of the cache, which is
    sound because a query sees no slot past its own position."""
    device = device_of(model)
    context_BC = torch.tensor([item.context for item in rows], device=device)
    choices_BAM = torch.tensor([item.choices for item in rows], device=device)
    start, length = context_BC.shape[1], choices_BAM.shape[2]
    cache = model.new_cache(len(rows), start + length)
    positions_L = torch.arange(start + length, device=device)
    first_B1D = model.hidden(context_BC, positions_L[:start].expand(len(rows), -1), cache=cache)[:, -1:]
    scores = []
    for choice_BM in choices_BAM.unbind(1):
        positions_BM = positions_L[start:-1].expand(len(rows), -1)
        rest_BMD = model.hidden(choice_BM[:, :-1], positions_BM, cache=cache)
        x_BMD = torch.cat([first_B1D, rest_BMD], dim=1)
        scores.append(_sequence_log_probability(model, x_BMD, choice_BM, vocab, who, _where(rows[0])))
    return [
        max(range(CHOICES), key=row.__getitem__) == item.answer and row.count(row[item.answer]) == 1
        for row, item in zip(torch.stack(scores, dim=1).tolist(), rows, strict=True)
    ]


def _sequence_log_probability(
    model: LanguageModel, x_BMD: torch.Tensor, ids_BM: torch.Tensor, vocab: int, who: str, where: str
) -> torch.Tensor:
    """Summed log-probability (B,) in float64 of each row of ids."""
    x_TD, ids_T = x_BMD.flatten(0, 1), ids_BM.flatten()
    parts = [
        token_log_probabilities(log_probabilities(model, x_TD[part], vocab, who, where), ids_T[part])
        for part in position_slices(len(ids_T), vocab)
    ]
    return torch.cat(parts).cpu().double().view_as(ids_BM).sum(1)


def _lengths(item: ChoiceItem) -> tuple[int, int]:
    return len(item.context), len(item.choices[0])


def _chunks(items: list[ChoiceItem], size: int) -> Iterator[list[ChoiceItem]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _where(item: ChoiceItem) -> str:
    return f"a choice item of {item.text!r}"


def above_chance(right: int, items: int) -> bool:
    """Whether `right` of `items` lie more than three standard errors above guessing."""
    return right - CHANCE * items > 3 * math.sqrt(items * CHANCE * (1 - CHANCE))
