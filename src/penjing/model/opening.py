"""Everything that can be said of a model, or against it, before its weights are read; needs no torch."""

from dataclasses import dataclass, replace
from pathlib import Path

from penjing.errors import InputError
from penjing.formats.checkpoint import Checkpoint
from penjing.formats.locate import Located, Progress, bring, find
from penjing.formats.open import open_checkpoint
from penjing.model.bridge.plan import BridgedPlan, needs_bridge, plan_bridged
from penjing.model.plan import LoadPlan, Plan, plan_load
from penjing.model.text_part import text_part
from penjing.text.load import load_tokenizer
from penjing.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class OpenedModel:
    """A checkpoint that was found right, with its tokenizer; `name` is how the user called it, and `fetched`
    says what came from the hub, a sentence each."""

    name: str
    plan: LoadPlan | BridgedPlan
    tokenizer: Tokenizer
    fetched: tuple[str, ...] = ()

    @property
    def notices(self) -> tuple[str, ...]:
        """Oddities found on the way, a sentence each."""
        return (*self.fetched, *self.plan.notices, *self.tokenizer.notices)


def open_model(ref: str | Path | Located, progress: Progress | None = None) -> OpenedModel:
    """Open a Hugging Face folder, a GGUF file, a folder that penjing wrote, or what a hub id names, and check
    all of it but the values of its weights. An architecture without a family is opened through transformers.
    `progress` is told of bytes that are fetched from the hub: of nothing that can be refused by its headers.
    Raises `InputError` or `UnsupportedError`, and `ResourceError` if the disk has no room for what is
    fetched."""
    return open_located(bring_model(ref if isinstance(ref, Located) else find(ref), progress))


def bring_model(located: Located, progress: Progress | None = None) -> Located:
    """The same model with all of it on this machine; of what is still on the hub the headers are judged
    first, there."""
    if located.elsewhere:
        open_located(located)
    return bring(located, progress)


def open_located(located: Located) -> OpenedModel:
    """Open and check the model where it lies, on the hub as well: to be shown, but not to be loaded."""
    plan = _plan(open_checkpoint(located.path, located.elsewhere))
    tokenizer = load_tokenizer(plan.checkpoint)
    notices = _compare_vocabularies(tokenizer, plan)
    return OpenedModel(
        located.name, replace(plan, notices=(*plan.notices, *notices)), tokenizer, located.notices
    )


def _plan(checkpoint: Checkpoint) -> LoadPlan | BridgedPlan:
    """By the model's family, and through transformers if it has none."""
    checkpoint = text_part(checkpoint)
    return plan_bridged(checkpoint) if needs_bridge(checkpoint) else plan_load(checkpoint)


def _compare_vocabularies(tokenizer: Tokenizer, plan: Plan) -> tuple[str, ...]:
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
