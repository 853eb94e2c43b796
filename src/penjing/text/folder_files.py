"""What all readers of a tokenizer's folder share: bytes of a file, and one value of its JSON files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penjing.errors import InputError
from penjing.formats.mapped import refuse_lfs_pointer
from penjing.formats.quote import quote

TOKENIZER_CONFIG = "tokenizer_config.json"


def read_bytes(file: Path) -> bytes:
    """The whole file; InputError for one that can't be read or is a git-lfs pointer."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InputError(f"{file} can't be read: {error.strerror}.") from error
    refuse_lfs_pointer(file, data)
    return data


def read_text(file: Path) -> str:
    """The whole file, which must be UTF-8."""
    data = read_bytes(file)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{file} isn't UTF-8 text: {error.reason} at byte {error.start}.") from error


def flag(config: Mapping[str, Any], name: str, default: bool) -> bool:
    """True or false from `tokenizer_config.json`; null is as good as absent."""
    value = config.get(name)
    if value is not None and not isinstance(value, bool):
        raise InputError(f"{name} in {TOKENIZER_CONFIG} should be true or false; it is {quote(value)}.")
    return default if value is None else value
