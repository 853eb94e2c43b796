"""Whatever a hub id says and a repository lists, no name leads out of its folder;
a file of any bytes opens on the hub as it would open here."""

import json
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.soak.fuzzing import anything, keep_trying, nothing_but_clear_refusals, soak
from tests.unit.formats_files import gguf_file, hf_folder

from penjing.errors import PenjingError
from penjing.formats.hf_folder import CONFIG, INDEX, WEIGHTS
from penjing.formats.hub_file import HubFile
from penjing.formats.hub_files import gguf_files, small_files, weight_files
from penjing.formats.open import open_checkpoint
from penjing.formats.reference import HubReference, read_reference

HUB = HubReference("org/tiny")
parts = st.sampled_from([
    *("..", ".", "", "/", "\\", ":", "\0", "%2e%2e", "@", "--", "org", "tiny", "Q4_K_M", "~", "é", "\n"),
    *("-00001-of-00002", "-00002-of-00002", ".gguf", ".safetensors", ".tiktoken", ".jinja", ".git"),
    *("config.json", "model.safetensors", "additional_chat_templates/", "main", "refs/pr/1"),
])  # fmt: skip
names = st.lists(parts | st.text(max_size=3), max_size=6).map("".join)


def stays_inside(name: str) -> bool:
    """Whether a file of this name, and one that Windows would understand by it, lies below its folder."""
    path = PurePosixPath(name)
    odd = {"..", ".", ""} & {*name.split("/")} or any(sign in name for sign in "\\:\0")
    return not path.is_absolute() and not odd


@keep_trying(1 / 4)
@soak
@given(st.lists(names, max_size=4).map("/".join) | names)
def test_a_hub_id_of_any_text(text: str):
    with nothing_but_clear_refusals():
        found = read_reference(text)
        if isinstance(found, HubReference):
            assert str(found) == text and read_reference(str(found)) == found
            assert stays_inside(found.repo) and stays_inside(found.file or "x")
            assert ".." not in (found.revision or "") and not (found.revision or "x").startswith("/")


@keep_trying(1 / 4)
@soak
@given(st.sets(names, max_size=8), st.none() | names, anything | st.dictionaries(names, names, max_size=3))
def test_a_list_of_any_names(tmp_path: Path, listed: set[str], file: str | None, weight_map: object):
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": weight_map}), encoding="utf-8")
    listed |= {CONFIG}
    chosen: list[str] = [*small_files(listed)]
    with nothing_but_clear_refusals():
        chosen += gguf_files(HubReference("org/tiny", file), listed)
        chosen += weight_files(HUB, listed, tmp_path)
    assert {*chosen} <= listed and all(map(stays_inside, chosen))


class Sent(HubFile):
    """A file on the hub whose bytes need no hub."""

    def __init__(self, path: Path, data: bytes) -> None:
        super().__init__(HUB, "0" * 40, path.name, path, len(data))
        self.data = data

    def _ask(self, offset: int, nbytes: int) -> bytearray:
        return bytearray(self.data[offset : offset + nbytes])


edits = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=9)), max_size=3)


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("files")
    return {
        "m.gguf": gguf_file(folder / "m.gguf").read_bytes(),
        WEIGHTS: (hf_folder(folder / "m") / WEIGHTS).read_bytes(),
    }


def outcome(path: Path, elsewhere: dict[str, HubFile]) -> object:
    """What opening gives: where each tensor lies, or the refusal."""
    try:
        return dict(open_checkpoint(path, elsewhere).tensors)
    except PenjingError as error:
        return str(error)


@keep_trying(1 / 2)
@soak
@given(st.sampled_from(["m.gguf", WEIGHTS]), edits, st.floats(0.1, 1))
def test_a_file_of_any_bytes(tmp_path: Path, contents: dict[str, bytes], name: str, changes, keep):
    data = bytearray(contents[name])
    for place, new in changes:
        at = int(place * len(data))
        data[at : at + len(new)] = new
    data = bytes(data[: round(keep * len(data))])
    (tmp_path / CONFIG).write_text("{}", encoding="utf-8")
    (tmp_path / name).unlink(missing_ok=True)
    path = tmp_path / name if name == "m.gguf" else tmp_path
    there = outcome(path, {name: Sent(tmp_path / name, data)})
    (tmp_path / name).write_bytes(data)
    here = outcome(path, {})
    (tmp_path / name).unlink()
    if (
        data[:4] == b"GGUF" or name == WEIGHTS
    ):  # else the refusal says which kind of file it is, if it is known
        assert there == here
    else:
        assert isinstance(there, str) and isinstance(here, str)
