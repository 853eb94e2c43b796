"""Where a model lies that a person named: on this machine, or on the hub, which it is then fetched from."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from penjing.formats.reference import read_reference

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Located:
    """A model's folder or file. `name` is how the user called it; `notices` say what was fetched."""

    name: str
    path: Path
    notices: tuple[str, ...] = ()


def locate(ref: str | Path, progress: Progress | None = None) -> Located:
    """Find the model; what a hub id names is fetched into the cache, unless it is there.

    `progress` is told of bytes: how many are fetched, and of how many. Raises `InputError` for what isn't
    there, or can't be had from the hub, and `ResourceError` when the disk has no room for it.
    """
    found = read_reference(ref)
    if isinstance(found, Path):
        return Located(str(ref), found)
    from penjing.formats.hub import fetch

    path, notice = fetch(found, progress)
    return Located(str(ref), path, (notice,))
