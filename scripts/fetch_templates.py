"""Fetch the chat templates that come with llama.cpp's source, for the test that renders them all.

They are a part of the package `llama-cpp-python` on PyPI; only they are kept, in `.cache/templates`. The
index is pip's (PIP_INDEX_URL) or PyPI.

Usage: python scripts/fetch_templates.py
"""

import json
import os
import shutil
import sys
import tarfile
import tempfile
import urllib.request
from pathlib import Path

PACKAGE, SOURCE = "llama-cpp-python", "llama_cpp_python-0.3.36.tar.gz"
WANTED = "/vendor/llama.cpp/models/templates/"
TARGET = Path(__file__).resolve().parent.parent / ".cache" / "templates"
TIMEOUT = 120


def source_url() -> str:
    """Where the index says that the source lies."""
    index = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/")
    request = urllib.request.Request(
        f"{index}/{PACKAGE}/", headers={"Accept": "application/vnd.pypi.simple.v1+json"}
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        files = json.load(answer)["files"]
    return next(file["url"] for file in files if file["filename"] == SOURCE)


def fetch() -> int:
    """Put the templates into `TARGET`, whole or not at all; returns how many."""
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=TARGET.parent) as draft:
        with (
            urllib.request.urlopen(source_url(), timeout=TIMEOUT) as answer,
            tarfile.open(fileobj=answer, mode="r|gz") as archive,
        ):
            for member in archive:
                content = archive.extractfile(member) if WANTED in member.name else None
                if content is not None and member.name.endswith(".jinja"):
                    (Path(draft) / Path(member.name).name).write_bytes(content.read())
        shutil.rmtree(TARGET, ignore_errors=True)
        shutil.copytree(draft, TARGET)
    return len(list(TARGET.glob("*.jinja")))


if __name__ == "__main__":
    if TARGET.is_dir():
        sys.exit()
    try:
        print(f"{fetch()} templates in {TARGET}")
    except (OSError, StopIteration, tarfile.TarError, ValueError) as error:
        print(f"the templates can't be fetched, so their test is skipped: {error!r}", file=sys.stderr)
