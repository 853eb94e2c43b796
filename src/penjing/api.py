"""The verbs from Python: `load`, `shrink`, `compare`, and the `Model` that they pass around."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from penjing.engine.generate import Completion, Piece, complete, generate
from penjing.engine.params import SamplingParams
from penjing.errors import InputError, UnsupportedError
from penjing.formats.checkpoint import Checkpoint
from penjing.formats.json_file import read_json
from penjing.memory import leaves_room, require_memory
from penjing.model.bridge.loading import load_bridged
from penjing.model.bridge.module import BridgedModel
from penjing.model.bridge.plan import BridgedPlan
from penjing.model.decoder import Decoder
from penjing.model.gguf_saving import save_gguf
from penjing.model.language_model import LanguageModel
from penjing.model.ledger import Ledger, base_bytes, least_load_bytes, load_bytes, plan_ledger
from penjing.model.linear import keep_float
from penjing.model.loading import Progress, load_decoder
from penjing.model.opening import OpenedModel, open_model
from penjing.model.plan import Plan
from penjing.model.quantized_cache import CACHE_SPECS, CacheSpec
from penjing.model.saving import module_ledger, save_folder, storage_dtypes
from penjing.model.through_cache import ThroughCache
from penjing.text.gguf_metadata import tokenizer_metadata
from penjing.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from penjing.evaluate.result import EvalResult

Messages = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Model:
    """A loaded language model with its tokenizer and what is needed to save it again.

    `stored` is the ledger of the files it came from; `dtypes` says how each float tensor is stored when it is
    saved; `notices` are oddities found on the way, a sentence each; `gguf_metadata` is what a GGUF file said
    beside the architecture; `kv_cache` says how keys and values are rounded (None: not at all).
    """

    name: str
    module: Decoder | BridgedModel
    tokenizer: Tokenizer
    hf_config: Mapping[str, Any]
    generation_config: Mapping[str, Any]
    dtypes: Mapping[str, torch.dtype]
    stored: Ledger
    notices: tuple[str, ...] = ()
    gguf_metadata: Mapping[str, Any] | None = None
    kv_cache: CacheSpec | None = None

    @property
    def config(self):
        """The `ModelConfig`, or what is known of a model that runs through transformers."""
        return self.module.config

    @property
    def decoder(self) -> Decoder:
        """The module, where it is penjing's own decoder; any other is an `UnsupportedError`."""
        if isinstance(self.module, BridgedModel):
            raise UnsupportedError(
                f"{self.name} has no family here and runs through transformers, which this can't be done with"
            )
        return self.module

    @property
    def reader(self) -> LanguageModel:
        """The module as generation and evaluation run it: through a quantised cache, if one was asked for."""
        return self.module if self.kv_cache is None else ThroughCache(self.decoder, self.kv_cache)

    def with_kv_cache(self, name: str) -> Model:
        """The same model with keys and values in a cache of "int8" or "int4"; "float" is the usual one.
        Raises `InputError` for another name, `UnsupportedError` for a model that runs through
        transformers."""
        if name != "float" and name not in CACHE_SPECS:
            raise InputError(f"there is no cache called {name!r}; choose float, {', '.join(CACHE_SPECS)}")
        changed = replace(self, kv_cache=CACHE_SPECS.get(name))
        assert changed.reader is not None
        return changed

    @property
    def base_bytes(self) -> int:
        """Bytes that a shrunk version is held against: as stored, or at 16 bits if it was quantised
        already."""
        return base_bytes(self.stored)

    @cached_property
    def ledger(self) -> Ledger:
        """Parameters and bytes as `save` will write them."""
        return module_ledger(self.module, self.dtypes)

    @property
    def can_chat(self) -> bool:
        """Whether the model has a chat template; a base model only completes text."""
        return self.tokenizer.chat_template is not None

    def generate(self, prompt: str, params: SamplingParams | None = None) -> Completion:
        """Continue raw text."""
        ids = self.tokenizer.prompt_ids(prompt)
        return complete(self.reader, self.tokenizer, ids, params or SamplingParams(), continues=True)

    def chat(self, messages: Messages, params: SamplingParams | None = None) -> Completion:
        """Answer a conversation; raises `InputError` for a model without a chat template."""
        return complete(
            self.reader, self.tokenizer, self.tokenizer.chat_ids(messages), params or SamplingParams()
        )

    def stream(self, prompt_ids: Sequence[int], params: SamplingParams | None = None) -> Iterator[Piece]:
        """The answer to token ids, piece by piece."""
        return generate(self.reader, self.tokenizer, prompt_ids, params or SamplingParams())

    def keep_float(self, keep: bool = True) -> None:
        """Hold packed weights unpacked as well: four bytes a weight, several times the decoding speed."""
        keep_float(self.module, keep)

    def cast(self, dtype: torch.dtype) -> Model:
        """The same model, to be saved in `dtype`; only the saved bytes differ. Packed weights stay packed."""
        if dtype not in (torch.float32, torch.bfloat16, torch.float16):
            raise InputError(f"models are saved in float32, bfloat16 or float16, not {dtype}")
        return replace(self, dtypes=dict.fromkeys(self.dtypes, dtype))

    def save(self, out: str | Path, write_extras=None) -> int:
        """Write a Hugging Face folder, whole or not at all; returns the bytes of its tensors.

        `write_extras(folder)` may add files before the folder is put in place.
        """

        def extras(folder: Path) -> None:
            self.tokenizer.save(folder)
            if write_extras is not None:
                write_extras(folder)

        return save_folder(
            Path(out), self.module, self.dtypes, self.hf_config, self.generation_config, extras
        )

    def save_gguf(self, out: str | Path) -> int:
        """Write a GGUF file, whole or not at all; returns the bytes of its tensors. Packed weights are
        unpacked, vectors are float32. Raises `UnsupportedError` for what GGUF can't hold."""
        if isinstance(self.module, BridgedModel):
            raise UnsupportedError(
                f"{self.name} has no family here, so it isn't known what a GGUF file would call its parts;"
                " save a Hugging Face folder (--as hf)"
            )
        metadata = self.gguf_metadata or {
            "general.name": Path(self.name).name,
            **tokenizer_metadata(self.tokenizer, self.config.vocab_size),
        }
        return save_gguf(Path(out), self.module, self.dtypes, self.hf_config["model_type"], metadata)


