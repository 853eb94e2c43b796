"""A GGUF file is read as the gguf package reads it, and refused with the field's name where it is broken."""

import errno
import mmap
import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from tests.unit.formats_files import gguf_entry, gguf_file, gguf_tensor, gguf_text, raw_gguf

from penjing.errors import InputError, UnsupportedError
from penjing.formats import gguf_header
from penjing.formats.gguf_file import open_gguf

U32, I32, BOOL, STRING, ARRAY = 4, 5, 7, 8, 9


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


@pytest.mark.parametrize("alignment", [None, 1, 64, 4096])
def test_tensors_and_metadata_equal_the_gguf_packages(tmp_path: Path, alignment: int | None):
    path = gguf_file(tmp_path / "m.gguf", alignment)
    checkpoint = open_gguf(path)
    expected = gguf.GGUFReader(path)
    assert (checkpoint.kind, checkpoint.notices) == ("gguf", ())
    own = {key: field.contents() for key, field in expected.fields.items() if not key.startswith("GGUF.")}
    assert checkpoint.config == own
    assert list(checkpoint.tensors) == [tensor.name for tensor in expected.tensors]
    for tensor in expected.tensors:
        info, got = checkpoint.tensors[tensor.name], checkpoint.read(tensor.name)
        assert info.shape == tuple(reversed(tensor.shape.tolist())) == tuple(got.shape)
        plain = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
        stored = tensor.tensor_type.name
        assert (info.dtype, info.nbytes) == (plain.get(stored, stored), tensor.n_bytes)
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(info.shape)
        assert np.array_equal(got.float().numpy(), values)


def test_stored_floats_keep_their_dtype_and_blocks_come_as_float32(tmp_path: Path):
    checkpoint = open_gguf(gguf_file(tmp_path / "m.gguf"))
    dtypes = {name: checkpoint.read(name).dtype for name in checkpoint.tensors}
    assert dtypes == {
        "plain.f32": torch.float32,
        "plain.f16": torch.float16,
        "packed.BF16": torch.bfloat16,
        "packed.Q8_0": torch.float32,
        "packed.Q4_0": torch.float32,
    }


def test_a_name_that_is_not_there_is_an_input_error(tmp_path: Path):
    with pytest.raises(InputError, match="has no tensor 'z'"):
        open_gguf(gguf_file(tmp_path / "m.gguf")).read("z")


def test_version_2_is_read_as_version_3_is(tmp_path: Path):
    path = gguf_file(tmp_path / "m.gguf")
    path.write_bytes(path.read_bytes().replace(b"GGUF" + u32(3), b"GGUF" + u32(2), 1))
    assert len(open_gguf(path).tensors) == 5


def test_nested_and_empty_arrays_are_lists(tmp_path: Path):
    inner = u32(I32) + u64(2) + struct.pack("<ii", -1, 2)
    nested = gguf_entry(b"nested", ARRAY, u32(ARRAY) + u64(2) + inner + u32(STRING) + u64(0))
    assert open_gguf(raw_gguf(tmp_path / "m.gguf", [nested])).config == {"nested": [[-1, 2], []]}


def test_a_long_vocabulary_is_read_in_order(tmp_path: Path):
    tokens = [f"tök{i}" for i in range(100_000)]
    payload = u32(STRING) + u64(len(tokens)) + b"".join(gguf_text(token.encode()) for token in tokens)
    checkpoint = open_gguf(raw_gguf(tmp_path / "m.gguf", [gguf_entry(b"tokens", ARRAY, payload)]))
    assert checkpoint.config["tokens"] == tokens


def test_an_empty_tensor_has_no_bytes(tmp_path: Path):
    path = raw_gguf(
        tmp_path / "m.gguf", tensors=[gguf_tensor(b"a", [0, 4]), gguf_tensor(b"b", [2])], data=bytes(8)
    )
    checkpoint = open_gguf(path)
    assert checkpoint.tensors["a"].nbytes == 0
    assert checkpoint.read("a").shape == (4, 0)
    assert checkpoint.read("b").tolist() == [0, 0]


def alignment(value: int) -> bytes:
    return gguf_entry(b"general.alignment", U32, u32(value))


def array(type_: int, count: int, payload: bytes = b"") -> bytes:
    return gguf_entry(b"list", ARRAY, u32(type_) + u64(count) + payload)


