"""Size against quality: a 16-bit model shrunk to several sizes, measured on four texts that tuned nothing.

Every row is saved, opened again and measured with `penjing.compare` against the 16-bit model. A row that was
measured before, with the same settings and the same code, is not measured again, so a stopped run goes on.

Usage: python -m benchmarks.quality [--to 0.43 0.25] [--effort fast] [--into docs/benchmarks.md] ...
"""

import argparse
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import penjing
from benchmarks import nearest, tables
from benchmarks.smollm2 import gguf_path
from benchmarks.texts import FILES, write_texts
from benchmarks.twin import write_twin
from penjing.api import Model
from penjing.evaluate.result import EvalResult, Interval
from penjing.shrink.builder import Builder, make_builder
from penjing.shrink.effort import find_effort
from penjing.shrink.goal import parse_size
from penjing.shrink.shrink import builtin_texts
from penjing.text.documents import read_documents
from penjing.text.splits import make_splits

# The code that a figure depends on, below src/penjing.
CODE = ("packed", "formats", "text", "model", "evaluate", "shrink", "api.py")

Row = dict[str, Any]
Maker = Callable[[Path], tuple[Model, int]]


@dataclass(frozen=True)
class Settings:
    """What the figures depend on, beside the code."""

    original: str
    texts: str
    effort: str
    tokens: int
    choice_items: int
    seed: int


def measure(row: str, make: Maker, settings: Settings, work: Path) -> Row:
    """The row's figures: from its file in `work` if it was measured before, else measured now."""
    file = work / f"{_slug(row)}.json"
    stamp = asdict(settings) | {"code": _code()}
    if file.exists():
        known = json.loads(file.read_text(encoding="utf-8"))
        if known["settings"] == stamp:
            return known
    shrunk, nbytes = make(Path(settings.original))
    original = penjing.load(settings.original)
    shrunk.keep_float()
    result = penjing.compare(
        original,
        shrunk,
        documents(Path(settings.texts)),
        tokens=settings.tokens,
        choice_items=settings.choice_items,
        seed=settings.seed,
    )
    found = {
        "row": row,
        "settings": stamp,
        "bytes": nbytes,
        "ratio": nbytes / original.base_bytes,
        "bits_per_weight": 8 * nbytes / original.ledger.parameters,
        "figures": figures(result),
        "notices": list(result.notices),
    }
    file.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return found


class Shrinker:
    """Makes the rows of `penjing shrink --to`; the statistics, on Python's own text, are taken once."""

    def __init__(self, settings: Settings, work: Path) -> None:
        self._settings = settings
        self._work = work

    @cached_property
    def _builder(self) -> Builder:
        original, effort = penjing.load(self._settings.original), find_effort(self._settings.effort)
        splits = make_splits(builtin_texts(), seed=self._settings.seed)
        return make_builder(original, splits.tune, effort, self._settings.seed)

    def to(self, size: str) -> Maker:
        """Makes one row: shrunk, saved, and opened again."""

        def make(_: Path) -> tuple[Model, int]:
            original, folder = self._builder.original, self._work / _slug(size)
            nbytes = parse_size(size, original.base_bytes, original.ledger.parameters)
            written = self._builder.build(nbytes).save(folder)
            return penjing.load(folder), written

        return make


def rounded(original: Path) -> tuple[Model, int]:
    """Makes the baseline's row."""
    return nearest.round_to_nearest(penjing.load(original))


