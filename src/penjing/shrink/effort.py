"""How much is spent on finding and proving a small model."""

from dataclasses import dataclass

from penjing.errors import InputError


@dataclass(frozen=True)
class Effort:
    """Amounts, in passages of `passage_tokens` tokens for calibration and in tokens for measuring. `trials`
    is the most sizes that a search for `--keep` builds; `choice_items` is the size of the choice test."""

    name: str
    calibration_passages: int
    sensitivity_passages: int
    search_tokens: int
    report_tokens: int
    choice_items: int
    trials: int
    passage_tokens: int = 512


EFFORTS = {
    effort.name: effort
    for effort in (
        Effort("fast", 12, 4, 8_192, 8_192, 200, 3),
        Effort("default", 32, 8, 16_384, 32_768, 600, 5),
        Effort("best", 128, 32, 32_768, 65_536, 2_000, 8),
    )
}


def find_effort(name: str) -> Effort:
    """The effort called `name`; another name is an `InputError`."""
    if name not in EFFORTS:
        raise InputError(f"effort {name!r} is not known; choose {', '.join(EFFORTS)}")
    return EFFORTS[name]
