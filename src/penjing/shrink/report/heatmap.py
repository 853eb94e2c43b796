"""Bits per weight of every matrix, layers by kinds."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penjing.model.ledger import Entry, Ledger
from penjing.shrink.report import numbers
from penjing.shrink.report.matrices import matrices_of, module_name, ordered_kinds, place_of

# A matrix at n-bit codes takes n plus up to about half a bit for its scales.
STEPS = ((2.75, "2"), (3.75, "3"), (4.75, "4"), (5.75, "5"), (7.0, "6"), (10.0, "8"), (float("inf"), "16"))


@dataclass(frozen=True)
class Cell:
    """`step` counts colours from 0 (fewest bits)."""

    label: str
    step: int
    title: str


@dataclass(frozen=True)
class HeatMap:
    """`rows` are the layers, a cell a kind (None where a layer has no such matrix); `outside` are matrices
    that belong to no layer, by name."""

    kinds: Sequence[str]
    rows: Sequence[tuple[int, Sequence[Cell | None]]]
    outside: Sequence[tuple[str, Cell]]


def heat_map(ledger: Ledger) -> HeatMap:
    """The grid of all matrices in `ledger`."""
    groups: dict[tuple[int | None, str], list[Entry]] = {}
    for entry in matrices_of(ledger):
        place = place_of(entry.name)
        groups.setdefault((place.layer, place.kind), []).append(entry)
    kinds = ordered_kinds(kind for layer, kind in groups if layer is not None)
    layers = sorted({layer for layer, _ in groups if layer is not None})
    rows = [(layer, [_cell(groups.get((layer, kind), ())) for kind in kinds]) for layer in layers]
    outside = [(kind, _cell(entries)) for (layer, kind), entries in groups.items() if layer is None]
    return HeatMap(kinds, rows, [(_outside_name(kind, outside), cell) for kind, cell in outside if cell])


def step_of(bits: float) -> int:
    """The colour of so many bits per weight."""
    return next(step for step, (limit, _) in enumerate(STEPS) if bits < limit)


def _cell(entries: Iterable[Entry]) -> Cell | None:
    """One cell for the matrices of a place: usually one, several where a layer has experts."""
    ledger = Ledger(tuple(entries))
    if not ledger.parameters:
        return None
    names = ", ".join(f"{module_name(e.name)}: {e.stored_as}" for e in ledger.entries)
    bits = ledger.bits_per_weight
    return Cell(
        f"{bits:.1f}", step_of(bits), f"{names}, {bits:.2f} bits per weight, {numbers.size(ledger.nbytes)}"
    )


def _outside_name(kind: str, outside: Sequence[tuple[str, Cell | None]]) -> str:
    """A tied embedding says that it is the head as well."""
    tied = kind == "embedding" and all(other != "head" for other, _ in outside)
    return "embedding and head (one matrix)" if tied else kind
