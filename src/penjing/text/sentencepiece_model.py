"""SentencePiece's model file: the parts of its ModelProto that say how text becomes pieces.

Field numbers and defaults are those of sentencepiece_model.proto (https://github.com/google/sentencepiece).
"""

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from penjing.errors import InputError, UnsupportedError
from penjing.formats.quote import quote
from penjing.text.piece_kinds import BYTE, NORMAL
from penjing.text.wire_format import Value, read_fields

_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_UNIGRAM, _BPE = 1, 2
_MODEL_TYPES = {_UNIGRAM: "unigram", _BPE: "bpe", 3: "word", 4: "char"}
_MODEL_TYPE, _WHITESPACE_AS_SUFFIX, _BYTE_FALLBACK = 3, 24, 35
_UNK_ID, _BOS_ID, _EOS_ID, _PAD_ID = 40, 41, 42, 43
_CHARSMAP, _DUMMY_PREFIX, _REMOVE_EXTRA_WHITESPACES, _ESCAPE_WHITESPACES = 2, 3, 4, 5
_INT32 = 2**32


@dataclass(frozen=True)
class SentencePieceModel:
    """Pieces with their scores and kinds (see `piece_kinds`), and how text is prepared for them.

    `charsmap` is the compiled table of character replacements, empty for none. `special_tokens` maps
    transformers' names ("bos_token", ...) to pieces.
    """

    pieces: list[str]
    scores: list[float]
    kinds: list[int]
    unigram: bool = False
    unknown_id: int | None = 0
    byte_fallback: bool = True
    add_dummy_prefix: bool = True
    remove_extra_whitespaces: bool = False
    charsmap: bytes = b""
    special_tokens: Mapping[str, str] = field(default_factory=dict)


def read_sentencepiece(data: bytes, what: str) -> SentencePieceModel:
    """Parse a model file; `what` names it in errors.

    Raises InputError for a damaged file and UnsupportedError for kinds that no language model in use has:
    word and character models, blanks as suffixes, blanks kept as they are.
    """
    pieces: list[tuple[str, float, int]] = []
    trainer: dict[int, Value] = {}
    normalizer: dict[int, Value] = {}
    for number, value in read_fields(memoryview(data), what):
        if number == _PIECES:
            pieces.append(_piece(_message(value, what), f"{what}'s piece {len(pieces)}"))
        elif number == _TRAINER:
            trainer |= dict(read_fields(_message(value, what), what))
        elif number == _NORMALIZER:
            normalizer |= dict(read_fields(_message(value, what), what))
    if not pieces:
        raise InputError(f"{what} holds no pieces; it isn't a SentencePiece model.")
    texts, scores, kinds = (list(column) for column in zip(*pieces, strict=True))
    _require_unique(texts, what)
    _refuse_other_kinds(trainer, normalizer, what)
    return SentencePieceModel(
        texts,
        scores,
        kinds,
        unigram=_integer(trainer, _MODEL_TYPE, _UNIGRAM, what) == _UNIGRAM,
        unknown_id=_id(trainer, _UNK_ID, 0, texts, what),
        byte_fallback=_flag(trainer, _BYTE_FALLBACK, False, what),
        add_dummy_prefix=_flag(normalizer, _DUMMY_PREFIX, True, what),
        remove_extra_whitespaces=_flag(normalizer, _REMOVE_EXTRA_WHITESPACES, True, what),
        charsmap=bytes(_message(normalizer.get(_CHARSMAP, memoryview(b"")), what)),
        special_tokens=_special_tokens(trainer, texts, what),
    )


def _piece(message: memoryview, what: str) -> tuple[str, float, int]:
    text, score, kind = "", 0.0, NORMAL
    for number, value in read_fields(message, what):
        if number == 1:
            text = _text(value, what)
        elif number == 2:
            score = _float(value, what)
        elif number == 3:
            kind = value if isinstance(value, int) else 0
    if not text or not math.isfinite(score) or not NORMAL <= kind <= BYTE:
        raise InputError(f"{what} is damaged: it has the text {quote(text)}, score {score} and kind {kind}.")
    return text, score, kind


def _refuse_other_kinds(trainer: Mapping[int, Value], normalizer: Mapping[int, Value], what: str) -> None:
    kind = _integer(trainer, _MODEL_TYPE, _UNIGRAM, what)
    if kind not in (_UNIGRAM, _BPE):
        name = _MODEL_TYPES.get(kind, str(kind))
        raise UnsupportedError(f"{what} is of SentencePiece's kind {name}; penjing reads unigram and bpe.")
    if _flag(trainer, _WHITESPACE_AS_SUFFIX, False, what):
        raise UnsupportedError(f"{what} keeps blanks at the ends of words, which penjing doesn't do.")
    if not _flag(normalizer, _ESCAPE_WHITESPACES, True, what):
        raise UnsupportedError(f"{what} doesn't escape blanks, which penjing relies on.")


def _special_tokens(trainer: Mapping[int, Value], texts: list[str], what: str) -> dict[str, str]:
    keys = {
        "unk_token": (_UNK_ID, 0),
        "bos_token": (_BOS_ID, 1),
        "eos_token": (_EOS_ID, 2),
        "pad_token": (_PAD_ID, -1),
    }
    ids = {name: _id(trainer, key, default, texts, what) for name, (key, default) in keys.items()}
    return {name: texts[id] for name, id in ids.items() if id is not None}


def _id(fields: Mapping[int, Value], number: int, default: int, texts: list[str], what: str) -> int | None:
    """A piece's id; -1, an int32 written in 64 bits, says that there is none."""
    id = _integer(fields, number, default % _INT32, what) % _INT32
    if id == _INT32 - 1:
        return None
    if id >= len(texts):
        raise InputError(f"{what} names the special piece {id}, but has only {len(texts)} pieces.")
    return id


def _require_unique(texts: list[str], what: str) -> None:
    if len(set(texts)) < len(texts):
        seen: set[str] = set()
        twice = next(text for text in texts if text in seen or seen.add(text))
        raise InputError(f"{what} has the piece {quote(twice)} twice.")


def _message(value: Value, what: str) -> memoryview:
    if isinstance(value, int):
        raise InputError(f"{what} is damaged: a message is written as a number.")
    return value


def _integer(fields: Mapping[int, Value], number: int, default: int, what: str) -> int:
    value = fields.get(number, default)
    if not isinstance(value, int):
        raise InputError(f"{what} is damaged: field {number} should be a number.")
    return value


def _flag(fields: Mapping[int, Value], number: int, default: bool, what: str) -> bool:
    return bool(_integer(fields, number, default, what))


def _text(value: Value, what: str) -> str:
    try:
        return bytes(_message(value, what)).decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{what} isn't UTF-8 text: {error.reason} at {error.start}.") from error


def _float(value: Value, what: str) -> float:
    if isinstance(value, int) or len(value) != 4:
        raise InputError(f"{what} is damaged: its score isn't a 32-bit number.")
    return struct.unpack("<f", value)[0]
