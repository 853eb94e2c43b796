"""Building the shrunk model of a given size: everything that is measured once, then as many sizes as are
asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from penjing.api import Model
from penjing.errors import InputError
from penjing.model.decoder import Decoder
from penjing.model.linear import held_matrices, replace_weight, weight_of
from penjing.model.saving import module_ledger
from penjing.shrink.allocation import Allocation, allocate
from penjing.shrink.blockwise import round_decoder
from penjing.shrink.calibration import calibration_ids
from penjing.shrink.candidates import Candidate, candidates_of
from penjing.shrink.effort import Effort
from penjing.shrink.healing import heal
from penjing.shrink.own_text import own_passages
from penjing.shrink.reach import least_matrix_bytes, unreachable
from penjing.shrink.sensitivity import Sensitivity, measure_sensitivity
from penjing.shrink.targets import Matrix, packable_matrices

Progress = Callable[[str, int, int], None]


def make_builder(
    original: Model,
    tune: Mapping[str, Sequence[str]],
    effort: Effort,
    seed: int = 0,
    progress: Progress | None = None,
) -> Builder:
    """A builder whose statistics come from the documents in `tune`. `seed` orders them."""
    generator = torch.Generator().manual_seed(seed)
    documents = [document for text in tune.values() for document in text]
    tell = progress or (lambda *_: None)
    ids_NL, notices = calibration_ids(
        original, documents, effort, generator, lambda done, total: tell("write own text", done, total)
    )
    return Builder(original, ids_NL, effort, seed, tell, notices)


@dataclass(frozen=True)
class Builder:
    """Makes shrunk models of any size from one original and its calibration passages `ids_NL`."""

    original: Model
    ids_NL: torch.Tensor
    effort: Effort
    seed: int
    progress: Progress
    notices: tuple[str, ...] = ()

    @cached_property
    def sensitivity(self) -> Sensitivity:
        passages, length = self.ids_NL.shape
        halves_NL = self.ids_NL if length % 2 else self.ids_NL.view(2 * passages, -1)  # half the memory
        generator = torch.Generator().manual_seed(self.seed)
        return measure_sensitivity(
            self.original.decoder, halves_NL, generator, self._stage("measure sensitivity")
        )

    @cached_property
    def candidates(self) -> dict[str, list[Candidate]]:
        return candidates_of(
            self.original.decoder, self._matrices, self.sensitivity, progress=self._stage("predict losses")
        )

    @cached_property
    def fixed_bytes(self) -> int:
        """Bytes of what is never packed: norms and biases."""
        names = {f"{matrix.name}.weight" for matrix in self._matrices}
        return sum(
            e.nbytes
            for e in module_ledger(self.original.module, self._kept_dtypes).entries
            if e.name not in names
        )

    @cached_property
    def smallest(self) -> int:
        """Bytes of the smallest model that can be built; known from the shapes alone."""
        return self.fixed_bytes + sum(least_matrix_bytes(m.rows, m.columns) for m in self._matrices)

    @property
    def largest(self) -> int:
        """Bytes of the model with every matrix at its best."""
        return self.fixed_bytes + sum(max(c.nbytes for c in options) for options in self.candidates.values())

    @cached_property
    def _matrices(self) -> list[Matrix]:
        matrices = packable_matrices(self.original.decoder)
        if not matrices:
            if held_matrices(self.original.module):
                raise InputError(
                    f"the weights of {self.original.name} stay in their file; to shrink it, load it with"
                    " hold_stored=False"
                )
            raise InputError(f"{self.original.name} has no float matrix to shrink; give the original model")
        return matrices

    def require_reachable(self, nbytes: int) -> None:
        """Raise `InputError` if no model of at most `nbytes` can be built. Needs no compute."""
        if nbytes < self.smallest:
            parameters = self.original.ledger.parameters
            raise unreachable(nbytes, self.smallest, self.original.base_bytes, parameters)

    def plan(self, nbytes: int) -> Allocation:
        """Which matrix gets which grid in a model of at most `nbytes`; too few are an `InputError`."""
        self.require_reachable(nbytes)
        return allocate(self.candidates, nbytes - self.fixed_bytes)

    def build(self, nbytes: int) -> Model:
        """The shrunk model of at most `nbytes`. It shares the norms with the original."""
        plan = self.plan(nbytes)
        module = round_decoder(
            self.original.decoder,
            plan.specs,
            self.ids_NL,
            self.sensitivity,
            progress=self._stage("round weights"),
        )
        self._store_floats(module, plan)
        return replace(
            self.original, name=f"{self.original.name} (shrunk)", module=module, dtypes=self._kept_dtypes
        )

    def heal(self, shrunk: Model) -> Model:
        """The shrunk model after learning from the original, on text that the original wrote."""
        if not self.effort.healing_passages:
            return shrunk
        generator = torch.Generator().manual_seed(self.seed)
        module = heal(
            self.original.decoder,
            shrunk.decoder,
            self._healing_ids,
            generator,
            progress=self._stage("heal"),
        )
        for name, parameter in module.named_parameters():
            parameter.copy_(parameter.to(self._kept_dtypes[name]))  # what is measured is what will be saved
        return replace(shrunk, module=module)

    @cached_property
    def _healing_ids(self) -> torch.Tensor:
        length = self.ids_NL.shape[1]
        generator = torch.Generator().manual_seed(self.seed + 1)
        stage = self._stage("write text to heal with")
        return own_passages(self.original, self.effort.healing_passages, length, generator, stage)

    def _store_floats(self, module: Decoder, plan: Allocation) -> None:
        """Give matrices that stay floats the values that will be saved, so that what is measured is that."""
        for name, candidate in plan.chosen.items():
            dtype = self._kept_dtypes[f"{name}.weight"]
            if candidate.spec is None and dtype != torch.float32:
                replace_weight(module, name, weight_of(module, name).to(dtype).float())

    def predicted_curve(self, points: int = 24) -> tuple[tuple[int, float], ...]:
        """Bytes and predicted divergence from the smallest model to the largest."""
        steps = [self.smallest + (self.largest - self.smallest) * i // (points - 1) for i in range(points)]
        plans = [self.plan(nbytes) for nbytes in steps]
        return tuple((plan.nbytes + self.fixed_bytes, plan.divergence) for plan in plans)

    @cached_property
    def _kept_dtypes(self) -> dict[str, torch.dtype]:
        """What isn't packed is stored as it was; a matrix that came from blocks goes to 16 bits."""
        packable = {f"{matrix.name}.weight" for matrix in self._matrices}
        return {
            name: torch.bfloat16 if name in packable and dtype == torch.float32 else dtype
            for name, dtype in self.original.dtypes.items()
        }

    def _stage(self, label: str) -> Callable[[int, int], None]:
        return lambda done, total: self.progress(label, done, total)
