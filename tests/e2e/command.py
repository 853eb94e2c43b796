"""The command, run as a person runs it."""

import os
import subprocess
import sys
from pathlib import Path

PENJING = Path(sys.executable).with_name("penjing")


def environment(**changes: str) -> dict[str, str]:
    return {**os.environ, "OMP_WAIT_POLICY": "PASSIVE", **changes}


def run(*arguments: object, text_in: str = "", **changes: str) -> subprocess.CompletedProcess[str]:
    """Run `penjing ARGUMENTS` with `text_in` on its standard input; `changes` go to its environment."""
    return subprocess.run(
        [PENJING, *map(str, arguments)],
        input=text_in,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        env=environment(**changes),
        timeout=120,
    )
