"""How small a model can become, by its headers alone: plain integers, known before torch is there."""

from math import prod

from penjing.errors import InputError
from penjing.model.bridge.plan import BridgedPlan
from penjing.model.ledger import plan_ledger
from penjing.model.plan import LoadPlan
from penjing.model.shapes import Shape, matrix_shapes
from penjing.shrink.forms import Layouts, own_layouts


def least_bytes(plan: LoadPlan | BridgedPlan, layouts: Layouts = own_layouts) -> int:
    """Bytes of the smallest model that can be built from a checkpoint, or, of one that runs through
    transformers, a number that it is no smaller than; one that is packed already is an `InputError`."""
    if plan.packed:
        raise InputError(f"{plan.checkpoint.path} is quantised already; shrink its 16-bit original instead")
    if isinstance(plan, BridgedPlan):
        return sum(_least_bytes_of(shape, layouts) for shape in plan.shapes.values())
    matrices = matrix_shapes(plan.config)
    fixed = (e.nbytes for e in plan_ledger(plan).entries if e.name.removesuffix(".weight") not in matrices)
    return sum(fixed) + sum(least_matrix_bytes(rows, columns, layouts) for rows, columns in matrices.values())


def _least_bytes_of(shape: Shape, layouts: Layouts) -> int:
    """The least bytes that a tensor may take, whichever way it is read as matrices."""
    size = prod(shape)
    if len(shape) < 2 or not size:
        return 2 * size
    return min(
        least_matrix_bytes(size // columns, columns, layouts) for columns in (size // shape[0], *shape)
    )


def unreachable(nbytes: int, smallest: int, base_bytes: int, parameters: int) -> InputError:
    """The error for a size below the smallest that can be built, which it names."""
    return InputError(
        f"{nbytes / 1e6:.2f} MB can't be reached: the smallest model that can be built has"
        f" {smallest / 1e6:.2f} MB ({smallest / base_bytes:.3f} of the base,"
        f" {8 * smallest / parameters:.2f} bits a weight)"
    )


def least_matrix_bytes(rows: int, columns: int, layouts: Layouts = own_layouts) -> int:
    """Bytes of a matrix in its smallest layout, or of its 16-bit floats."""
    return min([2 * rows * columns, *(layout.nbytes(rows, columns) for layout in layouts(columns))])
