"""The verb for any module: make it small, measure what it kept."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from penjing.errors import InputError, PenjingError
from penjing.evaluate.bootstrap import bootstrap
from penjing.evaluate.result import Interval
from penjing.formats.hf_folder import some
from penjing.model.module_file import module_bytes, module_parameters
from penjing.model.packed_parameter import packed_parameters
from penjing.shrink.forms import own_layouts
from penjing.shrink.goal import parse_share, parse_size
from penjing.shrink.modules.calls import Outputs, call, evaluating, main_output
from penjing.shrink.modules.objective import Metric, Objective, find_objective
from penjing.shrink.modules.result import ModuleResult, ModuleTrial
from penjing.shrink.modules.rounder import ModuleRounder
from penjing.shrink.planner import Planner
from penjing.shrink.search import Measured, find_smallest, smallest_holding

Progress = Callable[[str, int, int], None]
_TRIALS = 5
_MARGIN = 1.03  # the least size that held on the search split is raised by this, as the report split differs


def shrink_module(
    module: nn.Module,
    calibration: Iterable[Any],
    *,
    to: str | float | None = None,
    keep: str | float | None = None,
    metric: Metric = "kl",
    outputs: Outputs | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> ModuleResult:
    """A copy of `module` that is smaller, and what it kept.

    `calibration` gives inputs: a mapping is passed as keyword arguments, a tuple or list as positional ones.
    They are parted: on some weights are rounded, with others sizes are tried (for `keep`), on the rest is
    measured what was kept. `to` is the size to reach ("1/4", 0.4, "60MB", "4.0bpw"), `keep` the share to keep
    ("95%", 0.95), for which the smallest size is searched; one of them is needed. `metric` says what is kept:
    "kl", where outputs are logits (kept is exp(-KL(original || shrunk)) a position), "mse", where they are
    values (the share of their variance), or a function of both outputs that gives a share for each sample.
    `outputs` finds the tensor that counts in an output, where it isn't its `logits` or its first.

    Linear layers, convolutions, embeddings and whatever else multiplies inputs with a parameter is packed;
    nothing of the module need be known, but its forward pass must be differentiable and the same each time.
    The result runs on the module's own code.

    Raises `InputError` for a goal that can't be read or reached, too little calibration data, a module
    without such weights, or one that isn't on the CPU.
    """
    started = time.perf_counter()
    if not 0 <= seed < 1 << 63:
        raise InputError(f"the seed must be a whole number from 0 to 2^63 - 1, not {seed}")
    if packed_parameters(module):
        raise InputError("the module is packed already; shrink the original instead")
    job = _make_job(module, list(calibration), keep is not None, metric, outputs, seed, progress)
    base_bytes, parameters = module_bytes(module), module_parameters(module)
    if to is None and keep is None:
        raise InputError("say how small (to, such as 1/4), or how much to keep (keep, such as 95%), or both")
    nbytes = None if to is None else parse_size(str(to), base_bytes, parameters)
    if nbytes is not None:
        job.planner.require_reachable(nbytes)
    with evaluating(module):
        found = job.to_size(nbytes or 0) if keep is None else job.to_keep(parse_share(str(keep)), nbytes)
    left_out = job.rounder.found.left_out
    return ModuleResult(
        module=found.module,
        base_bytes=base_bytes,
        metric=job.objective.name,
        kept=found.trials[-1].kept,
        holds=found.trials[-1].holds,
        trials=found.trials,
        left_out=left_out,
        seconds=time.perf_counter() - started,
        notices=(*_left_out_notice(left_out), *job.rounder.notices, *found.notices),
    )


@dataclass(frozen=True)
class _Found:
    """A shrunk module, and the way to it; the last trial is on the report split."""

    module: nn.Module
    trials: tuple[ModuleTrial, ...]
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Job:
    """One call's parts, and the two ways to a result."""

    rounder: ModuleRounder
    planner: Planner
    search: Sequence[Any]
    report: Sequence[Any]
    objective: Objective
    outputs: Outputs
    seed: int

    def to_size(self, nbytes: int, keep: float | None = None) -> _Found:
        """Build one size and measure it on the report split."""
        shrunk = self._build(nbytes)
        kept = self._kept(shrunk, self.report)
        held = None if keep is None else kept.low is not None and kept.low >= keep
        return _Found(shrunk, (ModuleTrial(module_bytes(shrunk), kept, held, "report"),))

    def to_keep(self, keep: float, at_most: int | None) -> _Found:
        """Search the smallest size that holds, and measure it on data that wasn't searched with."""
        planner = self.planner
        largest = min(at_most or planner.largest, planner.largest)

        def measure(nbytes: int) -> Measured[Interval]:
            kept = self._kept(self._build(nbytes), self.search)
            if kept.low is None:
                raise InputError("the calibration data has too few samples for an interval; give more")
            return Measured(nbytes, kept, kept.low, kept.low >= keep)

        measured = find_smallest(
            measure, lambda size: planner.plan(size).divergence, planner.smallest, largest, keep, _TRIALS
        )
        best, notices = smallest_holding(measured), ()
        if best is None:
            notices = (f"no size up to {largest / 1e6:.2f} MB held on the search split; the largest is kept",)
        size = largest if best is None else min(int(best.nbytes * _MARGIN), largest)
        found = self.to_size(size, keep)
        searched = tuple(ModuleTrial(m.nbytes, m.result, m.holds, "search") for m in measured)
        return _Found(found.module, (*searched, *found.trials), notices)

    def _build(self, nbytes: int) -> nn.Module:
        return self.rounder.round(self.planner.plan(nbytes).specs)

    @torch.no_grad()
    def _kept(self, shrunk: nn.Module, batches: Sequence[Any]) -> Interval:
        """The share kept, with its interval over samples."""
        for packed in packed_parameters(shrunk).values():
            packed.keep_float()
        units = []
        for batch in batches:
            original = self.outputs(call(self.rounder.module, batch))
            units.append(self.objective.compare(original, self.outputs(call(shrunk, batch))))
        for packed in packed_parameters(shrunk).values():
            packed.keep_float(False)
        units_UC = torch.cat(units).numpy()
        if not np.isfinite(units_UC).all():
            raise PenjingError("an output on the calibration data isn't finite; what was kept can't be told")
        return bootstrap(units_UC, [len(units_UC)], self.objective.kept, self.seed)


