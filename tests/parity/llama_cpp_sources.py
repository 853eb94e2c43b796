"""Chat templates and vocabularies of many families, from the source package of llama-cpp-python.

They are downloaded once, through the package index that pip is set up for, into the ignored `.cache/`.
"""

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

_PACKAGE, _VERSION = "llama-cpp-python", "0.3.36"
_CACHE = Path(__file__).parents[2] / ".cache" / f"{_PACKAGE}-{_VERSION}"
_WANTED = ("vendor/llama.cpp/models/", "vendor/llama.cpp/src/llama-vocab.cpp")
_SECONDS = 300


def llama_cpp_sources() -> Path:
    """The folder of llama.cpp's sources; skips the test, saying why, where they can't be downloaded."""
    folder = _CACHE / "llama.cpp"
    if not folder.is_dir():
        _CACHE.mkdir(parents=True, exist_ok=True)
        _extract(_download(), folder)
    return folder


def _download() -> Path:
    options = ["--quiet", "--no-deps", "--no-binary", _PACKAGE, "--dest", str(_CACHE)]
    command = [sys.executable, "-m", "pip", "download", *options, f"{_PACKAGE}=={_VERSION}"]
    try:
        result = subprocess.run(
            command, capture_output=True, timeout=_SECONDS, check=False, encoding="utf-8", errors="replace"
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"{_PACKAGE} {_VERSION} couldn't be downloaded within {_SECONDS} seconds")
    archive = next(_CACHE.glob("*.tar.gz"), None)
    if result.returncode != 0 or archive is None:
        reason = (result.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        pytest.skip(f"{_PACKAGE} {_VERSION} can't be downloaded: {reason}")
    return archive


def _extract(archive: Path, folder: Path) -> None:
    """Only what the tests read; the whole is renamed into place, so that no half of it is ever used."""
    partial = folder.with_suffix(".partial")
    with tarfile.open(archive) as package:
        for member in package:
            _, _, name = member.name.partition("/")
            if member.isfile() and name.startswith(_WANTED):
                member.name = name.removeprefix("vendor/llama.cpp/")
                package.extract(member, partial, filter="data")
    partial.rename(folder)
    archive.unlink()
