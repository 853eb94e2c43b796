"""Two answers to one question, parted at the first word in which they differ."""

import re
from dataclasses import dataclass

from penjing.shrink.result import Answer

# Chinese, Japanese and Korean put no spaces between words: there each character counts as one.
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
_WORD = re.compile(f"[{_CJK}]|[^\\s{_CJK}]+")


@dataclass(frozen=True)
class Parted:
    """`same` + `word` + `rest` is the text; `word` is empty where the text ends before the other one."""

    same: str
    word: str
    rest: str


@dataclass(frozen=True)
class Comparison:
    question: str
    original: Parted
    shrunk: Parted
    same: bool


def compare_answers(answer: Answer) -> Comparison:
    """Both answers, parted. White space alone makes no difference."""
    first, second = list(_WORD.finditer(answer.original)), list(_WORD.finditer(answer.shrunk))
    alike = 0
    while alike < min(len(first), len(second)) and first[alike][0] == second[alike][0]:
        alike += 1
    return Comparison(
        question=answer.question,
        original=_part(answer.original, first, alike),
        shrunk=_part(answer.shrunk, second, alike),
        same=len(first) == len(second) == alike,
    )


def _part(text: str, words: list[re.Match[str]], alike: int) -> Parted:
    if alike == len(words):
        return Parted(text, "", "")
    start, end = words[alike].span()
    return Parted(text[:start], text[start:end], text[end:])
