"""What surrounds every verb: where it prints, what it is doing, and how it ends."""

import json
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import typer

from penjing.cli.failures import BROKEN_PIPE, INTERRUPTED, describe
from penjing.cli.process import ending_cleanly, never_fail_to_print, prepare_threads
from penjing.cli.progress import Bar, progress_bar

_REMEDY = "close other programs or use a smaller model"


class Session:
    """One call of a verb. Results go to standard output, everything else to standard error."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.doing = "starting"
        self.remedy = _REMEDY
        self._noticed: set[str] = set()

    def notice(self, text: str) -> None:
        """Tell the user something that isn't the result, once in a call."""
        if text not in self._noticed:
            self._noticed.add(text)
            print(f"note: {text}", file=sys.stderr, flush=True)

    def result(self, values: Mapping[str, Any], text: str) -> None:
        """Print the result: `values` as JSON if asked for, else `text`."""
        # ASCII JSON, so that it means the same in every console and pipe.
        print(json.dumps(values, allow_nan=False) if self.as_json else text, flush=True)

    @contextmanager
    def work(self, doing: str, remedy: str = _REMEDY) -> Iterator[Bar]:
        """A bar for long work. Should memory run out in it, the error says what was done and the remedy."""
        self.doing, self.remedy = doing, remedy
        with progress_bar(doing) as bar:
            try:
                yield bar
            except BaseException:
                self.doing += f" ({bar.part})" if bar.part else ""
                raise


@contextmanager
def session(as_json: bool, debug: bool, threads: int | None) -> Iterator[Session]:
    """Run a verb in the block. Whatever ends it early becomes one sentence and an exit code."""
    this = Session(as_json)
    never_fail_to_print()
    try:
        with ending_cleanly():
            prepare_threads(threads)
            yield this
            sys.stdout.flush()
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        _discard_output()
        raise typer.Exit(BROKEN_PIPE) from None
    except typer.Exit:
        raise
    except Exception as error:
        if debug:
            traceback.print_exc()
        sentence, code = describe(error, this.doing, this.remedy)
        print(f"error: {sentence}", file=sys.stderr, flush=True)
        raise typer.Exit(code) from None


def _discard_output() -> None:
    """Nobody reads any more; without this, Python would complain once again when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
