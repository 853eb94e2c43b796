"""A decoder whose keys and values go through a quantised cache, wherever it reads.

Shapes: B rows, L tokens, D hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from penjing.errors import InputError
from penjing.model.attention import Layout
from penjing.model.cache import KeyValueCache
from penjing.model.decoder import Decoder
from penjing.model.quantized_cache import CacheSpec, QuantizedCache

_CHUNK = 64  # tokens read in one call: most of what they see was rounded before


class ThroughCache:
    """See `LanguageModel`. Without a cache, too, text is read through one, a piece at a time, as generation
    reads it: so what the cache costs can be measured."""

    def __init__(self, module: Decoder, spec: CacheSpec) -> None:
        self.module, self.spec, self.config = module, spec, module.config

    @property
    def reads_prompts_whole(self) -> bool:
        return self.module.reads_prompts_whole

    def parameters(self) -> Iterator[torch.Tensor]:
        return self.module.parameters()

    def buffers(self) -> Iterator[torch.Tensor]:
        return self.module.buffers()

    def hidden(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        layout: Layout | None = None,
        cache: KeyValueCache | None = None,
    ) -> torch.Tensor:
        """Final hidden states (B, L, D) for int64 ids and positions (B, L)."""
        if cache is not None:
            return self.module.hidden(input_ids, positions, layout, cache)
        if layout is not None:
            raise InputError("packed documents cannot be combined with a cache: give each its own row")
        cache = self.new_cache(len(input_ids), int(positions.max()) + 1)
        chunk = input_ids.shape[1] if self.reads_prompts_whole else _CHUNK
        parts = zip(input_ids.split(chunk, dim=1), positions.split(chunk, dim=1), strict=True)
        return torch.cat([self.module.hidden(ids, where, cache=cache) for ids, where in parts], dim=1)

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits (..., V) of hidden states (..., D)."""
        return self.module.head(hidden)

    def new_cache(self, rows: int, slots: int) -> QuantizedCache:
        """An empty quantised cache for `rows` texts of at most `slots` tokens."""
        dtype = next(p.dtype for p in self.parameters() if p.is_floating_point())
        return QuantizedCache(self.config, rows, slots, self.spec, dtype)

    def cache_nbytes(self, rows: int, slots: int) -> int:
        """Bytes that such a cache takes."""
        with torch.device("meta"):
            return self.new_cache(rows, slots).nbytes
