"""`penjing chat`: talk to a model, one prompt or a conversation."""

from __future__ import annotations

import contextlib
import importlib
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from penjing.cli.loading import load_model, unpack_if_it_fits
from penjing.cli.options import DebugOption, JsonOption, KVCacheOption, ModelArgument, ThreadsOption
from penjing.cli.process import read_as_utf8, typed_text
from penjing.cli.session import Session, session
from penjing.errors import InputError
from penjing.formats.reference import read_reference

if TYPE_CHECKING:
    from penjing.api import Model
    from penjing.engine.params import SamplingParams

_HELP = "Type a message, /reset to begin anew, /exit to leave."


def chat(
    model: ModelArgument,
    prompt: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Answer this and exit. Without it: a conversation.")
    ] = None,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="Instructions that come first.")] = None,
    max_tokens: Annotated[int, typer.Option(metavar="N", help="Most tokens in an answer.")] = 512,
    temperature: Annotated[
        float, typer.Option(metavar="T", help="0: always the likeliest token; higher: more varied.")
    ] = 0.7,
    top_p: Annotated[
        float, typer.Option(metavar="P", help="Only the likeliest tokens that together reach P.")
    ] = 0.95,
    top_k: Annotated[int, typer.Option(metavar="K", help="Only the K likeliest tokens (0: all).")] = 0,
    min_p: Annotated[
        float, typer.Option(metavar="P", help="Only tokens at least P times as likely as the likeliest.")
    ] = 0.0,
    seed: Annotated[
        int | None, typer.Option(metavar="S", help="The same seed gives the same answer (default: fresh).")
    ] = None,
    stop: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="End before this text. Repeatable.")
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the text as it is, without a chat template.")
    ] = False,
    kv_cache: KVCacheOption = "float",
    json: JsonOption = False,
    debug: DebugOption = False,
    threads: ThreadsOption = None,
) -> None:
    """Talk to a model. One --prompt, or a conversation (also from a pipe: a message a line). A model without
    a chat template continues raw text, each line by itself."""
    with session(json, debug, threads) as this:
        if json and prompt is None:
            raise InputError("--json is for one answer; give --prompt TEXT too")
        read_reference(model)
        from penjing.engine.params import SamplingParams

        params = SamplingParams(
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            min_p=min_p,
            seed=seed,
            stop=tuple(map(typed_text, stop or ())),
        )
        talk = _begin(this, model, params, None if system is None else typed_text(system), raw, kv_cache)
        if prompt is not None:
            _answer_once(this, talk, typed_text(prompt))
        else:
            _converse(this, talk)


def _begin(
    this: Session, ref: str, params: SamplingParams, system: str | None, raw: bool, kv_cache: str
) -> Talk:
    model = load_model(this, ref).with_kv_cache(kv_cache)
    if not raw and not model.can_chat:
        this.notice(f"{ref} has no chat template, so it is a base model: it continues raw text")
        raw = True
    if raw and system is not None:
        raise InputError("--system needs a chat template, and raw text has none; put it into the prompt")
    unpack_if_it_fits(this, model)
    return Talk(model, params, raw, system)


@dataclass
class Talk:
    """A conversation: what was said so far, and how it goes on. Raw text has no memory."""

    model: Model
    params: SamplingParams
    raw: bool
    system: str | None = None
    said: list[dict[str, str]] = field(default_factory=list)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    finish_reason: str | None = None

    def answer(self, text: str) -> Iterator[str]:
        """The answer to `text`, piece by piece; it is remembered once it is whole."""
        from penjing.engine.generate import generate

        messages = [*self._opening(), *self.said, {"role": "user", "content": text}]
        tokenizer = self.model.tokenizer
        ids = tokenizer.prompt_ids(text) if self.raw else tokenizer.chat_ids(messages)
        self.prompt_tokens, self.completion_tokens, self.finish_reason = len(ids), 0, None
        pieces = []
        for piece in generate(self.model.reader, tokenizer, ids, self.params, continues=self.raw):
            self.completion_tokens += len(piece.token_ids)
            self.finish_reason = piece.finish_reason
            pieces.append(piece.text)
            yield piece.text
        self.said += [{"role": "user", "content": text}, {"role": "assistant", "content": "".join(pieces)}]

    def reset(self) -> None:
        self.said.clear()

    def _opening(self) -> list[dict[str, str]]:
        return [] if self.system is None else [{"role": "system", "content": self.system}]


def _answer_once(this: Session, talk: Talk, prompt: str) -> None:
    this.doing, this.remedy = "answering", "lower --max-tokens or shorten the prompt"
    started = first = time.perf_counter()
    pieces = []
    for piece in talk.answer(prompt):
        if talk.completion_tokens == 1:
            first = time.perf_counter()
        pieces.append(piece)
        if not this.as_json:
            print(piece, end="", flush=True)
    ended = time.perf_counter()
    after_first = talk.completion_tokens - 1
    values = {
        "model": talk.model.name,
        "text": "".join(pieces),
        "finish_reason": talk.finish_reason,
        "prompt_tokens": talk.prompt_tokens,
        "completion_tokens": talk.completion_tokens,
        "first_token_seconds": first - started,
        "seconds": ended - started,
        "tokens_per_second": after_first / (ended - first) if after_first else None,
    }
    this.result(values, "")


def _converse(this: Session, talk: Talk) -> None:
    """Answer each line of standard input until it ends or says /exit."""
    this.doing, this.remedy = "answering", "lower --max-tokens or /reset the conversation"
    typed = sys.stdin.isatty()
    read_as_utf8(sys.stdin)
    if typed:
        print(_HELP, file=sys.stderr)
        with contextlib.suppress(ImportError):  # line editing, where Python has it
            importlib.import_module("readline")
    while (line := _next_line(typed)) is not None and line != "/exit":
        if line == "/reset":
            talk.reset()
        elif line:
            _answer_line(talk, line, typed)


def _next_line(typed: bool) -> str | None:
    try:
        return input("> " if typed and sys.stdout.isatty() else "").strip()
    except EOFError:
        return None


def _answer_line(talk: Talk, line: str, typed: bool) -> None:
    """Print the answer. A person may go on after a message that can't be answered; a script is stopped."""
    try:
        for piece in talk.answer(line):
            print(piece, end="", flush=True)
    except InputError as error:
        if not typed:
            raise
        print(f"error: {error} (/reset forgets the conversation)", file=sys.stderr)
    print(flush=True)
