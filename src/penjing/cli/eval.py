"""`penjing eval`: how well a model predicts text, alone or against its original."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penjing.cli.loading import find_model, load_model, open_models, unpack_if_it_fits
from penjing.cli.options import (
    DebugOption,
    JsonOption,
    KVCacheOption,
    ModelArgument,
    SeedOption,
    TextOption,
    ThreadsOption,
)
from penjing.cli.session import Session, session
from penjing.cli.texts import read_texts
from penjing.cli.wording import percent, percent_between, table
from penjing.errors import InputError
from penjing.formats.reference import read_reference

if TYPE_CHECKING:
    from penjing.evaluate.result import EvalResult, TextResult


def evaluate(
    model: ModelArgument,
    against: Annotated[
        str | None, typer.Option(metavar="ORIGINAL", help="Measure what MODEL kept of this one.")
    ] = None,
    text: TextOption = None,
    tokens: Annotated[
        int, typer.Option(min=1, metavar="N", help="About how many tokens to measure on.")
    ] = 32_768,
    choice_items: Annotated[
        int, typer.Option(min=0, metavar="N", help="Which of four passages follows? So many questions.")
    ] = 200,
    kv_cache: KVCacheOption = "float",
    seed: SeedOption = 0,
    json: JsonOption = False,
    debug: DebugOption = False,
    threads: ThreadsOption = None,
) -> None:
    """Measure a model on text. Perplexity and choice accuracy, and with --against what it kept; the text
    should be held out: none that the model was tuned or shrunk with. With --kv-cache it is held against
    itself, unless --against names another, and text is read a piece at a time."""
    with session(json, debug, threads) as this:
        for ref in (model, against):
            if ref is not None:
                read_reference(ref)
        texts = read_texts(text) if text else _builtin_texts(seed)
        measured = _measure(this, model, against, texts, tokens, choice_items, seed, kv_cache)
        for notice in measured.notices:
            this.notice(notice)
        this.result({**measured.to_json(), "notices": list(measured.notices)}, _as_text(measured))


def _builtin_texts(seed: int) -> dict[str, list[str]]:
    """The part of Python's documentation that shrinking (with the same seed) only ever reports on."""
    from penjing.text.documents import builtin_documents
    from penjing.text.splits import make_splits

    report = make_splits({"python documentation": builtin_documents()}, seed=seed).report
    return {name: list(documents) for name, documents in report.items()}


def _measure(
    this: Session,
    model: str,
    against: str | None,
    texts: dict[str, list[str]],
    tokens: int,
    choice_items: int,
    seed: int,
    kv_cache: str,
) -> EvalResult:
    refs = [ref for ref in (model, against) if ref is not None]
    located = [find_model(this, ref) for ref in refs]
    loaded = [load_model(this, opened) for opened in open_models(*located)]
    shrunk, original = loaded[0].with_kv_cache(kv_cache), loaded[-1]
    if not shrunk.tokenizer.same_ids(original.tokenizer):
        raise InputError(
            f"{model} and {against} can't be compared: their tokenizers give tokens different ids; give the "
            "model that this one was made from"
        )
    for each in loaded:
        unpack_if_it_fits(this, each)
    from penjing.evaluate import compare as measure

    with this.work(f"measuring {model}") as bar:
        if against is None and kv_cache == "float":
            return measure.evaluate(
                shrunk.module,
                shrunk.tokenizer,
                texts,
                name=model,
                tokens=tokens,
                choice_items=choice_items,
                seed=seed,
                progress=bar,
            )
        return measure.compare(
            original.module,
            shrunk.reader,
            original.tokenizer,
            texts,
            name=model if kv_cache == "float" else f"{model} (cache in {kv_cache})",
            against=against or model,
            tokens=tokens,
            choice_items=choice_items,
            seed=seed,
            progress=bar,
        )


def _as_text(result: EvalResult) -> str:
    """A row for each text, and one for all of them if there are several."""
    rows = dict(result.texts)
    if len(rows) > 1:
        rows["all texts"] = result.overall
    row = _plain_row if result.against is None else _compared_row
    titles = _PLAIN_TITLES if result.against is None else _COMPARED_TITLES
    return table([titles, *([name, *row(text)] for name, text in rows.items())])


_PLAIN_TITLES = ["text", "tokens", "perplexity", "choice accuracy"]
_COMPARED_TITLES = [*_PLAIN_TITLES, "perplexity kept", "choice kept", "KL (nats)", "agreement"]


def _plain_row(text: TextResult) -> list[str]:
    return [f"{text.tokens:,}", f"{text.perplexity:,.3f}", percent(text.choice_accuracy)]


def _compared_row(text: TextResult) -> list[str]:
    assert text.kl is not None and text.agreement is not None
    kept = [percent_between(text.perplexity_kept), percent_between(text.choice_kept)]
    return [*_plain_row(text), *kept, f"{text.kl.value:.5f}", percent(text.agreement.value)]
