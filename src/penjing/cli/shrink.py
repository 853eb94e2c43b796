"""`penjing shrink`: a model made small, with a report of what it kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from penjing.cli.loading import find_model
from penjing.cli.options import (
    DebugOption,
    JsonOption,
    ModelArgument,
    SeedOption,
    TextOption,
    ThreadsOption,
)
from penjing.cli.session import Session, session
from penjing.cli.target import check_out, check_out_file
from penjing.cli.texts import read_texts
from penjing.cli.wording import listing, megabytes, percent, percent_between, table
from penjing.errors import InputError
from penjing.formats.locate import Located
from penjing.formats.reference import read_reference

if TYPE_CHECKING:
    from penjing.model.opening import OpenedModel
    from penjing.shrink.frontier import Frontier
    from penjing.shrink.result import ShrinkResult

# Memory at the peak, in multiples of the loaded weights (measured): the original, the copy that grows beside
# it, and the activations of the calibration text.
_COPIES = 2.9
_REMEDY = "close other programs, try --effort fast, or use a smaller model"


def shrink(
    model: ModelArgument,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="OUT", help="The folder or file to write.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="The size to reach: 1/4 or 0.4 of the base, 60MB, 4.0bpw."),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(metavar="SHARE", help="The share to keep, such as 95%: the smallest size is searched."),
    ] = None,
    effort: Annotated[
        Literal["fast", "default", "best"], typer.Option(help="How much to spend on finding and proving it.")
    ] = "default",
    form: Annotated[
        Literal["hf", "gguf", "gptq", "compressed-tensors"],
        typer.Option(
            "--as",
            help="For whom: hf, penjing's own folder; gguf, a file for llama.cpp; or a folder"
            " for programs that open GPTQ's or compressed-tensors' layout.",
        ),
    ] = "hf",
    text: TextOption = None,
    seed: SeedOption = 0,
    json: JsonOption = False,
    debug: DebugOption = False,
    threads: ThreadsOption = None,
) -> None:
    """Make a model small. What it kept is measured on text that nothing was tuned on, and stands in
    report.html beside it. With neither --to nor --keep, sizes and what they are expected to keep are shown,
    and nothing is written. Exit code 1: what --keep asks for does not hold."""
    with session(json, debug, threads) as this:
        _check_call(model, out, to, keep)
        if out is not None:
            (check_out_file if form == "gguf" else check_out)(out, model)
        texts = read_texts(text) if text else None
        opened = _open(find_model(this, model), to, form)
        for notice in opened.notices:
            this.notice(notice)
        settings = _Settings(effort, texts, seed, form)
        if out is None:
            frontier = _frontier(this, opened, settings)
            this.result({"model": model, **frontier.to_json()}, _frontier_text(frontier))
            return
        result = _shrink(this, opened, to, keep, settings)
        this.doing = f"writing {out}"
        result.save(out)
        for notice in result.notices:
            this.notice(notice)
        values = {**result.to_json(out), "indicative": _is_indicative(result)}
        this.result(values, _as_text(result, out))
        if result.verdict is not None and not result.verdict.holds:
            raise typer.Exit(1)


@dataclass(frozen=True)
class _Settings:
    """What a shrunk model and a frontier are made with."""

    effort: str
    texts: dict[str, list[str]] | None
    seed: int
    form: str


def _check_call(model: str, out: Path | None, to: str | None, keep: str | None) -> None:
    """Refuse what can be seen to be wrong without opening anything."""
    from penjing.shrink.goal import parse_share

    if out is None and (to is not None or keep is not None):
        raise InputError("say where to write the shrunk model (--out OUT)")
    if out is not None and to is None and keep is None:
        raise InputError("say how small (--to 1/4) or how much to keep (--keep 95%), or both")
    if keep is not None:
        parse_share(keep)
    read_reference(model)


def _open(model: Located, to: str | None, form: str) -> OpenedModel:
    """Open the model; refuse what can't be shrunk, or not so far, or not here, by its headers alone."""
    from penjing.memory import require_memory
    from penjing.model.ledger import base_bytes, load_bytes, plan_ledger
    from penjing.model.opening import open_model
    from penjing.shrink.forms import LAYOUTS
    from penjing.shrink.goal import parse_size
    from penjing.shrink.reach import least_bytes, unreachable

    opened = open_model(model)
    smallest = least_bytes(opened.plan, LAYOUTS[form])
    if to is not None:
        ledger = plan_ledger(opened.plan)
        base = base_bytes(ledger)
        nbytes = parse_size(to, base, ledger.parameters)
        if nbytes < smallest:
            raise unreachable(nbytes, smallest, base, ledger.parameters)
    require_memory(int(_COPIES * load_bytes(opened.plan)), f"shrinking {model.name}", _REMEDY)
    return opened


def _shrink(
    this: Session, model: OpenedModel, to: str | None, keep: str | None, settings: _Settings
) -> ShrinkResult:
    with this.work(f"shrinking {model.name}", _REMEDY) as bar:
        from penjing.shrink.shrink import shrink

        return shrink(
            model,
            to=to,
            keep=keep,
            effort=settings.effort,
            texts=settings.texts,
            seed=settings.seed,
            form=settings.form,
            progress=lambda stage, done, total: bar(done, total, stage),
        )


def _frontier(this: Session, model: OpenedModel, settings: _Settings) -> Frontier:
    with this.work(f"looking at sizes of {model.name}", _REMEDY) as bar:
        from penjing.shrink.frontier import find_frontier

        return find_frontier(
            model,
            effort=settings.effort,
            texts=settings.texts,
            seed=settings.seed,
            form=settings.form,
            progress=lambda stage, done, total: bar(done, total, stage),
        )


def _frontier_text(frontier: Frontier) -> str:
    rows = [("of the base", "size", "KL", "perplexity kept", "")]
    rows += [
        (
            f"{point.nbytes / frontier.base_bytes:.3f}",
            megabytes(point.nbytes),
            f"{point.kl:.4f}",
            percent(point.kept),
            "measured" if point.measured else "expected",
        )
        for point in frontier.points
    ]
    return table(rows)


def _is_indicative(result: ShrinkResult) -> bool:
    """Whether what was kept was measured on too little for more than a first impression."""
    return result.asked.effort == "fast"


def _as_text(result: ShrinkResult, out: Path) -> str:
    overall = result.report.overall
    assert overall.kl is not None and overall.agreement is not None
    before = result.original.nbytes
    size = f"{megabytes(result.nbytes)}, {result.ratio:.3f} of the base ({megabytes(result.base_bytes)})"
    if before != result.base_bytes:
        size += f", {result.nbytes / before:.3f} of the file it came from ({megabytes(before)})"
    lines = [
        ("size", size),
        ("perplexity kept", percent_between(overall.perplexity_kept)),
        ("choice kept", percent_between(overall.choice_kept)),
        ("KL", f"{overall.kl.value:.5f} nats a token"),
        ("agreement", f"{percent(overall.agreement.value)} of next tokens"),
    ]
    if result.verdict is not None:
        lines.append(
            ("promise", f"{'holds' if result.verdict.holds else 'does not hold'}: {result.verdict.reason}")
        )
    if _is_indicative(result):
        lines.append(("effort", "fast, so the figures are indicative; --effort default measures more"))
    lines += [
        ("took", f"{result.seconds:.0f} seconds"),
        ("report", str(result.report_path(out))),
        ("try it", f"penjing chat {out}"),
    ]
    return listing(lines)
