"""The command `penjing` and its verbs."""

from collections.abc import Sequence
from typing import Annotated

import typer

from penjing import __version__
from penjing.cli.bench import bench
from penjing.cli.chat import chat
from penjing.cli.eval import evaluate
from penjing.cli.save import save
from penjing.cli.show import show
from penjing.cli.shrink import shrink

# Without rich, help takes half the time, keeps its lines in a pipe and is plain ASCII.
app = typer.Typer(
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"penjing {__version__}")
        raise typer.Exit


@app.callback()
def penjing(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Make a language model a fraction of its size, prove what it kept, and talk to it."""


app.command("show")(show)
app.command("chat")(chat)
app.command("shrink")(shrink)
app.command("eval")(evaluate)
app.command("save")(save)
app.command("bench")(bench)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command with `arguments` (by default the process's own), and exit with its code.

    0 done; 1 a promise did not hold; 2 the call or the input is wrong; 3 not enough memory or disk.
    """
    app(arguments, prog_name="penjing")
