"""Where the predicted divergence comes from: by layer, by kind, and the matrices that cause most."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from penjing.model.ledger import Ledger
from penjing.shrink.report import numbers
from penjing.shrink.report.matrices import module_name, ordered_kinds, place_of

TOP = 10


@dataclass(frozen=True)
class Bar:
    """`length` is relative to the longest bar of its chart, 0 to 1."""

    label: str
    share: str
    length: float


@dataclass(frozen=True)
class Culprit:
    """One of the matrices that cause most."""

    name: str
    place: str
    stored_as: str
    bits: str
    share: str


@dataclass(frozen=True)
class Losses:
    total: str
    by_layer: Sequence[Bar]
    by_kind: Sequence[Bar]
    top: Sequence[Culprit]


def losses(divergence: Mapping[str, float], ledger: Ledger) -> Losses | None:
    """None if no divergence was predicted for any matrix."""
    known = {module_name(name): loss for name, loss in divergence.items() if isfinite(loss) and loss > 0}
    total = sum(known.values())
    if not total:
        return None
    return Losses(numbers.nats(total), _by_layer(divergence, known), _by_kind(known), _top(known, ledger))


def _by_layer(divergence: Mapping[str, float], known: Mapping[str, float]) -> list[Bar]:
    """In the model's order; a layer that loses nothing still has its bar."""
    places = {module_name(name): place_of(name) for name in divergence}
    outside = dict.fromkeys(place.kind for place in places.values() if place.layer is None)
    layers = sorted({place.layer for place in places.values() if place.layer is not None})
    labels = [kind for kind in outside if kind != "head"] + [str(layer) for layer in layers]
    labels += [kind for kind in outside if kind == "head"]
    sums = dict.fromkeys(labels, 0.0)
    for name, loss in known.items():
        place = places[name]
        sums[place.kind if place.layer is None else str(place.layer)] += loss
    return _bars(sums.items())


def _by_kind(known: Mapping[str, float]) -> list[Bar]:
    sums = dict.fromkeys(ordered_kinds(place_of(name).kind for name in known), 0.0)
    for name, loss in known.items():
        sums[place_of(name).kind] += loss
    return _bars(sums.items())


def _bars(sums: Iterable[tuple[str, float]]) -> list[Bar]:
    pairs = list(sums)
    total, longest = sum(loss for _, loss in pairs), max(loss for _, loss in pairs)
    return [Bar(label, numbers.percent(loss / total), round(loss / longest, 4)) for label, loss in pairs]


def _top(known: Mapping[str, float], ledger: Ledger) -> list[Culprit]:
    entries = {module_name(entry.name): entry for entry in ledger.entries}
    total = sum(known.values())
    found = []
    for name, loss in sorted(known.items(), key=lambda item: -item[1])[:TOP]:
        entry = entries.get(name)
        stored_as = entry.stored_as if entry else "not known"
        bits = f"{8 * entry.nbytes / entry.parameters:.2f}" if entry and entry.parameters else "not known"
        found.append(Culprit(name, str(place_of(name)), stored_as, bits, numbers.percent(loss / total)))
    return found
