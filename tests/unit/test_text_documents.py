"""Documents from files, and the text that Python carries."""

import re
from pathlib import Path

import pytest

from penjing.errors import InputError
from penjing.text.documents import builtin_documents, read_documents


def written(tmp_path: Path, data: bytes, name: str = "text.txt") -> Path:
    path = tmp_path / name
    path.write_bytes(data)
    return path


def test_a_line_with_only_a_form_feed_parts_documents(tmp_path: Path) -> None:
    path = written(tmp_path, b"one\n\ntwo\n\f\nthree \f four\n\f\n\n\f\n")
    assert read_documents(path) == ["one\n\ntwo", "three \f four"]


def test_line_ends_and_a_byte_order_mark_are_evened_out(tmp_path: Path) -> None:
    assert read_documents(written(tmp_path, "\ufeffä\r\nb\rc\r\n\f\r\nd".encode())) == ["ä\nb\nc", "d"]


def test_each_json_line_is_a_document(tmp_path: Path) -> None:
    path = written(tmp_path, '{"text": "ä\\n\\fb"}\n\n{"text": "c", "id": 1}\n'.encode(), "a.jsonl")
    assert read_documents(path) == ["ä\n\fb", "c"]


@pytest.mark.parametrize("line", ["nonsense", "[]", '{"text": 5}', '{"content": "x"}', "[" * 100_000])
def test_a_json_line_without_a_text_is_named(line: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Line 2 of"):
        read_documents(written(tmp_path, f'{{"text": "a"}}\n{line}\n'.encode(), "a.jsonl"))


def test_half_a_surrogate_pair_in_a_json_line_is_named(tmp_path: Path) -> None:
    data = b'{"text": "\\ud83d\\ude00"}\n{"text": "ab\\ud800"}\n'
    with pytest.raises(InputError, match=r"Line 2 of .*surrogate.* character 2"):
        read_documents(written(tmp_path, data, "a.jsonl"))
    assert read_documents(written(tmp_path, data.splitlines()[0], "a.jsonl")) == ["\N{GRINNING FACE}"]


def test_bytes_that_are_no_utf_8_are_named_with_their_place_and_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"byte 3 is 0xe9.*convert"):
        read_documents(written(tmp_path, b"caf\xe9"))


@pytest.mark.parametrize("data", [b"", b" \n\t\n", b"\f\n\f\n"])
def test_a_blank_file_is_refused(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no text"):
        read_documents(written(tmp_path, data))


def test_a_folder_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        read_documents(tmp_path)
    with pytest.raises(InputError, match="can't be read"):
        read_documents(tmp_path / "none.txt")


def test_pythons_own_text_is_plenty_clean_and_the_same_each_time() -> None:
    documents = builtin_documents()
    assert sum(map(len, documents)) > 1_500_000
    assert len(documents) > 200
    assert min(map(len, documents)) >= 400
    assert documents == builtin_documents()
    paragraphs = [" ".join(p.split()) for text in documents for p in re.split(r"\n\s*\n", text)]
    assert len(set(paragraphs)) == len(paragraphs)
    assert not any(re.search("copyright|all rights reserved", text, re.IGNORECASE) for text in paragraphs)
