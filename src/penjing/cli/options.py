"""The options that several verbs share, each described once."""

from pathlib import Path
from typing import Annotated, Literal

import typer

ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A Hugging Face folder, a .gguf file, a folder penjing wrote, or a hub id: org/name.",
    ),
]
OutOption = Annotated[Path, typer.Option("-o", "--out", metavar="OUT", help="The folder to write.")]
SeedOption = Annotated[
    int,
    typer.Option("--seed", min=0, max=2**63 - 1, metavar="S", help="What all random choices follow from."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
ThreadsOption = Annotated[
    int | None, typer.Option("--threads", min=1, metavar="N", help="CPU threads to use (default: all cores).")
]
TextOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--text",
        metavar="FILE",
        help="UTF-8 text, its documents parted by lines that hold only a form feed, or .jsonl with a "
        '"text" on each line. Repeatable. Without it: the documentation that comes with Python.',
    ),
]
KVCacheOption = Annotated[
    Literal["float", "int8", "int4"],
    typer.Option("--kv-cache", help="Hold all but the newest keys and values in 8 or 4 bits."),
]
