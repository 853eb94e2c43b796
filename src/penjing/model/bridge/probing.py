"""Finding out what a model of transformers does, by running it on a few tokens: classes differ, and only what
was seen is relied on.

Shapes: B rows, L tokens, D width of what the head reads, V vocabulary.
"""

from collections.abc import Mapping
from dataclasses import replace
from inspect import signature
from itertools import product
from typing import Any

import torch

from penjing.errors import PenjingError, UnsupportedError
from penjing.model.bridge.library import quiet
from penjing.model.bridge.module import BridgedModel, Traits

# Under these names classes take what they keep of the tokens before.
_CACHE_KEYS = ("cache", "past_key_values", "cache_params", "state")
_ROWS, _LENGTH, _CUT = 2, 9, 5
# Relative to the largest value. Rounding is near 1e-7; a state that is passed over was seen to shift a tiny
# model's numbers by no more than 3e-5. What isn't close is done in the slower way, or, for the looser bound,
# refused.
_TIGHT, _LOOSE = 1e-5, 1e-4


@torch.inference_mode()
def find_traits(model: BridgedModel, source: str) -> tuple[Traits, tuple[str, ...]]:
    """What `model` does, and a sentence on each thing that makes it slower.

    Raises `UnsupportedError` for a model whose tokens see those after them, or whose rows see each other, or
    that changes its weights as it runs; `PenjingError` for logits that aren't finite.
    """
    versions = _versions(model)
    generator = torch.Generator().manual_seed(0)
    ids_BL = torch.randint(model.config.vocab_size, (_ROWS, _LENGTH), generator=generator)
    logits_BLV = _logits(model, ids_BL)
    if versions != _versions(model):
        raise UnsupportedError(
            f"{source}: this model changes its own weights as it runs, and can't be opened"
        )
    _check_logits(model, ids_BL, logits_BLV, source)
    traits = Traits(has_head=_has_head(model, ids_BL, logits_BLV))
    traits = _with_cache(BridgedModel(model.wrapped, model.config, traits), ids_BL)
    return traits, _notices(traits)


def _logits(model: BridgedModel, ids_BL: torch.Tensor) -> torch.Tensor:
    """As the class computes them, in one go."""
    with quiet():
        return model.wrapped(input_ids=ids_BL).logits


def _check_logits(model: BridgedModel, ids_BL: torch.Tensor, logits_BLV: torch.Tensor, source: str) -> None:
    if not logits_BLV.isfinite().all():
        raise PenjingError(f"{source}: the model gives logits that aren't finite; its weights are broken")
    if logits_BLV.shape[-1] != model.config.vocab_size:
        raise UnsupportedError(
            f"{source}: the model scores {logits_BLV.shape[-1]} tokens, and its config names"
            f" {model.config.vocab_size}"
        )
    alone_1lV = _logits(model, ids_BL[:1, :_CUT])
    if not _close(alone_1lV, logits_BLV[:1, :_CUT], _LOOSE):
        raise UnsupportedError(
            f"{source}: what this model says of a token depends on those after it, or on other texts; only"
            " models that predict the next token of a text can be opened"
        )


def _has_head(model: BridgedModel, ids_BL: torch.Tensor, logits_BLV: torch.Tensor) -> bool:
    """Whether the head, given what the body gives, makes the model's logits of it."""
    if model.body is None:
        return False
    apart = BridgedModel(model.wrapped, model.config, Traits(has_head=True))
    try:
        return _close(apart.head(apart.read(ids_BL)[0]), logits_BLV)
    except Exception:  # a class that isn't made so may fail in any way
        return False


def _with_cache(model: BridgedModel, ids_BL: torch.Tensor) -> Traits:
    """The model's traits and, if reading in parts gives what reading at once gives, those of its cache."""
    whole_BLD, _ = model.read(ids_BL)
    net = model.body if model.traits.has_head else model.wrapped
    assert net is not None
    key = next((key for key in _CACHE_KEYS if key in signature(net.forward).parameters), None)
    if key is None:
        return model.traits
    for takes_rows, takes_many in product((True, False), repeat=2):
        traits = replace(model.traits, cache_key=key, takes_rows=takes_rows, takes_many=takes_many)
        rows = _ROWS if takes_rows else 1
        sizes = _sizes_if_right(model, traits, ids_BL[:rows], whole_BLD[:rows])
        if sizes is not None:
            after_first, after_all = (size // rows for size in sizes)
            a_token = max(0, after_all - after_first) // (_LENGTH - _CUT)
            return replace(traits, token_bytes=a_token, state_bytes=max(0, after_first - _CUT * a_token))
    return model.traits


def _sizes_if_right(
    model: BridgedModel, traits: Traits, ids_BL: torch.Tensor, whole_BLD: torch.Tensor
) -> tuple[int, int] | None:
    """Bytes of the cache after some tokens and after all, if what comes out is right in three parts, one of
    them a single token."""
    cached = BridgedModel(model.wrapped, model.config, traits)
    try:
        first, past = cached.read(ids_BL[:, :_CUT], None, keep=True)
        before = _nbytes(past)
        second, past = cached.read(ids_BL[:, _CUT : _CUT + 1], past, keep=True)
        third, past = cached.read(ids_BL[:, _CUT + 1 :], past, keep=True)
    except Exception:  # a class whose cache isn't used so may fail in any way
        return None
    right = past is not None and _close(torch.cat((first, second, third), dim=1), whole_BLD)
    return (before, _nbytes(past)) if right else None


def _notices(traits: Traits) -> tuple[str, ...]:
    notices = []
    if traits.cache_key is None:
        notices.append(
            "what this model keeps of the tokens before can't be used here, so the whole text is read again"
            " for every new token"
        )
    if not traits.has_head:
        notices.append(
            "this model's logits can't be computed apart from the rest, so those of a whole passage are held"
            " at once, which takes more memory"
        )
    return tuple(notices)


def _close(found: torch.Tensor, expected: torch.Tensor, tolerance: float = _TIGHT) -> bool:
    scale = float(expected.abs().max())
    return found.shape == expected.shape and float((found - expected).abs().max()) <= tolerance * scale


def _versions(model: BridgedModel) -> list[int]:
    """How often each weight was written to."""
    return [parameter._version for parameter in model.parameters()]


def _nbytes(kept: Any) -> int:
    """Bytes of all tensors in what a model keeps, however it is made up; each counts once."""
    seen: dict[int, int] = {}
    _visit(kept, seen)
    return sum(seen.values())


def _visit(kept: Any, seen: dict[int, int]) -> None:
    if id(kept) in seen:
        return
    seen[id(kept)] = kept.nbytes if isinstance(kept, torch.Tensor) else 0
    if isinstance(kept, torch.Tensor):
        return
    inner = kept if isinstance(kept, (Mapping, list, tuple)) else getattr(kept, "__dict__", {})
    for value in inner.values() if isinstance(inner, Mapping) else inner:
        _visit(value, seen)
