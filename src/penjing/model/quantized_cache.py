"""A cache that holds all but the newest keys and values as small codes.

Keys are rounded by channel, over blocks of tokens, since a few of their channels are large at every token;
values by token (KIVI, arXiv 2402.02750). Shapes: B rows, T tokens of a block, K key-value heads, h head_dim,
v width of a head's values, L new tokens, N tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from penjing.errors import InputError
from penjing.model.config import ModelConfig
from penjing.packed import bits as bit_packing
from penjing.packed.planes import row_bytes

_LARGEST = float(torch.finfo(torch.float16).max)


@dataclass(frozen=True)
class CacheSpec:
    """Codes of `bits` (8 or 4), scales of keys over `block` tokens; the newest `window` tokens, and what
    doesn't fill a block, stay as they are."""

    bits: int
    block: int = 32
    window: int = 64

    def __post_init__(self) -> None:
        if self.bits not in (4, 8) or self.block < 1 or self.window < 0:
            raise InputError(
                f"a cache is rounded to 4 or 8 bits, in blocks of at least one token, not {self}"
            )


CACHE_SPECS = {"int8": CacheSpec(8), "int4": CacheSpec(4)}


class QuantizedCache:
    """See `StaticCache`. Going back into what was rounded costs those tokens one more rounding, at most."""

    def __init__(
        self, config: ModelConfig, batch_size: int, max_length: int, spec: CacheSpec, dtype: torch.dtype
    ) -> None:
        if batch_size < 1 or max_length < 1:
            raise InputError(
                f"a cache needs at least one row and one slot, not {batch_size} and {max_length}"
            )
        self.max_length = max_length
        self.layers = [
            QuantizedLayerCache(config, batch_size, max_length, spec, dtype)
            for _ in range(config.num_hidden_layers)
        ]

    @property
    def nbytes(self) -> int:
        return sum(layer.nbytes for layer in self.layers)


