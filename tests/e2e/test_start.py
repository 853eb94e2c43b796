"""Before a verb does its work: help, version and wrong options are quick and light."""

import subprocess
import sys

import pytest
from tests.e2e.command import PENJING, environment, run

from penjing import __version__

HEAVY = {"torch", "numpy", "tokenizers", "transformers", "rich", "gguf", "jinja2", "huggingface_hub"}
VERBS = ["show", "chat", "shrink", "eval", "save", "bench"]
LIGHT = [
    [],
    ["--help"],
    ["--version"],
    ["--no-such-option"],
    *([verb, "--help"] for verb in VERBS),
    ["shrink", "model", "--no-such-option"],
    ["shrink", "model", "-o", "out"],
    ["shrink", "model", "-o", "out", "--keep", "most of it"],
    ["chat", "model", "--json"],
    ["bench", "model", "--batch", "many"],
    ["save", "model", "-o", "out", "--as", "gguf"],
    ["show", "nowhere"],
    ["chat", "nowhere", "--prompt", "hi"],
    ["shrink", "nowhere", "-o", "out", "--to", "1/4"],
    ["eval", "nowhere"],
    ["eval", ".", "--against", "./nowhere"],
    ["save", "nowhere", "-o", "out"],
    ["bench", "nowhere"],
]


@pytest.mark.parametrize("arguments", LIGHT, ids=" ".join)
def test_nothing_heavy_is_imported_before_there_is_work(arguments):
    program = "import atexit, sys; atexit.register(lambda: print('IMPORTED', *sys.modules, file=sys.stderr));"
    program += f"from penjing.cli import main; main({arguments!r})"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, encoding="utf-8", env=environment()
    )
    imported = done.stderr.rpartition("IMPORTED")[2].split()
    assert "penjing.cli.app" in imported
    assert not HEAVY.intersection(imported)


def test_help_names_every_verb_in_plain_ascii():
    done = run("--help")
    assert done.returncode == 0 and done.stdout.isascii()
    assert all(f"\n  {verb} " in done.stdout for verb in VERBS)


def test_version():
    assert run("--version").stdout == f"penjing {__version__}\n"


def test_python_m_is_the_same_command():
    done = subprocess.run([sys.executable, "-m", "penjing", "--help"], capture_output=True, encoding="utf-8")
    assert done.stdout == run("--help").stdout
    assert PENJING.exists()


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["show", "model", "--jsno"], "--json"),
        (["shw", "model"], "show"),
        (["show"], "MODEL"),
        (["shrink", "model", "--to", "1/4"], "--out"),
        (["shrink", "model", "-o", "out", "--effort", "some"], "fast"),
        (["save", "model", "-o", "out", "--dtype", "int8"], "bf16"),
        (["chat", "model", "--temperature", "warm"], "--temperature"),
        (["show", "model", "--threads", "0"], "--threads"),
        (["shrink", "model", "-o", "out"], "--to"),
        (["shrink", "model", "-o", "out", "--to", "1/4", "--seed", "-1"], "--seed"),
        (["eval", "model", "--seed", str(2**63)], "--seed"),
        (["shrink", "model", "-o", "out", "--keep", "most of it"], "95%"),
        (["chat", "model", "--json"], "--prompt"),
        (["bench", "model", "--batch", "1,x"], "1,4,16"),
        (["save", "model", "-o", "out", "--as", "gptq"], "penjing shrink --as gptq"),
        (["save", "model", "-o", "out", "--as", "onnx"], "use hf"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_wrong_call_exits_2_with_a_hint(call, arguments, hint):
    ended = call(*arguments)
    assert ended.code == 2 and ended.out == ""
    assert hint in ended.err
