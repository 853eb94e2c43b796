"""Where a model lies that a person named: on this machine, or on the hub, which it is then fetched from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from penjing.formats.reference import read_reference

if TYPE_CHECKING:  # imported only for a hub id
    from penjing.formats.hub_file import HubFile

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Located:
    """A model's folder or file. `name` is how the user called it; `notices` say what came from the hub;
    `elsewhere` are its weights that are still there, by their names in the folder."""

    name: str
    path: Path
    notices: tuple[str, ...] = ()
    elsewhere: Mapping[str, HubFile] = field(default_factory=dict)


def find(ref: str | Path) -> Located:
    """Find the model. Of what a hub id names the small files are fetched into the cache; the weights stay on
    the hub, unless the cache has them, and can be read there.

    Raises `InputError` for what isn't there, or can't be had from the hub.
    """
    found = read_reference(ref)
    if isinstance(found, Path):
        return Located(str(ref), found)
    from penjing.formats.hub import find_on_hub

    there = find_on_hub(found)
    return Located(str(ref), there.path, (there.notice,), there.lacking)


def bring(located: Located, progress: Progress | None = None) -> Located:
    """The same model, with all of it on this machine.

    `progress` is told of bytes: how many are fetched, and of how many. Raises `InputError` for what can't be
    had from the hub, and `ResourceError` when the disk has no room for it.
    """
    if not located.elsewhere:
        return located
    from penjing.formats.hub import fetch

    fetch(list(located.elsewhere.values()), progress)
    return replace(located, elsewhere={})
