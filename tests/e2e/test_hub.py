"""A model by its hub id, through the command; the hub is a stand-in on this machine."""

import json
import os
import pty
import subprocess

import pytest
from tests.e2e.command import PENJING, environment, run
from tests.unit.hub_server import Repo, environment_for, files_of, serving


@pytest.fixture(scope="module")
def hub(tiny):
    with serving() as stand_in:
        stand_in.repos["org/tiny"] = Repo({"main": files_of(tiny)})
        yield stand_in


def test_a_hub_id_is_shown_without_its_weights_then_fetched_and_then_needs_no_hub(hub, tiny, tmp_path):
    here = environment_for(hub, tmp_path)
    shown, local = (run("show", ref, "--json", **here) for ref in ("org/tiny", tiny))
    assert shown.returncode == 0 and shown.stderr == ""
    facts, expected = json.loads(shown.stdout), json.loads(local.stdout)
    (notice,) = facts["notices"]
    assert hub.repos["org/tiny"].commit("main") in notice
    assert facts["bytes_by_storage"] == expected["bytes_by_storage"] and facts["model"] == "org/tiny"
    assert "config.json" in hub.fetched and "model.safetensors" not in hub.fetched
    ask = ("--prompt", "leaf", "--temperature", 0, "--max-tokens", 4)
    first = run("chat", "org/tiny", *ask, **here)
    assert first.returncode == 0 and first.stderr == f"note: {notice}\n"
    assert hub.fetched.count("model.safetensors") == 1
    offline = run("chat", "org/tiny@main", *ask, **here | {"HF_HUB_OFFLINE": "1"})
    assert offline.stdout == first.stdout == run("chat", tiny, *ask).stdout
    assert offline.stderr.startswith("note: HF_HUB_OFFLINE is set") and offline.stderr.count("\n") == 1


def test_every_other_verb_takes_a_hub_id(hub, text, tmp_path):
    here = environment_for(hub, tmp_path / "home")
    quick = ("--tokens", 256, "--choice-items", 0, "--text", text)
    bench = ("--batch", 1, "--prompt-tokens", 4, "--new-tokens", 2, "--repeats", 1)
    shrink = ("-o", tmp_path / "small", "--to", "1/2", "--effort", "fast", "--text", text)
    for verb, *more in (
        ("eval", *quick, "--against", "org/tiny@main"),
        ("bench", *bench),
        ("save", "-o", tmp_path / "org"),
        ("shrink", *shrink),
    ):
        done = run(verb, "org/tiny", *more, "--json", **here)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) and "commit" in done.stderr


def test_a_name_that_is_neither_here_nor_on_the_hub_is_one_sentence_of_both(hub, tmp_path):
    done = run("chat", "models/foo", "--prompt", "hi", **environment_for(hub, tmp_path))
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1
    assert "no file or folder 'models/foo'" in done.stderr and "no repository models/foo" in done.stderr


def test_a_terminal_sees_the_bytes_come(hub, tmp_path):
    terminal, theirs = pty.openpty()
    done = subprocess.run(
        [PENJING, "save", "org/tiny", "-o", tmp_path / "out", "--json"],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=environment(TERM="xterm", **environment_for(hub, tmp_path)),
    )
    os.close(theirs)
    seen = os.read(terminal, 65_536)
    os.close(terminal)
    assert b"fetching org/tiny" in seen and b"100%" in seen
    assert done.returncode == 0 and json.loads(done.stdout)


def test_a_model_that_cant_be_opened_is_refused_before_it_is_fetched(hub, tiny, tmp_path):
    unknown = files_of(tiny) | {"config.json": b'{"model_type": "something-new"}'}
    hub.repos["org/other"] = Repo({"main": unknown})
    hub.asked.clear()
    done = run("chat", "org/other", "--prompt", "hi", **environment_for(hub, tmp_path))
    assert done.returncode == 2 and "something-new" in done.stderr and done.stderr.count("\n") == 1
    assert "model.safetensors" not in hub.fetched
