"""The process, prepared before a verb does its work."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from types import FrameType
from typing import NoReturn, TextIO

_ENDING_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


def prepare_threads(threads: int | None) -> None:
    """Set how many threads compute, and that idle ones sleep; read by OpenMP when torch is imported."""
    # Threads that spin while they wait take the cores from whoever else computes, on a busy machine from
    # each other, and make everything slower there by far.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if threads is not None:
        import torch

        torch.set_num_threads(threads)


def never_fail_to_print() -> None:
    """Print "?" for what the console's encoding doesn't have, rather than stop."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def read_as_utf8(stream: TextIO) -> None:
    """Read `stream` as UTF-8 whatever the locale, unless a person types there."""
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(encoding=stream.encoding if stream.isatty() else "utf-8", errors="replace")


def typed_text(argument: str) -> str:
    """A command-line argument as UTF-8 text, also where the locale is a narrower one.

    There Python holds bytes that it could not decode as lone surrogates, which no tokenizer takes.
    """
    return os.fsencode(argument).decode("utf-8", errors="replace")


@contextmanager
def ending_cleanly() -> Iterator[None]:
    """Within the block a request to end unwinds the program, so that half-written files are removed.

    What the caller chose to ignore, as nohup does, stays ignored.
    """
    caught = [number for number in _ENDING_SIGNALS if signal.getsignal(number) == signal.SIG_DFL]
    for number in caught:
        signal.signal(number, _unwind)
    try:
        yield
    finally:
        for number in caught:
            signal.signal(number, signal.SIG_DFL)


def _unwind(number: int, frame: FrameType | None) -> NoReturn:
    """Exit as a shell reports a process that a signal ended; cleaning up isn't interrupted again."""
    for each in _ENDING_SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(128 + number)
