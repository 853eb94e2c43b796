"""The model's contract: what generation and evaluation ask of a language model, whoever wrote it.

The decoder follows it, and so does a model that runs through transformers. Shapes: B rows, L tokens,
D hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # plans, which are drawn up without it, name the contract too
    import torch

# The context of a model whose config names no limit, such as one that keeps a state instead of tokens.
NO_LIMIT = 2**31 - 1


class LanguageConfig(Protocol):
    """What is asked of a model's config. `max_position_embeddings` is the most tokens a text may have."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def max_position_embeddings(self) -> int: ...


class Cache(Protocol):
    """What a model keeps of the tokens seen so far, for at most `max_length` of them a row. A token's slot is
    its position: writing a slot again goes back to it, and what stood behind it is forgotten."""

    @property
    def max_length(self) -> int: ...


class LanguageModel(Protocol):
    """`forward` composes `hidden` and `head`. `reads_prompts_whole` says that a prompt is to be read in one
    call, since reading it in parts would give other numbers or cost more."""

    @property
    def config(self) -> LanguageConfig: ...
    @property
    def reads_prompts_whole(self) -> bool: ...
    def parameters(self) -> Iterator[torch.Tensor]: ...
    def buffers(self) -> Iterator[torch.Tensor]: ...

    def hidden(
        self, input_ids: torch.Tensor, positions: torch.Tensor, layout: Any = None, cache: Any = None
    ) -> torch.Tensor:
        """States (B, L, D) that the head reads, for int64 ids and positions (B, L)."""
        ...

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits (..., V) of hidden states (..., D)."""
        ...

    def new_cache(self, rows: int, slots: int) -> Cache:
        """An empty cache for `rows` texts of at most `slots` tokens."""
        ...

    def cache_nbytes(self, rows: int, slots: int) -> int:
        """Bytes that such a cache takes when it is full."""
        ...
