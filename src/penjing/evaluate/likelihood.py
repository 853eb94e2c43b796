"""Likelihood of a passage under one model, and how far a second model is from the first on it."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from penjing.errors import InputError
from penjing.evaluate.forward import (
    check_ids,
    divergence,
    hidden_states,
    log_probabilities,
    position_slices,
    token_log_probabilities,
    total,
)
from penjing.model.language_model import LanguageModel


@dataclass(frozen=True)
class PassageScore:
    """Sums over a passage: predicted `tokens` (all but the first) and their negative log-likelihood in
    nats."""

    tokens: int
    nll: float


@dataclass(frozen=True)
class PairScore:
    """Sums over a passage's predicted `tokens`, both models seeing the same ids.

    `kl` is KL(original || shrunk) in nats; `agree` counts the positions with the same most likely token.
    """

    tokens: int
    nll_original: float
    nll_shrunk: float
    kl: float
    agree: int


@torch.inference_mode()
def score_passage(
    model: LanguageModel, ids: Sequence[int], *, who: str = "the model", where: str = "the passage"
) -> PassageScore:
    """Negative log-likelihood of `ids` after the first, over the model's whole vocabulary.

    `who` and `where` name the model and the passage in errors: an `InputError` for ids that don't fit, a
    `PenjingError` for logits that aren't finite.
    """
    vocab = model.config.vocab_size
    check_ids(ids, vocab, where)
    x_TD, targets_T = hidden_states(model, ids)
    nll = 0.0
    for part in position_slices(len(targets_T), vocab):
        logp_TV = log_probabilities(model, x_TD[part], vocab, who, where)
        nll -= total(token_log_probabilities(logp_TV, targets_T[part]))
    return PassageScore(len(targets_T), nll)


@torch.inference_mode()
def score_pair(
    original: LanguageModel,
    shrunk: LanguageModel,
    ids: Sequence[int],
    *,
    vocab: int | None = None,
    where: str = "the passage",
) -> PairScore:
    """Compare two models on the same `ids`, over the first `vocab` token ids (default: all of them).

    Vocabularies of different size are refused unless `vocab` says how many ids are shared;
    `shared_vocabulary` finds that out. Other errors are as in `score_passage`.
    """
    if vocab is None:
        vocab = _same_vocabulary(original, shrunk)
    check_ids(ids, vocab, where)
    x_TD, targets_T = hidden_states(original, ids)
    y_TD, _ = hidden_states(shrunk, ids)
    nll_original = nll_shrunk = kl = 0.0
    agree = 0
    for part in position_slices(len(targets_T), vocab):
        logp_TV = log_probabilities(original, x_TD[part], vocab, "the original", where)
        logq_TV = log_probabilities(shrunk, y_TD[part], vocab, "the shrunk model", where).to(logp_TV.device)
        nll_original -= total(token_log_probabilities(logp_TV, targets_T[part]))
        nll_shrunk -= total(token_log_probabilities(logq_TV, targets_T[part]))
        kl += total(divergence(logp_TV, logq_TV))
        agree += int((logp_TV.argmax(-1) == logq_TV.argmax(-1)).sum())
    return PairScore(len(targets_T), nll_original, nll_shrunk, kl, agree)


def _same_vocabulary(original: LanguageModel, shrunk: LanguageModel) -> int:
    first, second = original.config.vocab_size, shrunk.config.vocab_size
    if first != second:
        raise InputError(
            f"the original has {first} token ids and the shrunk model {second};"
            " say how many both share, or compare models with the same tokenizer"
        )
    return first
