"""How evaluation runs a model: one passage at a time, logits a few positions at a time and never whole.

Shapes: B rows, L tokens, T predicted positions, D hidden_size, V compared vocabulary.
"""

import itertools
from collections.abc import Iterator, Sequence

import torch

from penjing.errors import InputError, PenjingError
from penjing.model.language_model import LanguageModel

# One slice of float32 logits; a comparison holds about six arrays of this size at a time.
SLICE_BYTES = 16 * 2**20


def device_of(model: LanguageModel) -> torch.device:
    """Where the model's inputs belong: the device of its first tensor."""
    return next(itertools.chain(model.parameters(), model.buffers())).device


def position_slices(positions: int, vocab: int) -> Iterator[slice]:
    """Cut 0..positions so that the float32 logits of one part fill at most `SLICE_BYTES` (or one
    position)."""
    step = max(1, SLICE_BYTES // (4 * vocab))
    for start in range(0, positions, step):
        yield slice(start, min(start + step, positions))


def check_ids(ids: Sequence[int], vocab: int, where: str) -> None:
    """A passage needs a token to predict and ids that the model knows; otherwise an `InputError`."""
    if len(ids) < 2:
        raise InputError(f"{where} has {len(ids)} tokens; at least 2 are needed to predict one from another")
    if not 0 <= min(ids) <= max(ids) < vocab:
        wrong = min(ids) if min(ids) < 0 else max(ids)
        raise InputError(
            f"{where} holds token id {wrong}, outside the model's vocabulary of {vocab};"
            " use the tokenizer that belongs to this model"
        )


def hidden_states(model: LanguageModel, ids: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Hidden states (T, D) that predict tokens 1..T of a passage, and those tokens (T,), T = len(ids) - 1."""
    ids_L = torch.tensor(ids, dtype=torch.int64, device=device_of(model))
    positions_BL = torch.arange(len(ids) - 1, device=ids_L.device).unsqueeze(0)
    x_BTD = model.hidden(ids_L[:-1].unsqueeze(0), positions_BL)
    return x_BTD[0], ids_L[1:]


def log_probabilities(
    model: LanguageModel, x_TD: torch.Tensor, vocab: int, who: str, where: str
) -> torch.Tensor:
    """Float32 log-probabilities (T, V) over the first `vocab` ids.

    Logits that aren't finite are a `PenjingError` that names the model and the passage: a result is never
    NaN.
    """
    logits_TV = model.head(x_TD)[..., :vocab].float()
    low, high = logits_TV.aminmax()
    if not (low.isfinite() and high.isfinite()):
        raise PenjingError(
            f"{who} gives logits that aren't finite on {where}; its weights or its dtype are broken:"
            " check the checkpoint, or load it in bfloat16 or float32"
        )
    return logits_TV.log_softmax(-1)


def token_log_probabilities(logp_TV: torch.Tensor, targets_T: torch.Tensor) -> torch.Tensor:
    """The log-probability (T,) of each target token."""
    return logp_TV.gather(-1, targets_T.unsqueeze(-1)).squeeze(-1)


def divergence(logp_TV: torch.Tensor, logq_TV: torch.Tensor) -> torch.Tensor:
    """KL(p || q) per position (T,), in nats.

    The sums of p and of q, both 1 but for rounding, are kept in: errors in the normalisation then enter only
    squared, so a KL of 1e-6 is still seen in float32, and equal inputs give exactly 0.
    """
    p_TV, q_TV = logp_TV.exp(), logq_TV.exp()
    return ((logp_TV - logq_TV).mul_(p_TV).sub_(p_TV).add_(q_TV)).sum(-1)


def total(values: torch.Tensor) -> float:
    """The sum in float64; moved first, since not every accelerator has that type."""
    return float(values.cpu().double().sum())