def load(
    ref: str | Path | OpenedModel, progress: Progress | None = None, hold_stored: bool | None = None
) -> Model:
    """Open a Hugging Face folder, a GGUF file, a folder that penjing wrote, or a hub id such as "org/name",
    "org/name@revision" or "org/name/file.gguf", and read its weights.

    Weights are computed with in float32; packed ones stay packed. `progress` is told how much is done, and of
    how much: first bytes, if any are fetched from the hub, then tensors. With `hold_stored` float matrices
    stay in the file as well, mapped, and are unpacked each time they are used, which is slower; None: where
    they would take more than half of the free memory. What runs through transformers can't be held so.
    Raises `InputError` or `UnsupportedError` for what can't be opened, `ResourceError` when it wouldn't fit
    on the disk or in memory; nothing is loaded then.
    """
    opened = ref if isinstance(ref, OpenedModel) else open_model(ref, progress)
    plan, tokenizer, notices = opened.plan, opened.tokenizer, opened.notices
    as_floats = load_bytes(plan)
    if isinstance(plan, BridgedPlan):
        if hold_stored:
            raise UnsupportedError(f"{opened.name} has no family here, so its weights can't stay in the file")
        hold_stored = False
    if hold_stored is None:
        hold_stored = not leaves_room(as_floats)
        if hold_stored:
            notices += (_held_notice(opened.name, as_floats),)
    need = least_load_bytes(plan) if hold_stored else as_floats
    require_memory(need, f"loading {opened.name}", "close other programs or use a smaller model")
    if isinstance(plan, BridgedPlan):
        module, found = load_bridged(plan, progress)
        notices += found
    else:
        module = load_decoder(plan, progress, hold_stored)
    return Model(
        name=opened.name,
        module=module,
        tokenizer=tokenizer,
        hf_config=plan.hf_config,
        generation_config=_generation_config(plan, tokenizer),
        dtypes=storage_dtypes(plan),
        stored=plan_ledger(plan),
        notices=notices,
        gguf_metadata=_gguf_metadata(plan.checkpoint),
    )


def compare(
    original: Model | str | Path,
    shrunk: Model | str | Path,
    texts: Mapping[str, Sequence[str]],
    **options: Any,
) -> EvalResult:
    """What `shrunk` kept of `original` on `texts` (documents by name); options as `evaluate.compare` takes
    them."""
    from penjing.evaluate import compare as measure

    first, second = (m if isinstance(m, Model) else load(m) for m in (original, shrunk))
    if not first.tokenizer.same_ids(second.tokenizer):
        raise InputError(
            f"{first.name} and {second.name} have different tokenizers, so they can't be compared"
        )
    return measure.compare(
        first.module, second.module, first.tokenizer, texts, name=second.name, against=first.name, **options
    )


def _held_notice(name: str, as_floats: int) -> str:
    return (
        f"{name} would take {as_floats / 1e6:,.0f} MB in float32, more than half of the memory that is free,"
        " so its weights stay in the file and are unpacked each time they are used, which is slower"
    )


def _gguf_metadata(checkpoint: Checkpoint) -> dict[str, Any] | None:
    """What a GGUF file says of the model and its tokenizer, less what describes this one file."""
    if checkpoint.kind != "gguf":
        return None
    of_the_file = ("general.architecture", "general.file_type", "general.alignment", "general.quantization")
    return {
        key: value
        for key, value in checkpoint.config.items()
        if key.startswith(("general.", "tokenizer.")) and not key.startswith(of_the_file)
    }


def _generation_config(plan: Plan, tokenizer: Tokenizer) -> dict[str, Any]:
    """The file that came with the model, with every end id that was found anywhere."""
    path = plan.checkpoint.path / "generation_config.json"
    found = dict(read_json(path)) if plan.checkpoint.kind == "hf" and path.exists() else {}
    if tokenizer.end_ids:
        found["eos_token_id"] = sorted(tokenizer.end_ids)
    if tokenizer.bos_id is not None:
        found.setdefault("bos_token_id", tokenizer.bos_id)
    return found
