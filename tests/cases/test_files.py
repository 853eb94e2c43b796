"""Ways in which files have failed users of programs like this one, each with the outcome that they needed."""

import errno
import mmap
import os
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from tests.unit.formats_files import (
    TENSORS,
    gguf_entry,
    gguf_file,
    gguf_tensor,
    gguf_text,
    hf_folder,
    raw_gguf,
    raw_safetensors,
)

from penjing.errors import InputError
from penjing.formats.atomic import atomic_folder
from penjing.formats.hf_writer import write_json, write_safetensors, write_safetensors_shards
from penjing.formats.open import open_checkpoint


def model(seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {f"layers.{i}.weight": torch.randn(4, 4, generator=generator) for i in range(6)}


def assert_holds(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    checkpoint = open_checkpoint(path)
    assert checkpoint.tensors.keys() == tensors.keys()
    assert all(torch.equal(checkpoint.read(name), tensor) for name, tensor in tensors.items())


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8], ids=["floats", "codes"])
def test_a_half_finished_download_is_refused_with_the_missing_files_and_the_index(
    tmp_path: Path, dtype: torch.dtype
):
    tensors = {name: tensor.to(dtype) for name, tensor in model(0).items()}
    folder = hf_folder(tmp_path / "m", tensors, shard_bytes=2 * 16 * dtype.itemsize)
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(InputError, match=r"model\.safetensors\.index\.json asks for 'model-00002-of-00003"):
        open_checkpoint(folder)


def test_stale_shards_of_an_older_model_do_not_win(tmp_path: Path):
    folder = hf_folder(tmp_path / "m", model(0), shard_bytes=64)
    new = hf_folder(tmp_path / "n", model(1), shard_bytes=192)
    for path in new.iterdir():
        path.rename(folder / path.name)
    assert len(list(folder.glob("*.safetensors"))) == 6 + 2
    assert_holds(folder, model(1))


def test_writing_over_a_larger_model_leaves_none_of_its_shards(tmp_path: Path):
    for seed, shard_bytes in ((0, 64), (1, 192)):
        with atomic_folder(tmp_path / "m") as draft:
            write_json(draft / "config.json", {"model_type": "llama"})
            write_json(draft / "penjing.json", {"version": 1})
            write_safetensors_shards(draft, model(seed), max_shard_bytes=shard_bytes)
    assert len(list((tmp_path / "m").glob("*.safetensors"))) == 2
    assert_holds(tmp_path / "m", model(1))


def test_headers_around_a_hundred_thousand_bytes_all_parse(tmp_path: Path):
    write_json(tmp_path / "config.json", {})
    for length in range(99_990, 100_011):
        entry = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"__metadata__":{"pad":"%s"}}'
        header = entry % (b"x" * (length - len(entry) + 2))
        assert len(header) == length
        raw_safetensors(tmp_path / "model.safetensors", header, struct.pack("<f", 1.5))
        assert open_checkpoint(tmp_path).read("a").tolist() == [1.5]


def test_a_file_of_twenty_thousand_tensors_is_listed_whole(tmp_path: Path):
    write_json(tmp_path / "config.json", {})
    tensors = {f"t{i}": torch.full((1,), float(i)) for i in range(20_000)}
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors")
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.tensors.keys() == tensors.keys()
    assert checkpoint.read("t19999").tolist() == [19999]


def test_a_header_above_the_limit_is_refused_with_the_limit_and_its_size(tmp_path: Path):
    write_json(tmp_path / "config.json", {})
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.write((100_000_001).to_bytes(8, "little"))
        file.truncate(8 + 100_000_001)  # sparse: takes no room on disk
    with pytest.raises(InputError, match=r"100,000,001 bytes, above the format's limit of 100,000,000"):
        open_checkpoint(tmp_path)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


HOSTILE_GGUF: dict[str, tuple[dict[str, Any], str]] = {
    "alignment": ({"metadata": [gguf_entry(b"general.alignment", 4, bytes(4))]}, "general.alignment is 0"),
    "key length": ({"metadata": [gguf_text(b"k", 2**48)]}, "metadata key has a length of"),
    "array count": ({"metadata": [gguf_entry(b"k", 9, struct.pack("<IQ", 8, 2**60))]}, "'k' is an array of"),
    "array within limits": ({"metadata": [gguf_entry(b"k", 9, struct.pack("<IQ", 12, 2**22))]}, "'k' needs"),
    "metadata count": ({"counts": (0, 2**62)}, "the metadata count is"),
    "n_dims": ({"tensors": [gguf_tensor(b"t", [1], n_dims=9)]}, "'t' has n_dims 9"),
    "dimensions": ({"tensors": [gguf_tensor(b"t", [2**40, 2**24])]}, "dimensions .* of tensor 't'"),
    "size": ({"tensors": [gguf_tensor(b"t", [2**60])]}, "'t' .* ends after the file"),
    "offset": ({"tensors": [gguf_tensor(b"t", [1], offset=2**50)]}, "'t' .* ends after the file"),
    "type": ({"tensors": [gguf_tensor(b"t", [1], type_=77)]}, "'t' has the unknown type 77"),
}


