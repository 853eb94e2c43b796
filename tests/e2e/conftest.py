"""One tiny model, one text and one shrunk model for all tests of the command."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.e2e.command import run
from tests.e2e.models import train, write_model, write_text

from penjing.cli import main


class Ended(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def call(capfd) -> Callable[..., Ended]:
    """Run the command in this process, which spares the second that it takes to import torch."""

    def ended(*arguments: object) -> Ended:
        with pytest.raises(SystemExit) as exit_:
            main([str(argument) for argument in arguments])
        code = exit_.value.code
        assert isinstance(code, int)
        return Ended(code, *capfd.readouterr())

    return ended


@pytest.fixture(scope="session")
def tiny(tmp_path_factory, text) -> Path:
    return train(write_model(tmp_path_factory.mktemp("models") / "tiny"), text)


@pytest.fixture(scope="session")
def text(tmp_path_factory) -> Path:
    return write_text(tmp_path_factory.mktemp("texts") / "garden.txt")


@pytest.fixture(scope="session")
def shrinking(tiny, text):
    """The finished process of one shrink with --json, and the folder that it wrote."""
    out = tiny.parent / "small"
    return run("shrink", tiny, "-o", out, "--to", "1/2", "--effort", "fast", "--text", text, "--json"), out


@pytest.fixture(scope="session")
def small(shrinking) -> Path:
    done, out = shrinking
    assert done.returncode == 0, done.stderr
    return out
