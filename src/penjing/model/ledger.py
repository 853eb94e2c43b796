"""Exact bytes and parameters of a model: every tensor of the saved checkpoint, a tied one once."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from penjing.model.plan import Plan

FLOATS = ("float16", "bfloat16", "float32")


@dataclass(frozen=True)
class Entry:
    """One weight as the user thinks of it: a packed matrix is one entry with all its parts. `group` is the
    part of the model it belongs to, where its name doesn't tell."""

    name: str
    parameters: int
    nbytes: int
    stored_as: str
    group: str | None = None


@dataclass(frozen=True)
class Ledger:
    """All entries of a model. `nbytes` is the size that penjing promises and measures."""

    entries: tuple[Entry, ...]

    @property
    def parameters(self) -> int:
        return sum(entry.parameters for entry in self.entries)

    @property
    def nbytes(self) -> int:
        return sum(entry.nbytes for entry in self.entries)

    @property
    def bits_per_weight(self) -> float:
        return 8 * self.nbytes / self.parameters if self.parameters else 0.0

    def bytes_by_kind(self) -> dict[str, int]:
        """Bytes by how weights are stored ("bfloat16", "affine 4-bit, groups of 64"), largest first."""
        return _summed((entry.stored_as, entry.nbytes) for entry in self.entries)

    def parameters_by_group(self) -> dict[str, int]:
        """Parameters by part of the model, largest first."""
        return _summed((entry.group or group_of(entry.name), entry.parameters) for entry in self.entries)


def group_of(name: str) -> str:
    """The part of the model that a tensor belongs to."""
    for key, group in (
        ("embed_tokens", "embedding"),
        ("embed_positions", "positions"),
        ("lm_head", "head"),
        ("self_attn", "attention"),
        ("mlp.experts", "experts"),
        ("mlp", "feed-forward"),
    ):
        if key in name and "norm" not in name.rpartition(".")[0].rpartition(".")[2]:
            return group
    return "norms"


def plan_ledger(plan: Plan) -> Ledger:
    """The ledger of a checkpoint as it lies on disk, from its headers alone."""
    entries = []
    for name, shape in plan.shapes.items():
        parameters = prod(shape)
        module = name.removesuffix(".weight")
        if module in plan.packed:
            spec = plan.packed[module]
            entries.append(Entry(name, parameters, spec.nbytes(*shape), str(spec)))
        else:
            info = plan.info(name)  # its rows are all alike, so a fused tensor's bytes divide evenly
            nbytes = info.nbytes * parameters // prod(info.shape) if parameters else 0
            entries.append(Entry(name, parameters, nbytes, info.dtype, plan.groups.get(name)))
    return Ledger(tuple(entries))


def load_bytes(plan: Plan) -> int:
    """Bytes that the loaded module will hold: packed parts as they are, all else in float32."""
    return sum(
        plan.info(stored.native[0]).nbytes
        if plan.is_packed_part(stored.native[0])
        else 4 * sum(prod(shape) for shape in stored.shapes)
        for stored in plan.stored
    )


def least_load_bytes(plan: Plan) -> int:
    """Bytes that the loaded module needs at least: packed parts, vectors, and one matrix unpacked; the other
    matrices stay in the file until they are used, if they may."""
    if not plan.can_hold_stored:
        return load_bytes(plan)
    largest, rest = 0, 0
    for stored in plan.stored:
        if plan.is_packed_part(stored.native[0]):
            rest += plan.info(stored.native[0]).nbytes
            continue
        for shape in stored.shapes:
            largest = max(largest, prod(shape))
            rest += 4 * prod(shape) if len(shape) == 1 else 0
    return rest + 4 * largest


def base_bytes(ledger: Ledger) -> int:
    """Bytes of the original that a shrunk model is held against: as stored if it is all 16- or 32-bit floats,
    else the same model at 16 bits."""
    if all(entry.stored_as in FLOATS for entry in ledger.entries):
        return ledger.nbytes
    return 2 * ledger.parameters


def _summed(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for key, value in pairs:
        totals[key] = totals.get(key, 0) + value
    return dict(sorted(totals.items(), key=lambda item: -item[1]))
