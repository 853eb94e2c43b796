"""Building the shrunk model of a given size: everything that is measured once, then as many sizes as are
asked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from penjing.api import Model
from penjing.errors import InputError
from penjing.model.ledger import module_ledger
from penjing.shrink.allocation import Allocation, allocate
from penjing.shrink.blockwise import round_decoder
from penjing.shrink.candidates import GRIDS, Candidate, candidates_of
from penjing.shrink.effort import Effort
from penjing.shrink.sensitivity import Sensitivity, measure_sensitivity
from penjing.shrink.targets import Matrix, packable_matrices

Progress = Callable[[str, int, int], None]


def calibration_ids(
    model: Model, documents: Sequence[str], effort: Effort, generator: torch.Generator
) -> torch.Tensor:
    """Passages (N, L) of int64 ids: documents in random order, one after another, each begun as the tokenizer
    begins a text. Fewer passages than asked for are used where the text is short; none is an `InputError`."""
    length = min(effort.passage_tokens, model.config.max_position_embeddings)
    wanted, ids = effort.calibration_passages * length, []
    order: list[int] = torch.randperm(len(documents), generator=generator).tolist()
    for i in order:
        ids += model.tokenizer.prompt_ids(documents[i])
        if len(ids) >= wanted:
            break
    passages = min(len(ids) // length, effort.calibration_passages)
    if passages == 0:
        raise InputError(f"the text to tune on has {len(ids)} tokens; at least {length} are needed")
    return torch.tensor(ids[: passages * length], dtype=torch.int64).view(passages, length)


@dataclass(frozen=True)
class Builder:
    """Makes shrunk models of any size from one original and its calibration passages `ids_NL`."""

    original: Model
    ids_NL: torch.Tensor
    effort: Effort
    seed: int
    progress: Progress

    @cached_property
    def sensitivity(self) -> Sensitivity:
        few_NL = self.ids_NL[: self.effort.sensitivity_passages]
        few_NL = few_NL[:, : few_NL.shape[1] // 2 * 2].reshape(2 * len(few_NL), -1)  # halves: half the memory
        generator = torch.Generator().manual_seed(self.seed)
        return measure_sensitivity(
            self.original.module, few_NL, generator, self._stage("measure sensitivity")
        )

    @cached_property
    def candidates(self) -> dict[str, list[Candidate]]:
        return candidates_of(
            self.original.module, self._matrices, self.sensitivity, progress=self._stage("predict losses")
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
        least = (min(g.nbytes(m.rows, m.columns) for g in GRIDS) for m in self._matrices)
        return self.fixed_bytes + sum(least)

    @property
    def largest(self) -> int:
        """Bytes of the model with every matrix at its best."""
        return self.fixed_bytes + sum(max(c.nbytes for c in options) for options in self.candidates.values())

    @cached_property
    def _matrices(self) -> list[Matrix]:
        return packable_matrices(self.original.module)

    def require_reachable(self, nbytes: int) -> None:
        """Raise `InputError` if no model of at most `nbytes` can be built. Needs no compute."""
        if nbytes < self.smallest:
            share, bits = (
                self.smallest / self.original.base_bytes,
                8 * self.smallest / self.original.ledger.parameters,
            )
            raise InputError(
                f"{nbytes / 1e6:.2f} MB can't be reached: the smallest model that can be built has"
                f" {self.smallest / 1e6:.2f} MB ({share:.3f} of the base, {bits:.2f} bits a weight)"
            )

    def plan(self, nbytes: int) -> Allocation:
        """Which matrix gets which grid in a model of at most `nbytes`; too few are an `InputError`."""
        self.require_reachable(nbytes)
        return allocate(self.candidates, nbytes - self.fixed_bytes)

    def build(self, nbytes: int) -> Model:
        """The shrunk model of at most `nbytes`. It shares the norms and what stays at 16 bits with the
        original."""
        plan = self.plan(nbytes)
        module = round_decoder(
            self.original.module,
            plan.specs,
            self.ids_NL,
            self.sensitivity.final_hidden,
            progress=self._stage("round weights"),
        )
        return replace(
            self.original, name=f"{self.original.name} (shrunk)", module=module, dtypes=self._kept_dtypes
        )

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
