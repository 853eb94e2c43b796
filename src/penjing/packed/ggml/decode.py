"""GGML's block formats, dequantised in plain torch.

A quantised GGUF tensor is a row-major run of blocks; a block holds a few 16-bit scales and the codes of 32
or 256 neighbouring weights of one row. Layouts follow ggml's `ggml-common.h`; sizes come from the `gguf`
package, whose `gguf.quants` computes the same values bit for bit.

Each type is one function in `DECODERS`: it gets `blocks` (n, bytes a block) uint8 and fills `out`
(n, weights a block) float32. Multiplication and addition stay separate steps: a fused one rounds differently.
"""

from collections.abc import Callable

import numpy as np
import torch
from gguf import GGMLQuantizationType, quants
from torch import Tensor

from penjing.errors import InputError
from penjing.packed.ggml.blocks import TYPES, block_size, packed_nbytes

Decoder = Callable[[Tensor, Tensor], None]

# Weights decoded at a time: the intermediates of one slab (2 MB in float32) stay in the cache.
SLAB_WEIGHTS = 1 << 19


def dequantize(
    raw: Tensor, type_name: str, shape: tuple[int, ...], out_dtype: torch.dtype = torch.float32
) -> Tensor:
    """The weights that `raw` (uint8, one dimension, any alignment) holds, as a new tensor of `shape`.

    `shape` is in torch's order, so rows run along its last dimension. Values are computed in float32 and
    rounded once if `out_dtype` is another type. Raises UnsupportedError for a type not in `DECODERS` and
    InputError where `raw` and `shape` disagree.
    """
    nbytes = packed_nbytes(type_name, shape)
    if raw.dtype != torch.uint8 or raw.shape != (nbytes,):
        raise InputError(
            f"A {type_name} tensor of shape {list(shape)} is {nbytes} bytes, "
            f"but {raw.numel()} elements of {raw.dtype} were given."
        )
    weights, block_nbytes = block_size(type_name)
    decode = DECODERS[type_name]
    out = torch.empty(shape, dtype=out_dtype)
    count, step = nbytes // block_nbytes, SLAB_WEIGHTS // weights
    if not count:
        return out
    blocks, rows = raw.view(count, block_nbytes), out.view(count, weights)
    for part, target in zip(blocks.split(step), rows.split(step), strict=True):
        if out_dtype == torch.float32:
            decode(part, target)
        else:
            exact = torch.empty(target.shape)
            decode(part, exact)
            target.copy_(exact)
    return out


def _half(blocks: Tensor, at: int) -> Tensor:
    """The float16 at byte `at` of every block, as (n, 1) float32."""
    # The copy makes the bytes adjacent and aligned, whatever the block's size and the file's offset.
    return blocks[:, at : at + 2].clone(memory_format=torch.contiguous_format).view(torch.float16).float()


