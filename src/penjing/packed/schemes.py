"""Packed matrices by the scheme of their spec."""

from collections.abc import Mapping
from typing import Any

from penjing.packed.affine import AffineTensor
from penjing.packed.affine_spec import AffineSpec
from penjing.packed.specs import PackedSpec

PackedTensor = AffineTensor

_TENSORS = {AffineSpec.scheme: AffineTensor}


def packed_tensor(spec: PackedSpec, shape: tuple[int, int], parts: Mapping[str, Any]) -> PackedTensor:
    """A packed matrix of `shape` from its stored parts, checked against what `spec` asks for."""
    return _TENSORS[spec.scheme](spec, shape, parts)
