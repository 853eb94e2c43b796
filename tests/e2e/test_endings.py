"""How the command ends early: for want of memory, by a signal, by a closed pipe, by a bug."""

import json
import os
import pty
import signal
import subprocess
import sys

import pytest
from tests.e2e.command import PENJING, environment

from penjing.cli.failures import describe
from penjing.formats import hf_writer

SAVING = "penjing.model.saving.write_safetensors_shards"


def ended_under(kilobytes, *arguments):
    """Run with an address space of so many kilobytes."""
    command = ["bash", "-c", f'ulimit -v {kilobytes}; exec "$@"', "bash", PENJING, *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, encoding="utf-8", env=environment(OMP_NUM_THREADS="1")
    )


def test_too_little_memory_exits_3_with_the_stage_and_a_remedy(tiny):
    done = ended_under(300_000, "chat", tiny, "--prompt", "leaf")
    assert done.returncode == 3 and done.stdout == ""
    assert done.stderr.startswith("error: memory ran out while loading") and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("verb", "stage"),
    [(("shrink", "--to", "1/2", "-o", "out"), "shrinking"), (("eval",), "loading"), (("chat",), "loading")],
    ids=["shrink", "eval", "chat"],
)
def test_memory_that_would_not_do_is_said_before_torch_is_there(tiny, tmp_path, verb, stage):
    code = (
        "import sys, penjing.memory\n"
        "penjing.memory.available_memory = lambda: 100_000\n"
        "from penjing.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n"
        "    print('torch' in sys.modules, end.code)\n"
    )
    call = [sys.executable, "-c", code, verb[0], str(tiny), *verb[1:]]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, encoding="utf-8", check=False)
    assert f"{stage} {tiny} needs" in done.stderr and "are free" in done.stderr
    assert done.stdout.split() == ["False", "3"]


def test_a_model_that_would_not_fit_is_refused_with_both_numbers(call, monkeypatch, tiny):
    monkeypatch.setattr("penjing.memory.available_memory", lambda: 100_000)
    ended = call("chat", tiny, "--prompt", "leaf")
    assert ended.code == 3 and ended.err.count(" MB") == 2


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (MemoryError(), 3, "memory ran out while loading m; buy some"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 12 bytes"), 3, "memory ran out"),
        (ImportError("libx.so: failed to map segment from shared object"), 3, "memory ran out"),
        (OSError(12, "Cannot allocate memory"), 3, "memory ran out"),
        (OSError(28, "No space left on device"), 3, "disk filled up while loading m"),
        (PermissionError(13, "Permission denied", "/x"), 2, "/x: Permission denied"),
        (ValueError("odd\nthing"), 70, "unexpected ValueError while loading m: odd thing"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_every_failure_is_one_sentence_and_a_code(error, code, words):
    sentence, found = describe(error, "loading m", "buy some")
    assert found == code and words in sentence and "\n" not in sentence


def test_an_unknown_failure_is_called_a_bug_and_debug_shows_where(call, monkeypatch, tiny):
    def fail(*_):
        raise ZeroDivisionError("one by nought")

    monkeypatch.setattr("penjing.model.opening.plan_load", fail)
    ended = call("show", tiny)
    assert ended.code == 70 and "bug" in ended.err and "Traceback" not in ended.err
    assert "Traceback" in call("show", tiny, "--debug").err


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["interrupt", "terminate"]
)
def test_a_signal_while_writing_leaves_nothing_half_written(call, monkeypatch, tiny, tmp_path, number, code):
    def interrupted(folder, *_):
        (folder / "model.safetensors").write_bytes(b"half")
        signal.raise_signal(number)

    monkeypatch.setattr(SAVING, interrupted)
    before = signal.getsignal(number)
    ended = call("save", tiny, "-o", tmp_path / "out")
    assert ended.code == code and "Traceback" not in ended.err
    assert not list(tmp_path.iterdir())
    assert signal.getsignal(number) == before


def test_a_signal_that_nohup_ignores_stays_ignored(call, monkeypatch, tiny, tmp_path):
    write = hf_writer.write_safetensors_shards

    def hung_up(folder, tensors, *more):
        signal.raise_signal(signal.SIGHUP)
        return write(folder, tensors, *more)

    monkeypatch.setattr(SAVING, hung_up)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert call("save", tiny, "-o", tmp_path / "out").code == 0
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_full_disk_exits_3_and_leaves_nothing(call, monkeypatch, tiny, tmp_path):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(SAVING, full)
    ended = call("save", tiny, "-o", tmp_path / "out")
    assert ended.code == 3 and "disk" in ended.err
    assert not list(tmp_path.iterdir())


def test_a_reader_that_goes_away_is_no_error_message(tiny):
    with subprocess.Popen(
        [PENJING, "show", tiny], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdout and process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_a_terminal_sees_a_bar_and_json_stays_clean(tiny):
    terminal, theirs = pty.openpty()
    done = subprocess.run(
        [PENJING, "chat", tiny, "--prompt", "leaf", "--max-tokens", "2", "--json"],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=environment(TERM="xterm"),
    )
    os.close(theirs)
    seen = os.read(terminal, 65_536)
    os.close(terminal)
    assert b"loading" in seen and b"%" in seen
    assert "text" in json.loads(done.stdout)


def test_threads_are_set(tiny):
    program = f"from penjing.cli import main\ntry: main(['show', {str(tiny)!r}, '--threads', '1'])\n"
    program += "except SystemExit: import torch; print(torch.get_num_threads())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, encoding="utf-8")
    assert done.stdout.splitlines()[-1] == "1"
