"""Building the shrunk model of a given size: everything that is measured once, then as many sizes as are
asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import torch
from torch import nn

from penjing.api import Model
from penjing.errors import InputError
from penjing.model.bridge.module import BridgedModel
from penjing.model.linear import held_matrices
from penjing.model.packed_parameter import names_by_parameter
from penjing.model.saving import named_root, native_dtypes, native_shapes
from penjing.shrink.calibration import calibration_ids
from penjing.shrink.effort import Effort
from penjing.shrink.forms import Form
from penjing.shrink.healing import heal
from penjing.shrink.modules.language_model import bridged_rounder
from penjing.shrink.own_text import own_passages
from penjing.shrink.planner import Planner
from penjing.shrink.rounder import DecoderRounder, Progress, Rounder, stage
from penjing.shrink.targets import Matrix


def make_builder(
    original: Model,
    tune: Mapping[str, Sequence[str]],
    effort: Effort,
    seed: int = 0,
    progress: Progress | None = None,
    form: Form | None = None,
) -> Builder:
    """A builder whose statistics come from the documents in `tune`. `seed` orders them; `form` says what the
    model will be saved in (None: penjing's own)."""
    generator = torch.Generator().manual_seed(seed)
    documents = [document for text in tune.values() for document in text]
    tell = progress or (lambda *_: None)
    ids_NL, notices = calibration_ids(original, documents, effort, generator, stage(tell, "write own text"))
    module = original.module
    rounder = (
        bridged_rounder(module, ids_NL, seed, tell)
        if isinstance(module, BridgedModel)
        else DecoderRounder(module, ids_NL, seed, tell)
    )
    return Builder(original, rounder, ids_NL, effort, seed, tell, form or Form(), notices)


@dataclass(frozen=True)
class Builder:
    """Makes shrunk models of any size from one original; `ids_NL` (int64) are the passages that its rounder
    calibrates on."""

    original: Model
    rounder: Rounder
    ids_NL: torch.Tensor
    effort: Effort
    seed: int
    progress: Progress
    form: Form
    own_notices: tuple[str, ...] = ()

    @property
    def notices(self) -> tuple[str, ...]:
        return (*self.own_notices, *self.rounder.notices)

    @cached_property
    def planner(self) -> Planner:
        """Sizes, and which matrix gets which grid. A model without a float matrix is an `InputError`."""
        self._require_floats()
        return Planner(
            self._matrices,
            self._fixed_bytes,
            self.original.base_bytes,
            self.original.ledger.parameters,
            lambda: self.rounder.candidates(self._matrices, self.form.layouts),
            self.form.layouts,
            self.form.units,
        )

    @cached_property
    def _matrices(self) -> list[Matrix]:
        """Those that the form lets be packed."""
        return [m for m in self.rounder.matrices if self.form.may_pack(m.name, m.columns)]

    def build(self, nbytes: int) -> Model:
        """The shrunk model of at most `nbytes`. It shares the norms with the original."""
        plan = self.planner.plan(nbytes)
        module = self.rounder.round(plan.specs)
        shrunk = replace(
            self.original, name=f"{self.original.name} (shrunk)", module=module, dtypes=self._kept_dtypes
        )
        self._store_floats(shrunk)
        return shrunk

    def heal(self, shrunk: Model) -> Model:
        """The shrunk model after learning from the original, on text that the original wrote. A model that
        runs through transformers stays as it is."""
        if not self.effort.healing_passages or isinstance(shrunk.module, BridgedModel):
            return shrunk
        module = heal(
            self.original.decoder,
            shrunk.decoder,
            self._healing_ids,
            torch.Generator().manual_seed(self.seed),
            progress=stage(self.progress, "heal"),
        )
        for name, parameter in module.named_parameters():
            parameter.copy_(parameter.to(self._kept_dtypes[name]))  # what is measured is what will be saved
        return replace(shrunk, module=module)

    @cached_property
    def _healing_ids(self) -> torch.Tensor:
        generator = torch.Generator().manual_seed(self.seed + 1)
        tell = stage(self.progress, "write text to heal with")
        return own_passages(
            self.original, self.effort.healing_passages, self.ids_NL.shape[1], generator, tell
        )

    def _store_floats(self, shrunk: Model) -> None:
        """Give matrices that stay floats the values that will be saved, so that what is measured is that."""
        root = named_root(shrunk.module)
        for parameter, names in names_by_parameter(root).items():
            dtype = self._kept_dtypes[names[0]]
            if names[0] in self._packable and dtype != parameter.dtype:
                stored = nn.Parameter(parameter.to(dtype).to(parameter.dtype), requires_grad=False)
                for name in names:
                    owner, _, leaf = name.rpartition(".")
                    root.get_submodule(owner)._parameters[leaf] = stored

    @cached_property
    def _fixed_bytes(self) -> int:
        """Bytes of what is never packed: norms, biases and the like."""
        shapes = native_shapes(self.original.module)
        return sum(
            prod(shape) * self._kept_dtypes[name].itemsize
            for name, shape in shapes.items()
            if name not in self._packable
        )

    @cached_property
    def _packable(self) -> set[str]:
        """Names of the parameters that can be packed."""
        if isinstance(self.original.module, BridgedModel):
            return {matrix.name for matrix in self._matrices}
        return {f"{matrix.name}.weight" for matrix in self._matrices}

    @cached_property
    def _kept_dtypes(self) -> dict[str, torch.dtype]:
        """What isn't packed is stored as it was; a matrix that came from blocks goes to 16 bits, and what the
        form keeps wide to 32."""
        stored = native_dtypes(self.original.module, self.original.dtypes)
        to_16_bits = {name: torch.bfloat16 for name in self._packable if stored[name] == torch.float32}
        wide = dict.fromkeys(self.form.wide, torch.float32)
        return {**self.original.dtypes, **stored, **to_16_bits, **wide}

    def _require_floats(self) -> None:
        if self._matrices:
            return
        if held_matrices(self.original.module):
            raise InputError(
                f"the weights of {self.original.name} stay in their file; to shrink it, load it with"
                " hold_stored=False"
            )
        raise InputError(f"{self.original.name} has no float matrix to shrink; give the original model")
