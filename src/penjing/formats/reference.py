"""What a person may name as a model, told apart before anything heavy is imported."""

import re
from dataclasses import dataclass
from pathlib import Path

from penjing.errors import InputError

_NAME = r"[A-Za-z0-9](?:[\w.-]*\w)?"
_HUB = re.compile(
    rf"(?P<repo>{_NAME}/{_NAME})(?:/(?P<file>[^@]+\.gguf))?(?:@(?P<revision>\w[\w./-]*))?", re.A
)
# The hub knows no such names, and in a revision they could lead out of the folder of cached ones.
_NEVER = re.compile(r"--|\.\.|\.git$|[/.]$")
_LONGEST = 96
_PLAIN = re.compile(r"[^/\\:\x00-\x1f]+")


@dataclass(frozen=True)
class HubReference:
    """A repository on the Hugging Face hub: `repo` ("org/name"), one GGUF `file` of it, maybe in a folder
    there, or None, and a branch, tag or commit, or None for the newest."""

    repo: str
    file: str | None = None
    revision: str | None = None

    def __str__(self) -> str:
        file = f"/{self.file}" if self.file else ""
        return f"{self.repo}{file}{f'@{self.revision}' if self.revision else ''}"


def read_reference(ref: str | Path) -> Path | HubReference:
    """The path `ref` if something is there, else the hub id that it may be; the hub isn't asked.

    An id has the form org/name, org/name@revision, org/name/file.gguf or org/name/file.gguf@revision, and the
    file may lie in a folder. Raises `InputError` for what is neither. A `Path` is never an id.
    """
    if _exists(Path(ref)):
        return Path(ref)
    hub = _as_hub(ref) if isinstance(ref, str) else None
    if hub is None:
        raise _nothing_at(ref)
    return hub


def is_plain(name: str) -> bool:
    """Whether a file's name, with the folders that it lies in, leads nowhere but down."""
    return all(_PLAIN.fullmatch(part) and part not in (".", "..") for part in name.split("/"))


def existing_path(ref: str | Path) -> Path:
    """The path `ref`; `InputError` if nothing is there."""
    if not _exists(Path(ref)):
        raise _nothing_at(ref)
    return Path(ref)


def _exists(path: Path) -> bool:
    try:
        path.stat()
        return True
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:
        raise InputError(f"{str(path)!r} can't be opened: {error}.") from error


def _as_hub(ref: str) -> HubReference | None:
    match = _HUB.fullmatch(ref)
    if match is None or len(match["repo"]) > _LONGEST:
        return None
    if any(_NEVER.search(part) for part in (match["repo"], match["revision"] or "")):
        return None
    if match["file"] is not None and not is_plain(match["file"]):
        return None
    return HubReference(match["repo"], match["file"], match["revision"])


def _nothing_at(ref: str | Path) -> InputError:
    return InputError(
        f"There is no file or folder {str(ref)!r}, and it is no hub id such as org/name@revision or "
        "org/name/file.gguf; check the path."
    )
