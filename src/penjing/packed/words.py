"""Codes packed into 32-bit words as one dense little-endian stream of bits: code i begins at bit i * bits."""

import torch

from penjing.packed import bits as bit_packing


def unpack_words(words_RW: torch.Tensor, columns: int, bits: int) -> torch.Tensor:
    """The codes (rows, columns), uint8, of int32 words (rows, word_count(columns, bits))."""
    bytes_RB = words_RW.contiguous().view(torch.uint8)
    if 8 % bits == 0:  # no code crosses a byte
        return bit_packing.unpack(bytes_RB, columns, bits)
    first_C = torch.arange(columns) * bits
    low_C, shift_C = first_C // 8, (first_C % 8).to(torch.int32)
    bytes_RB = torch.nn.functional.pad(bytes_RB, (0, 1)).to(torch.int32)
    pair_RC = bytes_RB[:, low_C] | (bytes_RB[:, low_C + 1] << 8)
    return ((pair_RC >> shift_C) & ((1 << bits) - 1)).to(torch.uint8)


def pack_words(codes_RC: torch.Tensor, bits: int) -> torch.Tensor:
    """Int32 words (rows, word_count(columns, bits)) of uint8 codes (rows, columns)."""
    rows, columns = codes_RC.shape
    bits_RCb = codes_RC.contiguous().unsqueeze(2) >> torch.arange(bits, dtype=torch.uint8) & 1
    stream = torch.nn.functional.pad(bits_RCb.reshape(rows, -1), (0, -columns * bits % 32))
    bytes_RB8 = stream.view(rows, -1, 8) << torch.arange(8, dtype=torch.uint8)
    return bytes_RB8.sum(dim=2, dtype=torch.uint8).view(torch.int32)
