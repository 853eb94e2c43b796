"""Any module, as shrinking asks for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import nn

from penjing.formats.hf_folder import some
from penjing.packed.parts import PackedSpec
from penjing.shrink.candidates import Candidate, candidates_of
from penjing.shrink.forms import Layouts
from penjing.shrink.modules.calls import Outputs, evaluating
from penjing.shrink.modules.curvature import measure_curvature
from penjing.shrink.modules.objective import Objective
from penjing.shrink.modules.parameters import Found, find_packable
from penjing.shrink.modules.waves import round_module
from penjing.shrink.rounder import Progress, stage
from penjing.shrink.sensitivity import Curvature
from penjing.shrink.targets import Matrix


@dataclass(frozen=True)
class ModuleRounder:
    """Rounds the parameters of a module that it is seen to multiply or to look up on calibration
    `batches`."""

    module: nn.Module
    batches: Sequence[Any]
    objective: Objective
    outputs: Outputs
    seed: int
    progress: Progress
    _notices: dict[str, None] = field(default_factory=dict)

    @cached_property
    def found(self) -> Found:
        """What can be packed, and what can't."""
        with evaluating(self.module):
            return find_packable(self.module, self.batches[0])

    @property
    def matrices(self) -> list[Matrix]:
        return [each.matrix for each in self.found.packable]

    @property
    def notices(self) -> tuple[str, ...]:
        return tuple(self._notices)

    def candidates(self, matrices: Sequence[Matrix], layouts: Layouts) -> dict[str, list[Candidate]]:
        packable = {each.name: each for each in self.found.packable}
        known = {name: (c,) for name, c in self._curvature.items() if c.input.any()}
        unknown = [matrix for matrix in matrices if matrix.name not in known]
        if unknown:
            names = some([matrix.name for matrix in unknown])
            self._notices[f"{names}: no gradient says how much they matter, so they stay floats"] = None
        found = candidates_of(
            [matrix for matrix in matrices if matrix.name in known],
            lambda matrix: packable[matrix.name].weight_RC,
            known,
            layouts,
            progress=stage(self.progress, "predict losses"),
        )
        # A choice between experts, say, isn't differentiable, and yet everything hangs on it.
        return found | {matrix.name: [Candidate(None, matrix.float_bytes, 0.0)] for matrix in unknown}

    def round(self, specs: Mapping[str, PackedSpec]) -> nn.Module:
        with evaluating(self.module):
            shrunk, notices = round_module(
                self.module,
                self.found.packable,
                specs,
                self.batches,
                self._curvature,
                progress=stage(self.progress, "round weights"),
            )
        self._notices.update(dict.fromkeys(notices))
        return shrunk

    @cached_property
    def _curvature(self) -> dict[str, Curvature]:
        with evaluating(self.module):
            return measure_curvature(
                self.module,
                self.found.packable,
                self.batches,
                self.objective,
                self.outputs,
                torch.Generator().manual_seed(self.seed),
                stage(self.progress, "measure sensitivity"),
            )
