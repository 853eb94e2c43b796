"""`penjing bench`: how fast a model reads and writes on this machine.

Shapes: B rows, L tokens.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penjing.cli.loading import find_model, load_model, unpack_if_it_fits
from penjing.cli.options import DebugOption, JsonOption, ModelArgument, SeedOption, ThreadsOption
from penjing.cli.progress import Bar
from penjing.cli.session import session
from penjing.cli.wording import listing, megabytes, table
from penjing.errors import InputError

if TYPE_CHECKING:
    from penjing.model.language_model import LanguageModel

_REMEDY = "give smaller numbers for --batch, --prompt-tokens or --new-tokens"


@dataclass(frozen=True)
class Speed:
    """Tokens a second over all rows of a batch, and milliseconds to each row's first token."""

    prefill_tps: float
    decode_tps: float
    ttft_ms: float


def bench(
    model: ModelArgument,
    prompt_tokens: Annotated[int, typer.Option(min=1, metavar="N", help="Tokens in each prompt.")] = 512,
    new_tokens: Annotated[int, typer.Option(min=1, metavar="N", help="Tokens to generate after it.")] = 128,
    batch: Annotated[
        str, typer.Option(metavar="N,N", help="How many sequences at once, each of these.")
    ] = "1,4,16",
    repeats: Annotated[int, typer.Option(min=1, metavar="N", help="Measure so often and take medians.")] = 3,
    seed: SeedOption = 0,
    json: JsonOption = False,
    debug: DebugOption = False,
    threads: ThreadsOption = None,
) -> None:
    """Measure how fast a model is. Token ids are random and nothing is sampled, so these are the speeds of
    the model alone. The overall figures are those of a single sequence, which is always measured."""
    with session(json, debug, threads) as this:
        sizes = _batch_sizes(batch)
        located = find_model(this, model)
        import penjing.api  # so that the time to load isn't that to import  # noqa: F401

        started = time.perf_counter()
        loaded = load_model(this, located)
        load_seconds = time.perf_counter() - started
        unpack_if_it_fits(this, loaded)
        _check_lengths(loaded.config.max_position_embeddings, prompt_tokens, new_tokens)
        with this.work(f"measuring {model}", _REMEDY) as bar:
            run = _Run(loaded.module, prompt_tokens, new_tokens, repeats, seed)
            speeds = dict(run.all(sizes, bar))
        values = {
            "load_seconds": load_seconds,
            **asdict(speeds[1]),
            "batch": {str(size): asdict(speeds[size]) for size in sizes},
            "peak_rss_mb": _peak_rss() / 1e6,
            "weight_bytes": loaded.ledger.nbytes,
        }
        this.result(values, _as_text(values))


@dataclass(frozen=True)
class _Run:
    """The measurement of one model, batch size after batch size."""

    module: LanguageModel
    prompt_tokens: int
    new_tokens: int
    repeats: int
    seed: int

    def all(self, sizes: list[int], bar: Bar) -> Iterator[tuple[int, Speed]]:
        """Each size's median speed after one round to warm up; a single sequence comes first."""
        rounds = self.repeats + 1
        for size in dict.fromkeys([1, *sizes]):
            measured = []
            for number in range(rounds):
                bar(number, rounds, f"batch {size}")
                measured.append(self._once(size))
            yield size, _median(measured[1:])

    def _once(self, size: int) -> Speed:
        import torch

        from penjing.engine.steps import extend, make_cache, prefill

        total = self.prompt_tokens + self.new_tokens
        generator = torch.Generator().manual_seed(self.seed)
        ids_BL = torch.randint(self.module.config.vocab_size, (size, total), generator=generator)
        cache = make_cache(self.module, size, total, _REMEDY)
        started = time.perf_counter()
        prefill(self.module, cache, ids_BL[:, : self.prompt_tokens])
        first = time.perf_counter()
        for position in range(self.prompt_tokens, total):
            extend(self.module, cache, ids_BL[:, position : position + 1], position)
        ended = time.perf_counter()
        return Speed(
            prefill_tps=size * self.prompt_tokens / (first - started),
            decode_tps=size * self.new_tokens / (ended - first),
            ttft_ms=1e3 * (first - started),
        )


def _median(speeds: list[Speed]) -> Speed:
    columns = zip(*(asdict(speed).values() for speed in speeds), strict=True)
    return Speed(*map(median, columns))


def _batch_sizes(text: str) -> list[int]:
    """The numbers in "1,4,16"."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) for part in parts):
        raise InputError(f"--batch {text!r} can't be read; give numbers with commas between, such as 1,4,16")
    return [int(part) for part in parts]


def _check_lengths(context: int, prompt_tokens: int, new_tokens: int) -> None:
    if prompt_tokens + new_tokens > context:
        raise InputError(
            f"{prompt_tokens} prompt tokens and {new_tokens} new ones don't fit into the model's context of "
            f"{context}; lower --prompt-tokens or --new-tokens"
        )


def _peak_rss() -> int:
    """The most memory that this process held, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def _as_text(values: dict[str, Any]) -> str:
    rows = [["sequences", "prefill tokens/s", "decode tokens/s", "first token"]]
    for size, speed in values["batch"].items():
        figures = [
            f"{speed['prefill_tps']:,.1f}",
            f"{speed['decode_tps']:,.1f}",
            f"{speed['ttft_ms']:,.0f} ms",
        ]
        rows.append([size, *figures])
    facts = [
        ("loaded in", f"{values['load_seconds']:.2f} seconds"),
        ("weights", megabytes(values["weight_bytes"])),
        ("most memory", f"{values['peak_rss_mb']:,.0f} MB"),
    ]
    return f"{table(rows)}\n\n{listing(facts)}"
