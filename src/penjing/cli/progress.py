"""A progress bar with an estimate, on standard error and only on a terminal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Bar:
    """What long work reports to. `part` is the part of the work that it was at last."""

    def __init__(self, title: str, display: Any = None) -> None:
        self.part = ""
        self._title = title
        self._display = display
        self._task = None

    def __call__(self, done: int, total: int, part: str = "") -> None:
        """`done` of `total` steps of `part` are done; a new part begins a new bar."""
        begins = self._task is None or part != self.part
        self.part = part
        if self._display is None:
            return
        if begins:
            if self._task is not None:
                self._display.remove_task(self._task)
            self._task = self._display.add_task(f"{self._title}: {part}" if part else self._title)
        self._display.update(self._task, completed=done, total=total)


@contextmanager
def progress_bar(title: str) -> Iterator[Bar]:
    """A `Bar` that is shown while the block runs, and leaves no trace."""
    if not sys.stderr.isatty():
        yield Bar(title)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as display:
        yield Bar(title, display)