def _make_job(
    module: nn.Module,
    batches: list[Any],
    searched: bool,
    metric: Metric,
    outputs: Outputs | None,
    seed: int,
    progress: Progress | None,
) -> _Job:
    objective, find = find_objective(metric), outputs or main_output
    tune, search, report = _split(batches, searched, seed)
    rounder = ModuleRounder(module, tune, objective, find, seed, progress or (lambda *_: None))
    packable = rounder.found.packable
    fixed = module_bytes(module) - sum(each.parameter.nbytes for each in packable)
    planner = Planner(
        rounder.matrices,
        fixed,
        module_bytes(module),
        module_parameters(module),
        lambda: rounder.candidates(rounder.matrices, own_layouts),
    )
    return _Job(rounder, planner, search, report, objective, find, seed)


def _split(batches: list[Any], searched: bool, seed: int) -> tuple[list[Any], list[Any], list[Any]]:
    """Half of the data to tune on; the rest is for the report, or for it and the search."""
    least = 3 if searched else 2
    if len(batches) < least:
        raise InputError(
            f"the calibration data has {len(batches)} batches, and at least {least} are needed: what was kept"
            " is measured on others than those that weights are rounded on"
        )
    order: list[int] = torch.randperm(len(batches), generator=torch.Generator().manual_seed(seed)).tolist()
    shuffled = [batches[i] for i in order]
    tune = max(1, len(batches) // 2)
    search = (len(batches) - tune) // 2 if searched else 0
    return shuffled[:tune], shuffled[tune : tune + search], shuffled[tune + search :]


def _left_out_notice(names: Sequence[str]) -> tuple[str, ...]:
    if not names:
        return ()
    return (
        "these weights stay as they are, for they are too narrow or aren't seen as a product's matrix:"
        f" {some(names)}",
    )
