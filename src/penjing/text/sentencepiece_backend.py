"""SentencePiece's algorithms in the terms of the `tokenizers` library: the same ids, one exact backend.

Kudo and Richardson, "SentencePiece: A simple and language independent subword tokenizer and detokenizer for
Neural Text Processing", 2018.
"""

import re
from collections.abc import Sequence

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from penjing.errors import InputError, UnsupportedError
from penjing.formats.quote import quote
from penjing.text.charsmap import characters
from penjing.text.piece_kinds import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED
from penjing.text.sentencepiece_model import SentencePieceModel

SPACE, METASPACE = " ", "\N{LOWER ONE EIGHTH BLOCK}"
_OUTER_SPACES, _INNER_SPACES = Regex(rf"\A +|[ {METASPACE}]+\z"), Regex(" {2,}")
# A text that is spelled like a byte's piece mustn't be taken for it when whole words are looked up.
_SPELLED_BYTE = Regex(r"\A<(?=0x[0-9A-F]{2}>\z)")

Merges = list[tuple[str, str]]


def sentencepiece_backend(
    model: SentencePieceModel,
    merges: Merges | None = None,
    prefix_once: bool = False,
    split_user_defined: bool = True,
) -> tokenizers.Tokenizer:
    """Build it.

    `merges` are a BPE model's, ranked, where its file lists them; otherwise scores rank them. The blank that
    such tokenizers put before a text comes after every added token too, unless `prefix_once`.
    `split_user_defined` cuts user-defined pieces out of the prepared text, as SentencePiece's BPE does;
    otherwise the caller adds them as tokens.
    """
    backend = tokenizers.Tokenizer(
        _unigram(model) if model.unigram else _bpe(model, merges, split_user_defined)
    )
    prefix_by_normalizer = model.add_dummy_prefix and not prefix_once
    backend.normalizer = _normalizer(model, prefix_by_normalizer)
    _refuse_rewritten(model)
    cuts: list[pre_tokenizers.PreTokenizer] = []
    if model.add_dummy_prefix and prefix_once:
        cuts.append(pre_tokenizers.Metaspace(METASPACE, prepend_scheme="first", split=False))
    if split_user_defined and not model.unigram:
        cuts += _around(_user_defined(model))
    if cuts:
        backend.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    backend.decoder = _decoder(model.add_dummy_prefix)
    return backend


def _user_defined(model: SentencePieceModel) -> list[str]:
    return [piece for piece, kind in zip(model.pieces, model.kinds, strict=True) if kind == USER_DEFINED]


def _around(pieces: Sequence[str]) -> list[pre_tokenizers.PreTokenizer]:
    """Cuts that set these pieces apart; one that is part of another gives way to it."""
    if not pieces:
        return []
    pattern = "|".join(map(re.escape, sorted(pieces, key=len, reverse=True)))
    expressions = (Regex(pattern), _SPELLED_BYTE)
    return [pre_tokenizers.Split(expression, behavior="isolated") for expression in expressions]


def _bpe(model: SentencePieceModel, merges: Merges | None, split_user_defined: bool) -> models.BPE:
    return models.BPE(
        vocab={piece: id for id, piece in enumerate(model.pieces)},
        merges=merges_from_scores(model) if merges is None else merges,
        unk_token=None if model.unknown_id is None else model.pieces[model.unknown_id],
        fuse_unk=True,
        byte_fallback=model.byte_fallback,
        ignore_merges=split_user_defined and bool(_user_defined(model)),
    )


def _unigram(model: SentencePieceModel) -> models.Unigram:
    if model.unknown_id is None:
        raise InputError("The SentencePiece model names no unknown piece, which its kind (unigram) needs.")
    return models.Unigram(
        vocab=list(zip(model.pieces, _scores_that_match_text(model), strict=True)),
        unk_id=model.unknown_id,
        byte_fallback=model.byte_fallback,
    )


def _scores_that_match_text(model: SentencePieceModel) -> list[float]:
    """Scores by which only normal and user-defined pieces are found in text.

    The library looks up every piece, also bytes' and special ones; SentencePiece doesn't. Whatever the file
    says, it takes user-defined ones for all but certain.
    """
    normal = [score for score, kind in zip(model.scores, model.kinds, strict=True) if kind == NORMAL]
    # Below any way to spell even the longest of them, piece by piece or as unknown characters.
    never = (min(normal, default=0.0) - 10.0) * (1 + max(map(len, model.pieces)))

    fixed = dict.fromkeys((UNKNOWN, CONTROL, UNUSED, BYTE), never) | {USER_DEFINED: -0.1}
    return [fixed.get(kind, score) for score, kind in zip(model.scores, model.kinds, strict=True)]


def merges_from_scores(model: SentencePieceModel) -> Merges:
    """SentencePiece joins the two neighbours whose piece scores best; as a ranked list of merges.

    Only normal pieces take part. Ways to build one piece are ranked by its left part, longest first.
    """
    normal = {piece for piece, kind in zip(model.pieces, model.kinds, strict=True) if kind == NORMAL}
    ranked = []
    for piece, score in zip(model.pieces, model.scores, strict=True):
        if piece not in normal:
            continue
        for cut in range(len(piece) - 1, 0, -1):
            left, right = piece[:cut], piece[cut:]
            if left in normal and right in normal:
                ranked.append((score, left, right))
    ranked.sort(key=lambda merge: -merge[0])
    return [(left, right) for _, left, right in ranked]


def _normalizer(model: SentencePieceModel, prefixed: bool) -> normalizers.Normalizer:
    steps: list[normalizers.Normalizer] = [characters(model.charsmap)] if model.charsmap else []
    if model.remove_extra_whitespaces:
        steps += [normalizers.Replace(_OUTER_SPACES, ""), normalizers.Replace(_INNER_SPACES, SPACE)]
    if prefixed:
        # A normaliser, not the Metaspace pre-tokenizer: SentencePiece puts its blank before every text, also
        # before one that begins with a blank, and llama.cpp likewise.
        steps.append(normalizers.Prepend(METASPACE))
    return normalizers.Sequence([*steps, normalizers.Replace(SPACE, METASPACE)])


def _refuse_rewritten(model: SentencePieceModel) -> None:
    """SentencePiece finds user-defined pieces before it replaces characters; the backend only after."""
    if not model.charsmap:
        return
    replace = characters(model.charsmap)
    for piece in _user_defined(model):
        if replace.normalize_str(piece) != piece:
            raise UnsupportedError(
                f"The SentencePiece model's own piece {quote(piece)} holds characters that it replaces in "
                "text, which penjing can't follow; use a tokenizer.json of the same model."
            )


def _decoder(prefixed: bool) -> decoders.Decoder:
    steps = [decoders.Replace(METASPACE, SPACE), decoders.ByteFallback(), decoders.Fuse()]
    if prefixed:
        steps.append(decoders.Strip(content=SPACE, left=1, right=0))
    return decoders.Sequence(steps)
