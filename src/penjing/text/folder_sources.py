"""The vocabulary of a Hugging Face folder, from whichever file holds it, as a backend.

`tokenizer.json` is taken as it is. The older files are converted as transformers converts them; they don't
say by which rule text is cut or what is put around it, so those come from the tokenizer's class, and a class
that isn't known here is refused: a near miss would give slightly wrong ids without a sign.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import tokenizers
from tokenizers import AddedToken

from penjing.errors import InputError, UnsupportedError
from penjing.formats.json_file import read_json
from penjing.formats.quote import quote
from penjing.text import pretokenizer_patterns as patterns
from penjing.text.byte_level_backend import byte_level_backend, merge_pairs
from penjing.text.folder_files import TOKENIZER_CONFIG, flag, read_bytes, read_text
from penjing.text.piece_kinds import CONTROL, UNKNOWN
from penjing.text.pretokenizers import rule_for
from penjing.text.sentencepiece_backend import sentencepiece_backend
from penjing.text.sentencepiece_model import SentencePieceModel, read_sentencepiece
from penjing.text.tekken_file import read_tekken
from penjing.text.tiktoken_file import is_tiktoken, read_ranks, vocabulary_and_merges

_Known = TypeVar("_Known")

TOKENIZER = "tokenizer.json"
_MODEL = "tokenizer.model"
TEKKEN = "tekken.json"
_VOCABULARY, _MERGES = "vocab.json", "merges.txt"
_OTHER_KINDS = ("spiece.model", "sentencepiece.bpe.model", "vocab.json", "vocab.txt")

# Classes that cut text as their SentencePiece model says, and whether they put BOS before it unless told.
_SENTENCEPIECE = {
    "LlamaTokenizer": True,
    "CodeLlamaTokenizer": True,
    "GemmaTokenizer": True,
    "BaichuanTokenizer": True,
    "InternLMTokenizer": True,
    "InternLM2Tokenizer": True,
    "OrionTokenizer": True,
    "PreTrainedTokenizer": False,
    "TokenizersBackend": False,
}
# Classes with `vocab.json` and `merges.txt`: the rule by which they cut text, and what <|endoftext|> is to
# them unless their config names other tokens.
_END_OF_TEXT = "<|endoftext|>"
_BYTE_LEVEL = {
    "GPT2Tokenizer": ("gpt-2", ("bos_token", "eos_token", "unk_token")),
    "Qwen2Tokenizer": ("qwen2", ("eos_token", "unk_token", "pad_token")),
}
# What such a folder is when it doesn't name its class.
_CLASS_OF_MODEL = {
    "gpt2": "GPT2Tokenizer",
    "gpt_neo": "GPT2Tokenizer",
    "opt": "GPT2Tokenizer",
    "qwen2": "Qwen2Tokenizer",
    "qwen2_moe": "Qwen2Tokenizer",
    "qwen3": "Qwen2Tokenizer",
    "qwen3_moe": "Qwen2Tokenizer",
}

_TEKKEN_ROLES = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}

_REPLACES_CHARACTERS = (
    "The SentencePiece model replaces characters of a text (as NFKC does); letters with several marks and "
    "line ends of two characters may be replaced otherwise than by SentencePiece, though as in transformers."
)
_REMEDY = (
    "write a tokenizer.json with transformers: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)."
)


@dataclass(frozen=True)
class Source:
    """A folder's tokenizer before its config is followed.

    `adds_bos` is None if the file itself settles what is put around a text; `special_tokens` maps
    transformers' names to tokens that the file or its class names.
    """

    backend: tokenizers.Tokenizer
    file: str
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    adds_bos: bool | None = None
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Ranks:
    """What a class with tiktoken-style ranks adds to them: its rule, and special tokens after the ranks."""

    rule: str
    adds_bos: bool = False
    special: Callable[[int], list[str]] = lambda first: []


def _qwen_special(first: int) -> list[str]:
    return ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{n}|>" for n in range(205))]


def _reserved(first: int, count: int = 256) -> list[str]:
    return [f"<|reserved_token_{id}|>" for id in range(first, first + count)]


_RANKS = {
    "QWenTokenizer": _Ranks("qwen2", special=_qwen_special),
    "TikTokenTokenizer": _Ranks("kimi-k2", special=_reserved),
    "PreTrainedTokenizer": _Ranks("llama-bpe", adds_bos=True),
    "TokenizersBackend": _Ranks("llama-bpe", adds_bos=True),
}
_CLASS_OF_FILE = {"qwen.tiktoken": "QWenTokenizer"}


def open_source(path: Path, config: Mapping[str, Any], listed: Mapping[int, AddedToken]) -> Source:
    """Build the backend of a folder; `listed` are the added tokens that the folder's config names, by id.

    Raises InputError for a missing or damaged file and UnsupportedError for a kind or a class of tokenizer
    that penjing doesn't know.
    """
    if (path / TOKENIZER).is_file():
        return _from_tokenizer_json(path / TOKENIZER)
    if (path / TEKKEN).is_file():
        return _from_tekken(path / TEKKEN)
    ranks = sorted(path.glob("*.tiktoken"))
    if (path / _MODEL).is_file():
        data = read_bytes(path / _MODEL)
        if is_tiktoken(data):
            return _from_ranks(path / _MODEL, data, config, listed)
        return _from_sentencepiece(path / _MODEL, data, config, listed)
    if ranks:
        return _from_ranks(ranks[0], read_bytes(ranks[0]), config, listed)
    if (path / _VOCABULARY).is_file() and (path / _MERGES).is_file():
        return _from_vocabulary(path, config)
    raise _no_tokenizer(path)


def _from_tokenizer_json(file: Path) -> Source:
    data = read_bytes(file)
    try:
        backend = tokenizers.Tokenizer.from_buffer(data)
    except Exception as error:  # the library raises nothing narrower
        raise InputError(f"{file} isn't a tokenizer that can be opened: {error}.") from error
    # Published files may carry the training's settings, which would silently cut or pad every text.
    backend.no_truncation()
    backend.no_padding()
    return Source(backend, file.name)


def _from_tekken(file: Path) -> Source:
    tekken = read_tekken(file)
    if tekken.pattern != patterns.TEKKEN:
        raise UnsupportedError(
            f"{file} cuts text by a pattern that penjing doesn't know ({quote(tekken.pattern)}); {_REMEDY}"
        )
    pieces, merges = vocabulary_and_merges(tekken.ranks)
    vocabulary = {piece: len(tekken.special) + rank for piece, rank in pieces.items()}
    special = {text: id for id, text in enumerate(tekken.special)}
    twice = vocabulary.keys() & special.keys()
    if twice:
        raise InputError(f"{file} has {quote(min(twice))} both as a special token and as another.")
    backend = byte_level_backend(special | vocabulary, merges, rule_for("tekken"))
    backend.add_special_tokens([AddedToken(text, normalized=False) for text in tekken.special])
    roles = {role: text for role, text in _TEKKEN_ROLES.items() if text in special}
    return Source(backend, file.name, roles, adds_bos=True)


def _from_sentencepiece(
    file: Path, data: bytes, config: Mapping[str, Any], listed: Mapping[int, AddedToken]
) -> Source:
    adds_bos = _known(_SENTENCEPIECE, _class(config) or "LlamaTokenizer", file, config)
    model = _renamed(read_sentencepiece(data, str(file)), listed)
    model = replace(model, add_dummy_prefix=flag(config, "add_prefix_space", model.add_dummy_prefix))
    backend = sentencepiece_backend(model, prefix_once=not flag(config, "legacy", True))
    special = [
        piece for piece, kind in zip(model.pieces, model.kinds, strict=True) if kind in (CONTROL, UNKNOWN)
    ]
    backend.add_special_tokens([AddedToken(piece, normalized=False) for piece in special])
    notices = (_REPLACES_CHARACTERS,) if model.charsmap else ()
    return Source(backend, file.name, model.special_tokens, adds_bos, notices)


def _renamed(model: SentencePieceModel, listed: Mapping[int, AddedToken]) -> SentencePieceModel:
    """Placeholders among the pieces (<unused7>) take the names that the config gives their ids."""
    names = {id: token.content for id, token in listed.items() if id < len(model.pieces)}
    kept = {piece for id, piece in enumerate(model.pieces) if id not in names}
    pieces = [
        names[id] if id in names and names[id] not in kept else piece for id, piece in enumerate(model.pieces)
    ]
    _require_distinct(pieces)
    new = dict(zip(model.pieces, pieces, strict=True))
    special = {name: new[piece] for name, piece in model.special_tokens.items()}
    return replace(model, pieces=pieces, special_tokens=special)


def _from_ranks(
    file: Path, data: bytes, config: Mapping[str, Any], listed: Mapping[int, AddedToken]
) -> Source:
    name = _class(config) or _CLASS_OF_FILE.get(file.name)
    if name is None:
        raise UnsupportedError(
            f"{file} holds byte-pair ranks but no rule by which text is cut, and {TOKENIZER_CONFIG} names no "
            f"tokenizer_class; penjing knows {_names(_RANKS)}."
        )
    family = _known(_RANKS, name, file, config)
    ranks = read_ranks(data, str(file))
    backend = byte_level_backend(*vocabulary_and_merges(ranks), rule_for(family.rule), ignore_merges=True)
    backend.add_special_tokens(_after_ranks(len(ranks), family.special(len(ranks)), listed))
    return Source(backend, file.name, {}, family.adds_bos)


def _after_ranks(first: int, special: list[str], listed: Mapping[int, AddedToken]) -> list[AddedToken]:
    """The special tokens from id `first` on: as listed, else the family's, else reserved ones."""
    last = max([first + len(special), *(id + 1 for id in listed)])
    if last - first > 100_000:
        raise InputError(f"{TOKENIZER_CONFIG} lists the token {last - 1}, far beyond the {first} ranks.")
    names = dict(enumerate([*special, *_reserved(first + len(special), last - first - len(special))], first))
    tokens = {id: listed.get(id, AddedToken(name, normalized=False)) for id, name in names.items()}
    _require_distinct([token.content for token in tokens.values()])
    return list(tokens.values())


