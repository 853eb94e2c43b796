"""Everything that can be said of a model, or against it, before its weights are read; needs no torch."""

from dataclasses import dataclass
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
    if tokenizer.vocab_size > plan.config.vocab_size:
        raise InputError(
            f"{plan.checkpoint.path}: the tokenizer has {tokenizer.vocab_size} tokens, but the embedding"
            f" has only {plan.config.vocab_size} rows; one of them belongs to another model"
        )
    return OpenedModel(str(ref), plan, tokenizer)
