"""One sequence from prompt to text: prefill in chunks, then one token at a time on a cache.

Shape letters: V vocabulary.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from penjing.engine.detokenize import Detokenizer
from penjing.engine.params import SamplingParams
from penjing.engine.sampling import Sampler
from penjing.engine.steps import PREFILL_CHUNK, extend, make_cache, prefill
from penjing.engine.stops import StopMatcher
from penjing.errors import InputError
from penjing.model.language_model import Cache, LanguageModel
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
    module: LanguageModel,
    tokenizer: Tokenizer,
    prompt_ids: Sequence[int],
    params: SamplingParams,
    *,
    continues: bool = False,
    prefill_chunk: int = PREFILL_CHUNK,
) -> Iterator[Piece]:
    """Yields one `Piece` for each token as it is made; the last has a finish reason.

    prompt_ids: the whole prompt, special tokens included; it is never cut. continues: the output goes on with
    the prompt's text (not: begins an answer to it), so a blank before its first word is text. prefill_chunk:
    most prompt tokens in one step of the model; it bounds the memory of attention and changes logits by
    rounding at most; not used for a model that reads prompts whole. Prompt and output together fill
    the model's context at most. Closing the iterator early frees everything.

    Raises at the call, before any compute: `InputError` if the prompt is empty, leaves no room in the context
    or names a token that the model doesn't have; `ResourceError` if the cache doesn't fit in memory. While
    iterating: `PenjingError` if the logits are NaN or infinite.
    """
    prompt_ids = tuple(prompt_ids)
    _check(module, prompt_ids, prefill_chunk)
    slots = min(len(prompt_ids) + params.max_tokens, module.config.max_position_embeddings)
    cache = make_cache(module, 1, slots, "lower max_tokens or shorten the prompt.")
    # Nothing of the text stands before what follows a special token, such as a lone BOS.
    at_start = not continues or prompt_ids[-1] in tokenizer.special_ids
    detokenizer = Detokenizer(tokenizer, at_start=at_start)
    return _pieces(module, tokenizer, detokenizer, prompt_ids, params, cache, prefill_chunk)


def complete(
    module: LanguageModel,
    tokenizer: Tokenizer,
    prompt_ids: Sequence[int],
    params: SamplingParams,
    *,
    continues: bool = False,
    prefill_chunk: int = PREFILL_CHUNK,
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
    module: LanguageModel,
    tokenizer: Tokenizer,
    detokenizer: Detokenizer,
    prompt_ids: tuple[int, ...],
    params: SamplingParams,
    cache: Cache,
    prefill_chunk: int,
) -> Iterator[Piece]:
    end_ids = frozenset() if params.ignore_end else tokenizer.end_ids | params.end_ids
    sampler, stops = Sampler(params, prompt_ids, module.config.vocab_size), StopMatcher(params.stop)
    logits_V = prefill(module, cache, torch.tensor([prompt_ids]), prefill_chunk)[0]
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
        logits_V = extend(module, cache, torch.tensor([[token]]), position)[0]


def _check(module: LanguageModel, prompt_ids: tuple[int, ...], prefill_chunk: int) -> None:
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
