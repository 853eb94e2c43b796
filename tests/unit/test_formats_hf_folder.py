"""A folder is opened by its index alone, and every way of not being a model has its own sentence."""

import errno
import json
import mmap
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.formats_files import TENSORS, hf_folder, raw_safetensors

from penjing.errors import InputError, PenjingError, UnsupportedError
from penjing.formats.hf_folder import INDEX, WEIGHTS, open_hf_folder
from penjing.formats.hf_writer import write_json, write_safetensors


def set_weight_map(folder: Path, weight_map: Any) -> None:
    write_json(folder / INDEX, {"metadata": {}, "weight_map": weight_map})


@pytest.mark.parametrize("shard_bytes", [10**9, 1])
def test_a_folder_reads_back_what_was_written(tmp_path: Path, shard_bytes: int):
    checkpoint = open_hf_folder(hf_folder(tmp_path / "m", shard_bytes=shard_bytes))
    assert (checkpoint.kind, checkpoint.config, checkpoint.notices) == ("hf", {"model_type": "llama"}, ())
    assert checkpoint.tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert checkpoint.read(name).dtype == tensor.dtype
        assert torch.equal(checkpoint.read(name), tensor)
        assert checkpoint.tensors[name].dtype == str(tensor.dtype).removeprefix("torch.")


def test_a_name_that_is_not_there_is_an_input_error(tmp_path: Path):
    with pytest.raises(InputError, match="has no tensor 'z'"):
        open_hf_folder(hf_folder(tmp_path / "m")).read("z")


def test_shards_that_the_index_does_not_list_are_ignored_with_a_notice(tmp_path: Path):
    folder = hf_folder(tmp_path / "m", shard_bytes=1)
    write_safetensors(folder / "model-00006-of-00006.safetensors", {"a.weight": torch.zeros(1)}, {})
    checkpoint = open_hf_folder(folder)
    assert torch.equal(checkpoint.read("a.weight"), TENSORS["a.weight"])
    (notice,) = checkpoint.notices
    assert "ignored: 'model-00006-of-00006.safetensors'" in notice


def test_missing_shards_are_all_named_with_the_index(tmp_path: Path):
    folder = hf_folder(tmp_path / "m", shard_bytes=1)
    for number in (1, 3):
        (folder / f"model-{number:05}-of-00003.safetensors").unlink()
    with pytest.raises(InputError) as caught:
        open_hf_folder(folder)
    for name in ("model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors", INDEX):
        assert name in str(caught.value)


def test_a_truncated_shard_is_named_and_refused(tmp_path: Path):
    folder = hf_folder(tmp_path / "m", shard_bytes=1)
    shard = folder / "model-00002-of-00003.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(InputError, match=rf"{shard.name} is truncated"):
        open_hf_folder(folder)


def test_a_tensor_that_its_shard_lacks_is_named(tmp_path: Path):
    folder = hf_folder(tmp_path / "m")
    set_weight_map(folder, {"a.weight": WEIGHTS, "ghost": WEIGHTS})
    with pytest.raises(InputError, match="it lacks: 'ghost'"):
        open_hf_folder(folder)


def test_a_tensor_that_the_index_does_not_place_is_ignored_with_a_notice(tmp_path: Path):
    folder = hf_folder(tmp_path / "m")
    set_weight_map(folder, {"a.weight": WEIGHTS})
    checkpoint = open_hf_folder(folder)
    assert list(checkpoint.tensors) == ["a.weight"]
    assert "'b.weight', 'c.codes'" in checkpoint.notices[0]


@pytest.mark.parametrize(
    "name", ["../x.safetensors", "/x.safetensors", "a\\b.safetensors", "c/d.safetensors", 3]
)
def test_an_index_may_not_lead_out_of_its_folder(tmp_path: Path, name: Any):
    folder = hf_folder(tmp_path / "m")
    write_safetensors(tmp_path / "x.safetensors", {"a.weight": torch.zeros(1)}, {})
    set_weight_map(folder, {"a.weight": name})
    with pytest.raises(InputError, match=r"only a \*.safetensors file in the same folder"):
        open_hf_folder(folder)


@pytest.mark.parametrize("weight_map", [None, {}, []])
def test_an_index_without_a_map_is_refused(tmp_path: Path, weight_map: Any):
    folder = hf_folder(tmp_path / "m")
    set_weight_map(folder, weight_map)
    with pytest.raises(InputError, match="has no weight_map"):
        open_hf_folder(folder)


def test_a_single_file_beside_an_index_of_other_files_is_ambiguous(tmp_path: Path):
    folder = hf_folder(tmp_path / "m", shard_bytes=1)
    write_safetensors(folder / WEIGHTS, TENSORS, {})
    with pytest.raises(InputError, match=f"both {WEIGHTS} and an {INDEX}"):
        open_hf_folder(folder)


def test_one_file_of_another_name_is_taken_with_a_notice(tmp_path: Path):
    folder = hf_folder(tmp_path / "m")
    (folder / WEIGHTS).rename(folder / "weights.safetensors")
    checkpoint = open_hf_folder(folder)
    assert torch.equal(checkpoint.read("a.weight"), TENSORS["a.weight"])
    assert "taken from weights.safetensors" in checkpoint.notices[0]


