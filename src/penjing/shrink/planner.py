"""Sizes of a model that is to be shrunk: the least, the largest, and which matrix gets which grid between."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from penjing.shrink.allocation import Allocation, allocate
from penjing.shrink.candidates import Candidate
from penjing.shrink.forms import Layouts, own_layouts
from penjing.shrink.reach import least_matrix_bytes, unreachable
from penjing.shrink.targets import Matrix


@dataclass(frozen=True)
class Planner:
    """Exact bytes of every plan: `fixed_bytes` are those of what is never packed. `measure` finds the
    candidates of every matrix, when they are first needed; matrices of a unit get the same layout (None:
    each its own). `base_bytes` and `parameters` are the original's, for messages."""

    matrices: Sequence[Matrix]
    fixed_bytes: int
    base_bytes: int
    parameters: int
    measure: Callable[[], Mapping[str, Sequence[Candidate]]]
    layouts: Layouts = own_layouts
    units: Sequence[Sequence[str]] | None = None

    @cached_property
    def candidates(self) -> Mapping[str, Sequence[Candidate]]:
        return self.measure()

    @cached_property
    def smallest(self) -> int:
        """Bytes of the smallest model that can be built; known from the shapes alone."""
        return self.fixed_bytes + sum(
            least_matrix_bytes(m.rows, m.columns, self.layouts) for m in self.matrices
        )

    @cached_property
    def largest(self) -> int:
        """Bytes of the model with every matrix at its best."""
        return self.fixed_bytes + sum(max(c.nbytes for c in options) for options in self.candidates.values())

    def require_reachable(self, nbytes: int) -> None:
        """Raise `InputError` if no model of at most `nbytes` can be built. Needs no compute."""
        if nbytes < self.smallest:
            raise unreachable(nbytes, self.smallest, self.base_bytes, self.parameters)

    def plan(self, nbytes: int) -> Allocation:
        """Which matrix gets which grid in a model of at most `nbytes`; too few are an `InputError`."""
        self.require_reachable(nbytes)
        if self.units is None:
            return allocate(self.candidates, nbytes - self.fixed_bytes)
        chosen = allocate(self._joined, nbytes - self.fixed_bytes).chosen
        return Allocation(
            {
                name: next(option for option in self.candidates[name] if option.spec == chosen[unit].spec)
                for unit, names in self._members.items()
                for name in names
            }
        )

    @cached_property
    def _members(self) -> dict[str, list[str]]:
        """The matrices of each unit, by the first one's name."""
        inside = ([name for name in unit if name in self.candidates] for unit in self.units or ())
        return {names[0]: names for names in inside if names}

    @cached_property
    def _joined(self) -> dict[str, list[Candidate]]:
        """What each unit costs as a whole, for every layout that all of it can have."""
        joined = {}
        for unit, names in self._members.items():
            by_spec = [{option.spec: option for option in self.candidates[name]} for name in names]
            joined[unit] = [
                Candidate(
                    spec,
                    sum(options[spec].nbytes for options in by_spec),
                    sum(options[spec].divergence for options in by_spec),
                )
                for spec in by_spec[0]
                if all(spec in options for options in by_spec)
            ]
        return joined

    def predicted_curve(self, points: int = 24) -> tuple[tuple[int, float], ...]:
        """Bytes and predicted divergence from the smallest model to the largest."""
        steps = [self.smallest + (self.largest - self.smallest) * i // (points - 1) for i in range(points)]
        plans = [self.plan(nbytes) for nbytes in steps]
        return tuple((plan.nbytes + self.fixed_bytes, plan.divergence) for plan in plans)