class QuantizedLayerCache:
    """One layer's rows."""

    def __init__(
        self, config: ModelConfig, batch_size: int, slots: int, spec: CacheSpec, dtype: torch.dtype
    ) -> None:
        heads = config.num_key_value_heads
        widths = (config.head_dim, config.value_head_dim)
        self.rows = [_Row(slots, heads, *widths, spec, dtype) for _ in range(batch_size)]

    @property
    def nbytes(self) -> int:
        return sum(row.nbytes for row in self.rows)

    def write(
        self, keys_BKLh: torch.Tensor, values_BKLv: torch.Tensor, positions_BL: torch.Tensor, length: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store the new tokens, which stand in order; return keys (B, K, length, h) and values
        (B, K, length, v) of the slots below `length`. The new ones are seen as they are."""
        starts = positions_BL[:, 0].tolist()
        if not torch.equal(positions_BL - positions_BL[:, :1], _steps_like(positions_BL)):
            raise InputError("a quantised cache takes each row's tokens in order, none left out")
        both = [
            row.extend(keys_KLh.transpose(0, 1), values_KLv.transpose(0, 1), start, length)
            for row, keys_KLh, values_KLv, start in zip(
                self.rows, keys_BKLh, values_BKLv, starts, strict=True
            )
        ]
        keys_BNKh, values_BNKv = (torch.stack(parts) for parts in zip(*both, strict=True))
        return keys_BNKh.transpose(1, 2), values_BNKv.transpose(1, 2)


class _Row:
    """One text: `packed` tokens as codes, in whole blocks, and the others up to `filled` as they came."""

    def __init__(
        self, slots: int, heads: int, key_width: int, value_width: int, spec: CacheSpec, dtype: torch.dtype
    ) -> None:
        blocks, self.spec = -(-slots // spec.block), spec
        newest = min(slots, spec.window + spec.block)
        self.packed = self.filled = 0
        self.keys = _Codes((blocks, heads, key_width), spec.block, spec.bits)
        self.values = _Codes((blocks * spec.block, heads, 1), value_width, spec.bits)
        self.newest_keys_NKh = torch.zeros(newest, heads, key_width, dtype=dtype)
        self.newest_values_NKv = torch.zeros(newest, heads, value_width, dtype=dtype)

    @property
    def nbytes(self) -> int:
        newest = self.newest_keys_NKh.nbytes + self.newest_values_NKv.nbytes
        return self.keys.nbytes + self.values.nbytes + newest

    def extend(
        self, keys_LKh: torch.Tensor, values_LKv: torch.Tensor, start: int, length: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Put tokens from position `start` on; keys and values of the first `length` slots, those that are
        empty as zeros."""
        if start > self.filled:
            raise InputError(
                f"position {start} can't be written before those from {self.filled} on, which are empty"
            )
        old_keys_NKh, old_values_NKv = self._unpacked(self.packed)
        if start < self.packed:
            self._go_back(start, old_keys_NKh, old_values_NKv)
            old_keys_NKh, old_values_NKv = old_keys_NKh[: self.packed], old_values_NKv[: self.packed]
        kept = start - self.packed
        new_keys = torch.cat((self.newest_keys_NKh[:kept], keys_LKh))
        new_values = torch.cat((self.newest_values_NKv[:kept], values_LKv))
        seen = (torch.cat((old_keys_NKh, new_keys)), torch.cat((old_values_NKv, new_values)))
        self.filled = start + len(keys_LKh)
        self._settle(new_keys, new_values)
        keys_NKh, values_NKv = (_padded(each, length) for each in seen)
        return keys_NKh, values_NKv

    def _go_back(self, start: int, keys_NKh: torch.Tensor, values_NKv: torch.Tensor) -> None:
        """Make the block that `start` lies in, and all after it, new again."""
        self.packed = start // self.spec.block * self.spec.block
        kept = start - self.packed
        self.newest_keys_NKh[:kept] = keys_NKh[self.packed : start]
        self.newest_values_NKv[:kept] = values_NKv[self.packed : start]

    def _settle(self, keys_NKh: torch.Tensor, values_NKv: torch.Tensor) -> None:
        """Pack whole blocks that have left the window, and hold on to the rest."""
        block = self.spec.block
        blocks = max(0, len(keys_NKh) - self.spec.window) // block
        gone = blocks * block
        if blocks:
            first = self.packed // block
            by_block = keys_NKh[:gone].unflatten(0, (blocks, block)).permute(0, 2, 3, 1)
            self.keys.store(first, by_block)
            self.values.store(self.packed, values_NKv[:gone].unsqueeze(2))
            self.packed += gone
        rest = len(keys_NKh) - gone
        self.newest_keys_NKh[:rest] = keys_NKh[gone:]
        self.newest_values_NKv[:rest] = values_NKv[gone:]

    def _unpacked(self, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
        dtype = self.newest_keys_NKh.dtype
        keys_bKhT = self.keys.load(tokens // self.spec.block)
        values_NK1v = self.values.load(tokens)
        return keys_bKhT.permute(0, 3, 1, 2).flatten(0, 1).to(dtype), values_NK1v.squeeze(2).to(dtype)


class _Codes:
    """Vectors of `width` numbers, each with a scale and a least value of 16 bits; `shape` counts them."""

    def __init__(self, shape: tuple[int, int, int], width: int, bits: int) -> None:
        self._width, self._bits = width, bits
        self._codes = torch.zeros(*shape, row_bytes(width, bits), dtype=torch.uint8)
        self._step = torch.zeros(shape, dtype=torch.float16)
        self._low = torch.zeros(shape, dtype=torch.float16)

    @property
    def nbytes(self) -> int:
        return self._codes.nbytes + self._step.nbytes + self._low.nbytes

    def store(self, first: int, vectors: torch.Tensor) -> None:
        """Round vectors (n, ·, ·, width) into the places from `first` on. The least value is stored first,
        rounded down, so that codes make up for what its 16 bits lose."""
        vectors = vectors.float()
        stop, max_code = first + len(vectors), (1 << self._bits) - 1
        low = _round_down(vectors.amin(-1).clamp(-_LARGEST, _LARGEST))
        step = -_round_down(-(vectors.amax(-1) - low.float()).clamp(max=_LARGEST) / max_code)
        scaled = (vectors - low.float().unsqueeze(-1)) / step.float().clamp(min=1e-30).unsqueeze(-1)
        codes = scaled.round().clamp(0, max_code).to(torch.uint8)
        packed = bit_packing.pack(codes.reshape(-1, self._width), self._bits)
        self._codes[first:stop] = packed.view(*codes.shape[:-1], -1)
        self._step[first:stop], self._low[first:stop] = step, low

    def load(self, count: int) -> torch.Tensor:
        """The first `count` vectors, float32."""
        packed = self._codes[:count]
        codes = bit_packing.unpack(packed.reshape(-1, packed.shape[-1]), self._width, self._bits)
        step, low = self._step[:count].float().unsqueeze(-1), self._low[:count].float().unsqueeze(-1)
        return codes.view(*packed.shape[:-1], self._width) * step + low


def _round_down(values: torch.Tensor) -> torch.Tensor:
    """The largest float16 that isn't above."""
    rounded = values.half()
    below = torch.nextafter(rounded, torch.full_like(rounded, -torch.inf))
    return torch.where(rounded.float() > values, below, rounded)


def _padded(x_N: torch.Tensor, length: int) -> torch.Tensor:
    if len(x_N) == length:
        return x_N
    return torch.cat((x_N, x_N.new_zeros(length - len(x_N), *x_N.shape[1:])))


def _steps_like(positions_BL: torch.Tensor) -> torch.Tensor:
    return torch.arange(positions_BL.shape[1]).expand_as(positions_BL)
