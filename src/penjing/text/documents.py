"""Documents from a person's files, and the text that every Python carries."""

import ast
import importlib
import inspect
import json
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from penjing.errors import InputError
from penjing.formats.quote import quote

_SEPARATOR = re.compile(r"^\f$", re.MULTILINE)
_PARAGRAPH_BREAK = re.compile(r"\n\s*\n")
_LEGAL = re.compile(
    r"copyright|licen[cs]e|all rights reserved|permission to use|hereby granted|warrant|redistribut",
    re.IGNORECASE,
)
_LEAST_CHARACTERS = 400
# Parts of the standard library that are tests, demos or copies of other projects, or aren't always installed.
_SKIPPED_FOLDERS = frozenset(
    {
        "site-packages",
        "dist-packages",
        "test",
        "tests",
        "idlelib",
        "lib2to3",
        "turtledemo",
        "ensurepip",
        "pydoc_data",
    }
)


def read_documents(path: Path) -> list[str]:
    """The documents of a text file: parted by lines that hold only a form feed, or one from each JSON line.

    A `.jsonl` file has an object with a "text" on each line. Blank documents are dropped. Raises InputError
    for a folder, an unreadable or blank file, bytes that aren't UTF-8, lines that aren't such objects, and
    texts with half of a surrogate pair.
    """
    text = _read_text(path)
    if path.suffix == ".jsonl":
        documents = [
            _line_document(path, n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()
        ]
    else:
        documents = [document.strip("\n") for document in _SEPARATOR.split(text)]
    documents = [document for document in documents if document.strip()]
    if not documents:
        raise InputError(f"{path} holds no text; give a file with some.")
    return documents


def _read_text(path: Path) -> str:
    if path.is_dir():
        raise InputError(f"{path} is a folder; give the text files in it one by one.")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror}.") from error
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} isn't UTF-8 text (byte {error.start} is 0x{data[error.start]:02x}); convert it, "
            "for example with: iconv -t UTF-8."
        ) from error
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _line_document(path: Path, number: int, line: str) -> str:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"Line {number} of {path} isn't JSON: {error}.") from error
    text = value.get("text") if isinstance(value, dict) else None
    if not isinstance(text, str):
        raise InputError(f'Line {number} of {path} should be an object with a "text"; it is {quote(value)}.')
    try:
        text.encode()
    except UnicodeEncodeError as error:  # escapes can spell half a character, which no tokenizer takes
        raise InputError(
            f"Line {number} of {path} isn't valid Unicode: half of a surrogate pair stands at character "
            f"{error.start} of its text; remove it."
        ) from error
    return text


def builtin_documents() -> list[str]:
    """Documents from Python's own manual topics and the docstrings of its standard library.

    The same Python gives the same documents in the same order. Sources are parsed, not imported. No paragraph
    comes twice, and legal boilerplate is left out. Raises InputError where Python came without its library's
    sources.
    """
    seen: set[str] = set()
    documents = [_fresh(text, seen) for text in (*_topics(), *_docstrings())]
    documents = [document for document in documents if len(document) >= _LEAST_CHARACTERS]
    if not documents:
        raise InputError(
            "This Python has no text of its own (no pydoc_data, no library sources); give a --text FILE."
        )
    return documents


def _fresh(text: str, seen: set[str]) -> str:
    """The paragraphs of `text` that aren't in `seen` nor legal; adds them to `seen`."""
    kept = []
    for paragraph in _PARAGRAPH_BREAK.split(text):
        key = " ".join(paragraph.split())
        if key and key not in seen and not _LEGAL.search(paragraph):
            seen.add(key)
            kept.append(paragraph.rstrip())
    return "\n\n".join(kept).strip("\n")


def _topics() -> Iterator[str]:
    """Longest first, so that a topic that repeats a part of another one yields to it."""
    try:
        topics = importlib.import_module("pydoc_data.topics").topics
    except ImportError:
        return
    yield from sorted(topics.values(), key=lambda text: (-len(text), text))


def _docstrings() -> Iterator[str]:
    """All docstrings of one module after another."""
    library = Path(sysconfig.get_path("stdlib"))
    files = sorted(file.relative_to(library) for file in library.rglob("*.py"))
    for file in files:
        if _SKIPPED_FOLDERS.isdisjoint(file.parts):
            yield "\n\n".join(_module_docstrings(library / file))


def _module_docstrings(file: Path) -> Iterator[str]:
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node, clean=False)
            if docstring:
                yield inspect.cleandoc(docstring)
            waiting.extend(reversed(node.body))
