"""A tokenizer into the metadata of a GGUF file, as llama.cpp's own conversion writes it.

What is written is read again and must give the same ids, so that a tokenizer which GGUF can't say is refused
and not saved as a near miss.
"""

import json
from collections.abc import Mapping
from typing import Any

from penjing.errors import UnsupportedError
from penjing.formats.quote import quote
from penjing.text.gguf_fields import PREFIX
from penjing.text.gguf_tokenizer import tokenizer_from_gguf
from penjing.text.piece_kinds import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED
from penjing.text.pretokenizers import tags_like
from penjing.text.tokenizer import Tokenizer

_PROBES = (
    "Hello, world!  It's 12345.67 o'clock",
    "\n\n\tdef f(x): return x**2 # naïve café\r\n",
    "Привет 你好世界 こんにちは 👩\u200d🚀 e\u0301",
    "''I'LL we'Re   <a href='x'>  ...!!! 3,141,592 ",
)
_IDS = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}


def tokenizer_metadata(tokenizer: Tokenizer, rows: int) -> dict[str, Any]:
    """The keys under `tokenizer.`, for an embedding of `rows` rows. `UnsupportedError` for a tokenizer that a
    GGUF file can't describe."""
    fields = json.loads(tokenizer.backend.to_str())
    if fields["model"]["type"] != "BPE":
        raise UnsupportedError(
            f"a GGUF file can't hold this tokenizer ({fields['model']['type']}); use --as hf"
        )
    keys = _pieces(tokenizer, rows) | _special(tokenizer)
    if fields["model"].get("byte_fallback"):
        candidates = [_sentencepiece(fields, keys)]
    else:
        candidates = [_byte_level(fields, tag) for tag in tags_like(tokenizer.backend)]
    if not fields["model"]["merges"]:
        raise UnsupportedError("a GGUF file can't hold a BPE tokenizer without merges; use --as hf")
    differs = None
    for candidate in candidates:
        found = {f"{PREFIX}{key}": value for key, value in (keys | candidate).items()} | _templates(tokenizer)
        differs = _first_difference(tokenizer, found)
        if differs is None:
            return found
    told = "" if differs is None else f" (the nearest one gives other ids for {quote(differs)})"
    raise UnsupportedError(
        f"a GGUF file can't hold this tokenizer: llama.cpp has no rule that cuts text as it does{told};"
        " use --as hf"
    )


def _pieces(tokenizer: Tokenizer, rows: int) -> dict[str, Any]:
    """All tokens in the order of their ids; rows of the embedding without one are padding."""
    added = tokenizer.backend.get_added_tokens_decoder()
    unknown = tokenizer.special_tokens.get("unk_token")
    tokens, kinds = [], []
    for id in range(rows):
        piece = tokenizer.backend.id_to_token(id)
        if piece is None:
            tokens.append(f"[PAD{id}]")
            kinds.append(UNUSED)
            continue
        tokens.append(piece)
        if piece == unknown:
            kinds.append(UNKNOWN)
        elif id in added:
            kinds.append(CONTROL if added[id].special else USER_DEFINED)
        else:
            kinds.append(NORMAL)
    return {"tokens": tokens, "token_type": kinds}


def _special(tokenizer: Tokenizer) -> dict[str, Any]:
    keys: dict[str, Any] = {
        key: tokenizer.backend.token_to_id(tokenizer.special_tokens[name])
        for name, key in _IDS.items()
        if name in tokenizer.special_tokens
    }
    around_nothing = tokenizer.encode("")
    keys["add_bos_token"] = tokenizer.add_bos
    keys["add_eos_token"] = "eos_token_id" in keys and around_nothing[-1:] == [keys["eos_token_id"]]
    if ends := sorted(tokenizer.end_ids):
        keys.setdefault("eos_token_id", ends[0])
        others = [id for id in ends if id != keys["eos_token_id"]]
        # Named even where it is the same, for readers guess an end of turn that isn't named.
        keys["eot_token_id"] = others[0] if others else keys["eos_token_id"]
        if len(others) > 1:
            keys["eom_token_id"] = others[1]
    return keys


def _byte_level(fields: Mapping[str, Any], tag: str) -> dict[str, Any]:
    return {"model": "gpt2", "pre": tag, "merges": _merges(fields)}


def _sentencepiece(fields: Mapping[str, Any], keys: Mapping[str, Any]) -> dict[str, Any]:
    """Scores fall with the id, as SentencePiece orders its pieces; ids are what ranks merges."""
    byte = [piece.startswith("<0x") and len(piece) == 6 for piece in keys["tokens"]]
    kinds = [
        BYTE if is_byte and kind == NORMAL else kind
        for is_byte, kind in zip(byte, keys["token_type"], strict=True)
    ]
    scores = [-float(id) if kind == NORMAL else 0.0 for id, kind in enumerate(kinds)]
    steps = json.dumps([fields["normalizer"], fields["pre_tokenizer"]])
    prefixed = '"Prepend"' in steps or '"prepend_scheme": "first"' in steps
    prefixed |= '"prepend_scheme": "always"' in steps
    return {
        "model": "llama",
        "pre": "default",
        "token_type": kinds,
        "scores": scores,
        "add_space_prefix": prefixed,
    }


def _merges(fields: Mapping[str, Any]) -> list[str]:
    return [merge if isinstance(merge, str) else " ".join(merge) for merge in fields["model"]["merges"]]


def _templates(tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        "tokenizer.chat_template" + ("" if name == "default" else f".{name}"): source
        for name, source in tokenizer.chat_templates.items()
    }


def _first_difference(tokenizer: Tokenizer, metadata: Mapping[str, Any]) -> str | None:
    """The first text to which a reader of the metadata would give other ids, if there is one."""
    again = tokenizer_from_gguf(metadata)
    special = "".join(tokenizer.special_tokens.values())
    for text in (*_PROBES, f"{special}{_PROBES[0]}{special}", ""):
        for add in (False, True):
            if again.encode(text, add_special_tokens=add) != tokenizer.encode(text, add_special_tokens=add):
                return text
    return None if again.end_ids == tokenizer.end_ids else "the end of an answer"
