"""Which scales belong to which layout."""

from collections.abc import Mapping

import torch

from penjing.errors import UnsupportedError
from penjing.packed.affine_spec import AffineSpec
from penjing.packed.ggml.spec import BlockSpec
from penjing.packed.gptq_spec import GptqSpec
from penjing.packed.pack_quantized_spec import PackQuantizedSpec
from penjing.packed.parts import PackedSpec
from penjing.shrink.grids.affine import AffineScales
from penjing.shrink.grids.blocks import BlockScales
from penjing.shrink.grids.integers import GptqScales, PackQuantizedScales
from penjing.shrink.grids.scales import Scales

_KINDS: Mapping[type[PackedSpec], type[Scales]] = {
    AffineSpec: AffineScales,
    BlockSpec: BlockScales,
    GptqSpec: GptqScales,
    PackQuantizedSpec: PackQuantizedScales,
}


def fit_scales(weight_RC: torch.Tensor, importance_C: torch.Tensor, spec: PackedSpec) -> Scales:
    """The storable scales of least Σ importance·error² for weights rounded to nearest. A layout that weights
    can't be rounded to is an `UnsupportedError`."""
    if type(spec) not in _KINDS:
        raise UnsupportedError(f"weights can't be rounded to {spec}")
    return _KINDS[type(spec)].fit(weight_RC, importance_C, spec)
