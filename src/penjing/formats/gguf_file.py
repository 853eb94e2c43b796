"""A GGUF model: one file, or all parts of one that was split."""

import re
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from penjing.errors import InputError
from penjing.formats.checkpoint import Checkpoint, TensorInfo
from penjing.formats.gguf_header import GGUFHeader, read_header
from penjing.formats.mapped import FileBytes, MappedFile
from penjing.formats.quote import quote

if TYPE_CHECKING:
    import torch

PART_NAME = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")
# Stored as they are computed with, so they are mapped; every other type is blocks.
_PLAIN = ("float32", "float16", "bfloat16")


class GGUFFile:
    """An opened GGUF model; see `Checkpoint`. `config` has the raw keys ("llama.block_count")."""

    kind: Literal["gguf"] = "gguf"

    def __init__(self, path: Path, files: Sequence[FileBytes], headers: Sequence[GGUFHeader]) -> None:
        self.path = path
        self.config: Mapping[str, Any] = headers[0].metadata
        self._files = {file.path: file for file in files}
        self.notices = tuple(dict.fromkeys(file.notice for file in files if file.notice))
        tensors: dict[str, TensorInfo] = {}
        for header in headers:
            twice = tensors.keys() & header.tensors.keys()
            if twice:
                raise InputError(f"The parts of {path} hold tensor {quote(min(twice))} twice.")
            tensors |= header.tensors
        self.tensors: Mapping[str, TensorInfo] = tensors

    def read(self, name: str) -> "torch.Tensor":
        """F32, F16 and BF16 as stored, mapped and not to be written to; blocks as a new float32 tensor."""
        if name not in self.tensors:
            raise InputError(f"{self.path} has no tensor {quote(name)}.")
        from penjing.formats.tensors import tensor_over, uint8_tensor
        from penjing.packed.ggml.decode import dequantize

        info = self.tensors[name]
        data = self._files[info.file].bytes(info.offset, info.nbytes)
        if info.dtype in _PLAIN:
            return tensor_over(data, info.shape, info.dtype)
        return dequantize(uint8_tensor(data), info.dtype, info.shape)

    def read_blocks(self, name: str) -> "torch.Tensor":
        """The mapped bytes of a tensor of blocks, uint8 (..., bytes a row), not to be written to."""
        from penjing.formats.tensors import uint8_tensor

        info = self.tensors[name]
        data = uint8_tensor(self._files[info.file].bytes(info.offset, info.nbytes))
        return data.view(*info.shape[:-1], -1)

    def release(self, name: str) -> None:
        """Let the tensor's mapped memory go; reading it again is allowed."""
        info = self.tensors[name]
        self._files[info.file].release(info.offset, info.nbytes)


def open_gguf(path: Path, elsewhere: Mapping[str, FileBytes] = {}) -> Checkpoint:
    """Open and check a GGUF file; with any part of a split model, all of it.

    `elsewhere` has the bytes of files that aren't in the folder, by their names in it. No tensor is read.
    Raises InputError where a file is missing, cut short or damaged, and UnsupportedError for a version, byte
    order or type that penjing doesn't know.
    """
    file = elsewhere.get(path.name) or MappedFile(path)
    header = read_header(file)
    count = header.metadata.get("split.count", 1)
    if count == 1 or count == 0:
        return GGUFFile(path, [file], [header])
    parts = _part_paths(path, count, elsewhere.keys())
    files = [elsewhere.get(part.name) or MappedFile(part) for part in parts]
    headers = [read_header(part) for part in files]
    for number, (part, part_header) in enumerate(zip(files, headers, strict=True)):
        place = (part_header.metadata.get("split.no"), part_header.metadata.get("split.count"))
        if place != (number, count):
            raise InputError(
                f"{part.path} should be part {number + 1} of {count}, but its split.no and split.count are "
                f"{quote(place)}; the parts belong to different models or are misnamed."
            )
    return _whole(GGUFFile(path, files, headers))


def _part_paths(path: Path, count: Any, elsewhere: Set[str]) -> list[Path]:
    match = PART_NAME.fullmatch(path.name)
    if type(count) is not int or match is None or int(match[3]) != count:
        raise InputError(
            f"{path} is one of {quote(count)} parts (split.count), so its name should end in "
            "'-00001-of-0000N.gguf' for the others to be found; give the parts their original names."
        )
    parts = [path.with_name(f"{match[1]}-{number:05}-of-{match[3]}.gguf") for number in range(1, count + 1)]
    missing = [part.name for part in parts if not part.is_file() and part.name not in elsewhere]
    if missing:
        raise InputError(
            f"{path} is one of {count} parts, and these aren't in {path.parent}: {', '.join(missing)}; "
            "copy or download them."
        )
    return parts


def _whole(model: GGUFFile) -> GGUFFile:
    """The model, if it has as many tensors as its first part says."""
    expected = model.config.get("split.tensors.count", len(model.tensors))
    if expected != len(model.tensors):
        raise InputError(
            f"The parts of {model.path} hold {len(model.tensors)} tensors, but split.tensors.count is "
            f"{quote(expected)}; copy or download them again."
        )
    return model
