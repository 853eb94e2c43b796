"""Mistral's `tekken.json`: byte-pair ranks after the special tokens, which have the first ids.

Read as mistral_common reads it (`Tekkenizer.from_file`): of the ranks as many are used as the vocabulary's
size leaves room for, and ids of special tokens without a name are called <SPECIAL_n>.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penjing.errors import InputError, UnsupportedError
from penjing.formats.json_file import read_json
from penjing.formats.quote import quote

_BYTES = 256
_MAX_SPECIAL = 100_000
# The versions whose files may leave out the special tokens, and what those are then.
_NAMELESS_VERSIONS = ("v3", "v7")
_USUAL_SPECIAL = (
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]"),
    *("[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"),
)


@dataclass(frozen=True)
class Tekken:
    """`special` are the tokens of the first ids, in order; a token of `ranks` has its rank's id after those.
    `pattern` cuts text into words."""

    pattern: str
    special: tuple[str, ...]
    ranks: Mapping[bytes, int]


def read_tekken(file: Path) -> Tekken:
    """Read and check the file; InputError names what is wrong with it."""
    fields = read_json(file)
    config = fields.get("config")
    if not isinstance(config, Mapping) or not isinstance(config.get("pattern"), str):
        raise InputError(f"{file} should have a config with a pattern by which text is cut.")
    size, special_count = (
        _count(file, config, key) for key in ("default_vocab_size", "default_num_special_tokens")
    )
    special = _special_tokens(file, fields, config, special_count)
    return Tekken(config["pattern"], special, _ranks(file, fields.get("vocab"), size - special_count))


def _count(file: Path, config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    if type(value) is not int or value < 0:
        raise InputError(f"{key} in {file} should be a number of tokens; it is {quote(value)}.")
    return value


def _special_tokens(
    file: Path, fields: Mapping[str, Any], config: Mapping[str, Any], count: int
) -> tuple[str, ...]:
    listed, version = fields.get("special_tokens"), config.get("version")
    if listed is None and version not in _NAMELESS_VERSIONS:
        raise UnsupportedError(
            f"{file} lists no special_tokens, which only its versions {' and '.join(_NAMELESS_VERSIONS)} may "
            f"leave out; this is {quote(version)}."
        )
    names = _USUAL_SPECIAL if listed is None else _listed_names(file, listed)
    if not len(names) <= count <= _MAX_SPECIAL:
        raise InputError(
            f"default_num_special_tokens in {file} is {count}, which doesn't fit the {len(names)} special "
            f"tokens that have names (and at most {_MAX_SPECIAL} are possible)."
        )
    names = (*names, *(f"<SPECIAL_{id}>" for id in range(len(names), count)))
    if len(set(names)) < len(names):
        raise InputError(f"{file} has two special tokens of the same name.")
    return names


def _listed_names(file: Path, listed: Any) -> tuple[str, ...]:
    if not isinstance(listed, list) or not all(isinstance(entry, Mapping) for entry in listed):
        raise InputError(f"special_tokens in {file} should be a list of tokens.")
    names = {rank: entry.get("token_str") for entry in listed if type(rank := entry.get("rank")) is int}
    if names.keys() != set(range(len(listed))) or not all(isinstance(n, str) and n for n in names.values()):
        raise InputError(f"special_tokens in {file} should have texts, and ranks from 0 on, each once.")
    return tuple(names[id] for id in range(len(listed)))


def _ranks(file: Path, vocab: Any, count: int) -> dict[bytes, int]:
    """The first `count` tokens; each byte comes first."""
    if not isinstance(vocab, list) or not _BYTES <= count <= len(vocab):
        raise InputError(
            f"The vocab of {file} should be a list of at least {max(count, _BYTES)} tokens, the number that "
            "its default_vocab_size leaves beside the special tokens."
        )
    ranks: dict[bytes, int] = {}
    for rank, entry in enumerate(vocab[:count]):
        token = _token_bytes(entry)
        if not token or entry.get("rank") != rank or (rank < _BYTES and token != bytes([rank])):
            raise InputError(f"The vocab of {file} has a damaged entry, number {rank}: {quote(entry)}.")
        if ranks.setdefault(token, rank) != rank:
            raise InputError(f"The vocab of {file} has the same token twice, again as number {rank}.")
    return ranks


def _token_bytes(entry: Any) -> bytes | None:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("token_bytes"), str):
        return None
    try:
        return base64.b64decode(entry["token_bytes"], validate=True)
    except (binascii.Error, ValueError):  # ValueError: not ASCII
        return None
