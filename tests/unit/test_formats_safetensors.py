"""A safetensors file is read as safetensors reads it, and refused with a reason where it is broken."""

import errno
import json
import mmap
import struct
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from tests.unit.formats_files import raw_safetensors

from penjing.errors import InputError, UnsupportedError
from penjing.formats import safetensors_file
from penjing.formats.mapped import MappedFile
from penjing.formats.safetensors_file import DTYPES, read_header, read_tensor


def entry(dtype: Any = "F32", shape: Any = (1,), offsets: Any = (0, 4)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_header(MappedFile(path))
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_every_dtype_reads_back_as_safetensors_wrote_it(tmp_path: Path):
    bits = torch.arange(64, dtype=torch.uint8)
    tensors = {name: bits.clone().view(getattr(torch, name)) for name, _ in DTYPES.values() if name != "bool"}
    tensors["BOOL"] = torch.tensor([True, False, True])
    tensors["scalar"] = torch.tensor(3.5)
    safetensors.torch.save_file(tensors, tmp_path / "x.safetensors")
    file = MappedFile(tmp_path / "x.safetensors")
    header = read_header(file)
    assert header.keys() == tensors.keys()
    for name, tensor in tensors.items():
        got = read_tensor(file, header[name])
        assert (got.dtype, got.shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(got.reshape(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8))
        assert header[name].nbytes == tensor.nbytes


def test_tensors_at_odd_offsets_are_read(tmp_path: Path):
    header = {"a": entry("U8", [1], [0, 1]), "b": entry("F32", [1], [1, 5])}
    file = MappedFile(raw_safetensors(tmp_path / "x", header, b"\x07" + struct.pack("<f", 1.5)))
    assert read_tensor(file, read_header(file)["b"]).tolist() == [1.5]


def test_writing_to_a_read_tensor_leaves_the_file_as_it_was(tmp_path: Path):
    path = raw_safetensors(tmp_path / "x", {"a": entry()}, struct.pack("<f", 1.5))
    file = MappedFile(path)
    read_tensor(file, read_header(file)["a"]).zero_()
    assert path.read_bytes().endswith(struct.pack("<f", 1.5))


@pytest.mark.parametrize("shape", [[4, 0], [0], [0, 2**62, 3]])
def test_a_tensor_with_a_dimension_of_zero_is_legal(tmp_path: Path, shape: list[int]):
    header = {"empty": entry("F32", shape, [0, 0]), "full": entry("F32", [1], [0, 4])}
    file = MappedFile(raw_safetensors(tmp_path / "x", header, b"\0" * 4))
    if 2**62 in shape:
        assert "impossible shape" in refusal(file.path)
        return
    info = read_header(file)["empty"]
    assert info.nbytes == 0
    assert list(read_tensor(file, info).shape) == shape


@pytest.mark.parametrize("length", [*range(99_990, 100_011, 4), 2**20 - 1, 2**20, 2**20 + 1])
def test_headers_near_round_sizes_parse_alike(tmp_path: Path, length: int):
    header = {"__metadata__": {"pad": ""}, "a": entry()}
    header["__metadata__"]["pad"] = "x" * (length - len(json.dumps(header)))
    file = MappedFile(raw_safetensors(tmp_path / "x", header, b"\0" * 4))
    assert list(read_header(file)) == ["a"]


def test_twenty_thousand_tensors_are_listed(tmp_path: Path):
    header = {f"t{i}": entry("U8", [1], [i, i + 1]) for i in range(20_000)}
    file = MappedFile(raw_safetensors(tmp_path / "x", header, bytes(20_000)))
    assert len(read_header(file)) == 20_000


def test_a_header_above_the_formats_limit_is_refused_with_both_sizes(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(safetensors_file, "MAX_HEADER_BYTES", 100)
    path = raw_safetensors(tmp_path / "x", {"__metadata__": {"pad": "x" * 100}})
    message = refusal(path)
    assert f"{path.stat().st_size - 8:,} bytes" in message and "limit of 100" in message


def test_a_header_longer_than_the_file_is_refused_with_all_sizes(tmp_path: Path):
    path = tmp_path / "x"
    path.write_bytes((200_000_000).to_bytes(8, "little") + b"{}")
    assert all(size in refusal(path) for size in ("200,000,000", "100,000,000", "has 10"))


@pytest.mark.parametrize("cut", [1, 3, 5])
def test_a_truncated_file_is_refused_with_its_size(tmp_path: Path, cut: int):
    path = raw_safetensors(tmp_path / "x", {"a": entry()}, bytes(4))
    path.write_bytes(path.read_bytes()[:-cut])
    assert "truncated" in refusal(path) and str(path.stat().st_size) in refusal(path)


FAULTS: dict[str, tuple[Any, str]] = {
    "overlap": ({"a": entry(offsets=[0, 4]), "b": entry(offsets=[2, 6])}, "overlaps"),
    "hole": ({"a": entry(offsets=[0, 4]), "b": entry(offsets=[5, 9])}, "hole"),
    "hole at the start": ({"a": entry(offsets=[4, 8])}, "hole"),
    "bytes after the last": ({"a": entry()}, "follow its last tensor"),
    "shape against offsets": ({"a": entry(shape=[2])}, r"takes 8 bytes .* hold 4"),
    "offsets reversed": ({"a": entry(offsets=[4, 0])}, "hold -4"),
    "negative dimension": ({"a": entry(shape=[-1, -1])}, "impossible shape"),
    "boolean dimension": ({"a": entry(shape=[True])}, "impossible shape"),
    "fractional dimension": ({"a": entry(shape=[1.0])}, "impossible shape"),
    "product above 2^63": ({"a": entry(shape=[2**32, 2**32])}, "impossible shape"),
    "too many dimensions": ({"a": entry(shape=[1] * 65)}, "impossible shape"),
    "three offsets": ({"a": entry(offsets=[0, 4, 8])}, "impossible data_offsets"),
    "negative offset": ({"a": entry(offsets=[-4, 0])}, "impossible data_offsets"),
    "dtype no text": ({"a": entry(dtype=[])}, "unknown dtype"),
    "unknown dtype": ({"a": entry(dtype="F3")}, "unknown dtype 'F3'; known are F64"),
    "missing field": ({"a": {"dtype": "F32", "shape": [1]}}, "should have dtype, shape"),
    "entry no object": ({"a": 3}, "should have dtype, shape"),
    "metadata no text": ({"__metadata__": {"a": 1}}, "__metadata__ should map"),
    "not JSON": (b"{no", "isn't valid JSON"),
    "JSON of another kind": (b"[1]     ", "doesn't begin with '{'"),
    "not UTF-8": (b'{"\xff": 1}', "isn't UTF-8"),
    "half a character": (b'{"\\ud800": 1}', "isn't UTF-8"),
    "name given twice": (b'{"a": 1, "a": 2}', "'a' appears twice"),
    "nested beyond reason": (b'{"a":' * 100_000, "isn't valid JSON"),
    "a number of a million digits": (b'{"a":' + b"9" * 1_000_000 + b"}", "isn't valid JSON"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_header_is_refused_with_the_reason(tmp_path: Path, fault: str):
    header, reason = FAULTS[fault]
    path = raw_safetensors(tmp_path / "x.safetensors", header, bytes(9))
    with pytest.raises(InputError, match=reason):
        read_header(MappedFile(path))


def test_an_unknown_dtype_is_unsupported_not_broken(tmp_path: Path):
    with pytest.raises(UnsupportedError):
        read_header(MappedFile(raw_safetensors(tmp_path / "x", {"a": entry("F4")}, bytes(4))))


def test_a_bool_that_is_neither_zero_nor_one_is_refused(tmp_path: Path):
    file = MappedFile(raw_safetensors(tmp_path / "x", {"a": entry("BOOL", [2], [0, 2])}, b"\x01\x02"))
    with pytest.raises(InputError, match="other than 0 and 1"):
        read_tensor(file, read_header(file)["a"])


def test_a_git_lfs_pointer_is_named_with_its_remedy(tmp_path: Path):
    path = tmp_path / "model.safetensors"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"git-lfs pointer.*git lfs pull"):
        MappedFile(path)


def test_an_empty_file_is_named(tmp_path: Path):
    (tmp_path / "x").touch()
    with pytest.raises(InputError, match="is empty"):
        MappedFile(tmp_path / "x")


@pytest.mark.parametrize("code", [errno.ENODEV, errno.ENOMEM])
def test_without_memory_mapping_the_same_weights_are_read(tmp_path: Path, monkeypatch, code: int):
    def refuse(*_args: Any, **_kwargs: Any) -> None:
        raise OSError(code, "refused")

    monkeypatch.setattr(mmap, "mmap", refuse)
    file = MappedFile(raw_safetensors(tmp_path / "x", {"a": entry()}, struct.pack("<f", 1.5)))
    assert read_tensor(file, read_header(file)["a"]).tolist() == [1.5]
    assert file.notice and "can't be memory-mapped" in file.notice