def _require_distinct(tokens: list[str]) -> None:
    if len(set(tokens)) < len(tokens):
        twice = next(token for n, token in enumerate(tokens) if token in tokens[:n])
        raise InputError(f"The folder's added tokens give two ids to the token {quote(twice)}.")


def _from_vocabulary(path: Path, config: Mapping[str, Any]) -> Source:
    file = path / _VOCABULARY
    name = _class(config)
    if name in (None, "PreTrainedTokenizer", "TokenizersBackend"):
        model_type = (
            read_json(path / "config.json").get("model_type") if (path / "config.json").is_file() else None
        )
        name = _CLASS_OF_MODEL.get(str(model_type), name or f"of the model_type {model_type}")
    rule, roles = _known(_BYTE_LEVEL, name, file, config)
    if flag(config, "add_prefix_space", False):
        raise UnsupportedError(
            f"{path / TOKENIZER_CONFIG} puts a blank before every text (add_prefix_space), which penjing "
            f"doesn't do for {_VOCABULARY}; {_REMEDY}"
        )
    vocabulary = _vocabulary(file)
    lines = read_text(path / _MERGES).split("\n")
    kept = [line.removesuffix("\r") for line in lines if line.strip() and not line.startswith("#version")]
    merges = merge_pairs(kept, vocabulary, str(path / _MERGES))
    special_tokens = dict.fromkeys(roles, _END_OF_TEXT) if _END_OF_TEXT in vocabulary else {}
    return Source(byte_level_backend(vocabulary, merges, rule_for(rule)), file.name, special_tokens, False)