def _planes(packed_NGW: Tensor, bits: int) -> Tensor:
    """Codes (n, groups, 8 / bits, w) of `bits` each; plane j holds the j-th field, from the lowest bit."""
    n, groups, width = packed_NGW.shape
    codes = torch.empty((n, groups, 8 // bits, width), dtype=torch.uint8)
    for j in range(8 // bits):
        torch.bitwise_right_shift(packed_NGW, bits * j, out=codes[:, :, j])
    return codes.bitwise_and_((1 << bits) - 1)


def _fields(blocks: Tensor, start: int, stop: int, width: int, bits: int) -> Tensor:
    """Codes (n, count) of the bytes start:stop, whose bit planes interleave every `width` bytes."""
    return _planes(blocks[:, start:stop].unflatten(1, (-1, width)), bits).flatten(1)


def _floats(dtype: torch.dtype) -> Decoder:
    def decode(blocks: Tensor, out: Tensor) -> None:
        out.copy_(blocks.clone().view(dtype))  # the copy is aligned

    return decode


def _q4_0(blocks: Tensor, out: Tensor) -> None:
    codes = _fields(blocks, 2, 18, 16, bits=4).view(torch.int8).sub_(8)
    torch.mul(codes, _half(blocks, 0), out=out)


def _q4_1(blocks: Tensor, out: Tensor) -> None:
    torch.mul(_fields(blocks, 4, 20, 16, bits=4), _half(blocks, 0), out=out).add_(_half(blocks, 2))


def _q5_0(blocks: Tensor, out: Tensor) -> None:
    codes = _fields(blocks, 6, 22, 16, bits=4).add_(_fields(blocks, 2, 6, 1, bits=1), alpha=16)
    torch.mul(codes.view(torch.int8).sub_(16), _half(blocks, 0), out=out)


def _q5_1(blocks: Tensor, out: Tensor) -> None:
    codes = _fields(blocks, 8, 24, 16, bits=4).add_(_fields(blocks, 4, 8, 1, bits=1), alpha=16)
    torch.mul(codes, _half(blocks, 0), out=out).add_(_half(blocks, 2))


def _q8_0(blocks: Tensor, out: Tensor) -> None:
    torch.mul(blocks[:, 2:].view(torch.int8), _half(blocks, 0), out=out)


def _scaled(codes: Tensor, scale: Tensor, out: Tensor) -> Tensor:
    """`out` = codes * scale, with one scale (n, groups) a group of neighbouring codes; out as groups."""
    groups = (scale.shape[1], -1)
    return torch.mul(codes.unflatten(1, groups), scale.unsqueeze(2), out=out.unflatten(1, groups))


def _q2_k(blocks: Tensor, out: Tensor) -> None:
    scale = _half(blocks, 80) * (blocks[:, :16] & 15)
    minimum = _half(blocks, 82) * (blocks[:, :16] >> 4)
    _scaled(_fields(blocks, 16, 80, 32, bits=2), scale, out).sub_(minimum.unsqueeze(2))


def _q3_k(blocks: Tensor, out: Tensor) -> None:
    # A scale has its low 4 bits in bytes 96-103 and its high 2 bits in bytes 104-107.
    scale = _fields(blocks, 96, 104, 8, bits=4).add_(_fields(blocks, 104, 108, 4, bits=2), alpha=16)
    scale = _half(blocks, 108) * scale.view(torch.int8).sub_(32)
    # The mask's bit set means that the code's third bit is set, and codes are offset by 4.
    codes = _fields(blocks, 32, 96, 32, bits=2).add_(_fields(blocks, 0, 32, 32, bits=1), alpha=4)
    _scaled(codes.view(torch.int8).sub_(4), scale, out)


def _scales_and_minimums(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Of Q4_K and Q5_K: eight 6-bit scales and minimums from bytes 4-15, times the block's two halves."""
    low_scale, low_minimum, rest = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scale = torch.cat((low_scale & 63, rest & 15 | low_scale >> 2 & 48), dim=1)
    minimum = torch.cat((low_minimum & 63, rest >> 4 | low_minimum >> 2 & 48), dim=1)
    return _half(blocks, 0) * scale, _half(blocks, 2) * minimum


def _q4_k(blocks: Tensor, out: Tensor) -> None:
    scale, minimum = _scales_and_minimums(blocks)
    _scaled(_fields(blocks, 16, 144, 32, bits=4), scale, out).sub_(minimum.unsqueeze(2))


def _q5_k(blocks: Tensor, out: Tensor) -> None:
    scale, minimum = _scales_and_minimums(blocks)
    codes = _fields(blocks, 48, 176, 32, bits=4).add_(_fields(blocks, 16, 48, 32, bits=1), alpha=16)
    _scaled(codes, scale, out).sub_(minimum.unsqueeze(2))


def _q6_k(blocks: Tensor, out: Tensor) -> None:
    scale = _half(blocks, 208) * blocks[:, 192:208].view(torch.int8)
    codes = _fields(blocks, 0, 128, 64, bits=4).add_(_fields(blocks, 128, 192, 32, bits=2), alpha=16)
    _scaled(codes.view(torch.int8).sub_(32), scale, out)


def _by_library(type_name: str) -> Decoder:
    """The rarer types are left to `gguf`, which looks their codes up in tables at a tenth of the speed."""
    type_ = GGMLQuantizationType[type_name]

    def decode(blocks: Tensor, out: Tensor) -> None:
        with np.errstate(all="ignore"):  # blocks of a broken file may hold anything
            values = quants.dequantize(blocks.contiguous().numpy(), type_)
        out.copy_(torch.from_numpy(values).view(out.shape))

    return decode


DECODERS: dict[str, Decoder] = {
    "F32": _floats(torch.float32),
    "F16": _floats(torch.float16),
    "BF16": _floats(torch.bfloat16),
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}
DECODERS |= {type_name: _by_library(type_name) for type_name in TYPES if type_name not in DECODERS}
