"""What sizes of a model would keep, before one is chosen: one is built and measured, the others follow from
it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp
from pathlib import Path
from typing import Any

from penjing.api import Model
from penjing.model.opening import OpenedModel
from penjing.shrink.effort import find_effort
from penjing.shrink.shrink import Progress, make_job

_SHARES = (0.6, 0.5, 0.45, 0.4, 0.35, 0.3, 0.25, 0.2, 0.15)
_PROBED = 0.35  # about four bits a weight: neither nearly lossless nor nearly ruined


@dataclass(frozen=True)
class Point:
    """A size, and the divergence from the original in nats a token: `measured`, or expected."""

    nbytes: int
    kl: float
    measured: bool

    @property
    def kept(self) -> float:
        """The share of perplexity that such a divergence leaves."""
        return exp(-self.kl)


@dataclass(frozen=True)
class Frontier:
    """Sizes from large to small, down to the smallest that can be built."""

    points: tuple[Point, ...]
    base_bytes: int
    notices: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        points = [
            {
                "bytes": point.nbytes,
                "ratio": point.nbytes / self.base_bytes,
                "kl": point.kl,
                "kept": point.kept,
                "measured": point.measured,
            }
            for point in self.points
        ]
        return {"base_bytes": self.base_bytes, "frontier": points, "notices": list(self.notices)}


def find_frontier(
    model: Model | OpenedModel | str | Path,
    *,
    effort: str = "default",
    texts: Mapping[str, Sequence[str]] | None = None,
    seed: int = 0,
    form: str = "hf",
    progress: Progress | None = None,
) -> Frontier:
    """Sizes of `model` and what each is expected to keep, so that one can be chosen for `to`.

    Statistics predict how divergence grows as size falls; one size is built and measured, and sets the scale.
    The arguments and errors are those of `shrink`. Nothing here is a promise: `keep` gives one.
    """
    job = make_job(model, texts, find_effort(effort), seed, form, progress or (lambda *_: None))
    planner, base = job.builder.planner, job.original.base_bytes
    wanted = {int(share * base) for share in _SHARES} | {planner.smallest}
    sizes = sorted((n for n in wanted if planner.smallest <= n <= planner.largest), reverse=True)
    probed = min(sizes, key=lambda nbytes: abs(nbytes - _PROBED * base))
    measured = job.probe(probed).overall.kl
    assert measured is not None
    scale = measured.value / max(planner.plan(probed).divergence, 1e-30)
    points = (Point(n, scale * planner.plan(n).divergence, n == probed) for n in sizes)
    return Frontier(tuple(points), base, job.notices)
