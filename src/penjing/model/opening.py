"""Everything that can be said of a model, or against it, before its weights are read; needs no torch."""

from dataclasses import dataclass, replace
from pathlib import Path

from penjing.errors import InputError
from penjing.formats.open import open_checkpoint
from penjing.model.plan import LoadPlan, plan_load
from penjing.text.load import load_tokenizer
from penjing.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class OpenedModel:
    """A checkpoint that was found right, with its tokenizer; `name` is how the user called it."""

    name: str
    plan: LoadPlan
    tokenizer: Tokenizer

    @property
    def notices(self) -> tuple[str, ...]:
        """Oddities found on the way, a sentence each."""
        return (*self.plan.notices, *self.tokenizer.notices)


def open_model(ref: str | Path) -> OpenedModel:
    """Open a Hugging Face folder, a GGUF file, or a folder that penjing wrote, and check all of it but the
    values of its weights. Raises `InputError` or `UnsupportedError`."""
    plan = plan_load(open_checkpoint(ref))
    tokenizer = load_tokenizer(plan.checkpoint)
    notices = _compare_vocabularies(tokenizer, plan)
    return OpenedModel(str(ref), replace(plan, notices=(*plan.notices, *notices)), tokenizer)


def _compare_vocabularies(tokenizer: Tokenizer, plan: LoadPlan) -> tuple[str, ...]:
    """A tokenizer may have a few added tokens, which the model has never seen, beyond the embedding's rows:
    Gemma 3's smallest has one for images. Refuses any other token there."""
    rows = plan.config.vocab_size
    if tokenizer.vocab_size <= rows:
        return ()
    beyond = {id: text for text, id in tokenizer.backend.get_vocab().items() if id >= rows}
    if not beyond.keys() <= tokenizer.backend.get_added_tokens_decoder().keys():
        raise InputError(
            f"{plan.checkpoint.path}: the tokenizer has {tokenizer.vocab_size} tokens, but the embedding"
            f" has only {rows} rows; one of them belongs to another model"
        )
    names = ", ".join(sorted(beyond.values())[:8])
    return (
        f"the model has no row for {len(beyond)} of the tokenizer's added tokens ({names}): don't use them",
    )