def report(rows: list[Row], settings: Settings) -> str:
    """Both tables, overall and by text, with how they were measured."""
    names = list(rows[0]["figures"])
    overall = tables.markdown(
        (
            "model",
            "MB",
            "of 16 bits",
            "bits a weight",
            "perplexity kept",
            "choice kept",
            "KL",
            "agreement",
        ),
        [
            (
                row["row"],
                f"{row['bytes'] / 1e6:.1f}",
                f"{row['ratio']:.3f}",
                f"{row['bits_per_weight']:.2f}",
                kept(row["figures"]["overall"]["perplexity_kept"]),
                kept(row["figures"]["overall"]["choice_kept"]),
                f"{row['figures']['overall']['kl']['value']:.4f}",
                f"{row['figures']['overall']['agreement']['value']:.1%}",
            )
            for row in rows
        ],
    )
    by_text = tables.markdown(
        ("perplexity kept on", *(name for name in names if name != "overall")),
        [
            (
                row["row"],
                *(kept(row["figures"][name]["perplexity_kept"]) for name in names if name != "overall"),
            )
            for row in rows
        ],
    )
    how = (
        f"{settings.tokens:,} tokens and {settings.choice_items} choice items over four texts, effort "
        f"{settings.effort}, seed {settings.seed}. {tables.machine('penjing', 'torch')}"
    )
    return f"{overall}\n\n{by_text}\n\n{how}"


def figures(result: EvalResult) -> dict[str, Any]:
    """Every measured value with its interval, by text and overall."""
    fields = ("perplexity_kept", "choice_kept", "kl", "agreement")
    return {
        name: {"tokens": text.tokens, "perplexity": text.perplexity, "choice_accuracy": text.choice_accuracy}
        | {field: _interval(getattr(text, field)) for field in fields}
        for name, text in (*result.texts.items(), ("overall", result.overall))
    }


def _interval(interval: Interval | None) -> dict[str, float | None] | None:
    return None if interval is None else interval.to_json()


def kept(interval: dict[str, float | None] | None) -> str:
    if interval is None:
        return "not measurable"
    if interval["low"] is None:
        return f"{interval['value']:.3f}"
    return f"{interval['value']:.3f} ({interval['low']:.3f} to {interval['high']:.3f})"


def _slug(row: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", row)


def documents(folder: Path) -> dict[str, list[str]]:
    return {name.partition(".")[0]: read_documents(folder / name) for name in FILES}


def _code() -> str:
    """A digest of the code that figures depend on."""
    root, here = Path(penjing.__file__).parent, Path(__file__).parent
    files = [file for name in CODE for file in sorted([root / name, *(root / name).rglob("*.py")])]
    digest = hashlib.sha256()
    for file in (*files, here / "nearest.py", here / "twin.py"):
        if file.is_file() and "report" not in file.parts:
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure size against quality.")
    parser.add_argument("--to", nargs="*", default=["0.5", "0.43", "0.39", "0.33", "0.25"], metavar="RATIO")
    parser.add_argument("--effort", default="default")
    parser.add_argument("--tokens", type=int, default=32_768)
    parser.add_argument("--choice-items", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--original", type=Path, help="a 16-bit model; default: the twin, made if need be")
    parser.add_argument("--texts", type=Path, help="a folder of texts; default: fetched if need be")
    parser.add_argument("--work", type=Path, default=Path(".cache/benchmarks"), help="where files go")
    parser.add_argument("--into", type=Path, help="a page with a place for the tables")
    args = parser.parse_args()

    original, texts = args.original or args.work / "twin", args.texts or args.work / "texts"
    if args.original is None and not original.exists():
        write_twin(gguf_path(), original)
    if args.texts is None:
        write_texts(texts)
    settings = Settings(str(original), str(texts), args.effort, args.tokens, args.choice_items, args.seed)
    work = args.work / "quality"
    work.mkdir(parents=True, exist_ok=True)
    makers: dict[str, Maker] = {nearest.NAME: rounded}
    shrinker = Shrinker(settings, work)
    makers |= {f"penjing --to {to}": shrinker.to(to) for to in args.to}
    rows = []
    for row, make in makers.items():
        rows.append(measure(row, make, settings, work))
        print(report(rows[-1:], settings), flush=True)
    tables_text = report(rows, settings)
    (work / "quality.md").write_text(tables_text + "\n", encoding="utf-8")
    if args.into:
        tables.put(args.into, "quality", tables_text)


if __name__ == "__main__":
    main()