def test_files_beside_the_single_one_are_ignored_with_a_notice(tmp_path: Path):
    folder = hf_folder(tmp_path / "m")
    (folder / "consolidated.safetensors").write_bytes(b"")
    assert "ignored: 'consolidated.safetensors'" in open_hf_folder(folder).notices[0]


@pytest.mark.parametrize("names", [["model-00001-of-00003.safetensors"], ["a.safetensors", "b.safetensors"]])
def test_shards_without_their_index_are_refused(tmp_path: Path, names: list[str]):
    write_json(tmp_path / "config.json", {})
    for name in names:
        write_safetensors(tmp_path / name, {name: torch.zeros(1)}, {})
    with pytest.raises(InputError, match=f"but no {INDEX}"):
        open_hf_folder(tmp_path)


NO_MODEL: dict[str, tuple[list[str], type[PenjingError], str]] = {
    "empty": ([], InputError, "neither config.json nor weights"),
    "config alone": (["config.json"], InputError, "has no weights"),
    "weights alone": (["model.safetensors"], InputError, "has weights .* but no config.json"),
    "pickles": (["config.json", "pytorch_model.bin"], UnsupportedError, "a pickle can run code; convert"),
    "pickles without config": (["consolidated.00.pth"], UnsupportedError, "a pickle can run code; convert"),
    "adapter": (["adapter_config.json", "adapter_model.safetensors"], UnsupportedError, "only an adapter"),
    "adapter with config": (
        ["config.json", "adapter_model.safetensors"],
        UnsupportedError,
        "only an adapter",
    ),
    "GGUF files": (["a.gguf"], InputError, "give one of its GGUF files: 'a.gguf'"),
    "zipped": (["model.zip"], InputError, "neither config.json nor weights"),
}


@pytest.mark.parametrize("case", NO_MODEL)
def test_a_folder_that_is_no_model_says_why(tmp_path: Path, case: str):
    names, error, reason = NO_MODEL[case]
    for name in names:
        (tmp_path / name).write_text("{}", encoding="utf-8")
    with pytest.raises(error, match=reason):
        open_hf_folder(tmp_path)


BAD_CONFIGS = {
    b"": "isn't valid JSON",
    b"[]": "should hold a JSON object",
    b"{": "isn't valid JSON",
    b'{"a": 1, "a": 2}': "'a' appears twice",
    b'{"a": "\xe9"}': "isn't UTF-8",
    b"version https://git-lfs.github.com/spec/v1\n": "git-lfs pointer",
}


@pytest.mark.parametrize("data", BAD_CONFIGS)
def test_a_broken_config_is_named(tmp_path: Path, data: bytes):
    folder = hf_folder(tmp_path / "m")
    (folder / "config.json").write_bytes(data)
    with pytest.raises(InputError, match=rf"config.json.*{BAD_CONFIGS[data]}"):
        open_hf_folder(folder)


def test_an_accented_config_is_read_as_utf8(tmp_path: Path):
    folder = hf_folder(tmp_path / "été 盆景")
    (folder / "config.json").write_bytes(json.dumps({"a": "é盆"}, ensure_ascii=False).encode("utf-8"))
    assert open_hf_folder(folder).config == {"a": "é盆"}


def test_without_memory_mapping_shards_are_read_with_one_notice(tmp_path: Path, monkeypatch):
    def refuse(*_args: Any, **_kwargs: Any) -> None:
        raise OSError(errno.ENOMEM, "refused")

    monkeypatch.setattr(mmap, "mmap", refuse)
    checkpoint = open_hf_folder(hf_folder(tmp_path / "m", shard_bytes=1))
    assert len(checkpoint.notices) == 1
    assert all(torch.equal(checkpoint.read(name), tensor) for name, tensor in TENSORS.items())


def test_empty_tensors_are_listed_with_a_size_of_zero(tmp_path: Path):
    tensors = {"a": torch.zeros(4, 0), "b": torch.zeros(0), "c": torch.zeros(2)}
    checkpoint = open_hf_folder(hf_folder(tmp_path / "m", tensors))
    assert [checkpoint.tensors[name].nbytes for name in "abc"] == [0, 0, 8]
    assert checkpoint.read("a").shape == (4, 0)


def test_a_shard_that_is_a_git_lfs_pointer_is_named(tmp_path: Path):
    folder = hf_folder(tmp_path / "m")
    (folder / WEIGHTS).write_text("version https://git-lfs.github.com/spec/v1\n", encoding="utf-8")
    with pytest.raises(InputError, match=f"{WEIGHTS} is a git-lfs pointer"):
        open_hf_folder(folder)


def test_a_file_in_place_of_a_header_is_named(tmp_path: Path):
    folder = hf_folder(tmp_path / "m")
    raw_safetensors(folder / WEIGHTS, b"<html>")
    with pytest.raises(InputError, match=f"{WEIGHTS} isn't a safetensors file"):
        open_hf_folder(folder)
