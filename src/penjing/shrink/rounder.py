"""What shrinking asks of a module, and how penjing's own decoder gives it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import nn

from penjing.model.decoder import Decoder
from penjing.model.linear import weight_of
from penjing.packed.parts import PackedSpec
from penjing.shrink.blockwise import round_decoder
from penjing.shrink.candidates import Candidate, candidates_of
from penjing.shrink.forms import Layouts
from penjing.shrink.sensitivity import Sensitivity, measure_sensitivity
from penjing.shrink.targets import Matrix, packable_matrices

Progress = Callable[[str, int, int], None]


class Rounder(Protocol):
    """One module and its calibration data: what of it can be packed, what that is predicted to cost, and
    copies of it in which that is done."""

    @property
    def matrices(self) -> Sequence[Matrix]: ...

    def candidates(self, matrices: Sequence[Matrix], layouts: Layouts) -> Mapping[str, Sequence[Candidate]]:
        """Ways to store each of these matrices, by growing bytes."""
        ...

    def round(self, specs: Mapping[str, PackedSpec]) -> nn.Module:
        """A copy with these matrices packed; what isn't packed is shared with the original."""
        ...

    @property
    def notices(self) -> tuple[str, ...]:
        """What the user should know of the roundings so far, a sentence each."""
        ...


@dataclass(frozen=True)
class DecoderRounder:
    """Rounds a decoder block by block on the calibration passages `ids_NL` (int64)."""

    decoder: Decoder
    ids_NL: torch.Tensor
    seed: int
    progress: Progress
    notices: tuple[str, ...] = ()

    @property
    def matrices(self) -> list[Matrix]:
        return packable_matrices(self.decoder)

    def candidates(self, matrices: Sequence[Matrix], layouts: Layouts) -> dict[str, list[Candidate]]:
        return candidates_of(
            matrices,
            lambda matrix: weight_of(self.decoder, matrix.name),
            self._sensitivity.uses,
            layouts,
            progress=stage(self.progress, "predict losses"),
        )

    def round(self, specs: Mapping[str, PackedSpec]) -> Decoder:
        return round_decoder(
            self.decoder,
            specs,
            self.ids_NL,
            self._sensitivity,
            progress=stage(self.progress, "round weights"),
        )

    @cached_property
    def _sensitivity(self) -> Sensitivity:
        passages, length = self.ids_NL.shape
        halves_NL = self.ids_NL if length % 2 else self.ids_NL.view(2 * passages, -1)  # half the memory
        generator = torch.Generator().manual_seed(self.seed)
        return measure_sensitivity(
            self.decoder, halves_NL, generator, stage(self.progress, "measure sensitivity")
        )


def stage(progress: Progress, label: str) -> Callable[[int, int], None]:
    """`progress` for one stage of the work."""
    return lambda done, total: progress(label, done, total)
