"""Packing unsigned integer codes of 2 to 8 bits into rows of bytes, and unpacking them (see `planes`).

Inside a plane a byte holds consecutive columns, the first in its low bits.
"""

import torch

from penjing.errors import InputError
from penjing.packed.planes import plane_bytes, planes_of


def pack(codes_RC: torch.Tensor, bits: int) -> torch.Tensor:
    """Pack codes (rows, columns), uint8 and below 2**bits, into bytes (rows, row_bytes(columns, bits))."""
    if codes_RC.dtype != torch.uint8 or codes_RC.dim() != 2:
        raise InputError(f"codes must be a uint8 matrix, not {codes_RC.dtype} of {codes_RC.dim()} dimensions")
    if codes_RC.numel() and int(codes_RC.max()) >= 1 << bits:
        raise InputError(f"a code of {int(codes_RC.max())} does not fit in {bits} bits")
    planes, shift = [], 0
    for width in planes_of(bits):
        planes.append(_pack_plane((codes_RC >> shift) & ((1 << width) - 1), width))
        shift += width
    return torch.cat(planes, dim=1)


def unpack(packed_RB: torch.Tensor, columns: int, bits: int) -> torch.Tensor:
    """The codes (rows, columns), uint8, that `pack` made `packed_RB` from."""
    codes_RC, start, shift = None, 0, 0
    for width in planes_of(bits):
        stop = start + plane_bytes(columns, width)
        plane = _unpack_plane(packed_RB[:, start:stop], columns, width)
        codes_RC = plane if codes_RC is None else codes_RC.bitwise_or_(plane << shift)
        start, shift = stop, shift + width
    assert codes_RC is not None
    return codes_RC


def _pack_plane(codes_RC: torch.Tensor, width: int) -> torch.Tensor:
    if width == 8:
        return codes_RC
    rows, columns = codes_RC.shape
    per_byte = 8 // width
    padded = torch.nn.functional.pad(codes_RC, (0, -columns % per_byte))
    padded = padded.view(rows, padded.shape[1] // per_byte, per_byte)
    packed = padded[..., 0].clone()
    for i in range(1, per_byte):
        packed |= padded[..., i] << (i * width)
    return packed


def _unpack_plane(packed_RB: torch.Tensor, columns: int, width: int) -> torch.Tensor:
    if width == 8:
        return packed_RB.clone()
    mask, per_byte = (1 << width) - 1, 8 // width
    parts = [(packed_RB >> (i * width)) & mask for i in range(per_byte)]
    return torch.stack(parts, dim=-1).flatten(1)[:, :columns]
