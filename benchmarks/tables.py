"""Markdown tables, the machine they were measured on, and their place in a page."""

import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; the first column is text, the others are figures and align right."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, rule, *rows))


def machine(*packages: str) -> str:
    """A sentence with processor, cores, Python and the versions of `packages`."""
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    return f"{_processor()}, {os.cpu_count()} cores, Python {platform.python_version()}, {versions}."


def put(page: Path, name: str, text: str) -> None:
    """Replace what stands between `<!-- name -->` and `<!-- end of name -->` in `page`."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    old = page.read_text(encoding="utf-8")
    if begin not in old or end not in old:
        raise ValueError(f"{page} has no place marked {begin} ... {end}")
    before, rest = old.split(begin, 1)
    after = rest.split(end, 1)[1]
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", encoding="utf-8", newline="\n")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
