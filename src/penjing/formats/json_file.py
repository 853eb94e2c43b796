"""JSON that others wrote: UTF-8, one object, no key twice."""

import json
import os
from pathlib import Path
from typing import Any

from penjing.errors import InputError
from penjing.formats.mapped import refuse_lfs_pointer
from penjing.formats.quote import quote

MAX_JSON_BYTES = 100_000_000


def read_json(path: Path) -> dict[str, Any]:
    """The object in the file; InputError names the file and what is wrong with it."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > MAX_JSON_BYTES:
                raise InputError(
                    f"{path} has {size:,} bytes, above the limit of {MAX_JSON_BYTES:,} for a JSON file."
                )
            data = file.read(size)
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror}.") from error
    refuse_lfs_pointer(path, data)
    return parse_json(data, str(path))


def parse_json(data: bytes, what: str) -> dict[str, Any]:
    """The object in `data`; `what` names it in the InputError."""
    try:
        text = data.decode("utf-8")
        value = json.loads(text, object_pairs_hook=_unique)
        if "\\u" in text:  # escapes can spell half a character, which no output could print
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        raise InputError(f"{what} isn't UTF-8 text: {error.reason} at {error.start}.") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{what} isn't valid JSON: {error}.") from error
    if not isinstance(value, dict):
        raise InputError(f"{what} should hold a JSON object, not {quote(value)}.")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"the key {quote(twice)} appears twice")
    return result