def _vocabulary(file: Path) -> dict[str, int]:
    vocabulary = read_json(file)
    ids = list(vocabulary.values())
    if not ids or not all(type(id) is int and 0 <= id < 2**32 for id in ids):
        raise InputError(f"{file} should map tokens to ids.")
    if len(set(ids)) < len(ids):
        raise InputError(f"{file} gives two tokens the same id.")
    return vocabulary


def _class(config: Mapping[str, Any]) -> str | None:
    """The tokenizer's class; with and without "Fast" it is the same one."""
    name = config.get("tokenizer_class")
    if name is not None and not isinstance(name, str):
        raise InputError(f"tokenizer_class in {TOKENIZER_CONFIG} should be text; it is {quote(name)}.")
    return name.removesuffix("Fast") if name else None


def _remedy(config: Mapping[str, Any]) -> str:
    """transformers converts what it knows; a class that is code in the folder it would have to run."""
    if config.get("auto_map"):
        return (
            "they are code in the folder, which penjing never runs: use a copy of the model with "
            f"{TOKENIZER}, such as many makers publish for transformers."
        )
    return _REMEDY


def _known(table: Mapping[str, _Known], name: str, file: Path, config: Mapping[str, Any]) -> _Known:
    if name not in table:
        raise UnsupportedError(
            f"{file} belongs to a tokenizer {name}, whose rules penjing doesn't know (it knows "
            f"{_names(table)}); {_remedy(config)}"
        )
    return table[name]


def _names(table: Mapping[str, Any]) -> str:
    return ", ".join(sorted(table))


def _no_tokenizer(path: Path) -> InputError:
    if not path.is_dir():
        return InputError(f"{path} isn't a folder.")
    found = [name for name in _OTHER_KINDS if (path / name).is_file()]
    if found:
        return UnsupportedError(
            f"{path} has no {TOKENIZER}, only {', '.join(found)}, which penjing doesn't read; {_REMEDY}"
        )
    return InputError(f"{path} has no {TOKENIZER}; copy the model's tokenizer files into it.")
