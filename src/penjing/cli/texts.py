"""Documents for the verbs, by the name of their text."""

from collections.abc import Sequence
from pathlib import Path

from penjing.cli.process import typed_text
from penjing.errors import InputError
from penjing.text.documents import read_documents


def read_texts(files: Sequence[Path]) -> dict[str, list[str]]:
    """The documents of each file, under the file's name. Two files of one name are an `InputError`."""
    texts: dict[str, list[str]] = {}
    for file in files:
        name = typed_text(file.name)
        if name in texts:
            raise InputError(f"two --text files are called {name}; rename one, for results go by that name")
        texts[name] = read_documents(file)
    return texts
