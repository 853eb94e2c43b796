"""What a person may name as a model, found before anything heavy is imported."""

import re
from pathlib import Path

from penjing.errors import InputError, UnsupportedError

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")


def existing_path(ref: str | Path) -> Path:
    """The path `ref` if something is there; else InputError, or UnsupportedError for what may be a hub id."""
    path = Path(ref)
    try:
        path.stat()
        return path
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:
        raise InputError(f"{str(ref)!r} can't be opened: {error}.") from error
    if _HUB_ID.fullmatch(str(ref)):
        name = str(ref).partition("@")[0]
        raise UnsupportedError(
            f"There is no file or folder {str(ref)!r}, and hub ids can't be opened yet; if it is one, run "
            f"`hf download {name} --local-dir {name.rpartition('/')[2]}` and give that folder."
        )
    raise InputError(f"There is no file or folder {str(ref)!r}; check the path.")
