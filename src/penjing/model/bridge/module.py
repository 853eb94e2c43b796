"""A model of transformers, wrapped to the contract that the decoder follows.

Shapes: B rows, L tokens, D width of what the head reads, V vocabulary.
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from penjing.errors import InputError
from penjing.model.attention import Layout
from penjing.model.bridge.cache import BridgedCache
from penjing.model.bridge.library import quiet, saved_tensors
from penjing.model.bridge.plan import BridgedConfig
from penjing.model.packed_parameter import float_tensors, packed_parameters

_LENGTH_DEPENDENT = {"dynamic", "longrope"}


@dataclass(frozen=True)
class Traits:
    """What a model was found to do (see `probing`). `has_head`: its body and its head can be run apart.
    `cache_key`: under this name it takes and gives back what it keeps of the tokens before (None: it keeps
    nothing that goes on right, so every text is read from its start again). `takes_rows` and `takes_many`:
    several rows may go on together, and several tokens may follow kept ones in one call. A row's cache takes
    `state_bytes`, and `token_bytes` for each token."""

    has_head: bool = False
    cache_key: str | None = None
    takes_rows: bool = False
    takes_many: bool = False
    state_bytes: int = 0
    token_bytes: int = 0


class BridgedModel(nn.Module):
    """See `LanguageModel`. `wrapped` is the model as transformers makes it, its parameters under its own
    names."""

    def __init__(self, wrapped: Any, config: BridgedConfig, traits: Traits | None = None) -> None:
        super().__init__()
        self.wrapped = wrapped
        self.config = config
        self.traits = traits or Traits()

    @property
    def reads_prompts_whole(self) -> bool:
        """Where tokens can't follow kept ones, or not several at once, reading in parts would cost more; and
        where rotary frequencies depend on the length, the parts would be turned apart."""
        return not self.traits.takes_many or bool(self.config.rope_types & _LENGTH_DEPENDENT)

    @property
    def body(self) -> nn.Module | None:
        """All but the head, if transformers keeps the two apart."""
        body = getattr(self.wrapped, self.wrapped.base_model_prefix, None)
        return body if isinstance(body, nn.Module) and body is not self.wrapped else None

    def hidden(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        layout: Layout | None = None,
        cache: BridgedCache | None = None,
    ) -> torch.Tensor:
        """What the head reads (B, L, D), for int64 ids and positions (B, L): a row's tokens, in order, each
        document from position 0. If body and head can't be run apart these are the logits themselves."""
        starts = _starts(positions, layout)
        if cache is not None:
            if layout is not None:
                raise InputError("packed documents cannot be combined with a cache: give each its own row")
            return cache.extend(self.read, input_ids, starts)
        if any(starts):
            raise InputError("without a cache a text begins at position 0")
        lengths = [input_ids.shape[1]] if layout is None else list(layout.document_lengths)
        return torch.cat([self.read(ids_Bl)[0] for ids_Bl in input_ids.split(lengths, dim=1)], dim=1)

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits (..., V) of hidden states (..., D)."""
        if not self.traits.has_head:
            return hidden
        rows_1ND = hidden.reshape(1, -1, hidden.shape[-1])
        with quiet():
            logits_1NV = _without_body(self.wrapped)(inputs_embeds=rows_1ND).logits
        return logits_1NV.view(*hidden.shape[:-1], -1)

    def forward(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        layout: Layout | None = None,
        cache: BridgedCache | None = None,
    ) -> torch.Tensor:
        """Logits (B, L, V): `head` of `hidden`."""
        return self.head(self.hidden(input_ids, positions, layout, cache))

    def new_cache(self, rows: int, slots: int) -> BridgedCache:
        """An empty cache for `rows` texts of at most `slots` tokens; it takes its memory as they come."""
        return BridgedCache(rows, slots, together=self.traits.takes_rows or self.traits.cache_key is None)

    def cache_nbytes(self, rows: int, slots: int) -> int:
        """Bytes that such a cache takes when it is full."""
        return rows * (self.traits.state_bytes + slots * self.traits.token_bytes)

    def read(self, ids_BL: torch.Tensor, past: Any = None, keep: bool = False) -> tuple[torch.Tensor, Any]:
        """What the head reads (B, L, D) for ids after those in `past`, and what is to be kept of them all, if
        that is asked for."""
        key = self.traits.cache_key
        if past is not None and not self.traits.takes_many and ids_BL.shape[1] > 1:
            return self._read_one_by_one(ids_BL, past)
        kept = {} if key is None or not keep else {"use_cache": True, key: past}
        net = self.body if self.traits.has_head else self.wrapped
        assert net is not None
        with quiet():
            out = net(input_ids=ids_BL, **kept)
        return out.last_hidden_state if self.traits.has_head else out.logits, out.get(key) if kept else None

    def _read_one_by_one(self, ids_BL: torch.Tensor, past: Any) -> tuple[torch.Tensor, Any]:
        read = []
        for ids_B1 in ids_BL.split(1, dim=1):
            x_B1D, past = self.read(ids_B1, past, keep=True)
            read.append(x_B1D)
        return torch.cat(read, dim=1), past

    def saved_tensors(self) -> dict[str, torch.Tensor]:
        """The weights by the names, and in the form, in which transformers saves them; tied ones once. Those
        beside packed ones go by their names in the module, since only penjing opens such a model."""
        return self.float_tensors() if packed_parameters(self.wrapped) else saved_tensors(self.wrapped)

    def float_tensors(self) -> dict[str, torch.Tensor]:
        """The weights that aren't packed, by their names in the module; tied ones once."""
        return float_tensors(self.wrapped)


def _starts(positions_BL: torch.Tensor, layout: Layout | None) -> list[int]:
    """The position at which each row begins. Its tokens must stand in order, since transformers numbers them
    by itself."""
    length = positions_BL.shape[1]
    lengths = (length,) if layout is None else layout.document_lengths
    if sum(lengths) != length:
        raise InputError(f"the documents add up to {sum(lengths)} tokens, the row has {length}")
    steps_L = torch.cat([torch.arange(n, device=positions_BL.device) for n in lengths])
    starts_B1 = positions_BL[:, :1]
    if not torch.equal(positions_BL, starts_B1 + steps_L):
        raise InputError(
            "a model that runs through transformers takes each row's tokens in order, none left out"
        )
    return starts_B1[:, 0].tolist()


class _PassOn(nn.Module):
    """Stands for a body: gives the head what is given to it."""

    def forward(self, *_: Any, inputs_embeds: torch.Tensor, **__: Any) -> "_BodyOutput":
        return _BodyOutput(inputs_embeds)


class _BodyOutput:
    """All that a head needs of its body. Whatever else it may ask for is None."""

    def __init__(self, hidden: torch.Tensor) -> None:
        self.last_hidden_state = hidden

    def __getitem__(self, index: int) -> torch.Tensor:
        return (self.last_hidden_state,)[index]

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


def _without_body(model: Any) -> Any:
    """The same model, its weights shared, with nothing before the head: so soft caps, scales and whatever
    else a class does to its logits is done by the class itself."""
    head = copy.copy(model)
    head._modules = {**model._modules, model.base_model_prefix: _PassOn()}
    return head
