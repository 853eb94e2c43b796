"""SentencePiece's compiled table of character replacements, checked before the backend follows its pointers.

Its layout: the size of a trie in bytes, the trie (a double array of 32-bit units, as darts-clone has it:
https://github.com/s-yata/darts-clone), then the replacements, each ended by a zero byte. The `tokenizers`
library follows offsets without looking, and a wrong one would end the process.
"""

import struct

import numpy as np
from tokenizers import normalizers

from penjing.errors import InputError

_UNIT = 4
_LABELS = 256
_HAS_LEAF, _IS_VALUE = np.uint32(1 << 8), np.uint32(1 << 31)


def characters(charsmap: bytes) -> normalizers.Normalizer:
    """The normaliser that replaces characters by this table; InputError for a damaged one."""
    _require_sound(charsmap)
    try:
        return normalizers.Precompiled(charsmap)
    except Exception as error:  # the library raises nothing narrower
        raise _damaged(str(error)) from error


def _require_sound(charsmap: bytes) -> None:
    if len(charsmap) < _UNIT:
        raise _damaged("it is cut short")
    (size,) = struct.unpack_from("<I", charsmap)
    trie, replacements = charsmap[_UNIT : _UNIT + size], charsmap[_UNIT + size :]
    if len(trie) < size or size == 0 or size % _UNIT:
        raise _damaged("its trie is cut short")
    units = np.frombuffer(trie, dtype="<u4")
    values = _values(units)
    if not replacements.endswith(b"\0"):
        raise _damaged("its last replacement doesn't end")
    _require_starts(values, replacements)


def _values(units: np.ndarray) -> np.ndarray:
    """Where replacements begin, by the trie's leaves.

    Each unit that isn't one leads, by whatever byte follows, to another; all of them must be inside.
    """
    nodes = np.flatnonzero(units & _IS_VALUE == 0).astype(np.uint32)
    inner = units[nodes]
    reached = nodes ^ ((inner >> 10) << ((inner & (1 << 9)) >> 6))
    if (reached | (_LABELS - 1) >= len(units)).any():
        raise _damaged("its trie points beyond its end")
    return units[reached[inner & _HAS_LEAF != 0]] & ~_IS_VALUE


def _require_starts(values: np.ndarray, replacements: bytes) -> None:
    """Each value is where a character of a replacement begins."""
    try:
        replacements.decode()
    except UnicodeDecodeError as error:
        raise _damaged("its replacements aren't UTF-8") from error
    text = np.frombuffer(replacements, dtype=np.uint8)
    if (values >= len(text)).any() or (text[values] & 0xC0 == 0x80).any():
        raise _damaged("it points between or beyond its replacements")


def _damaged(why: str) -> InputError:
    return InputError(f"The SentencePiece model's table of characters is damaged: {why}.")
