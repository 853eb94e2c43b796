"""Packed matrices by the scheme of their spec."""

from collections.abc import Mapping
from typing import Any

from penjing.packed.affine import AffineTensor
from penjing.packed.affine_spec import AffineSpec
from penjing.packed.awq import AwqTensor
from penjing.packed.awq_spec import AwqSpec
from penjing.packed.ggml.spec import GgmlSpec
from penjing.packed.ggml.tensor import GgmlTensor
from penjing.packed.gptq import GptqTensor
from penjing.packed.gptq_spec import GptqSpec
from penjing.packed.mxfp4 import Mxfp4Tensor
from penjing.packed.mxfp4_spec import Mxfp4Spec
from penjing.packed.pack_quantized import PackQuantizedTensor
from penjing.packed.pack_quantized_spec import PackQuantizedSpec
from penjing.packed.parts import PackedSpec
from penjing.packed.plain import PlainTensor
from penjing.packed.plain_spec import PlainSpec
from penjing.packed.scaled import ScaledTensor
from penjing.packed.scaled_spec import ScaledSpec
from penjing.packed.tensor import PackedTensor

_TENSORS: Mapping[str, type[PackedTensor[Any]]] = {
    AffineSpec.scheme: AffineTensor,
    AwqSpec.scheme: AwqTensor,
    GgmlSpec.scheme: GgmlTensor,
    GptqSpec.scheme: GptqTensor,
    Mxfp4Spec.scheme: Mxfp4Tensor,
    PackQuantizedSpec.scheme: PackQuantizedTensor,
    PlainSpec.scheme: PlainTensor,
    ScaledSpec.scheme: ScaledTensor,
}


def packed_tensor(spec: PackedSpec, shape: tuple[int, int], parts: Mapping[str, Any]) -> PackedTensor:
    """A packed matrix of `shape` from its stored parts, checked against what `spec` asks for."""
    return _TENSORS[spec.scheme](spec, shape, parts)