@pytest.mark.parametrize("field", HOSTILE_GGUF)
def test_a_hostile_gguf_header_is_refused_by_field_in_little_memory(tmp_path: Path, field: str):
    parts, reason = HOSTILE_GGUF[field]
    path = raw_gguf(tmp_path / "m.gguf", **parts)
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=reason):
            open_checkpoint(path)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


def test_a_gguf_cut_in_its_data_is_never_a_partial_model(tmp_path: Path):
    path = gguf_file(tmp_path / "m.gguf")
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(InputError, match="ends after the file"):
        open_checkpoint(path)


def test_tensors_with_a_dimension_of_zero_are_kept_with_size_zero(tmp_path: Path):
    tensors = model(0) | {"empty.a": torch.zeros(4, 0), "empty.b": torch.zeros(0)}
    folder = hf_folder(tmp_path / "m", tensors, shard_bytes=128)
    assert_holds(folder, tensors)
    assert [open_checkpoint(folder).tensors[name].nbytes for name in ("empty.a", "empty.b")] == [0, 0]
    gguf = raw_gguf(
        tmp_path / "m.gguf", tensors=[gguf_tensor(b"a", [0, 4], 8), gguf_tensor(b"b", [1])], data=bytes(4)
    )
    assert open_checkpoint(gguf).read("a").shape == (4, 0)


def test_what_holds_no_model_is_refused_each_with_its_own_reason(tmp_path: Path):
    for name in ("empty", "pickles", "adapter"):
        (tmp_path / name).mkdir()
    write_json(tmp_path / "pickles" / "config.json", {})
    torch.save({"a": torch.zeros(1)}, tmp_path / "pickles" / "pytorch_model.bin")
    write_json(tmp_path / "adapter" / "adapter_config.json", {})
    write_safetensors(tmp_path / "adapter" / "adapter_model.safetensors", TENSORS, {})
    write_safetensors(tmp_path / "lone.safetensors", TENSORS, {})
    with zipfile.ZipFile(tmp_path / "model.zip", "w") as archive:
        archive.write(tmp_path / "lone.safetensors")
    reasons = set()
    for name in ("empty", "pickles", "adapter", "lone.safetensors", "model.zip", "missing"):
        with pytest.raises(InputError) as caught:
            open_checkpoint(tmp_path / name)
        assert name in str(caught.value)
        reasons.add(str(caught.value).replace(name, ""))
    assert len(reasons) == 6


def test_a_model_without_tensors_is_never_written(tmp_path: Path):
    with pytest.raises(InputError, match="No tensor"), atomic_folder(tmp_path / "m") as draft:
        write_safetensors_shards(draft, {})
    assert list(tmp_path.iterdir()) == []


READ_AND_WRITE = """
import sys
from pathlib import Path
from penjing.errors import InputError
from penjing.formats.atomic import atomic_folder
from penjing.formats.hf_writer import write_json, write_safetensors_shards
from penjing.formats.open import open_checkpoint

source = open_checkpoint(sys.argv[1])
with atomic_folder(Path(sys.argv[1]).with_name("out")) as draft:
    write_json(draft / "config.json", dict(source.config))
    write_safetensors_shards(draft, ((name, source.read(name)) for name in source.tensors))
assert open_checkpoint(Path(sys.argv[1]).with_name("out")).config == source.config
try:
    open_checkpoint(sys.argv[1] + "/nowhere")
except InputError as error:
    print(error, file=sys.stderr)
"""


@pytest.mark.parametrize("locale", ["C", "POSIX"])
def test_files_are_utf8_whatever_the_locale(tmp_path: Path, locale: str):
    folder = hf_folder(tmp_path / "dossier d'été 盆景", {"é": torch.ones(2)})
    write_json(folder / "config.json", {"name": "盆景"})
    environment = os.environ | {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    strict = ["-X", "warn_default_encoding", "-W", "error::EncodingWarning"]
    done = subprocess.run(
        [sys.executable, *strict, "-c", READ_AND_WRITE, str(folder)],
        env=environment,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
    assert b"There is no file or folder" in done.stderr
    assert b"Warning" not in done.stderr
    assert_holds(folder.with_name("out"), {"é": torch.ones(2)})
    assert open_checkpoint(folder.with_name("out")).config == {"name": "盆景"}


@pytest.mark.parametrize("code", [errno.ENODEV, errno.ENOMEM])
def test_where_memory_mapping_is_refused_the_same_weights_are_read_with_one_note(
    tmp_path: Path, monkeypatch, code: int
):
    paths = [hf_folder(tmp_path / "m", model(0), shard_bytes=64), gguf_file(tmp_path / "m.gguf")]
    expected = [{name: one.read(name) for name in one.tensors} for one in map(open_checkpoint, paths)]

    def refuse(*_args: Any, **_kwargs: Any) -> None:
        raise OSError(code, "refused")

    monkeypatch.setattr(mmap, "mmap", refuse)
    for path, tensors in zip(paths, expected, strict=True):
        assert_holds(path, tensors)
        (notice,) = open_checkpoint(path).notices
        assert "can't be memory-mapped" in notice
