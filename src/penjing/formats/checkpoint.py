"""What every checkpoint on disk looks like to the rest of penjing."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:  # headers are read without it
    import torch


@dataclass(frozen=True)
class TensorInfo:
    """Where one tensor lies. `dtype` is torch's name ("bfloat16") or a GGUF type's ("Q4_1")."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    file: Path
    offset: int


class Checkpoint(Protocol):
    """An opened, validated, memory-mapped checkpoint: nothing is read until `read` asks for it.

    `config` is the folder's `config.json`, or a GGUF file's metadata under its own keys. `notices` are
    oddities worth a line to the user: each is a full sentence.
    """

    @property
    def path(self) -> Path: ...
    @property
    def kind(self) -> Literal["hf", "gguf"]: ...
    @property
    def config(self) -> Mapping[str, Any]: ...
    @property
    def tensors(self) -> Mapping[str, TensorInfo]: ...
    @property
    def notices(self) -> tuple[str, ...]: ...

    def read(self, name: str) -> "torch.Tensor":
        """The tensor in its stored dtype, mapped and not to be written to; GGUF blocks come as float32."""
        ...

    def read_blocks(self, name: str) -> "torch.Tensor":
        """The mapped bytes of a tensor of GGML blocks, uint8 (..., bytes a row)."""
        ...

    def release(self, name: str) -> None:
        """Let the tensor's mapped memory go; reading it again is allowed."""
        ...
