"""One function opens whatever a path leads to, by its content, and says clearly what it can't open."""

import os
import zipfile
from pathlib import Path

import pytest
from tests.unit.formats_files import gguf_file, hf_folder, raw_gguf

from penjing.errors import InputError, PenjingError, UnsupportedError
from penjing.formats.hf_writer import write_json, write_safetensors
from penjing.formats.open import open_checkpoint


def test_a_folder_opens_as_hugging_faces(tmp_path: Path):
    assert open_checkpoint(str(hf_folder(tmp_path / "m"))).kind == "hf"


@pytest.mark.parametrize("name", ["m.gguf", "blob", "m.safetensors"])
def test_a_gguf_file_is_known_by_its_content(tmp_path: Path, name: str):
    assert open_checkpoint(gguf_file(tmp_path / name)).kind == "gguf"


@pytest.mark.parametrize("ref", ["missing", "a/b/c", "x" * 5000, "nul\0byte", "/dev/null/x"])
def test_a_path_that_leads_nowhere_is_named(ref: str, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"There is no file|can't be opened"):
        open_checkpoint(ref)


def test_what_is_neither_file_nor_folder_is_refused_without_reading_it(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(InputError, match="neither a folder nor a regular file"):
            open_checkpoint(path)


FILES: dict[str, tuple[bytes, type[PenjingError], str]] = {
    "empty": (b"", InputError, "is empty"),
    "empty.gguf": (b"", InputError, "is empty"),
    "pointer.gguf": (b"version https://git-lfs.github.com/spec/v1\n", InputError, "git lfs pull"),
    "page.gguf": (b"<html>", InputError, "isn't a GGUF file: it begins with b'<htm'"),
    "lone.safetensors": (b"\x02\0\0\0\0\0\0\0{}", InputError, "give the folder that holds it"),
    "pytorch_model.bin": (b"PK\x03\x04", UnsupportedError, "a pickle can run code"),
    "old.pth": (b"\x80\x02", UnsupportedError, "a pickle can run code"),
    "notes.txt": (b"hello", UnsupportedError, "neither a GGUF file nor a folder"),
    "cut.gguf": (b"GGUF", InputError, "the version needs 4 bytes"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_checkpoint_says_what_it_is(tmp_path: Path, name: str):
    data, error, reason = FILES[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(error, match=reason):
        open_checkpoint(tmp_path / name)


def test_a_zipped_model_is_to_be_unpacked(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "model.zip", "w") as archive:
        archive.writestr("config.json", "{}")
    with pytest.raises(UnsupportedError, match="unpack it"):
        open_checkpoint(tmp_path / "model.zip")


def test_a_checkpoint_without_tensors_is_no_model(tmp_path: Path):
    write_json(tmp_path / "config.json", {})
    write_safetensors(tmp_path / "model.safetensors", {}, {})
    for path in (tmp_path, raw_gguf(tmp_path / "m.gguf")):
        with pytest.raises(InputError, match="holds no tensors"):
            open_checkpoint(path)
