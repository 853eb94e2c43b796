"""Rounding the parameters of any module in the order of their use, each fed by those rounded before.

Which parts of an unknown module could be run alone isn't known, so all of it runs, once for each wave: as
many parameters as have room for the second moments of their inputs. Shapes: t inputs, C columns.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from penjing.formats.hf_folder import some
from penjing.memory import give_back_memory
from penjing.model.packed_parameter import PackedParameter, pack_parameter
from penjing.packed.parts import PackedSpec
from penjing.packed.tensor import PackedTensor
from penjing.shrink.modules.calls import call
from penjing.shrink.modules.parameters import Packable
from penjing.shrink.modules.watch import Product, Use, watching
from penjing.shrink.rounding import RoundingConfig, round_calibrated, round_nearest, stack
from penjing.shrink.sensitivity import Curvature
from penjing.shrink.sharing import share_copy

Progress = Callable[[int, int], None]
_MOMENTS_BYTES = 256 << 20


@dataclass(frozen=True)
class _Item:
    """One matrix of a parameter: what moments are gathered for."""

    packable: Packable
    index: int

    @property
    def key(self) -> tuple[str, int]:
        return self.packable.name, self.index


def round_module(
    module: nn.Module,
    packable: Sequence[Packable],
    specs: Mapping[str, PackedSpec],
    batches: Sequence[Any],
    curvature: Mapping[str, Curvature],
    config: RoundingConfig | None = None,
    progress: Progress | None = None,
) -> tuple[nn.Module, tuple[str, ...]]:
    """A copy of `module` with the parameters in `specs` packed, which shares all others, and notices on those
    that no input could be used for."""
    config = config or RoundingConfig()
    shrunk = share_copy(module)
    chosen = [each for each in packable if each.name in specs]
    rounding = _Rounding(shrunk, specs, curvature, config)
    waves = list(_waves(chosen))
    for i, wave in enumerate(waves):
        rounding.add(wave, _gather_moments(shrunk, wave, batches))
        give_back_memory()
        if progress:
            progress(i + 1, len(waves))
    rounding.finish()
    return shrunk, rounding.notices


def _waves(chosen: Sequence[Packable]) -> Iterator[list[_Item]]:
    """Matrices in the order of use, as many at once as have room."""
    wave: list[_Item] = []
    left = _MOMENTS_BYTES
    for item in (_Item(each, index) for each in chosen for index in range(each.form.matrices)):
        need = 4 * item.packable.form.columns**2 if item.packable.multiplied else 0
        if wave and need > left:
            yield wave
            wave, left = [], _MOMENTS_BYTES
        wave.append(item)
        left -= need
    if wave:
        yield wave


def _gather_moments(
    shrunk: nn.Module, wave: Sequence[_Item], batches: Sequence[Any]
) -> dict[tuple[str, int], torch.Tensor]:
    """E[x xᵀ] (C, C) of the inputs of each matrix of the wave that got any."""
    inside = {item.key: item.packable.form for item in wave if item.packable.multiplied}
    if not inside:
        return {}
    sums: dict[tuple[str, int], torch.Tensor] = {}
    counts = dict.fromkeys(inside, 0)

    def note(use: Use) -> None:
        if not isinstance(use, Product) or inside.get((use.name, use.index)) != use.form or not len(use.x_tC):
            return
        key, x_tC = (use.name, use.index), use.x_tC.float()
        if key not in sums:
            sums[key] = torch.zeros(x_tC.shape[1], x_tC.shape[1])
        sums[key].addmm_(x_tC.T, x_tC)
        counts[key] += len(x_tC)

    parameters = {item.packable.name: item.packable.parameter for item in wave}
    with watching(shrunk, parameters, note):
        for batch in batches:
            call(shrunk, batch)
    return {key: total_CC / counts[key] for key, total_CC in sums.items()}


class _Rounding:
    """Packs each parameter when the last of its matrices is rounded."""

    def __init__(
        self,
        shrunk: nn.Module,
        specs: Mapping[str, PackedSpec],
        curvature: Mapping[str, Curvature],
        config: RoundingConfig,
    ) -> None:
        self._shrunk, self._specs, self._curvature, self._config = shrunk, specs, curvature, config
        self._rounded: dict[str, list[PackedTensor]] = {}
        self._without_inputs: list[str] = []

    def add(self, wave: Sequence[_Item], moments: Mapping[tuple[str, int], torch.Tensor]) -> None:
        """Round the matrices of a wave; those without moments to nearest."""
        for item in wave:
            packable = item.packable
            weight_RC = packable.form.read(packable.parameter.detach())[item.index].float()
            packed = self._round(item, weight_RC, moments.get(item.key))
            self._rounded.setdefault(packable.name, []).append(packed)
            if item.index + 1 == packable.form.matrices:
                self._pack(packable)

    def _round(self, item: _Item, weight_RC: torch.Tensor, moments_CC: torch.Tensor | None) -> PackedTensor:
        name = item.packable.name
        if moments_CC is not None:
            return round_calibrated(weight_RC, moments_CC, self._specs[name], self._config)
        if item.packable.multiplied:
            self._without_inputs.append(f"{name}[{item.index}]" if item.packable.form.stacked else name)
        importance_C = self._curvature[name].input
        return round_nearest(weight_RC, self._specs[name], importance_C if importance_C.any() else None)

    def _pack(self, packable: Packable) -> None:
        packed = PackedParameter(
            stack(self._rounded.pop(packable.name)), packable.form, packable.parameter.dtype
        )
        packed.keep_float()  # the other waves run on it
        pack_parameter(self._shrunk, packable.names, packed)

    def finish(self) -> None:
        for child in self._shrunk.modules():
            if isinstance(child, PackedParameter):
                child.keep_float(False)

    @property
    def notices(self) -> tuple[str, ...]:
        if not self._without_inputs:
            return ()
        names = some(self._without_inputs)
        return (f"no calibration input reached these weights, which were rounded to nearest: {names}",)
