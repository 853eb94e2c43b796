"""Failures that people met with tokenizers, chat templates and text files."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.text_samples import CHAT_TEMPLATE, byte_level_backend, gguf_metadata, write_folder
from tokenizers import AddedToken, Tokenizer, normalizers
from transformers import AutoTokenizer

from penjing.errors import InputError
from penjing.text.folder_tokenizer import tokenizer_from_folder
from penjing.text.gguf_tokenizer import tokenizer_from_gguf
from penjing.text.passages import passages

CHAT = [{"role": "user", "content": "hi"}]
RENDERED = "<s><|user|>hi<|end|><|assistant|>"


# The chat template kept in its own file, or only in GGUF metadata


def test_a_template_only_in_its_own_file_is_found_and_kept(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "a", byte_level_backend())
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
    tokenizer = tokenizer_from_folder(folder)
    assert tokenizer.chat_text(CHAT) == RENDERED
    tokenizer.save(tmp_path / "b")
    assert tokenizer_from_folder(tmp_path / "b").chat_template == CHAT_TEMPLATE
    assert AutoTokenizer.from_pretrained(tmp_path / "b").chat_template == CHAT_TEMPLATE


def test_a_template_only_in_chat_template_json_is_found_and_kept(tmp_path: Path) -> None:
    folder = write_folder(
        tmp_path / "a", byte_level_backend(), chat_template={"chat_template": CHAT_TEMPLATE}
    )
    tokenizer = tokenizer_from_folder(folder)
    assert tokenizer.chat_text(CHAT) == RENDERED
    tokenizer.save(tmp_path / "b")
    assert tokenizer_from_folder(tmp_path / "b").chat_template == CHAT_TEMPLATE


def test_a_template_of_chat_template_json_gives_way_to_the_file_and_it_is_told(tmp_path: Path) -> None:
    folder = write_folder(
        tmp_path, byte_level_backend(), {"chat_template": "a"}, chat_template={"chat_template": "b"}
    )
    assert tokenizer_from_folder(folder).chat_template == "b"
    (folder / "chat_template.jinja").write_text("c", encoding="utf-8")
    tokenizer = tokenizer_from_folder(folder)
    assert tokenizer.chat_template == "c"
    assert "chat_template.jinja; chat_template.json has another one" in " ".join(tokenizer.notices)


def test_a_template_only_in_gguf_metadata_is_found_and_kept(tmp_path: Path) -> None:
    metadata = gguf_metadata(byte_level_backend()) | {"tokenizer.chat_template": CHAT_TEMPLATE}
    tokenizer = tokenizer_from_gguf(metadata)
    assert tokenizer.chat_text(CHAT) == RENDERED
    tokenizer.save(tmp_path)
    assert AutoTokenizer.from_pretrained(tmp_path).chat_template == CHAT_TEMPLATE


def test_a_base_model_refuses_chats_and_says_what_to_do_instead(tmp_path: Path) -> None:
    tokenizer = tokenizer_from_folder(write_folder(tmp_path, byte_level_backend()))
    assert tokenizer.chat_template is None
    with pytest.raises(InputError, match=r"base model.*no chat template.*raw text"):
        tokenizer.chat_ids(CHAT)


# Special tokens with strip or normalise flags

FLAGGED = (
    AddedToken("<r>", rstrip=True, special=True, normalized=False),
    AddedToken("<l>", lstrip=True, special=True, normalized=False),
    AddedToken("<N>", normalized=True, special=True),
    AddedToken("<w>", single_word=True, special=True, normalized=False),
)
BLANKS = ["", " ", "  ", "\t", "\n", " \n "]
AROUND_FLAGGED = [
    text
    for token in ("<r>", "<l>", "<N>", "<n>", "<w>")
    for blank in BLANKS
    for text in (f"a{blank}{token}{blank}B", f"{blank}{token}{blank}{token}", f"{token}<r>{blank}<l>{token}")
]


def flagged_backend() -> Tokenizer:
    backend = byte_level_backend()
    backend.normalizer = normalizers.Lowercase()
    backend.add_tokens(list(FLAGGED))
    return backend


def test_flags_of_special_tokens_give_the_reference_ids_from_a_folder_and_after_saving(
    tmp_path: Path,
) -> None:
    tokenizer = tokenizer_from_folder(write_folder(tmp_path / "a", flagged_backend()))
    tokenizer.save(tmp_path / "b")
    again = tokenizer_from_folder(tmp_path / "b")
    reference, theirs = flagged_backend(), AutoTokenizer.from_pretrained(tmp_path / "b")
    for text in AROUND_FLAGGED:
        expected = reference.encode(text).ids
        assert tokenizer.encode(text) == again.encode(text) == theirs.encode(text) == expected
        assert tokenizer.encode_batch([text, text]) == [expected, expected]


def test_flags_that_only_the_tokenizer_config_has_are_followed_as_transformers_follows_them(
    tmp_path: Path,
) -> None:
    backend = byte_level_backend()
    plain = [token.content for token in FLAGGED]
    backend.add_special_tokens(plain)
    listed = {
        str(backend.token_to_id(token.content)): {
            "content": token.content,
            "lstrip": token.lstrip,
            "rstrip": token.rstrip,
            "normalized": token.normalized,
            "single_word": token.single_word,
            "special": True,
        }
        for token in FLAGGED
    }
    folder = write_folder(tmp_path, backend, {"added_tokens_decoder": listed})
    ours, theirs = tokenizer_from_folder(folder), AutoTokenizer.from_pretrained(folder)
    for text in AROUND_FLAGGED:
        assert ours.encode(text) == theirs.encode(text)


def test_round_trips_do_not_grow_blanks_around_flagged_tokens(tmp_path: Path) -> None:
    tokenizer = tokenizer_from_folder(write_folder(tmp_path, flagged_backend()))
    for text in AROUND_FLAGGED:
        once = tokenizer.decode(tokenizer.encode(text), skip_special_tokens=False)
        twice = tokenizer.decode(tokenizer.encode(once), skip_special_tokens=False)
        assert once.count(" ") <= text.count(" ")
        assert twice == once


def test_phi_3s_tokens_take_the_blanks_after_them_although_gguf_keeps_no_flags() -> None:
    pieces = ["<unk>", "<s>", "<|end|>", "▁", "a"]
    metadata = {
        "general.architecture": "phi3",
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.scores": [0.0, 0.0, 0.0, -1.0, -2.0],
        "tokenizer.ggml.token_type": [2, 3, 3, 1, 1],
        "tokenizer.ggml.add_bos_token": False,
    }
    assert tokenizer_from_gguf(metadata).encode("<|end|> \n a<s> a") == [2, 3, 4, 1, 3, 3, 4]
    llama = metadata | {"general.architecture": "llama"}
    assert tokenizer_from_gguf(llama).encode("<|end|> a<s> a") == [2, 3, 3, 4, 1, 3, 3, 4]


def test_an_added_token_with_letters_beyond_ascii_is_decoded_as_it_is_written(tmp_path: Path) -> None:
    backend = byte_level_backend()
    backend.add_tokens([AddedToken("<é>", normalized=False)])
    tokenizer = tokenizer_from_folder(write_folder(tmp_path, backend))
    assert tokenizer.decode(tokenizer.encode("a<é>b")) == "a<é>b"


# The begin token doubled


@pytest.mark.parametrize("prints_bos", [True, False])
@pytest.mark.parametrize("adds_bos", [True, False])
def test_a_chat_begins_with_bos_once_whoever_gives_it(prints_bos: bool, adds_bos: bool) -> None:
    template = CHAT_TEMPLATE if prints_bos else CHAT_TEMPLATE.removeprefix("{{ bos_token }}")
    metadata = gguf_metadata(byte_level_backend(), add_bos_token=adds_bos)
    tokenizer = tokenizer_from_gguf(metadata | {"tokenizer.chat_template": template})
    assert tokenizer.add_bos == adds_bos
    ids = tokenizer.chat_ids(CHAT)
    expected = RENDERED if prints_bos or adds_bos else RENDERED.removeprefix("<s>")
    assert tokenizer.decode(ids, skip_special_tokens=False) == expected
    assert ids == tokenizer.encode(expected, add_special_tokens=False)


def test_a_prompt_and_passages_begin_with_bos_once_even_if_the_text_spells_it() -> None:
    tokenizer = tokenizer_from_gguf(gguf_metadata(byte_level_backend(), add_bos_token=True))
    bos = tokenizer.bos_id
    assert bos is not None
    for text in ("the quick fox", "<s>the quick fox"):
        ids = tokenizer.prompt_ids(text)
        assert ids == tokenizer.encode("the quick fox")
        assert ids.count(bos) == 1
        cut = passages(tokenizer, [text], length=8, limit_tokens=1_000, least=2)
        assert [passage[0] for passage in cut] == [bos] * len(cut)
        assert [id for passage in cut for id in passage[1:]] == ids[1:]


# Several end ids, only one honoured


@pytest.mark.parametrize(
    ("config", "generation", "expected"),
    [
        ({"eos_token_id": 2}, None, {1, 2}),
        ({"eos_token_id": [2, 3]}, None, {1, 2, 3}),
        (None, {"eos_token_id": [2, 4]}, {1, 2, 4}),
        ({"eos_token_id": 3}, {"eos_token_id": 2}, {1, 2, 3}),
        ({"eos_token_id": None}, {}, {1}),
        (None, None, {1}),
    ],
)
def test_end_ids_are_the_union_of_every_file(
    config: Any, generation: Any, expected: set[int], tmp_path: Path
) -> None:
    files = {"config": config, "generation_config": generation}
    given = {name: value for name, value in files.items() if value is not None}
    assert tokenizer_from_folder(write_folder(tmp_path, byte_level_backend(), **given)).end_ids == expected


def test_end_ids_that_the_tokenizer_lacks_are_left_out_and_named(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, byte_level_backend(), config={"eos_token_id": [2, 99_999]})
    tokenizer = tokenizer_from_folder(folder)
    assert tokenizer.end_ids == {1, 2}
    assert any("99999" in notice for notice in tokenizer.notices)


@pytest.mark.parametrize("value", ["2", True, 1.0, [1, None], -1, {"a": 1}])
def test_end_ids_that_are_no_ids_are_refused(value: Any, tmp_path: Path) -> None:
    folder = write_folder(tmp_path, byte_level_backend(), config={"eos_token_id": value})
    with pytest.raises(InputError, match="eos_token_id"):
        tokenizer_from_folder(folder)


def test_a_gguf_conversion_keeps_the_end_of_turn() -> None:
    backend = byte_level_backend()
    assert tokenizer_from_gguf(gguf_metadata(backend, eot_token_id=3)).end_ids == {1, 3}
    # Not named by the file, but <|end|> is there as a control token.
    assert tokenizer_from_gguf(gguf_metadata(backend)).end_ids == {1, 2}


def test_the_token_that_the_template_puts_after_an_answer_ends_it(tmp_path: Path) -> None:
    backend = byte_level_backend()
    folder = write_folder(tmp_path / "a", backend, {"chat_template": CHAT_TEMPLATE})
    assert tokenizer_from_folder(folder).end_ids == {1, backend.token_to_id("<|end|>")}
    metadata = gguf_metadata(backend, eot_token_id=1) | {"tokenizer.chat_template": CHAT_TEMPLATE}
    assert tokenizer_from_gguf(metadata).end_ids == {1, backend.token_to_id("<|end|>")}


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{{ m.content }}\n{% endfor %}",  # nothing after an answer
        "{% for m in messages %}{{ m.content }}.<|end|>{% endfor %}",  # not right after it
        "{{ raise_exception('no') }}",
        "{{ messages[0].content }}<|end|>",  # no answer in it
        "{% for m in",
    ],
)
def test_a_template_that_shows_no_end_of_a_turn_adds_none(template: str, tmp_path: Path) -> None:
    folder = write_folder(tmp_path, byte_level_backend(), {"chat_template": template})
    assert tokenizer_from_folder(folder).end_ids == {1}


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (["<|end|>", "<|return|>", "<|call|>"], {"<|return|>", "<|call|>"}),
        (["<|end|>", "<turn|>"], {"<|end|>", "<turn|>"}),
        (["[EOT]"], {"[EOT]", "<|end|>"}),
    ],
)
def test_control_tokens_known_to_end_turns_end_answers(tokens: list[str], expected: set[str]) -> None:
    backend = byte_level_backend()
    backend.add_special_tokens(tokens)
    ids = tokenizer_from_gguf(gguf_metadata(backend)).end_ids
    assert ids == {1, *(backend.token_to_id(token) for token in expected)}


# Merges written as pairs or as strings


def with_merges_as(folder: Path, layout: type) -> Path:
    file = folder / "tokenizer.json"
    value = json.loads(file.read_text(encoding="utf-8"))
    merges = value["model"]["merges"]
    assert merges and all(isinstance(pair, list) for pair in merges)
    value["model"]["merges"] = merges if layout is list else [" ".join(pair) for pair in merges]
    file.write_text(json.dumps(value), encoding="utf-8")
    return folder


def test_both_layouts_of_merges_give_the_same_ids_and_the_same_saved_file(tmp_path: Path) -> None:
    saved = []
    for layout in (list, str):
        folder = with_merges_as(write_folder(tmp_path / layout.__name__, byte_level_backend()), layout)
        tokenizer = tokenizer_from_folder(folder)
        tokenizer.save(tmp_path / "saved")
        saved.append((tmp_path / "saved" / "tokenizer.json").read_text(encoding="utf-8"))
    assert saved[0] == saved[1]


def test_a_byte_level_gguf_without_merges_is_refused() -> None:
    with pytest.raises(InputError, match=r"tokenizer\.ggml\.merges"):
        tokenizer_from_gguf(gguf_metadata(byte_level_backend(), merges=None))


# Files read in the system code page

EVERYTHING = """
import sys
from pathlib import Path
from penjing.text.documents import builtin_documents, read_documents
from penjing.text.folder_tokenizer import tokenizer_from_folder
folder = Path(sys.argv[1])
tokenizer = tokenizer_from_folder(folder)
tokenizer.save(folder / "copy")
assert tokenizer_from_folder(folder / "copy").encode("Größe 你好") == tokenizer.encode("Größe 你好")
assert tokenizer.chat_text([{"role": "user", "content": "你好"}]) == "« <|user|>你好"
assert read_documents(folder / "text.txt") == ["Größe 你好"]
builtin_documents()
"""


def test_files_are_utf_8_whatever_the_locale_and_no_encoding_warning_is_given(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "with space é", byte_level_backend())
    template = "« {% for message in messages %}<|{{ message.role }}|>{{ message.content }}{% endfor %}"
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    (folder / "text.txt").write_text("Größe 你好\n", encoding="utf-8")
    script = tmp_path / "script.py"
    script.write_text(EVERYTHING, encoding="utf-8")
    options = ["-X", "utf8=0", "-X", "warn_default_encoding", "-W", "error::EncodingWarning"]
    environment = {**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}
    result = subprocess.run(
        [sys.executable, *options, script, folder], env=environment, capture_output=True, check=False
    )
    assert (result.returncode, result.stderr) == (0, b"")


def test_a_fork_after_encoding_gives_no_warning_about_threads(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, byte_level_backend())
    script = """
import os, sys
from pathlib import Path
from penjing.text.folder_tokenizer import tokenizer_from_folder
tokenizer = tokenizer_from_folder(Path(sys.argv[1]))
tokenizer.encode_batch(["the quick fox"] * 64)
child = os.fork()
if child == 0:
    tokenizer.encode_batch(["the quick fox"] * 64)
    os._exit(0)
os.waitpid(child, 0)
"""
    environment = {key: value for key, value in os.environ.items() if key != "TOKENIZERS_PARALLELISM"}
    result = subprocess.run(
        [sys.executable, "-c", script, str(folder)], env=environment, capture_output=True, check=False
    )
    assert (result.returncode, result.stderr) == (0, b"")
