"""Byte-level BPE in the terms of the `tokenizers` library."""

from collections.abc import Iterable, Mapping

import tokenizers
from tokenizers import decoders, models

from penjing.errors import InputError
from penjing.formats.quote import quote
from penjing.text.pretokenizers import Rule

Merges = list[tuple[str, str]]


def byte_level_backend(
    vocabulary: Mapping[str, int], merges: Merges, rule: Rule, ignore_merges: bool | None = None
) -> tokenizers.Tokenizer:
    """Build it from pieces in the printable alphabet; `ignore_merges` overrides the rule's."""
    whole_words = rule.ignore_merges if ignore_merges is None else ignore_merges
    backend = tokenizers.Tokenizer(
        models.BPE(vocab=dict(vocabulary), merges=merges, ignore_merges=whole_words)
    )
    if rule.normalizer is not None:
        backend.normalizer = rule.normalizer
    backend.pre_tokenizer = rule.pre_tokenizer()
    backend.decoder = decoders.ByteLevel()
    return backend


def merge_pairs(lines: Iterable[str], vocabulary: Mapping[str, int], what: str) -> Merges:
    """Ranked merges from lines of two pieces, parted by the first blank that isn't the first character."""
    pairs: Merges = []
    for line in lines:
        cut = line.find(" ", 1)
        left, right = line[:cut], line[cut + 1 :]
        known = left in vocabulary and right in vocabulary and left + right in vocabulary
        if cut < 0 or not known:
            raise InputError(
                f"{what}'s merge {quote(line)} (number {len(pairs) + 1}) isn't two tokens of its vocabulary "
                "that make a third."
            )
        pairs.append((left, right))
    return pairs