DAMAGED: dict[str, tuple[dict[str, Any], str]] = {
    "alignment 0": ({"metadata": [alignment(0)]}, "general.alignment is 0"),
    "alignment 3": ({"metadata": [alignment(3)]}, "general.alignment is 3"),
    "alignment of text": (
        {"metadata": [gguf_entry(b"general.alignment", STRING, gguf_text(b"32"))]},
        "general.alignment is '32'",
    ),
    "key length 2^48": (
        {"metadata": [gguf_text(b"key", 2**48)]},
        "a metadata key has a length of 281474976710656",
    ),
    "key longer than the file": (
        {"metadata": [gguf_text(b"key", 60_000)]},
        "a metadata key needs 60000 bytes",
    ),
    "string length 2^63": (
        {"metadata": [gguf_entry(b"name", STRING, gguf_text(b"x", 2**63))]},
        "metadata 'name' needs 9223372036854775808 bytes",
    ),
    "array count 2^60": (
        {"metadata": [array(U32, 2**60)]},
        "metadata 'list' is an array of 1152921504606846976",
    ),
    "array longer than the file": ({"metadata": [array(U32, 2**20)]}, "metadata 'list' needs 4194304 bytes"),
    "strings longer than the file": (
        {"metadata": [array(STRING, 2**20)]},
        r"element \d+ of metadata 'list' ends after",
    ),
    "array of bad UTF-8": (
        {"metadata": [array(STRING, 1, gguf_text(b"\xff\xfe"))]},
        "an element of metadata 'list' isn't UTF-8",
    ),
    "arrays in arrays without end": (
        {"metadata": [gguf_entry(b"list", ARRAY, (u32(ARRAY) + u64(1)) * 3000)]},
        "at depth 5",
    ),
    "key of bad UTF-8": ({"metadata": [gguf_entry(b"\xff", U32, u32(1))]}, "a metadata key isn't UTF-8"),
    "string of bad UTF-8": (
        {"metadata": [gguf_entry(b"name", STRING, gguf_text(b"a\xff"))]},
        "metadata 'name' isn't UTF-8 text .byte 1",
    ),
    "key twice": ({"metadata": [alignment(32), alignment(32)]}, "key 'general.alignment' appears twice"),
    "boolean of 2": ({"metadata": [gguf_entry(b"flag", BOOL, b"\x02")]}, "metadata 'flag' is boolean but"),
    "too many metadata": ({"counts": (0, 2**60)}, "the metadata count is 1152921504606846976"),
    "too many tensors": ({"counts": (2**60, 0)}, "the tensor count is 1152921504606846976"),
    "tensor name of bad UTF-8": ({"tensors": [gguf_tensor(b"\xff", [1])]}, "a tensor name isn't UTF-8"),
    "tensor twice": ({"tensors": [gguf_tensor(b"a", [1])] * 2}, "tensor 'a' appears twice"),
    "n_dims 9": ({"tensors": [gguf_tensor(b"a", [1] * 9)]}, "tensor 'a' has n_dims 9"),
    "n_dims 0": ({"tensors": [gguf_tensor(b"a", [1], n_dims=0)]}, "tensor 'a' has n_dims 0"),
    "dimensions of 2^64": ({"tensors": [gguf_tensor(b"a", [2**32, 2**32])]}, "multiply to more than 2"),
    "rows that are no blocks": (
        {"tensors": [gguf_tensor(b"a", [31], 8)]},
        "31 weights don't divide into Q8_0",
    ),
    "offset past the end": (
        {"tensors": [gguf_tensor(b"a", [1], offset=2**40)]},
        "'a' .* ends after the file",
    ),
    "offset off the alignment": (
        {"tensors": [gguf_tensor(b"a", [1], offset=4)]},
        "offset of tensor 'a' .* multiple",
    ),
    "data cut short": (
        {"tensors": [gguf_tensor(b"a", [9])], "data": bytes(35)},
        "'a' .* ends after the file",
    ),
    "overlap": (
        {"tensors": [gguf_tensor(b"a", [9]), gguf_tensor(b"b", [8], offset=32)], "data": bytes(64)},
        "tensor 'b' .* overlaps",
    ),
}


@pytest.mark.parametrize("fault", DAMAGED)
def test_a_damaged_file_is_refused_with_the_field_named(tmp_path: Path, fault: str):
    parts, reason = DAMAGED[fault]
    path = raw_gguf(tmp_path / "m.gguf", **parts)
    with pytest.raises(InputError, match=f"m.gguf is a damaged GGUF file: .*{reason}"):
        open_gguf(path)


UNSUPPORTED: dict[str, tuple[dict[str, Any], str]] = {
    "version 1": ({"version": u32(1)}, "GGUF version 1"),
    "version 4": ({"version": u32(4)}, "GGUF version 4"),
    "big-endian": ({"version": struct.pack(">I", 3)}, "big-endian"),
    "metadata type": (
        {"metadata": [gguf_entry(b"name", 13, b"")]},
        "metadata 'name' has the unknown value type 13",
    ),
    "array type": ({"metadata": [array(99, 1)]}, "metadata 'list' has the unknown value type 99"),
    "tensor type number": (
        {"tensors": [gguf_tensor(b"a", [256], 999)]},
        "tensor 'a' has the unknown type 999",
    ),
    "tensor type name": (
        {"tensors": [gguf_tensor(b"a", [256], 15)]},
        "tensor 'a' has type Q8_K; known are F32",
    ),
}


