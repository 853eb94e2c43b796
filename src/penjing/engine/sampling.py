"""From logits to one token, as a chain of small pure functions.

The order is vLLM's: penalties, temperature, min-p, top-k, top-p, draw. Greedy decoding applies the penalties
and takes the argmax. All maths is float32 but for the draw's running sum.

Randomness is counter-based: the draw for output token n is a function of (seed, n) alone, so a text doesn't
depend on how its prompt was chunked, what ran beside it, or whether it was interrupted and resumed.

Shape letters: V vocabulary.
"""

import secrets
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from penjing.engine.params import SamplingParams
from penjing.errors import PenjingError


class Sampler:
    """Samples one sequence's tokens one after another, keeping the counts that its penalties need.

    prompt_ids: the prompt's tokens, each in [0, vocab_size).
    """

    def __init__(self, params: SamplingParams, prompt_ids: Iterable[int], vocab_size: int) -> None:
        self._params = params
        self._seed = secrets.randbits(63) if params.seed is None else params.seed
        self._generated = 0
        self._counts_V = torch.zeros(vocab_size, dtype=torch.float32)
        self._seen_V = torch.zeros(vocab_size, dtype=torch.bool)
        self._seen_V[torch.tensor(list(prompt_ids), dtype=torch.int64)] = True

    def sample(self, logits_V: Tensor) -> int:
        """The next token, which then counts as output. `PenjingError` if the logits name no token."""
        uniform = uniform_at(self._seed, self._generated)
        token = sample(logits_V, self._params, self._seen_V, self._counts_V, uniform)
        self._generated += 1
        self._seen_V[token] = True
        self._counts_V[token] += 1
        return token


def sample(logits_V: Tensor, params: SamplingParams, seen_V: Tensor, counts_V: Tensor, uniform: float) -> int:
    """One token from float logits.

    seen_V: bool, tokens of the prompt or the output; counts_V: float32, how often each is in the output;
    uniform: the draw, in [0, 1), unused when greedy. Raises `PenjingError` if a logit is NaN or +inf, or all
    are -inf: there is no right token then.
    """
    logits_V = apply_repetition_penalty(logits_V.float(), seen_V, params.repetition_penalty)
    logits_V = apply_output_penalties(logits_V, counts_V, params.presence_penalty, params.frequency_penalty)
    _check(logits_V)
    if params.temperature == 0:
        return int(logits_V.argmax())
    logits_V = apply_temperature(logits_V, params.temperature)
    logits_V = apply_min_p(logits_V, params.min_p)
    logits_V = apply_top_k(logits_V, params.top_k)
    logits_V = apply_top_p(logits_V, params.top_p)
    return draw(logits_V, uniform)


def apply_repetition_penalty(logits_V: Tensor, seen_V: Tensor, penalty: float) -> Tensor:
    """Seen tokens' logits divided by `penalty` where positive and multiplied where negative."""
    if penalty == 1:
        return logits_V
    penalised_V = torch.where(logits_V < 0, logits_V * penalty, logits_V / penalty)
    return torch.where(seen_V, penalised_V, logits_V)


def apply_output_penalties(logits_V: Tensor, counts_V: Tensor, presence: float, frequency: float) -> Tensor:
    """`presence` subtracted once and `frequency` once per occurrence from tokens of the output."""
    if presence == 0 and frequency == 0:
        return logits_V
    return logits_V - frequency * counts_V - presence * (counts_V > 0)


def apply_temperature(logits_V: Tensor, temperature: float) -> Tensor:
    """Logits divided by `temperature`, shifted so that the largest is 0 and none can overflow upwards."""
    return (logits_V - logits_V.max()) / temperature


def apply_min_p(logits_V: Tensor, min_p: float) -> Tensor:
    """-inf where the probability is below `min_p` times the largest."""
    if min_p == 0:
        return logits_V
    probabilities_V = logits_V.softmax(-1)
    return logits_V.masked_fill(probabilities_V < min_p * probabilities_V.max(), -torch.inf)


def apply_top_k(logits_V: Tensor, top_k: int) -> Tensor:
    """-inf below the k-th largest logit; ties with it stay. 0 keeps all."""
    if top_k == 0 or top_k >= logits_V.numel():
        return logits_V
    return logits_V.masked_fill(logits_V < logits_V.topk(top_k).values[-1], -torch.inf)


def apply_top_p(logits_V: Tensor, top_p: float) -> Tensor:
    """-inf where the likelier tokens already hold `top_p` of the probability. The likeliest always stays."""
    if top_p == 1:
        return logits_V
    sorted_V, order_V = logits_V.sort(descending=True, stable=True)
    probabilities_V = sorted_V.softmax(-1)
    above_V = probabilities_V.cumsum(-1) - probabilities_V
    return logits_V.scatter(0, order_V, sorted_V.masked_fill(above_V >= top_p, -torch.inf))


def draw(logits_V: Tensor, uniform: float) -> int:
    """The token at which the running probability passes `uniform`: inverse-transform sampling.

    One number per token rather than one per vocabulary entry, so the draw is the same on every device. The
    running sum is float64: in float32 the tail of a large vocabulary would be rounded away.
    """
    running_V = logits_V.softmax(-1).double().cumsum(-1)
    # uniform < 1, so the target lies below the total, and the first entry above it has probability > 0.
    return int(torch.searchsorted(running_V, uniform * running_V[-1], right=True))


def uniform_at(seed: int, index: int) -> float:
    """A uniform number in [0, 1) that depends on (seed, index) only: Philox, a counter-based generator."""
    return np.random.Generator(np.random.Philox(key=seed % 2**64, counter=index)).random()


def _check(logits_V: Tensor) -> None:
    largest = float(logits_V.max())  # NaN wins over every number
    if not np.isfinite(largest):
        raise PenjingError(
            f"The model's logits name no token: the largest of {logits_V.numel()} is {largest}. Its weights "
            "are broken or its dtype overflows; get the weights again, or load them as float32."
        )
