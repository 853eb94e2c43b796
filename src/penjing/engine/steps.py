"""The model's steps in a generation: a cache, the prompt, and one token more.

Shapes: B rows of equal length, L tokens, V vocabulary. Inference mode is entered a step at a time: around a
generator's loop it would leak to the caller at each `yield`.
"""

import torch
from torch import Tensor

from penjing.memory import require_memory
from penjing.model.language_model import Cache, LanguageModel

PREFILL_CHUNK = 512


@torch.inference_mode()
def make_cache(module: LanguageModel, rows: int, slots: int, remedy: str) -> Cache:
    """The model's cache for these rows and slots. Its memory is asked for first (`ResourceError` with the
    `remedy`): it is only taken when it is written, in the middle of the text."""
    what = f"The cache of {slots} tokens" if rows == 1 else f"The cache of {rows} times {slots} tokens"
    require_memory(module.cache_nbytes(rows, slots), what, remedy)
    return module.new_cache(rows, slots)


@torch.inference_mode()
def prefill(module: LanguageModel, cache: Cache, ids_BL: Tensor, chunk: int = PREFILL_CHUNK) -> Tensor:
    """Logits (B, V) after whole prompts of int64 ids; only their last tokens go through the head.

    `chunk` bounds the memory of attention and changes logits by rounding at most. It isn't used for a model
    that reads prompts whole.
    """
    length = ids_BL.shape[1]
    if module.reads_prompts_whole:
        chunk = length
    last = (length - 1) // chunk * chunk
    for start in range(0, last, chunk):
        _hidden(module, cache, ids_BL[:, start : start + chunk], start)
    return extend(module, cache, ids_BL[:, last:], last)


@torch.inference_mode()
def extend(module: LanguageModel, cache: Cache, ids_BL: Tensor, start: int) -> Tensor:
    """Logits (B, V) after tokens of which the first stands at position `start`."""
    return module.head(_hidden(module, cache, ids_BL, start)[:, -1:])[:, 0]


def _hidden(module: LanguageModel, cache: Cache, ids_BL: Tensor, start: int) -> Tensor:
    positions_BL = torch.arange(start, start + ids_BL.shape[1]).expand(ids_BL.shape[0], -1)
    return module.hidden(ids_BL, positions_BL, cache=cache)
