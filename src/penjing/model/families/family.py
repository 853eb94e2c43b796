"""What one family file says: how its configs and names map onto the one decoder, and its quirks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from penjing.model.config import ModelConfig
from penjing.model.foreign import ForeignConfig


def as_stored(name: str, tensor: torch.Tensor, config: ModelConfig) -> torch.Tensor:
    """The GGUF tensor is the Hugging Face tensor."""
    return tensor


@dataclass(frozen=True)
class Family:
    """`model_type` and `gguf_architectures` are how files name it. `read` maps a Hugging Face config;
    `from_gguf` maps GGUF metadata to one; `undo_gguf` turns a GGUF tensor, under its Hugging Face name, into
    that layout."""

    model_type: str
    architecture: str
    gguf_architectures: tuple[str, ...]
    read: Callable[[ForeignConfig], ModelConfig]
    from_gguf: Callable[[ForeignConfig], dict[str, Any]]
    undo_gguf: Callable[[str, torch.Tensor, ModelConfig], torch.Tensor] = as_stored
