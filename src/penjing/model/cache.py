"""Keys and values of the tokens seen so far. Shapes: B rows, S slots, K key-value heads, h head_dim, v width
of a head's values, L tokens."""

from collections.abc import Sequence
from typing import Protocol

import torch

from penjing.errors import InputError
from penjing.model.config import ModelConfig


class LayerKeyValues(Protocol):
    """What attention asks of one layer's cache."""

    def write(
        self, keys_BKLh: torch.Tensor, values_BKLv: torch.Tensor, positions_BL: torch.Tensor, length: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store the new tokens; return keys (B, K, length, h) and values (B, K, length, v) of the slots below
        `length`."""
        ...


class KeyValueCache(Protocol):
    """The decoder's cache, however it holds keys and values."""

    @property
    def max_length(self) -> int: ...
    @property
    def layers(self) -> Sequence[LayerKeyValues]: ...
    @property
    def nbytes(self) -> int: ...


class LayerCache:
    """One layer's keys (B, S, K, h) and values (B, S, K, v). A token's slot is its position, so the cache
    holds no length: a row may be shorter than its neighbours, and a slot past a query's position is never
    looked at."""

    def __init__(self, config: ModelConfig, batch_size: int, slots: int, dtype: torch.dtype) -> None:
        shape = (batch_size, slots, config.num_key_value_heads)
        self.keys_BSKh = torch.zeros(*shape, config.head_dim, dtype=dtype)
        self.values_BSKv = torch.zeros(*shape, config.value_head_dim, dtype=dtype)

    def write(
        self, keys_BKLh: torch.Tensor, values_BKLv: torch.Tensor, positions_BL: torch.Tensor, length: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store the new tokens; return keys (B, K, length, h) and values (B, K, length, v) of the slots below
        `length`."""
        rows = torch.arange(positions_BL.shape[0]).unsqueeze(1)
        self.keys_BSKh[rows, positions_BL] = keys_BKLh.transpose(1, 2).to(self.keys_BSKh.dtype)
        self.values_BSKv[rows, positions_BL] = values_BKLv.transpose(1, 2).to(self.values_BSKv.dtype)
        return self.keys_BSKh[:, :length].transpose(1, 2), self.values_BSKv[:, :length].transpose(1, 2)


class StaticCache:
    """A fixed number of slots for each of `batch_size` rows, allocated once."""

    def __init__(
        self, config: ModelConfig, batch_size: int, max_length: int, dtype: torch.dtype = torch.float32
    ) -> None:
        if batch_size < 1 or max_length < 1:
            raise InputError(
                f"a cache needs at least one row and one slot, not {batch_size} and {max_length}"
            )
        self.max_length = max_length
        self.layers = [
            LayerCache(config, batch_size, max_length, dtype) for _ in range(config.num_hidden_layers)
        ]

    @property
    def nbytes(self) -> int:
        return sum(layer.keys_BSKh.nbytes + layer.values_BSKv.nbytes for layer in self.layers)