@pytest.mark.parametrize("kind", UNSUPPORTED)
def test_what_is_not_known_is_refused_by_name(tmp_path: Path, kind: str):
    parts, reason = UNSUPPORTED[kind]
    with pytest.raises(UnsupportedError, match=reason):
        open_gguf(raw_gguf(tmp_path / "m.gguf", **parts))


def test_a_file_cut_anywhere_is_refused(tmp_path: Path):
    path = gguf_file(tmp_path / "m.gguf")
    whole = path.read_bytes()
    last = max(info.offset + info.nbytes for info in open_gguf(path).tensors.values())
    for end in [*range(0, 700, 7), *range(700, last, 61), last - 1]:
        path.write_bytes(whole[:end])
        with pytest.raises(InputError):
            open_gguf(path)


def test_arrays_beyond_the_limit_are_refused(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(gguf_header, "MAX_ARRAY", 2)
    path = raw_gguf(tmp_path / "m.gguf", [array(I32, 3, bytes(12))])
    with pytest.raises(InputError, match="array of 3 elements"):
        open_gguf(path)


@pytest.mark.parametrize("code", [errno.ENODEV, errno.ENOMEM])
def test_without_memory_mapping_the_same_weights_are_read(tmp_path: Path, monkeypatch, code: int):
    mapped = open_gguf(gguf_file(tmp_path / "m.gguf"))
    expected = {name: mapped.read(name) for name in mapped.tensors}

    def refuse(*_args: Any, **_kwargs: Any) -> None:
        raise OSError(code, "refused")

    monkeypatch.setattr(mmap, "mmap", refuse)
    checkpoint = open_gguf(tmp_path / "m.gguf")
    assert len(checkpoint.notices) == 1
    assert all(torch.equal(checkpoint.read(name), tensor) for name, tensor in expected.items())


def split_part(folder: Path, number: int, count: int, **changes: int) -> Path:
    """Part `number` (from 0) of a split model; holds one tensor that is filled with its number."""
    keys = {b"split.no": number, b"split.count": count, b"split.tensors.count": count}
    keys |= {key.encode(): value for key, value in changes.items()}
    metadata = [gguf_entry(key, U32, u32(value)) for key, value in keys.items()]
    tensor = gguf_tensor(b"t%d" % number, [2])
    path = folder / f"m-{number + 1:05}-of-{count:05}.gguf"
    return raw_gguf(path, metadata, [tensor], struct.pack("<ff", number, number))


@pytest.mark.parametrize("opened", [0, 2])
def test_a_split_model_opens_as_one_from_any_part(tmp_path: Path, opened: int):
    parts = [split_part(tmp_path, number, 3) for number in range(3)]
    checkpoint = open_gguf(parts[opened])
    assert [checkpoint.read(f"t{i}").tolist() for i in range(3)] == [[i, i] for i in range(3)]
    assert checkpoint.config["split.no"] == 0


def test_missing_parts_of_a_split_model_are_all_named(tmp_path: Path):
    path = split_part(tmp_path, 1, 3)
    with pytest.raises(InputError, match=r"m-00001-of-00003\.gguf, m-00003-of-00003\.gguf"):
        open_gguf(path)


def test_a_renamed_part_is_refused(tmp_path: Path):
    path = split_part(tmp_path, 0, 3).rename(tmp_path / "model.gguf")
    with pytest.raises(InputError, match=r"is one of 3 parts .*original names"):
        open_gguf(path)


def test_a_part_of_another_model_is_refused(tmp_path: Path):
    path = split_part(tmp_path, 0, 2)
    split_part(tmp_path, 1, 2, **{"split.no": 0})
    with pytest.raises(InputError, match=r"should be part 2 of 2.*\(0, 2\)"):
        open_gguf(path)


def test_parts_with_fewer_tensors_than_promised_are_refused(tmp_path: Path):
    path = split_part(tmp_path, 0, 2, **{"split.tensors.count": 5})
    split_part(tmp_path, 1, 2)
    with pytest.raises(InputError, match=r"hold 2 tensors, but split.tensors.count is 5"):
        open_gguf(path)


def test_a_tensor_in_two_parts_is_refused(tmp_path: Path):
    path = split_part(tmp_path, 0, 2)
    other = split_part(tmp_path, 1, 2)
    other.write_bytes(other.read_bytes().replace(b"t1", b"t0"))
    with pytest.raises(InputError, match="hold tensor 't0' twice"):
        open_gguf(path)
