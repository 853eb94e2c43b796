"""Which parameters of any module can be packed: what one run of it shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from penjing.errors import InputError
from penjing.model.matrix_form import MatrixForm
from penjing.model.packed_parameter import names_by_parameter
from penjing.shrink.modules.calls import call
from penjing.shrink.modules.watch import LookUp, Use, watching
from penjing.shrink.targets import Matrix

_FLOATS = (torch.float32, torch.bfloat16, torch.float16)
_LEAST_COLUMNS = 32  # of fewer, a scale would cost about as much as the codes


@dataclass(frozen=True)
class Packable:
    """A parameter that can be packed: all its `names`, and whether it is multiplied with inputs or only
    looked up."""

    names: tuple[str, ...]
    parameter: torch.Tensor
    form: MatrixForm
    multiplied: bool
    looked_up: bool

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def matrix(self) -> Matrix:
        """Its matrices one below the other, as one."""
        form = self.form
        return Matrix(
            self.name,
            form.matrices * form.rows,
            form.columns,
            role="linear" if self.multiplied else "embedding",
            float_bytes=self.parameter.nbytes,
        )

    @property
    def weight_RC(self) -> torch.Tensor:
        """Float32, its matrices one below the other."""
        return self.form.read(self.parameter.detach()).flatten(0, 1).float()


@dataclass(frozen=True)
class Found:
    """What can be packed, in the order of use, and the names of large parameters that can't."""

    packable: tuple[Packable, ...]
    left_out: tuple[str, ...] = field(default=())


def find_packable(module: nn.Module, batch: Any) -> Found:
    """Run `module` on one batch and see which parameters are multiplied or looked up.

    Raises `InputError` if there is none, or one isn't on the CPU.
    """
    names = names_by_parameter(module)
    candidates = {
        those[0]: parameter
        for parameter, those in names.items()
        if parameter.dim() >= 2 and parameter.dtype in _FLOATS
    }
    elsewhere = [name for name, parameter in candidates.items() if parameter.device.type != "cpu"]
    if elsewhere:
        raise InputError(f"{elsewhere[0]} isn't on the CPU, where weights are rounded; move the module there")
    seen = _Seen()
    with watching(module, candidates, seen.note):
        call(module, batch)
    packable = []
    for name in seen.order:
        form = seen.forms.get(name) or MatrixForm(tuple(candidates[name].shape))
        if form.columns >= _LEAST_COLUMNS:
            parameter = candidates[name]
            packable.append(
                Packable(names[parameter], parameter, form, name in seen.forms, name in seen.looked_up)
            )
    if not packable:
        raise InputError(
            "the module has no float parameter that is multiplied with inputs of at least"
            f" {_LEAST_COLUMNS} columns, or looked up; there is nothing to shrink"
        )
    taken = {each.name for each in packable}
    return Found(tuple(packable), tuple(name for name in candidates if name not in taken))


class _Seen:
    """Uses by parameter; the first form in which one is multiplied counts."""

    def __init__(self) -> None:
        self.order: dict[str, None] = {}
        self.forms: dict[str, MatrixForm] = {}
        self.looked_up: set[str] = set()

    def note(self, use: Use) -> None:
        self.order.setdefault(use.name)
        if isinstance(use, LookUp):
            self.looked_up.add(use.name)
        else:
            self.forms.setdefault(use.name, use.form)
