"""Text that the model itself writes, to take statistics from.

What a model says at temperature 1 is what it was trained on, as far as it knows it: more kinds of text than
any documents that are at hand, at no cost but time (as LLM-QAT trains, arXiv 2305.17888). Shapes: N passages
of L tokens, B rows that are written side by side.
"""

from collections.abc import Callable

import torch

from penjing.api import Model
from penjing.engine.steps import extend, make_cache, prefill
from penjing.errors import PenjingError
from penjing.text.tokenizer import Tokenizer

Progress = Callable[[int, int], None]
_ROWS = 16  # the cache of so many rows stays small beside the model
_TEXTS = 2  # in a passage, one after the other


def own_passages(
    model: Model,
    passages: int,
    length: int,
    generator: torch.Generator,
    progress: Progress | None = None,
) -> torch.Tensor:
    """Passages (N, L) of int64 ids that `model` writes, two texts in each, drawn from its whole distribution
    by `generator`.

    `progress` counts the tokens of a text, over all batches of rows. Raises `PenjingError` for logits that
    aren't finite, `ResourceError` where the cache has no room.
    """
    size = -(-length // _TEXTS)  # two short texts side by side take half the time of a long one
    starts = range(0, _TEXTS * passages, _ROWS)
    written = []
    for batch, start in enumerate(starts):
        ids_BL = _begin(model.tokenizer, min(_ROWS, _TEXTS * passages - start), generator)
        cache = make_cache(model.module, len(ids_BL), size, "close other programs")
        logits_BV = prefill(model.module, cache, ids_BL)
        while ids_BL.shape[1] < size:
            drawn_B1 = _draw(logits_BV[:, : model.tokenizer.vocab_size], generator)
            ids_BL = torch.cat([ids_BL, drawn_B1], dim=1)
            if ids_BL.shape[1] < size:
                logits_BV = extend(model.module, cache, drawn_B1, ids_BL.shape[1] - 1)
            if progress:
                progress(batch * size + ids_BL.shape[1], len(starts) * size)
        written.append(ids_BL)
    return torch.cat(written).view(passages, -1)[:, :length]


def _begin(tokenizer: Tokenizer, rows: int, generator: torch.Generator) -> torch.Tensor:
    """First tokens (B, 1): what a text begins with, or else any token."""
    first = tokenizer.prompt_ids("")[:1] or [tokenizer.bos_id]
    if first[0] is not None:
        return torch.tensor([first] * rows, dtype=torch.int64)
    return torch.randint(tokenizer.vocab_size, (rows, 1), generator=generator)


def _draw(logits_BV: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    if not torch.isfinite(logits_BV).all():
        raise PenjingError(
            "the model gives logits that aren't finite on text of its own; its weights are broken"
        )
    return torch.multinomial(logits_BV.softmax(dim=-1), 1, generator=generator)
