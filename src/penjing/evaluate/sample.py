"""What is measured on: passages and choice items, cut from held-out texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penjing.errors import InputError
from penjing.evaluate.choice import ChoiceItem, build_items
from penjing.text.passages import passages
from penjing.text.tokenizer import Tokenizer

PASSAGE_TOKENS = 1_024
TOKENS = 32_768
CHOICE_ITEMS = 200
# A shorter rest of a document is no passage.
LEAST_TOKENS = 32


@dataclass(frozen=True)
class Sample:
    """What is measured on: passages of token ids and choice items, by text."""

    passages: Mapping[str, list[list[int]]]
    items: Mapping[str, list[ChoiceItem]]

    @property
    def tokens(self) -> int:
        """Tokens that one model runs in all."""
        of_passages = sum(len(ids) for text in self.passages.values() for ids in text)
        return of_passages + sum(item.tokens for text in self.items.values() for item in text)


def passage_length(context: int) -> int:
    """Tokens of a whole passage for a model with this context."""
    return min(PASSAGE_TOKENS, context)


def draw_sample(
    tokenizer: Tokenizer,
    texts: Mapping[str, Sequence[str]],
    *,
    length: int = PASSAGE_TOKENS,
    tokens: int = TOKENS,
    choice_items: int = CHOICE_ITEMS,
    seed: int = 0,
) -> Sample:
    """Cut `texts` (documents by name) into passages of `length` tokens, about `tokens` in all, spread
    evenly over the texts; what a short text can't give, longer ones do. Texts without a whole passage are
    an `InputError`."""
    if not texts:
        raise InputError("there is no text to measure on; give at least one")
    by_size = sorted(texts, key=lambda name: (sum(map(len, texts[name])), name))
    cut: dict[str, list[list[int]]] = {}
    left = tokens
    for position, name in enumerate(by_size):
        share = left // (len(by_size) - position)
        if share < LEAST_TOKENS:
            raise InputError(
                f"{tokens} tokens are too few for {len(texts)} texts;"
                f" give at least {LEAST_TOKENS * len(texts)}"
            )
        cut[name] = _passages(tokenizer, name, texts[name], length, share)
        left -= sum(map(len, cut[name]))
    items = build_items(tokenizer, texts, choice_items, seed)
    return Sample(
        {name: cut[name] for name in texts},
        {name: [item for item in items if item.text == name] for name in texts},
    )


def _passages(
    tokenizer: Tokenizer, name: str, documents: Sequence[str], length: int, tokens: int
) -> list[list[int]]:
    try:
        return passages(tokenizer, documents, length, tokens, LEAST_TOKENS)
    except InputError as error:
        raise InputError(f"text {name!r} can't be measured on: {error}") from error
