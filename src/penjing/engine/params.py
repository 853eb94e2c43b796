"""What a caller may ask of sampling and stopping. Names and meanings are OpenAI's and vLLM's."""

import math
from dataclasses import dataclass
from typing import Any

from penjing.errors import InputError


@dataclass(frozen=True)
class SamplingParams:
    """How one sequence is sampled and when it ends. Checked on construction: `InputError` names the field.

    max_tokens: most tokens to generate, at least 1; the end token counts.
    temperature: 0 is greedy; otherwise the logits are divided by it.
    top_k: keep the k likeliest tokens; 0 keeps all.
    top_p: keep the smallest set of likeliest tokens whose probability reaches top_p (arXiv:1904.09751).
    min_p: keep tokens at least min_p times as probable as the likeliest (arXiv:2407.01082).
    repetition_penalty: divides positive and multiplies negative logits of every token of the prompt and of
        the output so far (arXiv:1909.05858); 1 is off.
    presence_penalty, frequency_penalty: subtracted from a token's logit once if it is in the output so far,
        and once for each time it is there; the prompt doesn't count.
    seed: equal seeds give equal texts; None takes fresh entropy for every generation.
    stop: texts that end the generation and are not part of the result.
    end_ids: tokens that end the generation, beside the tokenizer's own.
    ignore_end: end tokens don't end the generation.
    """

    max_tokens: int = 256
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    end_ids: frozenset[int] = frozenset()
    ignore_end: bool = False

    def __post_init__(self) -> None:
        self._require("max_tokens", _is_int(self.max_tokens, 1), "an integer of at least 1")
        # Below 1e-4 sampling is greedy in all but name, and float32 is not far from overflowing.
        warm = _is_real(self.temperature, 1e-4, 1e4)
        self._require(
            "temperature", warm or _is_real(self.temperature, 0, 0), "0 (greedy) or 0.0001 to 10000"
        )
        self._require("top_k", _is_int(self.top_k, 0), "an integer of at least 0 (0 keeps all)")
        self._require("top_p", _is_real(self.top_p, 0, 1) and self.top_p > 0, "above 0 and at most 1")
        self._require("min_p", _is_real(self.min_p, 0, 1), "from 0 to 1")
        self._require("repetition_penalty", _is_real(self.repetition_penalty, 0.01, 100), "from 0.01 to 100")
        self._require("presence_penalty", _is_real(self.presence_penalty, -2, 2), "from -2 to 2")
        self._require("frequency_penalty", _is_real(self.frequency_penalty, -2, 2), "from -2 to 2")
        seeded = self.seed is None or _is_int(self.seed, -(2**63), 2**63 - 1)
        self._require("seed", seeded, "None or a signed 64-bit integer")
        texts = isinstance(self.stop, tuple) and all(isinstance(text, str) and text for text in self.stop)
        self._require("stop", texts, "a tuple of texts, none of them empty")
        ids = isinstance(self.end_ids, frozenset) and all(_is_int(token, 0) for token in self.end_ids)
        self._require("end_ids", ids, "a frozenset of token ids")
        self._require("ignore_end", isinstance(self.ignore_end, bool), "True or False")

    def _require(self, field: str, holds: bool, allowed: str) -> None:
        if not holds:
            raise InputError(f"{field} is {getattr(self, field)!r}, but must be {allowed}.")


def _is_int(value: Any, low: int, high: float = math.inf) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _is_real(value: Any, low: float, high: float) -> bool:
    """NaN compares false with everything, so it is refused too."""
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
