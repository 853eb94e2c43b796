"""penjing and other quantisers on the same models, the same calibration text and the same judge.

Every cell is one model made small in one way. What is done stays: a stopped run goes on, and cells that fail
are named with their log and left out of the tables. `--list` names the cells; `--cells` takes patterns of
names. Environments for the peers: see `benchmarks.peers`. Small models: see `benchmarks.small_models`.

Usage: python -m benchmarks.shrink --envs ENVS [--cells 'twin/*' ...] [--into docs/benchmarks.md]
"""

import argparse
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

from benchmarks import tables
from benchmarks.cells import LLAMA_CPP, OURS, TWIN, Bench, Cell, Json, PeerError
from benchmarks.quality import kept
from benchmarks.smollm2 import gguf_path
from benchmarks.texts import write_texts
from benchmarks.twin import write_twin

GROUPS = {TWIN: 64, "small-tied": 128, "small-untied": 128}
# The first of each peer are shown by default; the others with --cells.
METHODS = (
    (OURS, "one-shot"),
    ("torchao", "rtn"),
    ("torchao", "hqq"),
    ("llmcompressor", "gptq"),
    ("llmcompressor", "awq"),
    ("gptqmodel", "gptq"),
    ("gptqmodel", "gptaq"),
    ("autoround", "autoround"),
    ("torchao", "rtn-sym"),
    ("torchao", "hqq-scale"),
    ("llmcompressor", "gptq-sym"),
    ("llmcompressor", "awq-sym"),
    ("gptqmodel", "gptq-sym"),
)
PRESETS = ("Q6_K", "Q5_K_M", "Q5_1", "Q4_K_M", "Q4_1", "Q4_0", "IQ4_XS", "Q3_K_M", "IQ3_S", "IQ3_XXS", "Q2_K")
Rows = list[tuple[Cell, Json]]


def all_cells() -> Iterator[Cell]:
    for model, group in GROUPS.items():
        for bits in (4, 3):
            for peer, method in METHODS:
                yield Cell(model, peer, method, bits, group)
        for preset in PRESETS:
            yield Cell(model, LLAMA_CPP, preset, options=(("importance", True),))


def measure(bench: Bench, cells: Sequence[Cell]) -> Rows:
    rows = []
    for cell in cells:
        try:
            rows.append((cell, bench.measure(cell)))
        except PeerError as error:
            print(error, flush=True)
            continue
        print(tables.markdown(HEADER, [_row(*rows[-1])]).splitlines()[-1], flush=True)
    return rows


HEADER = ("method", "MB", "of 16 bits", "KL", "perplexity kept", "agreement", "processor seconds")


def report(rows: Rows, bench: Bench) -> str:
    """A table for each model and number of bits, and how it was measured."""
    parts = []
    for model, bits in dict.fromkeys((cell.model, cell.bits) for cell, _ in rows):
        found = [(cell, row) for cell, row in rows if (cell.model, cell.bits) == (model, bits)]
        title = (
            f"{bits} bits in groups of {GROUPS[model]}, embedding and head at 16" if bits else "whole model"
        )
        ordered = sorted(
            found, key=lambda pair: (pair[1]["stamp"]["made"]["bytes"] if not bits else 0, _kl(pair[1]))
        )
        parts.append(f"**{model}: {title}**\n\n" + tables.markdown(HEADER, [_row(*pair) for pair in ordered]))
    how = f"{bench.tokens:,} tokens over four texts, seed {bench.seed}. {tables.machine('penjing', 'torch')}"
    return "\n\n".join([*parts, _versions(rows), how])


def _row(cell: Cell, row: Json) -> tuple[str, ...]:
    made, overall = row["stamp"]["made"], row["figures"]["overall"]
    return (
        _label(cell),
        f"{made['bytes'] / 1e6:.1f}",
        f"{made['bytes'] / row['base_bytes']:.3f}",
        f"{overall['kl']['value']:.4f}",
        kept(overall["perplexity_kept"]),
        f"{overall['agreement']['value']:.1%}",
        f"{made['seconds']:.0f}",
    )


def _kl(row: Json) -> float:
    return row["figures"]["overall"]["kl"]["value"]


def _label(cell: Cell) -> str:
    importance = ", importance matrix" if dict(cell.options).get("importance") else ""
    return f"{cell.peer} {cell.method}{importance}"


def _versions(rows: Rows) -> str:
    """A sentence with the versions that the peers ran with."""
    found = {
        f"{package} {version}"
        for _, row in rows
        for package, version in row["stamp"]["made"]["versions"].items()
        if package not in ("torch", "transformers")
    }
    return f"Peers: {', '.join(sorted(found))}."


def main() -> None:
    parser = argparse.ArgumentParser(description="Hold penjing against other quantisers.")
    parser.add_argument(
        "--envs", type=Path, default=Path(".cache/benchmarks/envs"), help="peers' environments"
    )
    parser.add_argument("--cells", nargs="*", default=["*"], metavar="PATTERN")
    parser.add_argument("--list", action="store_true", help="name the cells and end")
    parser.add_argument("--tokens", type=int, default=32_768)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, default=Path(".cache/benchmarks"), help="where files go")
    parser.add_argument("--into", type=Path, help="a page with a place for the tables")
    args = parser.parse_args()

    cells = [cell for cell in all_cells() if any(fnmatch(cell.name, pattern) for pattern in args.cells)]
    if args.list:
        print("\n".join(cell.name for cell in cells))
        return
    models = {name: args.work / name for name in GROUPS}
    if not models[TWIN].exists():
        write_twin(gguf_path(), models[TWIN])
    write_texts(args.work / "texts")
    bench = Bench(args.work / "shrink", args.envs, args.work / "texts", models, args.tokens, args.seed)
    bench.work.mkdir(parents=True, exist_ok=True)
    rows = measure(bench, cells)
    if not rows:
        raise SystemExit("no cell was measured")
    text = report(rows, bench)
    print(text)
    if args.into:
        tables.put(args.into, "peers", text)


if __name__ == "__main__":
    main()
