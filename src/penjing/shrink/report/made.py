"""How to run the shrunk model, and how it was made."""

import platform
import shlex
from importlib.metadata import version

import penjing
from penjing.shrink.report import numbers
from penjing.shrink.result import ShrinkResult


def commands(result: ShrinkResult, out: str) -> list[tuple[str, str]]:
    """What each command is for, and the command as a POSIX shell reads it."""
    folder, original = shlex.quote(out), shlex.quote(result.original_name)
    # The seed parts the texts: with another one, text that tuned the model could judge it.
    seed = f" --seed {result.asked.seed}" if result.asked.seed else ""
    return [
        ("Talk to it", f"penjing chat {folder}"),
        ("Measure again what it kept", f"penjing eval {folder} --against {original}{seed}"),
        ("See what is in it", f"penjing show {folder}"),
    ]


def facts(result: ShrinkResult) -> list[tuple[str, str]]:
    """How the model was made, a line each. Without the time it took: two runs write the same page."""
    return [
        ("Original", result.original_name),
        ("Parameters", f"{result.model.ledger.parameters:,}"),
        ("Effort", result.asked.effort),
        ("Seed", str(result.asked.seed)),
        ("Sizes built and measured", str(len({trial.nbytes for trial in result.trials}))),
        ("Made with", f"penjing {penjing.__version__}, torch {version('torch')}"),
        ("Python", platform.python_version()),
    ]


def notices(result: ShrinkResult) -> list[str]:
    """Everything that was noticed on the way, once, less what is told beside the table of what was kept."""
    told = set(result.report.notices)
    return [numbers.sentence(notice) for notice in dict.fromkeys(result.notices) if notice not in told]
