"""Which matrix sits where: its layer and its kind, read from its name."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from penjing.model.ledger import Entry, Ledger, group_of

_IN_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.(.+)$")
_OUTSIDE = {"embed_tokens": "embedding", "lm_head": "head"}
_USUAL_ORDER = ("q", "k", "v", "o", "gate", "up", "down")


@dataclass(frozen=True)
class Place:
    """`layer` is None for what belongs to no layer."""

    layer: int | None
    kind: str

    def __str__(self) -> str:
        return self.kind if self.layer is None else f"layer {self.layer}, {self.kind}"


def module_name(name: str) -> str:
    """A matrix's module, whether it is named by the module or by its weight."""
    return name.removesuffix(".weight")


def place_of(name: str) -> Place:
    """`model.layers.3.mlp.up_proj` is layer 3, kind "up"."""
    name = module_name(name)
    inside = _IN_LAYER.search(name)
    last = name.rpartition(".")[2]
    if inside:
        return Place(int(inside[1]), last.removesuffix("_proj"))
    return Place(None, _OUTSIDE.get(last, last))


def matrices_of(ledger: Ledger) -> list[Entry]:
    """The entries that are matrices: neither norms nor biases."""
    return [e for e in ledger.entries if e.name.endswith(".weight") and group_of(e.name) != "norms"]


def ordered_kinds(kinds: Iterable[str]) -> list[str]:
    """Each kind once: the usual ones in the order of computation, then others as they come."""
    found = list(dict.fromkeys(kinds))
    return sorted(
        found, key=lambda kind: _USUAL_ORDER.index(kind) if kind in _USUAL_ORDER else len(_USUAL_ORDER)
    )
