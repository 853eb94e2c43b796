"""The model's steps in a generation: a cache, the prompt, and one token more.

Shapes: B rows of equal length, L tokens, V vocabulary. Inference mode is entered a step at a time: around a
generator's loop it would leak to the caller at each `yield`.
"""

import torch
from torch import Tensor

from penjing.memory import require_memory
from penjing.model.cache import StaticCache
from penjing.model.decoder import Decoder
from penjing.model.rope import depends_on_length

PREFILL_CHUNK = 512


@torch.inference_mode()
def make_cache(module: Decoder, rows: int, slots: int, remedy: str) -> StaticCache:
    """A cache in the model's dtype. Its memory is asked for first (`ResourceError` with the `remedy`): zeroed
    memory is only taken when it is written, in the middle of the text."""
    dtype = next(p.dtype for p in module.parameters() if p.is_floating_point())
    with torch.device("meta"):
        need = StaticCache(module.config, rows, slots, dtype).nbytes
    what = f"The cache of {slots} tokens" if rows == 1 else f"The cache of {rows} times {slots} tokens"
    require_memory(need, what, remedy)
    return StaticCache(module.config, rows, slots, dtype)


@torch.inference_mode()
def prefill(module: Decoder, cache: StaticCache, ids_BL: Tensor, chunk: int = PREFILL_CHUNK) -> Tensor:
    """Logits (B, V) after whole prompts of int64 ids; only their last tokens go through the head.

    `chunk` bounds the memory of attention and changes logits by rounding at most. It isn't used where rotary
    frequencies depend on the length: keys that a shorter step put into the cache would be turned by others.
    """
    length = ids_BL.shape[1]
    if depends_on_length(module.config):
        chunk = length
    last = (length - 1) // chunk * chunk
    for start in range(0, last, chunk):
        _hidden(module, cache, ids_BL[:, start : start + chunk], start)
    return extend(module, cache, ids_BL[:, last:], last)


@torch.inference_mode()
def extend(module: Decoder, cache: StaticCache, ids_BL: Tensor, start: int) -> Tensor:
    """Logits (B, V) after tokens of which the first stands at position `start`."""
    return module.head(_hidden(module, cache, ids_BL, start)[:, -1:])[:, 0]


def _hidden(module: Decoder, cache: StaticCache, ids_BL: Tensor, start: int) -> Tensor:
    positions_BL = torch.arange(start, start + ids_BL.shape[1]).expand(ids_BL.shape[0], -1)
    return module.hidden(ids_BL, positions_BL, cache=cache)
