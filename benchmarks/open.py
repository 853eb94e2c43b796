"""How long opening a model takes and how much memory, beside transformers.

Each opening is a process of its own, after `import torch` and the library's import; the cases take turns, and
medians are given. The files are in the page cache: one round before the first isn't counted. The models are a
real small one, and a random one with many large tensors.

Usage: python -m benchmarks.open [--repeats 5] [--into docs/benchmarks.md]
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median

from benchmarks import tables
from benchmarks.random_qwen3 import LAYERS, write_random_qwen3
from benchmarks.smollm2 import gguf_path
from benchmarks.twin import write_twin

LIBRARIES = ("penjing", "transformers")

Figures = dict[str, float]


def open_once(library: str, path: Path) -> Figures:
    """The figures of one opening in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.open_once", library, str(path)]
    run = subprocess.run(command, check=True, capture_output=True, encoding="utf-8")
    return json.loads(run.stdout.splitlines()[-1])


def measure(models: dict[str, Path], repeats: int) -> dict[tuple[str, str], Figures]:
    """Medians by kind of file and library."""
    cases = [(kind, library) for kind in models for library in LIBRARIES]
    runs: dict[tuple[str, str], list[Figures]] = {case: [] for case in cases}
    for repeat in range(repeats + 1):
        for kind, library in cases:
            figures = open_once(library, models[kind])
            if repeat:
                runs[kind, library].append(figures)
    return {
        case: {name: median(run[name] for run in found) for name in found[0]} for case, found in runs.items()
    }


def report(medians: dict[tuple[str, str], Figures], repeats: int) -> str:
    rows = [
        (
            f"{kind}, {library}",
            f"{figures['open_seconds']:.2f}",
            f"{figures['peak_bytes'] / 1e6:,.0f}",
            f"{figures['peak_bytes'] / figures['float_bytes']:.2f}",
            f"{figures['import_seconds']:.2f}",
        )
        for (kind, library), figures in medians.items()
    ]
    table = tables.markdown(
        ("model", "seconds", "peak MB", "peak / float32 bytes", "seconds to import"), rows
    )
    return f"{table}\n\nMedians of {repeats} runs. {tables.machine('penjing', 'torch', 'transformers')}"


def models(work: Path, layers: int) -> dict[str, Path]:
    """What is opened, by what the table calls it; made in `work` if need be."""
    gguf, twin = gguf_path(), work / "twin"
    if not twin.exists():
        write_twin(gguf, twin)
    folder, file = work / f"qwen3-{layers}-layers", work / f"qwen3-{layers}-layers.gguf"
    if not file.exists():
        shutil.rmtree(folder, ignore_errors=True)  # of a run that was broken off
        write_random_qwen3(folder, file, gguf, layers)
    large = f"random Qwen3 of {file.stat().st_size / 1e9:.1f} GB"
    return {
        "SmolLM2-135M, GGUF file": gguf,
        "SmolLM2-135M, folder": twin,
        f"{large}, GGUF file": file,
        f"{large}, folder": folder,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Time opening a model beside transformers.")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--layers", type=int, default=LAYERS, help="of the random model")
    parser.add_argument("--work", type=Path, default=Path(".cache/benchmarks"), help="where files go")
    parser.add_argument("--into", type=Path, help="a page with a place for the table")
    args = parser.parse_args()

    text = report(measure(models(args.work, args.layers), args.repeats), args.repeats)
    print(text)
    if args.into:
        tables.put(args.into, "opening", text)


if __name__ == "__main__":
    main()
