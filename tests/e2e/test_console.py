"""Locales and consoles: files are UTF-8 whatever the locale, and output degrades rather than fails."""

import json

import pytest
from tests.e2e.command import run
from tests.e2e.models import write_model, write_text

# No UTF-8 mode, no coercion: Python believes the locale.
PLAIN_C = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.fixture(scope="module")
def accented(tmp_path_factory):
    """A model in a folder with blanks and accents, and a text beside it."""
    folder = tmp_path_factory.mktemp("mod\u00e8les \u00e0 moi")
    return write_model(folder / "\u76c6\u666f petit"), write_text(folder / "\u00e9t\u00e9.txt")


def test_no_file_is_read_in_the_locale_s_encoding(accented):
    model, text = accented
    out = model.parent / "r\u00e9duit"
    arguments = ("shrink", model, "-o", out, "--to", "1/2", "--effort", "fast", "--text", text, "--json")
    done = run(*arguments, **PLAIN_C, PYTHONWARNDEFAULTENCODING="1")
    assert done.returncode == 0, done.stderr
    warnings = [line for line in done.stderr.splitlines() if "EncodingWarning" in line]
    assert not [line for line in warnings if "/penjing/" in line]
    assert (out / "report.html").exists() and json.loads(done.stdout)["bytes"] > 0


def test_what_the_console_cannot_print_becomes_a_question_mark(accented):
    model, _ = accented
    done = run("show", model, **PLAIN_C)
    assert done.returncode == 0 and "? petit" in done.stdout


def test_a_prompt_in_a_c_locale_is_the_prompt_in_utf_8(accented):
    model, _ = accented
    ask = ("chat", model, "--prompt", "Z\u00fcrich \u76c6", "--temperature", 0, "--max-tokens", 4, "--json")
    narrow, wide = (json.loads(run(*ask, **env).stdout) for env in (PLAIN_C, {"LC_ALL": "C.UTF-8"}))
    assert narrow["text"] == wide["text"] and narrow["prompt_tokens"] == wide["prompt_tokens"]


def test_a_conversation_in_a_c_locale_is_read_as_utf_8(accented):
    model, _ = accented
    once = run("chat", model, "--prompt", "Z\u00fcrich", "--temperature", 0, "--max-tokens", 4, **PLAIN_C)
    piped = run("chat", model, "--temperature", 0, "--max-tokens", 4, text_in="Z\u00fcrich\n", **PLAIN_C)
    assert piped.returncode == 0 and piped.stdout == once.stdout
