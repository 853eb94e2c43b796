"""The printable alphabet in which byte-level BPE vocabularies are written, one character for each byte.

Bytes that print in Latin-1 stand for themselves, the others for the characters from U+0100 on (Radford et
al., "Language Models are Unsupervised Multitask Learners", 2019, and its published encoder).
"""

_PRINTABLE = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
_BYTES = {chr(byte): byte for byte in _PRINTABLE} | {chr(256 + n): byte for n, byte in enumerate(_OTHERS)}
_CHARACTERS = {byte: character for character, byte in _BYTES.items()}
ALPHABET = frozenset(_BYTES)


def is_byte_level(piece: str) -> bool:
    """Whether every character of `piece` is one of the alphabet's."""
    return ALPHABET.issuperset(piece)


def bytes_of(piece: str) -> bytes:
    """The bytes that a piece of the vocabulary spells; one outside the alphabet stands for its own text."""
    return bytes(_BYTES[character] for character in piece) if is_byte_level(piece) else piece.encode()


def piece_of(data: bytes) -> str:
    """The piece that spells these bytes."""
    return data.decode("latin-1").translate(_CHARACTERS)
