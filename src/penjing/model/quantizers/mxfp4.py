"""The `quantization_config` of gpt-oss: experts in MXFP4, all else as floats."""

from penjing.model.foreign import ForeignConfig
from penjing.model.quantizers.reading import Matrices, Quantization, Stored, refuse_unknown
from penjing.packed.mxfp4_spec import Mxfp4Spec

_KNOWN = frozenset(("quant_method", "modules_to_not_convert", "dequantize"))


def read_mxfp4(config: ForeignConfig, matrices: Matrices, stored: Stored) -> Quantization:
    """The matrices of the experts, where the file holds stacks of blocks."""
    refuse_unknown(config, _KNOWN)
    if not any(name.endswith("_blocks") for name in stored):
        return Quantization({})
    return Quantization({name: Mxfp4Spec() for name in matrices if ".mlp.experts." in name})
