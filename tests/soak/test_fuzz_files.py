"""Whatever the bytes of a file, opening and reading it works or ends in a PenjingError, in little memory."""

import json
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.soak.fuzzing import anything, extreme, keep_trying, nothing_but_clear_refusals, scalars, soak
from tests.unit.formats_files import gguf_file, hf_folder, raw_safetensors

from penjing.formats.hf_folder import INDEX, WEIGHTS
from penjing.formats.open import open_checkpoint
from penjing.formats.safetensors_file import DTYPES

MEMORY_LIMIT = 50_000_000
edits = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=9)), max_size=4)
fields = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), extreme), min_size=1, max_size=3)


def open_and_read(path: Path) -> None:
    tracemalloc.start()
    try:
        with nothing_but_clear_refusals():
            checkpoint = open_checkpoint(path)
            for name, info in checkpoint.tensors.items():
                assert tuple(checkpoint.read(name).shape) == info.shape
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < MEMORY_LIMIT


def edited(data: bytes, changes: list[tuple[float, bytes]], keep: float = 1.0) -> bytes:
    """`data` with bytes overwritten at relative places, cut to the share `keep`."""
    result = bytearray(data)
    for place, new in changes:
        at = int(place * len(data))
        result[at : at + len(new)] = new
    return bytes(result[: round(keep * len(result))])


@pytest.fixture(scope="module")
def gguf_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return gguf_file(tmp_path_factory.mktemp("gguf") / "m.gguf").read_bytes()


@pytest.fixture(scope="module")
def safetensors_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return (hf_folder(tmp_path_factory.mktemp("hf") / "m") / WEIGHTS).read_bytes()


@keep_trying(1 / 3)
@soak
@given(edits, st.floats(0.1, 1))
def test_a_gguf_file_with_any_bytes_changed(tmp_path: Path, gguf_bytes: bytes, changes, keep):
    (tmp_path / "m.gguf").write_bytes(edited(gguf_bytes, changes, keep))
    open_and_read(tmp_path / "m.gguf")


@keep_trying(1 / 3)
@soak
@given(fields, st.sampled_from(["<I", "<Q"]))
def test_a_gguf_header_with_any_field_made_extreme(tmp_path: Path, gguf_bytes: bytes, places, code: str):
    mask = 2 ** (8 * struct.calcsize(code)) - 1
    # The first third of the file is its header.
    changes = [(place / 3, struct.pack(code, value & mask)) for place, value in places]
    (tmp_path / "m.gguf").write_bytes(edited(gguf_bytes, changes))
    open_and_read(tmp_path / "m.gguf")


@keep_trying(1 / 2)
@soak
@given(edits, st.floats(0, 1))
def test_a_safetensors_file_with_any_bytes_changed(tmp_path: Path, safetensors_bytes: bytes, changes, keep):
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    (tmp_path / WEIGHTS).write_bytes(edited(safetensors_bytes, changes, keep))
    open_and_read(tmp_path)


counts = st.lists(st.one_of(st.integers(0, 4), extreme, scalars), max_size=5)
entries = st.one_of(
    anything,
    st.fixed_dictionaries(
        {
            "dtype": st.sampled_from([*DTYPES, "F3"]),
            "shape": st.one_of(counts, anything),
            "data_offsets": st.one_of(st.lists(st.integers(0, 16), min_size=2, max_size=2), counts, anything),
        }
    ),
)


@keep_trying(1 / 2)
@soak
@given(st.dictionaries(st.text(), entries, max_size=3), st.integers(0, 16))
def test_a_safetensors_header_of_any_json(tmp_path: Path, header: dict[str, Any], nbytes: int):
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    raw_safetensors(tmp_path / WEIGHTS, header, bytes(nbytes))
    open_and_read(tmp_path)


names = st.one_of(st.text(), st.sampled_from(["a.weight", "b.weight", "c.codes"]))
files = st.one_of(
    anything, st.sampled_from([WEIGHTS, "../" + WEIGHTS, "\0.safetensors", "x" * 300 + ".safetensors"])
)


@keep_trying()
@soak
@given(st.one_of(anything, st.fixed_dictionaries({"weight_map": st.dictionaries(names, files, max_size=3)})))
def test_an_index_of_any_json(tmp_path: Path, safetensors_bytes: bytes, index: Any):
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    (tmp_path / WEIGHTS).write_bytes(safetensors_bytes)
    (tmp_path / INDEX).write_text(json.dumps(index), encoding="utf-8")
    open_and_read(tmp_path)


@keep_trying(1 / 2)
@soak
@given(st.one_of(st.binary(max_size=40), anything.map(lambda value: json.dumps(value).encode("utf-8"))))
def test_a_config_of_any_bytes(tmp_path: Path, safetensors_bytes: bytes, config: bytes):
    (tmp_path / "config.json").write_bytes(config)
    (tmp_path / WEIGHTS).write_bytes(safetensors_bytes)
    open_and_read(tmp_path)
