"""Three disjoint parts of the texts: to tune on, to search with, and to report on once."""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from penjing.errors import InputError

SPLIT_NAMES: tuple[str, ...] = ("tune", "search", "report")
_LEAST_DOCUMENTS = len(SPLIT_NAMES)
_PIECES_WANTED = 30
_PIECE_CHARACTERS = (400, 16_000)


@dataclass(frozen=True)
class Splits:
    """Documents by the name of their text. Every text is in all three; no document is in two.

    `notices` are full sentences about what was cut or left out.
    """

    tune: Mapping[str, tuple[str, ...]]
    search: Mapping[str, tuple[str, ...]]
    report: Mapping[str, tuple[str, ...]]
    notices: tuple[str, ...] = ()


def make_splits(
    texts: Mapping[str, Sequence[str]],
    seed: int = 0,
    shares: tuple[float, float, float] = (0.5, 0.2, 0.3),
    least_characters: int = 3_000,
) -> Splits:
    """Part named texts into splits, whole documents at a time, with about `shares` of the characters each.

    Where a document goes depends on its words and `seed`, not on its place in the list. Documents that differ
    in case and blanks only count as one and stay together, also across texts. A text of fewer than three
    documents is cut between paragraphs (else lines) first. Raises InputError if a text has fewer than
    `least_characters`, or can't be cut into three.
    """
    if not texts:
        raise InputError("There is no text to work with; give at least one.")
    parts: dict[str, dict[str, list[str]]] = {name: {} for name in SPLIT_NAMES}
    notices: list[str] = []
    homes: dict[str, str] = {}
    for name in sorted(texts):
        groups = _groups(name, texts[name], least_characters, notices)
        _settle(name, groups, homes, seed, dict(zip(SPLIT_NAMES, shares, strict=True)))
        for split in SPLIT_NAMES:
            chosen = [document for key, group in groups.items() if homes[key] == split for document in group]
            if not chosen:
                raise InputError(
                    f"Text {name} has nothing left for {split}: its documents are also in other texts."
                )
            parts[split][name] = chosen
    tune, search, report = (
        {name: tuple(docs) for name, docs in parts[split].items()} for split in SPLIT_NAMES
    )
    return Splits(tune, search, report, tuple(notices))


def _groups(
    name: str, documents: Sequence[str], least_characters: int, notices: list[str]
) -> dict[str, list[str]]:
    """Documents that are the same but for case and blanks, together; cut into pieces if there are too few."""
    size = sum(map(len, documents))
    if size < least_characters:
        raise InputError(
            f"Text {name} has {size:,} characters; at least {least_characters:,} are needed to tune, search "
            "and report on separate parts."
        )
    groups = _by_key(documents)
    if len(groups) >= _LEAST_DOCUMENTS:
        return groups
    pieces = [piece for document in documents for piece in _pieces(document, size)]
    groups = _by_key(pieces)
    if len(groups) < _LEAST_DOCUMENTS:
        raise InputError(
            f"Text {name} can't be cut into {_LEAST_DOCUMENTS} parts; part it into documents by lines "
            "that hold only a form feed, or into paragraphs by blank lines."
        )
    count = f"{len(documents)} document" + ("s" if len(documents) != 1 else "")
    notices.append(f"Text {name} has only {count}; it was cut between paragraphs into {len(groups)} pieces.")
    return groups


def _by_key(documents: Sequence[str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for document in documents:
        if document.strip():
            groups.setdefault(" ".join(document.split()).casefold(), []).append(document)
    return groups


def _pieces(document: str, text_size: int) -> Iterator[str]:
    """Runs of whole paragraphs, about a thirtieth of the text each; of lines if there are no paragraphs."""
    low, high = _PIECE_CHARACTERS
    wanted = min(max(text_size // _PIECES_WANTED, low), high)
    paragraphs = re.split(r"(\n\s*\n)", document)
    units = paragraphs if len(paragraphs) > 1 else re.split(r"(\n)", document)
    piece = ""
    for unit in units:
        piece += unit
        if len(piece) >= wanted and unit.strip():
            yield piece.strip("\n")
            piece = ""
    if piece.strip():
        yield piece.strip("\n")


def _settle(
    name: str, groups: Mapping[str, list[str]], homes: dict[str, str], seed: int, shares: Mapping[str, float]
) -> None:
    """Give each group a split: in hash order, to the split that is furthest behind its share."""
    filled = dict.fromkeys(SPLIT_NAMES, 0)
    for key in groups.keys() & homes.keys():
        filled[homes[key]] += sum(map(len, groups[key]))
    for key in sorted(groups.keys() - homes.keys(), key=lambda key: _hash(seed, key)):
        split = min(SPLIT_NAMES, key=lambda split: (filled[split] / shares[split], -shares[split]))
        homes[key] = split
        filled[split] += sum(map(len, groups[key]))


def _hash(seed: int, key: str) -> bytes:
    return hashlib.sha256(f"{seed}\0{key}".encode()).digest()
