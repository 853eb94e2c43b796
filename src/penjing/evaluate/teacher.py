"""The original's likeliest tokens, kept from one pass, so that many candidates can be compared without it.

For search only: a reported KL is always taken over the full vocabulary by `score_pair`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from penjing.errors import InputError
from penjing.evaluate.forward import (
    LanguageModel,
    check_ids,
    divergence,
    hidden_states,
    log_probabilities,
    position_slices,
    total,
)

TOP = 512


@dataclass(frozen=True)
class TopPassage:
    """One passage: the k likeliest ids (T, k) int32, their log-probabilities (T, k) float16, and the
    log-probability (T, 1) float16 of all other ids together."""

    ids: tuple[int, ...]
    top: torch.Tensor
    logp: torch.Tensor
    tail: torch.Tensor


@dataclass(frozen=True)
class TeacherTop:
    """What is kept of the original: 6 k + 2 bytes a token (3 kB at k = 512), in ordinary memory."""

    vocab: int
    passages: tuple[TopPassage, ...]

    @property
    def nbytes(self) -> int:
        return sum(p.top.nbytes + p.logp.nbytes + p.tail.nbytes for p in self.passages)


@torch.inference_mode()
def teacher_top(
    original: LanguageModel, passages: Sequence[Sequence[int]], *, k: int = TOP, vocab: int | None = None
) -> TeacherTop:
    """Run the original once over `passages` and keep its `k` likeliest tokens at each position.

    The other ids form one bucket; k is at most `vocab` - 1, so that the bucket is never empty.
    """
    vocab = original.config.vocab_size if vocab is None else vocab
    if not passages:
        raise InputError("there is no passage to compare on; give more text")
    k = min(k, vocab - 1)
    return TeacherTop(vocab, tuple(_top_passage(original, tuple(ids), k, vocab) for ids in passages))


def _top_passage(original: LanguageModel, ids: tuple[int, ...], k: int, vocab: int) -> TopPassage:
    check_ids(ids, vocab, "a search passage")
    x_TD, targets_T = hidden_states(original, ids)
    top_TK = torch.empty(len(targets_T), k, dtype=torch.int32)
    logp_TK = torch.empty(len(targets_T), k, dtype=torch.float16)
    tail_T1 = torch.empty(len(targets_T), 1, dtype=torch.float16)
    for part in position_slices(len(targets_T), vocab):
        logp_TV = log_probabilities(original, x_TD[part], vocab, "the original", "a search passage")
        index_TK = logp_TV.topk(k, sorted=False).indices
        top_TK[part] = index_TK.to(device="cpu", dtype=torch.int32)
        buckets = _buckets(logp_TV, index_TK)
        logp_TK[part], tail_T1[part] = buckets[:, :k].cpu().half(), buckets[:, k:].cpu().half()
    return TopPassage(ids, top_TK, logp_TK, tail_T1)


@torch.inference_mode()
def kl_from_top(teacher: TeacherTop, model: LanguageModel) -> float:
    """Mean nats a token of KL(original || model) over the kept tokens and one bucket for the rest.

    Never above the KL over the full vocabulary, but for the float16 rounding (about 1e-6 nats).
    """
    kl, tokens = 0.0, 0
    for passage in teacher.passages:
        x_TD, targets_T = hidden_states(model, passage.ids)
        for part in position_slices(len(targets_T), teacher.vocab):
            logq_TV = log_probabilities(model, x_TD[part], teacher.vocab, "the candidate", "a search passage")
            logq = _buckets(logq_TV, passage.top[part].to(device=logq_TV.device, dtype=torch.int64))
            logp = torch.cat([passage.logp[part], passage.tail[part]], dim=-1).float()
            kl += total(divergence(logp.to(logq.device), logq))
        tokens += len(targets_T)
    return kl / tokens


def _buckets(logp_TV: torch.Tensor, index_TK: torch.Tensor) -> torch.Tensor:
    """Log-probabilities (T, k + 1) of the indexed ids and, last, of all others; `logp_TV` is used up."""
    top_TK = logp_TV.gather(-1, index_TK)
    tail_T1 = logp_TV.scatter_(-1, index_TK, float("-inf")).logsumexp(-1, keepdim=True)
    return torch.cat([top_TK, tail_T1], dim=-1)
