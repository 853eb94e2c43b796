"""Language models that run through transformers, as shrinking asks for them."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from penjing.model.bridge.module import BridgedModel
from penjing.packed.parts import PackedSpec
from penjing.shrink.modules.calls import main_output
from penjing.shrink.modules.objective import Divergence
from penjing.shrink.modules.rounder import ModuleRounder
from penjing.shrink.rounder import Progress

_TOKENS = 256  # of a calibration call: all its logits exist at once


@dataclass(frozen=True)
class BridgedRounder(ModuleRounder):
    """The wrapped module is rounded as any other, and wrapped again."""

    bridged: BridgedModel | None = None

    def round(self, specs: Mapping[str, PackedSpec]) -> BridgedModel:
        assert self.bridged is not None
        return BridgedModel(super().round(specs), self.bridged.config, self.bridged.traits).eval()


def bridged_rounder(
    module: BridgedModel, ids_NL: torch.Tensor, seed: int, progress: Progress
) -> BridgedRounder:
    """A rounder that calibrates on the passages `ids_NL` (int64)."""
    batches = [{"input_ids": ids_1T} for ids_L in ids_NL for ids_1T in ids_L.unsqueeze(0).split(_TOKENS, 1)]
    wrapped = module.wrapped
    return BridgedRounder(wrapped, batches, Divergence(), main_output, seed, progress, bridged=module)
