"""Keys and values of the tokens seen so far. Shapes: B rows, S slots, K key-value heads, h head_dim, L
tokens."""

import torch

from penjing.errors import InputError
from penjing.model.config import ModelConfig


class LayerCache:
    """One layer's keys and values (B, S, K, h). A token's slot is its position, so the cache holds no length:
    a row may be shorter than its neighbours, and a slot past a query's position is never looked at."""

    def __init__(self, batch_size: int, slots: int, heads: int, head_dim: int, dtype: torch.dtype) -> None:
        self.keys_BSKh = torch.zeros(batch_size, slots, heads, head_dim, dtype=dtype)
        self.values_BSKh = torch.zeros_like(self.keys_BSKh)

    def write(
        self, keys_BKLh: torch.Tensor, values_BKLh: torch.Tensor, positions_BL: torch.Tensor, length: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store the new tokens and return keys and values (B, K, length, h) of the slots below `length`."""
        rows = torch.arange(positions_BL.shape[0]).unsqueeze(1)
        self.keys_BSKh[rows, positions_BL] = keys_BKLh.transpose(1, 2).to(self.keys_BSKh.dtype)
        self.values_BSKh[rows, positions_BL] = values_BKLh.transpose(1, 2).to(self.values_BSKh.dtype)
        return self.keys_BSKh[:, :length].transpose(1, 2), self.values_BSKh[:, :length].transpose(1, 2)


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
            LayerCache(batch_size, max_length, config.num_key_value_heads, config.head_dim, dtype)
            for _ in range(config.num_hidden_layers)
        ]

    @property
    def nbytes(self) -> int:
        return sum(layer.keys_BSKh.nbytes + layer.values_BSKh.nbytes for layer in self.layers)
