"""Small checkpoints on disk, whole and damaged, for the tests of files."""

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

from penjing.formats.hf_writer import write_json, write_safetensors_shards

TENSORS = {
    "a.weight": torch.arange(12, dtype=torch.float32).view(3, 4),
    "b.weight": torch.arange(8, dtype=torch.float32).view(2, 4).to(torch.bfloat16),
    "c.codes": torch.arange(5, dtype=torch.uint8),
}


def hf_folder(path: Path, tensors: Mapping[str, torch.Tensor] = TENSORS, shard_bytes: int = 10**9) -> Path:
    """A folder with a config and `tensors`; a small `shard_bytes` gives several shards."""
    path.mkdir(parents=True)
    write_json(path / "config.json", {"model_type": "llama"})
    write_safetensors_shards(path, tensors, max_shard_bytes=shard_bytes)
    return path


def raw_safetensors(path: Path, header: Any, data: bytes = b"") -> Path:
    """A safetensors file of any header: an object, or bytes as they are."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode("utf-8")
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def gguf_file(path: Path, alignment: int | None = None) -> Path:
    """A tiny GGUF file with every kind of metadata value, and tensors of F32, F16, BF16, Q8_0 and Q4_0."""
    writer = gguf.GGUFWriter(path, "llama")
    if alignment:
        writer.add_custom_alignment(alignment)
    writer.add_uint32("llama.block_count", 2)
    writer.add_float32("llama.rope.freq_base", 10_000.0)
    writer.add_bool("tokenizer.ggml.add_bos_token", True)
    writer.add_int64("test.negative", -(2**40))
    writer.add_array("tokenizer.ggml.tokens", ["<s>", "é", "日本"])
    writer.add_array("tokenizer.ggml.token_type", [3, 1, 1])
    writer.add_array("test.bools", [True, False])
    rows = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)
    writer.add_tensor("plain.f32", rows)
    writer.add_tensor("plain.f16", rows.astype(np.float16))
    for type_ in (
        gguf.GGMLQuantizationType.BF16,
        gguf.GGMLQuantizationType.Q8_0,
        gguf.GGMLQuantizationType.Q4_0,
    ):
        packed = gguf.quants.quantize(rows, type_)
        writer.add_tensor(f"packed.{type_.name}", packed, raw_dtype=type_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def gguf_text(data: bytes, length: int | None = None) -> bytes:
    """A GGUF string; `length` overrides what it says of itself."""
    return struct.pack("<Q", len(data) if length is None else length) + data


def gguf_entry(key: bytes, type_: int, payload: bytes) -> bytes:
    """One metadata entry of a GGUF file."""
    return gguf_text(key) + struct.pack("<I", type_) + payload


def gguf_tensor(
    name: bytes, dims: Sequence[int], type_: int = 0, offset: int = 0, n_dims: int | None = None
) -> bytes:
    """One tensor entry of a GGUF file; dims in GGUF's order, type 0 is F32."""
    count = len(dims) if n_dims is None else n_dims
    return gguf_text(name) + struct.pack(f"<I{len(dims)}QIQ", count, *dims, type_, offset)


def raw_gguf(
    path: Path,
    metadata: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    data: bytes = b"",
    version: bytes = struct.pack("<I", 3),
    counts: tuple[int, int] | None = None,
) -> Path:
    """A GGUF file of any entries, right or wrong; `counts` overrides (tensors, metadata)."""
    n_tensors, n_metadata = counts or (len(tensors), len(metadata))
    header = b"GGUF" + version + struct.pack("<QQ", n_tensors, n_metadata) + b"".join((*metadata, *tensors))
    path.write_bytes(header + b"\0" * (-len(header) % 32) + data)
    return path
