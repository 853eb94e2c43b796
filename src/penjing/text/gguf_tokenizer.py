"""A tokenizer from a GGUF file's metadata: byte-level BPE ("gpt2") and SentencePiece's BPE ("llama").

Keys and token types are those of the GGUF specification (ggml's docs/gguf.md) and of its reference,
llama.cpp.
"""

from collections.abc import Mapping
from typing import Any

import tokenizers
from tokenizers import AddedToken

from penjing.errors import InputError, UnsupportedError
from penjing.formats.quote import quote
from penjing.text.boundaries import add_boundaries
from penjing.text.byte_level_backend import byte_level_backend
from penjing.text.gguf_fields import PREFIX, GGUFFields
from penjing.text.piece_kinds import CONTROL, UNKNOWN, USER_DEFINED
from penjing.text.pretokenizers import rule_for
from penjing.text.sentencepiece_backend import sentencepiece_backend
from penjing.text.sentencepiece_model import SentencePieceModel
from penjing.text.tokenizer import Tokenizer
from penjing.text.turn_end import with_turn_end

_TEMPLATE = "tokenizer.chat_template"
_NAMED_IDS = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}
_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
# Files often keep one end id of several. Unless the file names its end of turn, a control token spelled like
# one of these is it, as llama.cpp also assumes.
_END_OF_TURN = frozenset(
    {
        *("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<turn|>", "<EOT>", "[EOT]"),
        *("<end_of_utterance>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "[e~["),
    }
)
# Where one of these pairs ends a turn, <|end|> only ends a part of it.
_PARTED_TURNS = ({"<|return|>", "<|call|>"}, {"<|flush|>", "<|calls|>"})
# GGUF files don't keep the flags of added tokens. Phi-3's take the blanks after them, except these; llama.cpp
# also knows that by the model.
_PHI_3_KEEPS_BLANKS = frozenset({"<unk>", "<s>", "<|endoftext|>"})
# Rules of the gpt2 kind that don't spell bytes in printable characters and cut text at no word.
UNSPLIT_TAGS = frozenset({"gemma4", "granite-embed-multi-311m", "sarvam-moe"})
# A backend, whether it adds BOS unless the file says otherwise, and what to tell about it.
_Built = tuple[tokenizers.Tokenizer, bool, list[str]]


def tokenizer_from_gguf(metadata: Mapping[str, Any]) -> Tokenizer:
    """Build the tokenizer that `metadata` (a GGUF file's keys and values) describes.

    Raises InputError if a key is missing, of the wrong type, or points outside the vocabulary, and
    UnsupportedError for kinds of tokenizer and pre-tokenizer that penjing doesn't know.
    """
    fields = GGUFFields(metadata)
    kind = fields.text("model")
    if kind not in _BUILDERS:
        raise UnsupportedError(
            f"This GGUF file has a tokenizer of kind {quote(kind)}; penjing reads gpt2 (byte-level BPE), "
            "llama (SentencePiece) and gemma4. Use the model's Hugging Face folder."
        )
    backend, adds_bos, notices = _BUILDERS[kind](fields)
    phi_3 = metadata.get("general.architecture") == "phi3" and kind == "llama"
    _add_tokens(backend, fields, strips=phi_3)
    special_tokens = {
        name: fields.tokens[id]
        for name, key in _NAMED_IDS.items()
        if (id := fields.token_id(key)) is not None
    }
    bos = special_tokens.get("bos_token") if fields.flag("add_bos_token", adds_bos) else None
    eos = special_tokens.get("eos_token") if fields.flag("add_eos_token", False) else None
    add_boundaries(backend, bos, eos)
    templates = _templates(metadata)
    return with_turn_end(
        Tokenizer(backend, special_tokens, _end_ids(fields), templates, notices=tuple(notices))
    )


def _byte_level(fields: GGUFFields) -> _Built:
    tag = fields.text("pre", "default")
    if tag in UNSPLIT_TAGS:
        return _unsplit(fields)
    rule = rule_for(tag)
    notices = []
    if tag == "default":
        notices.append(
            "The GGUF file doesn't say by which rule its tokenizer splits text; it is read like GPT-2's, "
            "so ids may differ from the original's."
        )
    return byte_level_backend(fields.vocabulary, fields.merges(), rule), rule.add_bos, notices


def _sentencepiece(fields: GGUFFields) -> _Built:
    for key in ("precompiled_charsmap", "remove_extra_whitespaces"):
        if fields.get(key):
            raise UnsupportedError(
                f"This GGUF file's SentencePiece tokenizer rewrites text before it is cut ({PREFIX}{key}), "
                "which penjing doesn't do yet; use the model's Hugging Face folder."
            )
    model = SentencePieceModel(
        fields.tokens,
        fields.scores(),
        fields.kinds,
        unknown_id=fields.token_id("unknown_token_id", default=0),
        add_dummy_prefix=fields.flag("add_space_prefix", True),
    )
    return sentencepiece_backend(model, split_user_defined=False), True, []


def _unsplit(fields: GGUFFields) -> _Built:
    """SentencePiece's alphabet with ranked merges in place of scores, as Gemma 4 has it."""
    model = SentencePieceModel(
        fields.tokens,
        [0.0] * len(fields.tokens),
        fields.kinds,
        unknown_id=fields.token_id("unknown_token_id"),
        add_dummy_prefix=fields.flag("add_space_prefix", False),
    )
    return sentencepiece_backend(model, fields.merges(), split_user_defined=False), True, []


_BUILDERS = {"gpt2": _byte_level, "llama": _sentencepiece, "gemma4": _unsplit}


def _add_tokens(backend: tokenizers.Tokenizer, fields: GGUFFields, strips: bool) -> None:
    """Make control tokens and the unknown token special and user-defined ones plain added tokens.

    All are matched whole in raw text, as llama.cpp does; `strips` lets them take the blanks after them, too.
    """
    tokens = list(zip(fields.tokens, fields.kinds, strict=True))
    special = [text for text, kind in tokens if kind in (CONTROL, UNKNOWN)]
    plain = [text for text, kind in tokens if kind == USER_DEFINED]

    def added(text: str) -> AddedToken:
        return AddedToken(text, rstrip=strips and text not in _PHI_3_KEEPS_BLANKS, normalized=False)

    backend.add_special_tokens(list(map(added, special)))
    backend.add_tokens(list(map(added, plain)))
    if backend.get_vocab_size() != len(fields.tokens):
        raise InputError("The GGUF file's vocabulary can't be rebuilt: tokens were lost or doubled.")


def _end_ids(fields: GGUFFields) -> frozenset[int]:
    ids = {id for key in _END_KEYS if (id := fields.token_id(key)) is not None}
    if fields.token_id("eot_token_id") is None:
        ids |= _known_ends_of_turn(fields)
    return frozenset(ids)


def _known_ends_of_turn(fields: GGUFFields) -> set[int]:
    control = {text for text, kind in zip(fields.tokens, fields.kinds, strict=True) if kind == CONTROL}
    ends = control & _END_OF_TURN
    if any(pair <= ends for pair in _PARTED_TURNS):
        ends.discard("<|end|>")
    return {fields.vocabulary[text] for text in ends}


def _templates(metadata: Mapping[str, Any]) -> dict[str, str]:
    templates = {}
    for key, value in metadata.items():
        if key == _TEMPLATE or key.startswith(f"{_TEMPLATE}."):
            if not isinstance(value, str):
                raise InputError(f"{key} in the GGUF file should be text, not {type(value).__name__}.")
            templates["default" if key == _TEMPLATE else key.removeprefix(f"{_TEMPLATE}.")] = value
    return templates
