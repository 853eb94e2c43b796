"""Which matrix gets which grid: least predicted divergence within a number of bytes.

A multiple-choice knapsack. Each matrix's candidates are reduced to their lower convex hull; steps up the
hulls are taken in the order of divergence saved per byte (the Lagrangian solution), then what is left of the
budget goes to the best steps that still fit.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penjing.errors import InputError
from penjing.packed.parts import PackedSpec
from penjing.shrink.candidates import Candidate


@dataclass(frozen=True)
class Allocation:
    """The chosen candidate of every matrix, by name."""

    chosen: Mapping[str, Candidate]

    @property
    def nbytes(self) -> int:
        return sum(candidate.nbytes for candidate in self.chosen.values())

    @property
    def divergence(self) -> float:
        return sum(candidate.divergence for candidate in self.chosen.values())

    @property
    def specs(self) -> dict[str, PackedSpec]:
        """The matrices that are packed, and how."""
        return {name: c.spec for name, c in self.chosen.items() if c.spec is not None}


def allocate(candidates: Mapping[str, Sequence[Candidate]], budget: int) -> Allocation:
    """The allocation of least predicted divergence whose bytes are at most `budget`, as far as steps
    along the hulls find it, and never a worse one than the same grid for every matrix.

    Raises `InputError` naming the smallest reachable size when even that is over the budget.
    """
    climbed = _climb(candidates, budget)
    same = [a for spec in _shared_specs(candidates) if (a := uniform(candidates, spec)).nbytes <= budget]
    return min([climbed, *same], key=lambda allocation: allocation.divergence)


def _shared_specs(candidates: Mapping[str, Sequence[Candidate]]) -> list[PackedSpec]:
    """The grids that every matrix can have."""
    first, *others = ([option.spec for option in options] for options in candidates.values())
    return [spec for spec in first if spec is not None and all(spec in other for other in others)]


def _climb(candidates: Mapping[str, Sequence[Candidate]], budget: int) -> Allocation:
    hulls = {name: convex_hull(options) for name, options in candidates.items()}
    smallest = sum(hull[0].nbytes for hull in hulls.values())
    if smallest > budget:
        raise InputError(
            f"the matrices cannot be made smaller than {smallest:,} bytes; {budget:,} are left for them"
        )
    level = dict.fromkeys(hulls, 0)
    left = budget - smallest
    queue = [(-_gain(hull, 0), name) for name, hull in hulls.items() if len(hull) > 1]
    heapq.heapify(queue)
    while queue:
        _, name = heapq.heappop(queue)
        hull, at = hulls[name], level[name]
        cost = hull[at + 1].nbytes - hull[at].nbytes
        if cost > left:
            continue
        left -= cost
        level[name] = at + 1
        if at + 2 < len(hull):
            heapq.heappush(queue, (-_gain(hull, at + 1), name))
    return Allocation({name: hull[level[name]] for name, hull in hulls.items()})


def uniform(candidates: Mapping[str, Sequence[Candidate]], spec: PackedSpec) -> Allocation:
    """Every matrix on the same grid."""
    return Allocation(
        {name: next(c for c in options if c.spec == spec) for name, options in candidates.items()}
    )


def convex_hull(options: Sequence[Candidate]) -> list[Candidate]:
    """Options by growing bytes such that divergence falls, and falls ever more slowly per byte."""
    hull: list[Candidate] = []
    for option in sorted(options, key=lambda c: (c.nbytes, c.divergence)):
        if hull and option.divergence >= hull[-1].divergence:
            continue
        while len(hull) > 1 and _slope(hull[-1], option) >= _slope(hull[-2], hull[-1]):
            hull.pop()
        hull.append(option)
    return hull


def _slope(small: Candidate, large: Candidate) -> float:
    return (small.divergence - large.divergence) / (large.nbytes - small.nbytes)


def _gain(hull: Sequence[Candidate], at: int) -> float:
    return _slope(hull[at], hull[at + 1])
