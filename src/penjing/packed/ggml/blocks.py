"""The sizes of GGML's blocks; plain integers, so that headers are read without torch."""

from math import prod

from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from penjing.errors import InputError, UnsupportedError

TYPES = (
    *("F32", "F16", "BF16"),
    *("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"),
    *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
    *("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS"),
    *("TQ1_0", "TQ2_0", "MXFP4", "NVFP4"),
)


def block_size(type_name: str) -> tuple[int, int]:
    """(weights, bytes) of one block; UnsupportedError for a type that can't be decoded."""
    if type_name not in TYPES:
        raise UnsupportedError(
            f"GGML type {type_name} can't be dequantised; known types are {', '.join(TYPES)}."
        )
    return GGML_QUANT_SIZES[GGMLQuantizationType[type_name]]


def packed_nbytes(type_name: str, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor of `shape` (torch's order); InputError if its rows don't divide into blocks."""
    weights, nbytes = block_size(type_name)
    row = shape[-1] if shape else 1
    if row % weights:
        raise InputError(f"Rows of {row} weights don't divide into {type_name} blocks of {weights}.")
    return prod(shape) // weights * nbytes
