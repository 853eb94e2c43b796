"""The token passages that statistics are taken from."""

from collections.abc import Sequence

import torch

from penjing.api import Model
from penjing.errors import InputError
from penjing.shrink.effort import Effort

_CHAT_EVERY = 4  # of so many documents one is put into the chat format, for a model that has one


def calibration_ids(
    model: Model, documents: Sequence[str], effort: Effort, generator: torch.Generator
) -> tuple[torch.Tensor, tuple[str, ...]]:
    """Passages (N, L) of int64 ids: documents in random order, one after another, each begun as the tokenizer
    begins a text. A chat model sees some of them as conversations, so that its control tokens count too.

    Where the text is short, fewer passages than asked for are used and a notice says so; none is an
    `InputError`.
    """
    length = min(effort.passage_tokens, model.config.max_position_embeddings)
    wanted, ids = effort.calibration_passages * length, []
    order: list[int] = torch.randperm(len(documents), generator=generator).tolist()
    for turn, i in enumerate(order):
        as_chat = model.can_chat and turn % _CHAT_EVERY == 0
        ids += _chat(model, documents[i]) if as_chat else model.tokenizer.prompt_ids(documents[i])
        if len(ids) >= wanted:
            break
    passages = min(len(ids) // length, effort.calibration_passages)
    if passages == 0:
        raise InputError(f"the text to tune on has {len(ids)} tokens; at least {length} are needed")
    ids_NL = torch.tensor(ids[: passages * length], dtype=torch.int64).view(passages, length)
    if passages == effort.calibration_passages:
        return ids_NL, ()
    return ids_NL, (
        f"the text to tune on gives {passages} passages of {length} tokens, not"
        f" {effort.calibration_passages}",
    )


def _chat(model: Model, document: str) -> list[int]:
    """The document as one question, its first line, and the answer, which is the rest."""
    question, _, answer = document.strip().partition("\n")
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer.strip()}]
    return model.tokenizer.chat_ids(messages, add_generation_prompt=False)
