"""A tokenizer from a GGUF file's metadata: byte-level BPE ("gpt2") and SentencePiece's BPE ("llama").

Keys and token types are those of the GGUF specification (ggml's docs/gguf.md) and of its reference,
llama.cpp.
"""

from collections.abc import Mapping
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers

from penjing.errors import InputError, UnsupportedError
from penjing.formats.quote import quote
from penjing.text.boundaries import add_boundaries
from penjing.text.gguf_fields import CONTROL, NORMAL, PREFIX, UNKNOWN, USER_DEFINED, GGUFFields
from penjing.text.pretokenizers import rule_for
from penjing.text.tokenizer import Tokenizer

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
_END_OF_TURN = frozenset({"<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>"})
_SPACE, _METASPACE = " ", "\N{LOWER ONE EIGHTH BLOCK}"


def tokenizer_from_gguf(metadata: Mapping[str, Any]) -> Tokenizer:
    """Build the tokenizer that `metadata` (a GGUF file's keys and values) describes.

    Raises InputError if a key is missing, of the wrong type, or points outside the vocabulary, and
    UnsupportedError for kinds of tokenizer and pre-tokenizer that penjing doesn't know.
    """
    fields = GGUFFields(metadata)
    kind = fields.text("model")
    if kind == "gpt2":
        backend, adds_bos, notices = _byte_level(fields)
    elif kind == "llama":
        backend, adds_bos, notices = _sentencepiece(fields)
    else:
        raise UnsupportedError(
            f"This GGUF file has a tokenizer of kind {quote(kind)}; penjing reads gpt2 (byte-level BPE) and "
            "llama (SentencePiece). Use the model's Hugging Face folder."
        )
    _add_tokens(backend, fields)
    special_tokens = {
        name: fields.tokens[id]
        for name, key in _NAMED_IDS.items()
        if (id := fields.token_id(key)) is not None
    }
    bos = special_tokens.get("bos_token") if fields.flag("add_bos_token", adds_bos) else None
    eos = special_tokens.get("eos_token") if fields.flag("add_eos_token", False) else None
    add_boundaries(backend, bos, eos)
    return Tokenizer(backend, special_tokens, _end_ids(fields), _templates(metadata), notices=tuple(notices))


def _byte_level(fields: GGUFFields) -> tuple[tokenizers.Tokenizer, bool, list[str]]:
    tag = fields.text("pre", "default")
    rule = rule_for(tag)
    notices = []
    if tag == "default":
        notices.append(
            "The GGUF file doesn't say by which rule its tokenizer splits text; it is read like GPT-2's, "
            "so ids may differ from the original's."
        )
    model = models.BPE(
        vocab=fields.vocabulary,
        merges=fields.merges(),
        ignore_merges=rule.ignore_merges,
    )
    backend = tokenizers.Tokenizer(model)
    if rule.normalizer is not None:
        backend.normalizer = rule.normalizer
    backend.pre_tokenizer = rule.pre_tokenizer()
    backend.decoder = decoders.ByteLevel()
    return backend, rule.add_bos, notices


def _sentencepiece(fields: GGUFFields) -> tuple[tokenizers.Tokenizer, bool, list[str]]:
    for key in ("precompiled_charsmap", "remove_extra_whitespaces"):
        if fields.get(key):
            raise UnsupportedError(
                f"This GGUF file's SentencePiece tokenizer rewrites text before it is cut ({PREFIX}{key}), "
                "which penjing doesn't do yet; use the model's Hugging Face folder."
            )
    unknown = fields.token_id("unknown_token_id", default=0)
    model = models.BPE(
        vocab=fields.vocabulary,
        merges=_merges_from_scores(fields),
        unk_token=None if unknown is None else fields.tokens[unknown],
        fuse_unk=True,
        byte_fallback=True,
    )
    backend = tokenizers.Tokenizer(model)
    prefixed = fields.flag("add_space_prefix", True)
    # A normaliser, not the Metaspace pre-tokenizer: SentencePiece puts its blank before every text, also
    # before one that begins with a blank, and llama.cpp likewise.
    spaces = normalizers.Replace(_SPACE, _METASPACE)
    prefix = [normalizers.Prepend(_METASPACE)] if prefixed else []
    backend.normalizer = normalizers.Sequence([*prefix, spaces])
    steps = [decoders.Replace(_METASPACE, _SPACE), decoders.ByteFallback(), decoders.Fuse()]
    if prefixed:
        steps.append(decoders.Strip(content=_SPACE, left=1, right=0))
    backend.decoder = decoders.Sequence(steps)
    return backend, True, []


def _merges_from_scores(fields: GGUFFields) -> list[tuple[str, str]]:
    """SentencePiece joins the two neighbours whose piece scores best; as a ranked list of merges.

    Only normal pieces take part. Ways to build one piece are ranked by its left part, longest first.
    """
    scores, kinds = fields.scores(), fields.kinds
    normal = {piece for piece, kind in zip(fields.tokens, kinds, strict=True) if kind == NORMAL}
    ranked = []
    for piece, score, kind in zip(fields.tokens, scores, kinds, strict=True):
        if kind != NORMAL:
            continue
        for cut in range(len(piece) - 1, 0, -1):
            left, right = piece[:cut], piece[cut:]
            if left in normal and right in normal:
                ranked.append((score, left, right))
    ranked.sort(key=lambda merge: -merge[0])
    return [(left, right) for _, left, right in ranked]


def _add_tokens(backend: tokenizers.Tokenizer, fields: GGUFFields) -> None:
    """Make control tokens and the unknown token special and user-defined ones plain added tokens.

    All are matched whole in raw text, as llama.cpp does.
    """
    tokens = list(zip(fields.tokens, fields.kinds, strict=True))
    special = [text for text, kind in tokens if kind in (CONTROL, UNKNOWN)]
    plain = [text for text, kind in tokens if kind == USER_DEFINED]
    backend.add_special_tokens([AddedToken(text, normalized=False) for text in special])
    backend.add_tokens([AddedToken(text, normalized=False) for text in plain])
    if backend.get_vocab_size() != len(fields.tokens):
        raise InputError("The GGUF file's vocabulary can't be rebuilt: tokens were lost or doubled.")


def _end_ids(fields: GGUFFields) -> frozenset[int]:
    ids = {id for key in _END_KEYS if (id := fields.token_id(key)) is not None}
    if fields.token_id("eot_token_id") is None:
        ids |= {
            id
            for id, (text, kind) in enumerate(zip(fields.tokens, fields.kinds, strict=True))
            if kind == CONTROL and text in _END_OF_TURN
        }
    return frozenset(ids)


def _templates(metadata: Mapping[str, Any]) -> dict[str, str]:
    templates = {}
    for key, value in metadata.items():
        if key == _TEMPLATE or key.startswith(f"{_TEMPLATE}."):
            if not isinstance(value, str):
                raise InputError(f"{key} in the GGUF file should be text, not {type(value).__name__}.")
            templates["default" if key == _TEMPLATE else key.removeprefix(f"{_TEMPLATE}.")] = value
    return templates
