"""What of a model can be packed: its matrices, the tied one once."""

from dataclasses import dataclass
from typing import Literal

from torch import nn

from penjing.errors import InputError
from penjing.model.decoder import Decoder
from penjing.model.plan import LoadPlan, tensor_shapes

Role = Literal["linear", "embedding", "head", "tied"]
EMBEDDING, HEAD = "model.embed_tokens", "lm_head"


@dataclass(frozen=True)
class Matrix:
    """One packable matrix (rows, columns), by its module's name. A "tied" one is both embedding and head."""

    name: str
    rows: int
    columns: int
    role: Role

    @property
    def parameters(self) -> int:
        return self.rows * self.columns


def packable_matrices(module: Decoder) -> list[Matrix]:
    """Every linear and embedding of the model, in its own order; empty matrices are left out."""
    return [
        Matrix(name, *child.weight.shape, role=_role(name, module))
        for name, child in module.named_modules()
        if isinstance(child, (nn.Linear, nn.Embedding)) and child.weight.numel()
    ]


def matrix_shapes(plan: LoadPlan) -> dict[str, tuple[int, int]]:
    """Name and shape of every packable matrix, from a checkpoint's headers alone; a model that is packed
    already is an `InputError`."""
    if plan.packed:
        raise InputError(f"{plan.checkpoint.path} is quantised already; shrink its 16-bit original instead")
    return {
        name.removesuffix(".weight"): (shape[0], shape[1])
        for name, shape in tensor_shapes(plan.config).items()
        if len(shape) == 2 and 0 not in shape
    }


def _role(name: str, module: Decoder) -> Role:
    if name == EMBEDDING:
        return "tied" if module.config.tie_word_embeddings else "embedding"
    return "head" if name == HEAD else "linear"
