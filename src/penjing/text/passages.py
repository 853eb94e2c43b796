"""Token passages for statistics and evaluation: documents cut to length, none running into the next."""

from collections.abc import Iterator, Sequence

from penjing.errors import InputError
from penjing.text.tokenizer import Tokenizer


def passages(
    tokenizer: Tokenizer,
    documents: Sequence[str],
    length: int,
    limit_tokens: int,
    least: int = 32,
) -> list[list[int]]:
    """Cut each document into passages of `length` tokens, in order; what is left under `least` is dropped.

    Each passage begins with BOS if the tokenizer adds it. Passages are picked evenly over documents and
    within them until `limit_tokens` tokens (BOS included) are reached, the last one cut to fit; the choice
    depends on the arguments alone. Raises InputError if nothing is left.
    """
    if length < least or least < 2:
        raise InputError(
            f"Passages of {length} tokens can't be cut; the length must be at least {max(least, 2)}."
        )
    chosen = _pick(tokenizer, documents, length, limit_tokens, least)
    if not chosen:
        raise InputError(
            f"The text is too short: no document of it fills a passage of {least} tokens. Give longer text."
        )
    return chosen


def _cut(tokenizer: Tokenizer, document: str, length: int, least: int) -> list[list[int]]:
    start = [tokenizer.bos_id] if tokenizer.add_bos and tokenizer.bos_id is not None else []
    ids = tokenizer.prompt_ids(document)[len(start) :]
    step = length - len(start)
    cut = [start + ids[begin : begin + step] for begin in range(0, len(ids), step)]
    return [passage for passage in cut if len(passage) >= least]


def _pick(
    tokenizer: Tokenizer, documents: Sequence[str], length: int, limit_tokens: int, least: int
) -> list[list[int]]:
    """One passage from each document in turn, documents and passages both in spread order."""
    rounds: dict[int, Iterator[tuple[int, list[int]]]] = {}
    picked: dict[tuple[int, int], list[int]] = {}
    left = limit_tokens
    order = _spread(len(documents))
    while order and left >= least:
        more = []
        for place in order:
            if place not in rounds:
                rounds[place] = _spread_passages(_cut(tokenizer, documents[place], length, least))
            index, passage = next(rounds[place], (0, None))
            if passage is None:
                continue
            picked[place, index] = passage[:left]
            left -= len(passage[:left])
            more.append(place)
            if left < least:
                break
        order = more
    return [picked[key] for key in sorted(picked)]


def _spread_passages(cut: list[list[int]]) -> Iterator[tuple[int, list[int]]]:
    return ((index, cut[index]) for index in _spread(len(cut)))


def _spread(count: int) -> list[int]:
    """All of range(count), ordered so that every beginning of it is spread evenly (bit reversal)."""
    bits = max(count - 1, 0).bit_length()
    return [
        place for n in range(1 << bits) if (place := int(f"{n:0{bits}b}"[::-1], 2) if bits else 0) < count
    ]
