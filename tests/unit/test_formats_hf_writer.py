"""What the writer puts on disk is what others read, the same bytes each time, and never an empty model."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import safetensors
import safetensors.torch
import torch
from tests.unit.formats_files import TENSORS

from penjing.errors import InputError
from penjing.formats.hf_writer import write_json, write_safetensors_shards
from penjing.formats.safetensors_file import DTYPES


def written(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_one_shard_is_a_single_file_that_safetensors_reads(tmp_path: Path):
    assert write_safetensors_shards(tmp_path, TENSORS) == 48 + 16 + 5
    assert list(written(tmp_path)) == ["model.safetensors"]
    loaded = safetensors.torch.load_file(tmp_path / "model.safetensors")
    assert loaded.keys() == TENSORS.keys()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in TENSORS.items())
    with safetensors.safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_every_dtype_and_layout_is_stored_as_it_is(tmp_path: Path):
    bits = torch.arange(64, dtype=torch.uint8)
    tensors = {name: bits.view(getattr(torch, name)) for name, _ in DTYPES.values() if name != "bool"}
    tensors |= {"BOOL": torch.tensor([True, False]), "scalar": torch.tensor(2.0), "empty": torch.zeros(4, 0)}
    tensors["transposed"] = torch.arange(6.0).view(2, 3).T
    write_safetensors_shards(tmp_path, tensors)
    loaded = safetensors.torch.load_file(tmp_path / "model.safetensors")
    for name, tensor in tensors.items():
        assert (loaded[name].dtype, loaded[name].shape) == (tensor.dtype, tensor.shape)
        same = tensor.contiguous().view(-1).view(torch.uint8)
        assert torch.equal(loaded[name].view(-1).view(torch.uint8), same)


def test_shards_keep_to_their_size_and_the_index_lists_them(tmp_path: Path):
    tensors = {f"t{i}": torch.full((10,), float(i)) for i in range(5)} | {"big": torch.zeros(100)}
    total = write_safetensors_shards(tmp_path, tensors, max_shard_bytes=80)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text(encoding="utf-8"))
    assert index["metadata"]["total_size"] == total == 600
    assert index["weight_map"].keys() == tensors.keys()
    assert set(index["weight_map"].values()) == {f"model-0000{i}-of-00004.safetensors" for i in range(1, 5)}
    for name, file in index["weight_map"].items():
        loaded = safetensors.torch.load_file(tmp_path / file)
        assert torch.equal(loaded[name], tensors[name])
        assert sum(tensor.nbytes for tensor in loaded.values()) <= 80 or list(loaded) == ["big"]


def test_the_same_tensors_give_the_same_bytes_in_any_order(tmp_path: Path):
    for name, tensors in (("a", TENSORS), ("b", dict(reversed(TENSORS.items())))):
        (tmp_path / name).mkdir()
        write_safetensors_shards(tmp_path / name, tensors, max_shard_bytes=50)
    assert written(tmp_path / "a") == written(tmp_path / "b")


def test_data_is_aligned_whatever_the_mix_of_dtypes(tmp_path: Path):
    write_safetensors_shards(tmp_path, {"a": torch.zeros(3, dtype=torch.uint8), "b": torch.ones(1)})
    data = (tmp_path / "model.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    assert length % 8 == 0
    assert json.loads(data[8 : 8 + length])["b"]["data_offsets"] == [0, 4]


def test_a_stream_is_written_shard_by_shard_without_being_held(tmp_path: Path):
    on_disk: list[int] = []

    def stream() -> Iterator[tuple[str, torch.Tensor]]:
        for i in range(4):
            on_disk.append(len(list(tmp_path.iterdir())))
            yield f"t{i}", torch.zeros(10)

    write_safetensors_shards(tmp_path, stream(), max_shard_bytes=40)
    assert on_disk == [0, 0, 1, 2]
    assert len(list(tmp_path.glob("model-*-of-00004.safetensors"))) == 4


def test_a_folder_without_tensors_is_never_written(tmp_path: Path):
    for nothing in ({}, iter(())):
        with pytest.raises(InputError, match="No tensor"):
            write_safetensors_shards(tmp_path, nothing)
    assert written(tmp_path) == {}


def test_a_name_given_twice_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match="'a' was given twice"):
        write_safetensors_shards(tmp_path, [("a", torch.zeros(1)), ("a", torch.ones(1))])


def test_a_dtype_that_the_format_lacks_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match=r"'a' has torch\.complex128"):
        write_safetensors_shards(tmp_path, {"a": torch.zeros(1, dtype=torch.complex128)})


def test_weights_are_not_written_beside_older_ones(tmp_path: Path):
    write_safetensors_shards(tmp_path, TENSORS, max_shard_bytes=1)
    with pytest.raises(InputError, match="already has weights"):
        write_safetensors_shards(tmp_path, TENSORS)


def test_json_is_utf8_in_the_given_order_with_a_last_newline(tmp_path: Path):
    write_json(tmp_path / "x.json", {"b": "盆景", "a": [1]})
    assert (tmp_path / "x.json").read_bytes() == '{\n  "b": "盆景",\n  "a": [\n    1\n  ]\n}\n'.encode()
