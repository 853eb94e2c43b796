"""Scaled matrices that a file holds fused, one below another: numbers and scales are cut where one ends."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from penjing.errors import UnsupportedError
from penjing.formats.checkpoint import TensorInfo
from penjing.model.layouts import Rows
from penjing.model.names import Stored
from penjing.packed.parts import PackedSpec
from penjing.packed.scaled_spec import ScaledSpec

Matrices = Mapping[str, tuple[int, int]]


def shares(
    known_as: Mapping[str, str], tensors: Mapping[str, TensorInfo], matrices: Matrices
) -> dict[str, TensorInfo]:
    """The file's tensors under the module's names (`known_as`). A fused one has under each name the shape of
    that matrix's share of its rows, if that is a whole number of them."""
    rows = {native: matrices.get(native.rpartition(".")[0], (0, 0))[0] for native in known_as}
    totals: dict[str, int] = defaultdict(int)
    for native, name in known_as.items():
        totals[name] += rows[native]
    return {native: _share(tensors[name], rows[native], totals[name]) for native, name in known_as.items()}


def _share(info: TensorInfo, rows: int, total: int) -> TensorInfo:
    if rows == total or not info.shape or info.shape[0] * rows % total:
        return info
    return replace(info, shape=(info.shape[0] * rows // total, *info.shape[1:]))


def check_cuts(
    stored: Iterable[Stored], packed: Mapping[str, PackedSpec], matrices: Matrices, source: str
) -> None:
    """Raise `UnsupportedError` for a fused matrix that has a scale for values of two matrices."""
    for tensor in stored:
        modules = [native.rpartition(".")[0] for native in tensor.native]
        if tensor.layout != Rows() or modules[0] not in packed:
            continue
        if not all(_ends_with_a_block(packed[module], *matrices[module]) for module in modules[:-1]):
            raise UnsupportedError(
                f"{source}: {tensor.name} holds several matrices, and its scales can't be cut where they end;"
                " use the 16-bit original"
            )


def _ends_with_a_block(spec: PackedSpec, rows: int, columns: int) -> bool:
    return isinstance(spec, ScaledSpec) and spec.block[0] > 0 and rows % spec.block[0] == 0
