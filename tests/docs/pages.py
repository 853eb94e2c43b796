"""The pages of documentation, cut into the blocks that tests run."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md")))

_BLOCK = re.compile(
    r"(?:<!-- not run: (?P<reason>[^>]*?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """One fenced block; `skipped` is the reason given for not running it."""

    language: str
    text: str
    skipped: str | None

    @property
    def commands(self) -> list[str]:
        """The lines of a block of shell commands."""
        return [line for line in self.text.splitlines() if line.strip() and not line.startswith("#")]


def blocks(page: Path) -> list[Block]:
    """All fenced blocks, in order."""
    text = page.read_text(encoding="utf-8")
    return [Block(m["language"], m["text"], m["reason"]) for m in _BLOCK.finditer(text)]


def links(page: Path) -> list[str]:
    """Where the page's links lead."""
    return _LINK.findall(page.read_text(encoding="utf-8"))


def headings(page: Path) -> set[str]:
    """The page's headings as links name them."""
    lines = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line).lower().replace(" ", "-") for line in lines}
