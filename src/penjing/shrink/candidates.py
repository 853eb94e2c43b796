"""What each way of storing a matrix costs: exact bytes, and the divergence it is predicted to cause."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from penjing.memory import give_back_memory
from penjing.packed.parts import PackedSpec
from penjing.shrink.forms import Layouts, own_layouts
from penjing.shrink.rounding import round_nearest
from penjing.shrink.sensitivity import Curvature
from penjing.shrink.targets import Matrix

Progress = Callable[[int, int], None]
_SAMPLE_ROWS = 16  # rows that stand for a matrix when its error is predicted


@dataclass(frozen=True)
class Candidate:
    """`spec` None keeps the matrix in floats. `divergence` is predicted KL in nats per token."""

    spec: PackedSpec | None
    nbytes: int
    divergence: float


def candidates_of(
    matrices: Sequence[Matrix],
    weight_of: Callable[[Matrix], torch.Tensor],
    uses: Mapping[str, tuple[Curvature, ...]],
    layouts: Layouts = own_layouts,
    progress: Progress | None = None,
) -> dict[str, list[Candidate]]:
    """Every layout for every matrix, and keeping it in floats, by growing bytes. `uses` holds the curvature
    of each use of a matrix."""
    found = {}
    for i, matrix in enumerate(matrices):
        found[matrix.name] = _candidates(
            weight_of(matrix), matrix, uses[matrix.name], layouts(matrix.columns)
        )
        if progress:
            progress(i + 1, len(matrices))
    give_back_memory()
    return found


def _candidates(
    weight_RC: torch.Tensor, matrix: Matrix, uses: tuple[Curvature, ...], grids: Sequence[PackedSpec]
) -> list[Candidate]:
    rows = torch.linspace(0, matrix.rows - 1, min(matrix.rows, _SAMPLE_ROWS)).long()
    sample = weight_RC[rows]
    importance_C = sum((use.output.mean() * use.input for use in uses), torch.zeros(matrix.columns))
    options = [Candidate(None, matrix.float_bytes, 0.0)]
    for spec in grids:
        error = round_nearest(sample, spec, importance_C).dequantize() - sample
        divergence = predicted_divergence(error.square().mean(dim=0), uses)
        options.append(Candidate(spec, spec.nbytes(matrix.rows, matrix.columns), divergence))
    return sorted(options, key=lambda option: option.nbytes)


def predicted_divergence(squared_error_C: torch.Tensor, uses: Sequence[Curvature]) -> float:
    """½ · Σ output · Σ input·error², summed over the matrix's uses (see `sensitivity`), from the mean
    squared error of each column. The rows' curvature is summed over all rows: in a vocabulary a few hold
    most of it."""
    return 0.5 * sum(float(use.output.sum() * (use.input @ squared_error_C)) for use in uses)
