"""How much is spent on finding and proving a small model."""

from dataclasses import dataclass

from penjing.errors import InputError


@dataclass(frozen=True)
class Effort:
    """Amounts: passages of `passage_tokens` tokens to take statistics from, out of documents and of the
    model's own writing; own passages to heal with; tokens for measuring. `trials` is the most sizes that a
    search for `--keep` builds; `choice_items` is the size of the choice test."""

    name: str
    document_passages: int
    own_passages: int
    healing_passages: int
    search_tokens: int
    report_tokens: int
    choice_items: int
    trials: int
    passage_tokens: int = 512


EFFORTS = {
    effort.name: effort
    for effort in (
        Effort("fast", 6, 6, 0, 8_192, 8_192, 200, 3),
        Effort("default", 16, 16, 0, 16_384, 16_384, 600, 5),
        Effort("best", 64, 64, 256, 32_768, 65_536, 2_000, 8),
    )
}


def find_effort(name: str) -> Effort:
    """The effort called `name`; another name is an `InputError`."""
    if name not in EFFORTS:
        raise InputError(f"effort {name!r} is not known; choose {', '.join(EFFORTS)}")
    return EFFORTS[name]
