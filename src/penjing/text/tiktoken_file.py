"""Byte-pair ranks as OpenAI's tiktoken stores them: a line for each token, its bytes in base64 and its rank.

The published files are `tokenizer.model` (Llama 3, Kimi) and `NAME.tiktoken` (Qwen 1).
"""

import base64
import binascii
from collections.abc import Mapping

from penjing.errors import InputError
from penjing.formats.quote import quote
from penjing.text.byte_level import piece_of

_FIRST_LINE_LIMIT = 4096
_BYTES = 256


def is_tiktoken(data: bytes) -> bool:
    """Whether a file begins with such a line."""
    line = data[:_FIRST_LINE_LIMIT].split(b"\n", 1)[0].split()
    return len(line) == 2 and line[1].isdigit() and _decoded(line[0]) is not None


def read_ranks(data: bytes, what: str) -> dict[bytes, int]:
    """Each token's rank, which is its id; ranks run from 0 on and every byte has one."""
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(data.splitlines(), start=1):
        if not line:
            continue
        token, _, rank = line.partition(b" ")
        decoded = _decoded(token)
        if not decoded or not rank.isdigit() or len(rank) > 10:
            raise InputError(f"{what}'s line {number} should be a token in base64 and its rank.")
        if decoded in ranks:
            raise InputError(f"{what} has the token {quote(token.decode())} twice, again in line {number}.")
        ranks[decoded] = int(rank)
    if sorted(ranks.values()) != list(range(len(ranks))):
        raise InputError(f"{what}'s ranks don't run from 0 to {len(ranks) - 1}, each once.")
    missing = next((byte for byte in range(_BYTES) if bytes([byte]) not in ranks), None)
    if missing is not None:
        raise InputError(f"{what} has no token for the byte {missing}, so some texts have no ids.")
    return ranks


def vocabulary_and_merges(ranks: Mapping[bytes, int]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """The same byte pairs as a vocabulary of pieces and their ranked merges.

    tiktoken joins the two neighbours whose union has the lowest rank, so each way to part a token into two
    others is a merge of that token's rank.
    """
    vocabulary = {piece_of(token): rank for token, rank in ranks.items()}
    merges = []
    for piece, rank in vocabulary.items():
        for cut in range(1, len(piece)):
            left, right = vocabulary.get(piece[:cut]), vocabulary.get(piece[cut:])
            if left is not None and right is not None:
                merges.append((rank, left, right, piece[:cut], piece[cut:]))
    return vocabulary, [(left, right) for *_, left, right in sorted(merges)]


def _decoded(token: bytes) -> bytes | None:
    try:
        return base64.b64decode(token, validate=True)
    except binascii.Error:
        return None
