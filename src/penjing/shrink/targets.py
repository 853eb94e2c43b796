"""What of a model can be packed: its matrices, the tied one once."""

from dataclasses import dataclass
from typing import Literal

from torch import nn

from penjing.model.decoder import Decoder
from penjing.model.plan import EMBEDDING, HEAD

Role = Literal["linear", "embedding", "head", "tied"]


@dataclass(frozen=True)
class Matrix:
    """One packable matrix (rows, columns), by its module's name. A "tied" one is both embedding and head.
    `float_bytes` is what it takes where it isn't packed."""

    name: str
    rows: int
    columns: int
    role: Role
    float_bytes: int

    @property
    def parameters(self) -> int:
        return self.rows * self.columns


def packable_matrices(module: Decoder) -> list[Matrix]:
    """Every linear and embedding of the model, in its own order; empty matrices are left out."""
    return [
        Matrix(name, *child.weight.shape, role=_role(name, module), float_bytes=2 * child.weight.numel())
        for name, child in module.named_modules()
        if isinstance(child, (nn.Linear, nn.Embedding)) and child.weight.numel()
    ]


def _role(name: str, module: Decoder) -> Role:
    if name == EMBEDDING:
        return "tied" if module.config.tie_word_embeddings else "embedding"
    return "head" if name == HEAD else "linear"
