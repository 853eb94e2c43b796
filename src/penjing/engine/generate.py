"""One sequence from prompt to text: prefill in chunks, then one token at a time on a static cache.

Shape letters: B rows (always 1), L tokens, V vocabulary.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from penjing.engine.detokenize import Detokenizer
from penjing.engine.params import SamplingParams
from penjing.engine.sampling import Sampler
from penjing.engine.stops import StopMatcher
from penjing.errors import InputError
from penjing.memory import require_memory
from penjing.model.cache import StaticCache
from penjing.model.decoder import Decoder
from penjing.model.rope import depends_on_length
from penjing.text.tokenizer import Tokenizer

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True)
class Piece:
    """What one more token brought. `text` is empty while a character or a possible stop text is incomplete.

    `token_ids` includes an end token, which is never in the text. `finish_reason` is set on the last piece
    only: "stop" for an end token or a stop text, "length" for max_tokens or the end of the context.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None = None


@dataclass(frozen=True)
class Completion:
    """A whole generation. Seconds run from the call to the first token, and to the last."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    prompt_tokens: int
    first_token_seconds: float
    seconds: float


def generate(
    module: Decoder,
    tokenizer: Tokenizer,
    prompt_ids: Sequence[int],
    params: SamplingParams,
    *,
    continues: bool = False,
    prefill_chunk: int = 512,
) -> Iterator[Piece]:
    """Yields one `Piece` for each token as it is made; the last has a finish reason.

    prompt_ids: the whole prompt, special tokens included; it is never cut. continues: the output goes on with
    the prompt's text (not: begins an answer to it), so a blank before its first word is text. prefill_chunk:
    most prompt tokens in one step of the model; it bounds the memory of attention and changes logits by
    rounding at most; not used where rotary frequencies depend on the length. Prompt and output together fill
    the model's context at most. Closing the iterator early frees everything.

    Raises at the call, before any compute: `InputError` if the prompt is empty, leaves no room in the context
    or names a token that the model doesn't have; `ResourceError` if the cache doesn't fit in memory. While
    iterating: `PenjingError` if the logits are NaN or infinite.
    """
    prompt_ids = tuple(prompt_ids)
    _check(module, prompt_ids, prefill_chunk)
    cache = _cache(module, min(len(prompt_ids) + params.max_tokens, module.config.max_position_embeddings))
    # Nothing of the text stands before what follows a special token, such as a lone BOS.
    at_start = not continues or prompt_ids[-1] in tokenizer.special_ids
    detokenizer = Detokenizer(tokenizer, at_start=at_start)
    return _pieces(module, tokenizer, detokenizer, prompt_ids, params, cache, prefill_chunk)


def complete(
    module: Decoder,
    tokenizer: Tokenizer,
    prompt_ids: Sequence[int],
    params: SamplingParams,
    *,
    continues: bool = False,
    prefill_chunk: int = 512,
) -> Completion:
    """`generate`, gathered into one value; the text is that of the pieces joined."""
    start = time.perf_counter()
    pieces: list[Piece] = []
    first_token = start
    for piece in generate(
        module, tokenizer, prompt_ids, params, continues=continues, prefill_chunk=prefill_chunk
    ):
        if not pieces:
            first_token = time.perf_counter()
        pieces.append(piece)
    finish_reason = pieces[-1].finish_reason
    assert finish_reason is not None
    return Completion(
        text="".join(piece.text for piece in pieces),
        token_ids=tuple(token for piece in pieces for token in piece.token_ids),
        finish_reason=finish_reason,
        prompt_tokens=len(prompt_ids),
        first_token_seconds=first_token - start,
        seconds=time.perf_counter() - start,
    )


def _pieces(
    module: Decoder,
    tokenizer: Tokenizer,
    detokenizer: Detokenizer,
    prompt_ids: tuple[int, ...],
    params: SamplingParams,
    cache: StaticCache,
    prefill_chunk: int,
) -> Iterator[Piece]:
    end_ids = frozenset() if params.ignore_end else tokenizer.end_ids | params.end_ids
    sampler, stops = Sampler(params, prompt_ids, module.config.vocab_size), StopMatcher(params.stop)
    logits_V = _prefill(module, cache, prompt_ids, prefill_chunk)
    for position in range(len(prompt_ids), cache.max_length):
        token = sampler.sample(logits_V)
        ended = token in end_ids
        text = "" if ended else stops.feed(detokenizer.feed(token))
        if ended or stops.matched:
            yield Piece(text + stops.flush(), (token,), "stop")
            return
        if position == cache.max_length - 1:
            yield Piece(text + stops.flush(), (token,), "length")
            return
        yield Piece(text, (token,))
        logits_V = _logits(module, cache, (token,), position)


def _check(module: Decoder, prompt_ids: tuple[int, ...], prefill_chunk: int) -> None:
    context, vocab_size = module.config.max_position_embeddings, module.config.vocab_size
    if not prompt_ids:
        raise InputError("The prompt has no tokens; give at least one character of text.")
    if len(prompt_ids) >= context:
        raise InputError(
            f"The prompt has {len(prompt_ids)} tokens, which leaves no room for an answer in the model's "
            f"context of {context}; shorten the prompt to at most {context - 1} tokens."
        )
    unknown = [token for token in prompt_ids if not 0 <= token < vocab_size]
    if unknown:
        raise InputError(
            f"The prompt contains token {unknown[0]}, but the model's vocabulary is 0 to {vocab_size - 1}; "
            "use the tokenizer that belongs to this model."
        )
    if prefill_chunk < 1:
        raise InputError(f"prefill_chunk is {prefill_chunk}, but must be at least 1.")


# Inference mode is entered a step at a time: around the loop, it would leak to the caller at each `yield`.


@torch.inference_mode()
def _cache(module: Decoder, slots: int) -> StaticCache:
    """In the model's dtype. Asked for first: zeroed memory is only taken when it is written, mid-text."""
    dtype = next(p.dtype for p in module.parameters() if p.is_floating_point())
    with torch.device("meta"):
        need = StaticCache(module.config, 1, slots, dtype).nbytes
    require_memory(need, f"The cache of {slots} tokens", "lower max_tokens or shorten the prompt.")
    return StaticCache(module.config, 1, slots, dtype)


@torch.inference_mode()
def _prefill(module: Decoder, cache: StaticCache, prompt_ids: tuple[int, ...], chunk: int) -> Tensor:
    """Logits (V,) after the whole prompt; only its last token goes through the head."""
    if depends_on_length(module.config):
        # Keys that an earlier, shorter step put into the cache would be turned by other frequencies.
        chunk = len(prompt_ids)
    last_start = (len(prompt_ids) - 1) // chunk * chunk
    for start in range(0, last_start, chunk):
        _hidden(module, cache, prompt_ids[start : start + chunk], start)
    return _logits(module, cache, prompt_ids[last_start:], last_start)


@torch.inference_mode()
def _logits(module: Decoder, cache: StaticCache, ids: tuple[int, ...], start: int) -> Tensor:
    """Logits (V,) after `ids`, of which the first stands at position `start`."""
    return module.head(_hidden(module, cache, ids, start)[:, -1:])[0, 0]


def _hidden(module: Decoder, cache: StaticCache, ids: tuple[int, ...], start: int) -> Tensor:
    ids_BL = torch.tensor([ids], dtype=torch.int64)
    positions_BL = torch.arange(start, start + len(ids), dtype=torch.int64).unsqueeze(0)
    return module.hidden(ids_BL, positions_BL, cache=cache)
