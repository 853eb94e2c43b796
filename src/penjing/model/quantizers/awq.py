"""The `quantization_config` of AutoAWQ and transformers for AWQ weights."""

from penjing.model.foreign import ForeignConfig
from penjing.model.quantizers.gptq import KNOWN as GPTQ_KNOWN
from penjing.model.quantizers.reading import (
    FLOATS,
    Matrices,
    Quantization,
    Stored,
    choice,
    dtype_of,
    group_size,
    packed_matrices,
    refuse_unknown,
)
from penjing.packed.awq_spec import BITS, AwqSpec

# transformers writes a config for GPTQ with three keys more.
_KNOWN = GPTQ_KNOWN | {"version", "zero_point", "modules_to_not_convert"}


def read_awq(config: ForeignConfig, matrices: Matrices, stored: Stored) -> Quantization:
    """Layouts of the AWQ matrices, of the version "gemm" only."""
    refuse_unknown(config, _KNOWN)
    choice(config, "version" if config.get("version") else "format", ("gemm",), "gemm")
    choice(config, "bits", (BITS,))
    choice(config, "zero_point", (True,), True)
    size = group_size(config)

    def spec(name: str) -> AwqSpec:
        return AwqSpec(size, dtype_of(stored, f"{name}.scales", FLOATS, "float16"))

    names = packed_matrices(matrices, stored, ("qweight", "qzeros", "scales"))
    return Quantization({name: spec(name) for name in names})
